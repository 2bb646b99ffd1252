"""Decimals that Spark would compute for hours: its parsers of JSON and CSV write out what 1e600000000 has of digits.

So a text is looked at before it is parsed: for an exponent of six digits and more, and for a thousand digits in a row,
as Jackson refuses more of them in a number. Such a text is not parsed at all, and so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import DecimalType, StructType

from sinkpipeline.spark.places import field_name, let, places, written_type
from sinkpipeline.spark.plain import DIGIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

HUGE = "a number has an exponent of six digits or more, or a thousand digits in a row"
_ESCAPED = r"\\u[0-9a-fA-F]{4}"
_MANY = 1_000
_LONG = rf"(?<!{DIGIT}){DIGIT}{{{_MANY}}}"
_LARGE = rf"[eE]\+?{DIGIT}{{6}}|{_LONG}"
_EXPONENT = rf"[eE]\+?(?:{DIGIT}|{_ESCAPED}){{6}}"
_BEFORE_IT = rf'[":,\[\s][-+]?(?:[{DIGIT}.]|{_ESCAPED})++[eE]'
"""What tells a number from an identifier."""
_NUMBERED = r"\\u00(?:2[bB]|[46]5|3\d)"
"""An e, a plus, or a digit."""
_TEXTS = r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def without_huge(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    """STRING: a text of JSON; null where `schema` has decimals and the text has one of these."""
    of_decimals = _of_decimals(schema)
    if of_decimals is None:
        return text
    numbers = F.regexp_replace(text, _TEXTS, "").rlike(_LARGE)

    def any_text(raw: Column) -> Column:
        found = [each.any(raw, _is_large) for each in places(schema, (DecimalType,))]
        return F.coalesce(F.greatest(*found, F.lit(False)), F.lit(False))

    in_texts = let(F.from_json(text, of_decimals, dict(options)), any_text)
    return F.when(~(_perhaps(text) & (numbers | in_texts)), text)


def line_without_huge(line: Column, texts: Column, schema: StructType) -> Column:
    """Likewise, a line of CSV; `texts` has its fields, in their order, as texts."""
    names = [field_name(at) for at, each in enumerate(schema.fields) if isinstance(each.dataType, DecimalType)]
    if not names:
        return line
    found = [texts.getField(each).rlike(_LARGE) for each in names]
    return F.when(~(line.rlike(_LARGE) & F.coalesce(F.greatest(*found, F.lit(False)), F.lit(False))), line)


def _perhaps(text: Column) -> Column:
    """Quickly. It may be one of another field, or within a text."""
    has_exponent = text.rlike(_EXPONENT) & text.rlike(_BEFORE_IT)
    is_escaped = text.contains("\\u00") & text.rlike(_NUMBERED)
    return has_exponent | is_escaped | ((F.octet_length(text) >= _MANY) & text.rlike(_LONG))


def _is_large(value: Column) -> Column:
    return value.cast("string").rlike(_LARGE)


def _of_decimals(schema: StructType) -> StructType | None:
    """A type as which JSON's decimals are read without being computed; None where there are none."""
    found = written_type(schema, (DecimalType,))
    assert found is None or isinstance(found, StructType)
    return found
