"""Text, and CSV: one line of fields.

Spark's `from_csv` alone is not strict: it reads bytes that are not UTF-8 as U+FFFD, drops NOT NULL, and takes the first
of several lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.spark.decode import missing_fields
from sinkpipeline.spark.exact import csv_misreadings, is_misread
from sinkpipeline.spark.huge import line_without_huge
from sinkpipeline.spark.places import field_name, let

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_BREAKS = "[\\r\\n]"
_NO_TEXT = "\uffff\uffff"
"""What no field holds: these are no characters."""


def text_of(value: Column) -> Column:
    return value.cast("string")


def text_error(value: Column) -> Column:
    """STRING: why a value, which is not null, is no text; null if it is."""
    invalid = ErrorClass.INVALID_UTF8.error("the value is not valid UTF-8")
    return F.when(~F.is_valid_utf8(text_of(value)), F.lit(invalid))


def line_of(value: Column) -> Column:
    """Without the line break at its end. Make it a column: it is asked for often."""
    return F.regexp_replace(text_of(value), "\\r?\\n\\z", "")


def parse_csv(line: Column, ddl: str, schema: StructType, delimiter: str, corrupt: str) -> Column:
    """The struct of the schema's fields plus `corrupt` STRING, not null where the first line doesn't fit.

    Null where a decimal is huge. `schema` is what `ddl` says.

    Raises for a line of very many fields: it is to be tried (`attempt`).
    """
    # On a line of its own: the schema may end with a comment.
    options = {**_options(delimiter), "columnNameOfCorruptRecord": corrupt}
    plain = line_without_huge(line, _fields(line, schema, delimiter), schema)
    return F.from_csv(plain, f"{ddl}\n, `{corrupt}` STRING", options)


def _fields(line: Column, schema: StructType, delimiter: str) -> Column:
    """The struct of the fields as texts, as `field_name` names them."""
    names = ", ".join(f"{field_name(number)} STRING" for number in range(len(schema.fields)))
    return F.from_csv(line, names, _options(delimiter))


def _options(delimiter: str) -> dict[str, str]:
    return {
        "mode": "PERMISSIVE",
        "sep": delimiter,
        "escape": '"',
        "timeZone": "UTC",
        # Of a field without quotes. The default is the empty text, which one with quotes is too.
        "nullValue": _NO_TEXT,
        "emptyValue": "",
    }


def csv_error(value: Column, line: Column, parsed: Column, schema: StructType, delimiter: str, corrupt: str) -> Column:
    """STRING: why a value, which is not null, is refused; null if it fits.

    `line` and `parsed` hold what `line_of` and `parse_csv` gave.
    """
    malformed = ErrorClass.MALFORMED_CSV.error("the value is not one line whose fields fit the schema")
    refused = parsed.isNull() | parsed.getField(corrupt).isNotNull() | line.rlike(_BREAKS)
    refused |= _is_open(line, delimiter)
    if len(schema.fields) > 1:
        # It would be a struct of nulls.
        refused |= F.octet_length(line) == 0
    error = F.when(text_error(value).isNotNull(), text_error(value)).when(refused, F.lit(malformed))
    for path, missing in missing_fields(schema):
        error = error.when(missing(parsed), F.lit(ErrorClass.MISSING_FIELD.error(f"{path} is null or absent")))
    if not is_misread(schema):
        return error
    return error.otherwise(
        let(_fields(line, schema, delimiter), lambda fields: csv_misreadings(fields, parsed, schema))
    )


def _is_open(line: Column, delimiter: str) -> Column:
    """Whether the line ends within quotes: Spark would close them.

    Possessive: a long field would overflow the stack otherwise, and end the JVM.
    """
    quotes = F.length(line) - F.length(F.replace(line, F.lit('"'), F.lit("")))
    open_quote = rf'(?:^|{re.escape(delimiter)})"(?:[^"]++|"")*+$'
    return (quotes % 2 == 1) & line.rlike(open_quote)
