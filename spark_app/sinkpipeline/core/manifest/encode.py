"""How a part of a row is written with a schema of a registry: `encode` of a sink."""

import enum
from collections.abc import Iterator
from typing import Literal

from pydantic import ConfigDict, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.problems import refuse
from sinkpipeline.core.manifest.registry import RegistrySubject

EncodedPart = Literal["key", "value"]


class EncodeFormat(str, enum.Enum):
    AVRO = "avro"
    JSON = "json"


class EncodeRegistry(RegistrySubject):
    """Where the schema of what is written is."""

    auto_register: bool = True
    """Whether the schema of the STRUCT is registered where the subject doesn't have it. Where it isn't, the subject's
    latest version is the schema, which the STRUCT has to fit."""


class Encoding(Part):
    """A STRUCT becomes a frame with the id of a schema, and what that schema is for."""

    format: EncodeFormat
    """avro or json."""
    schema_registry: EncodeRegistry
    """Where its schema is, or is registered when the sink starts."""


class Encode(Part):
    """Which parts are encoded; each is a STRUCT in select."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    key: Encoding | None = None
    """The key: what select.key gives."""
    value: Encoding | None = None
    """The value: what select.value gives."""

    @model_validator(mode="after")
    def _encodes_something(self) -> Self:
        if self.key is None and self.value is None:
            refuse("give key or value, or leave encode out", "is empty")
        return self

    def parts(self) -> Iterator[tuple[EncodedPart, Encoding]]:
        if self.key is not None:
            yield "key", self.key
        if self.value is not None:
            yield "value", self.value
