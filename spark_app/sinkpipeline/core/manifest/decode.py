"""How records are decoded and transformed: `spec.decode`, `spec.transform` and `transform` of a sink.

Decides only the shape. Whether a schema or an expression means something is Spark's to say, before the first batch.
"""

import enum
from typing import Any

from pydantic import ConfigDict, Field, model_validator
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
    """json: one JSON object that fits `schema`; raw: key and value are delivered as bytes."""
    schema_ddl: SchemaText | None = Field(default=None, alias="schema")
    """A Spark DDL schema such as `id BIGINT NOT NULL, amount DOUBLE`: required for json, refused for raw. At most 65536
    bytes."""
    on_null: OnNull = Field(default_factory=_on_null_of)
    """What a null value (a tombstone) is: DeadLetter, a record that can't be decoded (the default for json);
    PassThrough, delivered as null (the default for raw)."""

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

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    key: Expression | None = None
    """The key, STRING or BINARY; left out, the source record's."""
    value: Expression | None = None
    """The value, STRING or BINARY; left out, the source record's."""
    headers: Expression | None = None
    """The headers, MAP<STRING, STRING or BINARY> or ARRAY<STRUCT<key, value>>; left out, the source record's."""
    timestamp: Expression | None = None
    """The timestamp, TIMESTAMP or BIGINT milliseconds; left out or null, the source record's."""
    partition: Expression | None = None
    """The partition, INT; left out or null, the partitioner decides."""

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if self == Select.model_construct():
            refuse("give key, value, headers, timestamp or partition, or leave select out", "is empty")
        return self


class Transform(Part):
    """One row in, at most one row out, for all sinks that have no transform of their own."""

    where: Expression | None = None
    """A Spark SQL condition; records for which it is not true are not delivered. At most 16384 bytes."""
    select: Select | None = None
    """Spark SQL expressions for the parts of the delivered record; what is left out stays as it was read."""


class SinkTransform(Part):
    """One row in, at most one row out, for one sink: what it gives stands in place of the pipeline's."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    where: Expression | None = None
    """A Spark SQL condition in place of spec.transform.where ("true" for all records). At most 16384 bytes."""
    select: Select | None = None
    """Spark SQL expressions in place of all of spec.transform.select; what is left out stays as it was read."""

    @model_validator(mode="after")
    def _transforms_something(self) -> Self:
        if self == SinkTransform.model_construct():
            refuse("give where or select, or leave transform out", "is empty")
        return self
