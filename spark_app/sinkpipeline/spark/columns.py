r"""The row of a table: a line of COPY's text format, made in Spark, so that no value passes Python on its own.

    columns ... \t t or f: whether it is a deletion \t what orders it \t {2,3}: columns that stay as they are

The last three where the sink has them.
A value is written as PostgreSQL reads it into a column of a type that is like its own; `sinkpipeline.postgresql.lines`
has the same format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

_TAKEN = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, DecimalType, FloatType, DoubleType),
    *(StringType, BinaryType, DateType, TimestampType, TimestampNTZType, NullType),
)
_NULL = "\\N"
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""The backslash first: what follows brings new ones."""


def is_column(kind: DataType) -> bool:
    """Whether a value of this type can be written into a column."""
    return isinstance(kind, _TAKEN)


def _is_integral(kind: DataType) -> bool:
    """Of a text nobody knows."""
    whole = isinstance(kind, DecimalType) and kind.scale == 0
    return whole or isinstance(kind, ByteType | ShortType | IntegerType | LongType | StringType | NullType)


TAKEN = {
    "": (
        lambda kind: is_column(kind) and not isinstance(kind, BinaryType),
        "of a type that the column takes",
        "CAST(... AS STRING), to_json(...) for a json or jsonb column, or type bytea in table.columns for BINARY",
    ),
    " of bytes": (
        lambda kind: isinstance(kind, BinaryType | NullType),
        "BINARY, as the column is a bytea",
        "CAST(... AS BINARY)",
    ),
    # The server reads no text of a fraction there, 1.0 neither.
    " of integers": (
        _is_integral,
        "of an integer type, or STRING, as the column is of integers",
        "CAST(... AS BIGINT), or another type in table.columns",
    ),
}
"""What a column may be given: by what its type is, whether it takes a type of Spark, in words, and what to write."""


def field(value: Column, kind: DataType) -> Column:
    """STRING, never null: the field of one value."""
    return F.coalesce(_text(value, kind), F.lit(_NULL))


def flag(value: Column) -> Column:
    """Whether; what is not known is not so."""
    return F.when(value, F.lit("t")).otherwise(F.lit("f"))


def order(value: Column, kind: DataType) -> Column:
    """Microseconds of a time."""
    number = F.unix_micros(value) if isinstance(kind, TimestampType) else value.cast("bigint")
    return F.coalesce(number.cast("string"), F.lit(_NULL))


def line(fields: Iterable[Column]) -> Column:
    """BINARY, without the line's end."""
    return F.concat_ws("\t", *fields).cast("binary")


def _text(value: Column, kind: DataType) -> Column:
    match kind:
        case BinaryType():
            # What bytea reads, its backslash escaped.
            return F.concat(F.lit("\\\\x"), F.hex(value))
        case TimestampType():
            # With its zone: else a column with one would read it in the zone of the server. One without ignores it.
            return _in_era(value, F.concat(value.cast("string"), F.lit("+00")))
        case DateType() | TimestampNTZType():
            return _in_era(value, value.cast("string"))
        case StringType():
            text = value
            for raw, escaped in _ESCAPED:
                text = F.replace(text, F.lit(raw), F.lit(escaped))
            return text
        case _:
            return value.cast("string")


def _in_era(value: Column, text: Column) -> Column:
    """PostgreSQL reads no sign before a year: after 9999 there is none, and before the year 1 it counts from 1 BC."""
    year = F.year(value)
    of_era = F.concat(F.format_string("%04d", 1 - year), F.regexp_extract(text, r"^-?\d+(-.*)$", 1), F.lit(" BC"))
    return F.when(year < 1, of_era).otherwise(F.regexp_replace(text, r"^\+", ""))
