"""Columns of `decode.schema` that no value of Debezium's is converted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sinkpipeline.spark.expressions import SCHEMA_PATH, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


def row_problems(row: StructType) -> Iterator[Problem]:
    """Columns of `decode.schema` that no kind is converted to."""
    for each in row.fields:
        if isinstance(each.dataType, TimestampNTZType):
            yield Problem(SCHEMA_PATH, f"column {each.name} is TIMESTAMP_NTZ", "use TIMESTAMP, or BIGINT or STRING")
        elif isinstance(each.dataType, ArrayType | MapType | StructType) and _has_times(each.dataType):
            fact = f"column {each.name} has a decimal or a time within it, which is not converted"
            yield Problem(SCHEMA_PATH, fact, "use STRING, BIGINT or DOUBLE there, and an expression")


def _has_times(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_times(kind.elementType)
        case MapType():
            return _has_times(kind.valueType)
        case StructType():
            return any(_has_times(each.dataType) for each in kind.fields)
        case _:
            return isinstance(kind, DateType | TimestampType | TimestampNTZType | DecimalType)
