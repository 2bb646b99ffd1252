"""How records are decoded and transformed: `spec.decode` and `spec.transform`.

Decides only the shape. Whether a schema or an expression means something is Spark's to say, before the first batch.
"""

import enum
from typing import Any

from pydantic import Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.names import Expression, SchemaText
from sinkpipeline.core.manifest.problems import refuse


class DecodeFormat(str, enum.Enum):
    JSON = "json"
    RAW = "raw"


class OnNull(str, enum.Enum):
    """What a tombstone is: a record that can't be decoded, or a value like any other."""

    DEAD_LETTER = "DeadLetter"
    PASS_THROUGH = "PassThrough"  # noqa: S105 - no password


def _on_null_of(data: dict[str, Any]) -> OnNull:
    # A raw record is delivered as it is, and null is what it is.
    return OnNull.PASS_THROUGH if data.get("format") is DecodeFormat.RAW else OnNull.DEAD_LETTER


class Decode(Part):
    """How the value of a record is decoded."""

    format: DecodeFormat
    schema_ddl: SchemaText | None = Field(default=None, alias="schema")
    """A Spark DDL string; set for json, None for raw."""
    on_null: OnNull = Field(default_factory=_on_null_of)

    @model_validator(mode="after")
    def _schema_fits_format(self) -> Self:
        if self.format is DecodeFormat.JSON and self.schema_ddl is None:
            refuse(
                'give a Spark DDL schema such as "id BIGINT NOT NULL, amount DOUBLE"',
                "is missing, and format json needs it",
                ("schema",),
            )
        if self.format is DecodeFormat.RAW and self.schema_ddl is not None:
            refuse("remove it, or use format json", "has no meaning for format raw", ("schema",))
        return self


class Select(Part):
    """Spark SQL expressions for the parts of the delivered record; None leaves that part as it is."""

    key: Expression | None = None
    value: Expression | None = None
    headers: Expression | None = None
    timestamp: Expression | None = None
    partition: Expression | None = None

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self == Select.model_construct():
            refuse("give key, value, headers, timestamp or partition, or leave select out", "is empty")
        return self


class Transform(Part):
    """One row in, at most one row out, for all sinks."""

    where: Expression | None = None
    select: Select | None = None
