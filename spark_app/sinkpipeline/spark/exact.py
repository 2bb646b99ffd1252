"""What Spark's parsers of JSON and CSV read without an error, and not as it is written.

A decimal comma is left out ("12,50" is 1250) and digits behind the scale are rounded away. A number is a time in
seconds, whatever unit it has; a time without a date is one of today; a date's text may be a number of days, or a year
of seven digits; a number that is too large is infinite; half a surrogate pair is a question mark. Times and decimals
are read once more as they are written, in records in which that may be so (`plain.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.spark.places import field_name, let, places, written_type
from sinkpipeline.spark.plain import CLOCK, DATE, DAY, may_be_misread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column

    from sinkpipeline.spark.places import Test

_IS_DATE = rf"^{DATE}$"
_BEGINS_AS_TIME = rf"^{DAY}({CLOCK}.*)?$"
"""What follows is for Spark's own parser to judge."""
_FRACTION = r"[.](\p{Nd}*?)0*(?:[eE].*)?$"
_EXPONENT = r"[eE]([+-]?\d+)$"
_OF_JAVA = r"[.\p{Nd}][fFdD]\s*$|[xX]"
"""A literal of that language, such as 6d or 0x1p3."""
_HALVES = (
    r"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])",
    r"(?<!\\)(?:\\\\)*(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]",
)
"""The first half of a pair without the second one, and the other way round, as JSON escapes them."""
_WRITTEN = (DateType, TimestampType, TimestampNTZType, DecimalType)
_REAL = (DoubleType, FloatType)

HALF_A_PAIR = ErrorClass.INVALID_UTF8.error("a text has half a surrogate pair, which UTF-8 has not")


def json_misreadings(text: Column, parsed: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    """STRING: what was read as something else than `text` says; null if nothing was.

    `parsed` is what `text` was read as, by the same options.
    """
    found = F.lit(None).cast("string")
    as_written = written_type(schema, _WRITTEN)
    if as_written is not None:
        assert isinstance(as_written, StructType)
        checks = [*places(schema, _WRITTEN)]
        raw = F.from_json(text, as_written, dict(options))

        def told(written: Column) -> Column:
            return F.coalesce(
                *(F.when(each.any(written, _unlike(each.kind)), _why(each.path, each.kind)) for each in checks)
            )

        found = F.when(may_be_misread(text, schema), let(raw, told))
    infinite = (F.when(each.any(parsed, _is_infinite), _why(each.path, each.kind)) for each in places(schema, _REAL))
    return F.coalesce(found, *infinite, *_halves(text, parsed, schema))


def invalid_texts(record: Column, schema: StructType) -> Column:
    """STRING: that a text of `record` is not valid UTF-8, which its format does not ask for; null if all are."""
    broken = F.lit(False)
    for each in places(schema, (StringType,)):
        broken |= F.coalesce(each.any(record, lambda text: ~F.is_valid_utf8(text)), F.lit(False))
    return F.when(broken, F.lit(ErrorClass.INVALID_UTF8.error("a text is not valid UTF-8")))


def csv_misreadings(written: Column, parsed: Column, schema: StructType) -> Column:
    """Likewise; `written` has the fields of the line as texts, in their order, as `field_name` names them."""
    checks = [F.lit(None).cast("string")]
    for number, each in enumerate(schema.fields):
        text = written.getField(field_name(number))
        if isinstance(each.dataType, _WRITTEN):
            checks.append(F.when(_unlike(each.dataType)(text), _why(each.name, each.dataType)))
        elif isinstance(each.dataType, _REAL):
            infinite = _is_infinite(parsed.getField(each.name)) & text.rlike(r"\d")
            checks.append(F.when(infinite, _why(each.name, each.dataType)))
            checks.append(F.when(text.rlike(_OF_JAVA), F.lit(ErrorClass.WRONG_TYPE.error(f"{each.name} is no number"))))
    return F.coalesce(*checks)


def is_misread(schema: StructType) -> bool:
    """Whether a line of such columns is looked at again."""
    return any(isinstance(each.dataType, (*_WRITTEN, *_REAL)) for each in schema.fields)


def _unlike(kind: DataType) -> Test:
    match kind:
        case DateType():
            return _is_no_date
        case DecimalType():
            scale = kind.scale
            return lambda value: _is_rounded(value.cast("string"), scale)
        case _:
            return _is_no_time


def _is_no_date(text: Column) -> Column:
    return text.isNotNull() & ~text.rlike(_IS_DATE)


def _is_no_time(text: Column) -> Column:
    return text.isNotNull() & ~text.rlike(_BEGINS_AS_TIME)


def _is_rounded(text: Column, scale: int) -> Column:
    """Whether a number has a comma, or digits behind the scale."""
    digits = F.length(F.regexp_extract(text, _FRACTION, 1))
    exponent = F.coalesce(F.regexp_extract(text, _EXPONENT, 1).try_cast("int"), F.lit(0))
    return text.isNotNull() & (text.contains(",") | (digits - exponent > scale))


def _is_infinite(value: Column) -> Column:
    return value.isNotNull() & (F.abs(value) == F.lit(float("inf")))


def _has_question_mark(text: Column) -> Column:
    return text.isNotNull() & text.contains("?")


def _halves(text: Column, parsed: Column, schema: StructType) -> Iterator[Column]:
    asked = [each.any(parsed, _has_question_mark) for each in places(schema, (StringType,))]
    if asked:
        half = F.lit(False)
        for pattern in _HALVES:
            half |= text.rlike(pattern)
        suspicious = text.contains("\\ud") | text.contains("\\uD")
        yield F.when(suspicious & F.coalesce(F.greatest(*asked, F.lit(False)), F.lit(False)) & half, F.lit(HALF_A_PAIR))


def _why(path: str, kind: DataType) -> Column:
    match kind:
        case DateType():
            told = f"{path} is not a date such as 2024-05-06"
        case DecimalType():
            told = f"{path} is not {kind.simpleString()} to its last digit"
        case DoubleType() | FloatType():
            told = f"{path} is not {kind.simpleString()}: it is too large"
        case _:
            told = f"{path} is not a time such as 2024-05-06T07:08:09Z"
    return F.lit(ErrorClass.WRONG_TYPE.error(told))
