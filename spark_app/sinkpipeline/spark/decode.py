"""Strict decoding of a record's value: its columns, and an error text where it doesn't fit.

Spark's `from_json` alone is not strict. It ignores whatever follows the first JSON value, drops NOT NULL, reads bytes
that are not UTF-8 as U+FFFD, and takes 'single quotes' and NaN. What it does report, through the column of corrupt
records, is kept; the rest is checked here, the cheap checks on every row and the expensive ones on suspicious rows.
"""

from __future__ import annotations

from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import ArrayType, ByteType, MapType, ShortType, StringType, StructField, StructType

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.spark.exact import json_misreadings
from sinkpipeline.spark.huge import HUGE, without_huge
from sinkpipeline.spark.places import in_elements, in_field, in_values, let, places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_JSON_WHITESPACE = " \t\r\n"


def parse_json(value: Column, schema: StructType, corrupt: str) -> Column:
    """The struct of `schema`'s fields plus `corrupt` STRING, not null where the first JSON value doesn't fit.

    The struct itself is null for a null value, for one without any JSON token, and for one with a decimal that is huge.
    """
    with_corrupt = StructType([*schema.fields, StructField(corrupt, StringType())])
    text = without_huge(value.cast("string"), schema, _STRICT)
    return F.from_json(text, with_corrupt, {**_STRICT, "columnNameOfCorruptRecord": corrupt})


_STRICT = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    # A time without a zone is the same instant wherever the job runs.
    "timeZone": "UTC",
}


def json_error(value: Column, parsed: Column, schema: StructType, corrupt: str) -> Column:
    """STRING: why this value, which is not null, is refused; null if it fits.

    `parsed` is the column that holds what `parse_json` gave for `value`: a column, so that nothing is parsed twice.
    """
    text = value.cast("string")
    error = _not_one_text(text)
    refused = parsed.isNull() | parsed.getField(corrupt).isNotNull()
    error = error.when(refused, let(_texts(text), lambda texts: _refused(texts, parsed, schema)))
    for wrapped, why in tiny_errors(text, parsed, schema):
        error = error.when(wrapped, F.lit(why))
    for path, missing in missing_fields(schema):
        error = error.when(missing(parsed), _error(ErrorClass.MISSING_FIELD, f"{path} is null or absent"))
    return error.otherwise(json_misreadings(text, parsed, schema, _STRICT))


def tiny_errors(text: Column, parsed: Column, schema: StructType, at: str = "") -> Iterator[tuple[Column, str]]:
    """Whether a TINYINT of `text` was out of range, and what to say of it, for each field that has one.

    Spark takes up to 255 for a byte without a sign, and makes -56 of 200. Where one is negative the text is read again.
    """
    for each in schema.fields:
        found = [*places(each.dataType, (ByteType,))]
        if found:
            wide = StructType([StructField(each.name, _widened(each.dataType))])
            again = F.from_json(text, wide, _STRICT).getField(each.name)
            negative = reduce(or_, (tiny.any(parsed.getField(each.name), _is_negative) for tiny in found))
            above = reduce(or_, (tiny.any(again, _is_above) for tiny in found))
            kind = each.dataType.simpleString()
            yield F.when(negative, above), ErrorClass.WRONG_TYPE.error(f"{at}{each.name} is not {kind}")


def _is_negative(tiny: Column) -> Column:
    return tiny < 0


def _is_above(tiny: Column) -> Column:
    return tiny > _LAST_TINY


_LAST_TINY = 127


def _widened(kind: DataType) -> DataType:
    match kind:
        case ByteType():
            return ShortType()
        case StructType():
            fields = [StructField(each.name, _widened(each.dataType), each.nullable) for each in kind.fields]
            return StructType(fields)
        case ArrayType():
            return ArrayType(_widened(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, _widened(kind.valueType), kind.valueContainsNull)
        case _:
            return kind


def json_shape_error(text: Column, broken: Column, why: Column) -> Column:
    """STRING: why a text is refused that is not one JSON object, or of which `broken` is so; null if it fits."""
    return _not_one_text(text).when(
        broken, F.when(_texts(text).isNull(), _error(ErrorClass.MALFORMED_JSON, _NOT_ONE_OBJECT)).otherwise(why)
    )


def _not_one_text(text: Column) -> Column:
    error = F.when(~F.is_valid_utf8(text), _error(ErrorClass.INVALID_UTF8, "the value is not valid UTF-8"))
    return error.when(_trailing(text), _error(ErrorClass.MALFORMED_JSON, _NOT_ONE_OBJECT))


_NOT_ONE_OBJECT = "the value is not exactly one JSON object"


def _error(kind: ErrorClass, detail: str) -> Column:
    return F.lit(kind.error(detail))


def _trailing(text: Column) -> Column:
    """Whether anything but whitespace follows the JSON object that `text` begins with.

    Where the first closing brace is the last character nothing can: that settles flat objects without a second look.
    Otherwise the text is tokenised once more, as the first element of an array. The second one is a string as long as
    the text, so no text can hold that string itself: finding it second proves that the text before it was one value.
    """
    trimmed = F.rtrim(text, F.lit(_JSON_WHITESPACE))
    flat = F.octet_length(F.substring_index(trimmed, "}", 1)) + 1 == F.octet_length(trimmed)
    mark = F.repeat(F.lit("x"), F.length(text))
    second = F.get_json_object(F.concat(F.lit("["), text, F.lit(',"'), mark, F.lit('"]')), "$[1]")
    return ~F.when(flat, F.lit(True)).otherwise(second.eqNullSafe(mark))


def _texts(text: Column) -> Column:
    """MAP<STRING, STRING> of the fields, which any JSON object fits; null if it isn't one."""
    return F.from_json(text, "MAP<STRING, STRING>", _STRICT)


def _refused(texts: Column, parsed: Column, schema: StructType) -> Column:
    """Tells apart what `from_json` does not: only evaluated for rows known to be bad.

    Of a wrong type it names the top-level field that is there and was not understood.
    """
    error = F.when(texts.isNull(), _error(ErrorClass.MALFORMED_JSON, _NOT_ONE_OBJECT))
    error = error.when(parsed.isNull(), _error(ErrorClass.WRONG_TYPE, HUGE))
    for each in schema.fields:
        lost = parsed.getField(each.name).isNull() & F.try_element_at(texts, F.lit(each.name)).isNotNull()
        error = error.when(lost, _error(ErrorClass.WRONG_TYPE, f"{each.name} is not {each.dataType.simpleString()}"))
    return error.otherwise(_error(ErrorClass.WRONG_TYPE, "a nested field does not fit the schema"))


_Missing = tuple[str, "Callable[[Column], Column]"]
"""The path of a NOT NULL field, and a predicate on what holds it: whether the field is null where it must not be."""


def missing_fields(struct: StructType) -> Iterator[_Missing]:
    """The NOT NULL fields of a struct."""
    for each in struct.fields:
        if not each.nullable:
            yield each.name, partial(_is_missing, each.name)
        for path, missing in _missing_within(each.dataType):
            yield each.name + path, partial(in_field, each.name, missing)


def _missing_within(kind: DataType) -> Iterator[_Missing]:
    """The same for what is inside a value of this type; the path continues the value's own."""
    match kind:
        case StructType():
            for path, missing in missing_fields(kind):
                yield f".{path}", missing
        case ArrayType():
            for path, missing in _missing_within(kind.elementType):
                yield f"[]{path}", partial(in_elements, missing)
        case MapType():
            for path, missing in _missing_within(kind.valueType):
                yield f"{{}}{path}", partial(in_values, missing)
        case _:
            return


def _is_missing(name: str, struct: Column) -> Column:
    return struct.isNotNull() & struct.getField(name).isNull()
