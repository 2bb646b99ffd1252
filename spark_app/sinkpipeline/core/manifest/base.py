"""The base of every part of the manifest: immutable, hashable, strict, closed to unknown fields."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse

INT32_MAX = 2**31 - 1


class Part(BaseModel):
    """One mapping of the manifest.

    The docstring of a field is what `kubectl explain` shows of it, so it is written for who writes a manifest.
    """

    # hide_input_in_errors: should a ValidationError ever escape, it must not carry values into a log.
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


class StringMap(Mapping[str, str]):
    """An immutable, hashable mapping of text to text.

    Its repr shows keys only: what people put into free-form options is not ours to log.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(sorted((values or {}).items()))

    @override
    def __getitem__(self, key: str) -> str:
        return self._values[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    @override
    def __repr__(self) -> str:
        return f"StringMap({', '.join(self._values)})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(strict=True)
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.dict_schema(text, text),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


@dataclass(frozen=True)
class Bounds:
    """How large a `StringMap` may be; the schema of the resource has the same bounds."""

    entries: int
    characters: int
    """Of each value."""
    value: str | None = None
    """The pattern of each value as a whole, where it has one; who uses it says what is right."""

    def _check(self, values: StringMap) -> StringMap:
        if len(values) > self.entries:
            refuse(f"give at most {self.entries}", f"has {len(values)} entries")
        faults = [
            Fault(f"use at most {self.characters} characters", "is too long", (key,))
            for key, value in values.items()
            if len(value) > self.characters
        ]
        if faults:
            raise fault_error(faults)
        return values

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        values: dict[str, Any] = {"type": "string", "maxLength": self.characters}
        if self.value is not None:
            values |= {"minLength": 1, "pattern": f"^({self.value})$"}
        return {**handler(schema), "maxProperties": self.entries, "additionalProperties": values}


class JsonObject:
    """An immutable, hashable mapping of any JSON values. Its repr shows nothing: the values are not ours to log."""

    __slots__ = ("_text",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """A copy that is the caller's."""
        return dict(json.loads(self._text))

    @property
    def size(self) -> int:
        """Bytes of the shortest JSON."""
        return len(self._text.encode())

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonObject) and other._text == self._text

    @override
    def __hash__(self) -> int:
        return hash(self._text)

    @override
    def __repr__(self) -> str:
        return f"JsonObject({self.size} bytes)"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.dict_schema(core_schema.str_schema(strict=True), core_schema.any_schema()),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_dict),
        )
