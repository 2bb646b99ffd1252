"""Which texts of JSON need no second look: nothing in them can be read as something else than it says.

A second look parses a text once more, and costs twice what the first one does. What it looks for shows in the text:
for a decimal more digits than its scale has, an exponent, or a comma among digits; for a time a field of its name that
has neither null nor a text which begins with a date. Where that can't be told, a text has its second look.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import ArrayType, DateType, DecimalType, MapType, StructType, TimestampNTZType, TimestampType

from sinkpipeline.spark.places import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

DAY = r"\d{4}-\d{1,2}-\d{1,2}"
CLOCK = r"[T ]\d{1,2}:"
DATE = rf"{DAY}({CLOCK}\d{{1,2}}(:\d{{1,2}}(\.\d+)?)? ?(Z|UTC|[+-]\d\d:?\d\d)?)?"
_BY_ITS_NUMBER = "\\u"
"""Any character may be escaped so, in a name too."""
DIGIT = r"\p{Nd}"
# Each begins with a character that is rare, and no repetition can be tried twice: a text is run through once.
_EXPONENT = rf"[eE](?<=[{DIGIT}.][eE])[+-]?{DIGIT}"
_COMMA = rf'"(?=[{DIGIT}.,+\-eE]++")(?=[^"]*,)[^"]*{DIGIT}'
"""A text of a number's characters, with a comma and a digit; between two texts there can be a comma too."""
_NAME = re.compile(r"[^\"\\/\x00-\x1f]+")
"""That can be escaped by numbers alone."""


def may_be_misread(text: Column, schema: StructType) -> Column:
    """BOOLEAN: false only where a second look at the decimals and the times of `text` would find nothing."""
    patterns = [*_of_decimals(schema)]
    for name, kind in _times(schema):
        if name is None or _NAME.fullmatch(name) is None:
            return F.lit(True)
        patterns.append(_is_no_such_text(name, kind))
    # One by one: alternatives of one expression are all tried at each character, which takes five times as long.
    return reduce(or_, map(text.rlike, patterns), text.contains(_BY_ITS_NUMBER))


def _of_decimals(schema: StructType) -> Iterator[str]:
    scales = [each.kind.scale for each in places(schema, (DecimalType,)) if isinstance(each.kind, DecimalType)]
    if scales:
        yield from (rf"\.{DIGIT}{{{min(scales) + 1}}}", _EXPONENT, _COMMA)


def _times(kind: DataType, name: str | None = None) -> Iterator[tuple[str | None, DataType]]:
    """Each time, with the name that stands before its value; None where there is none."""
    match kind:
        case StructType():
            for each in kind.fields:
                yield from _times(each.dataType, each.name)
        case ArrayType():
            yield from _times(kind.elementType)
        case MapType():
            yield from _times(kind.valueType)
        case DateType() | TimestampType() | TimestampNTZType():
            yield name, kind
        case _:
            return


def _is_no_such_text(name: str, kind: DataType) -> str:
    fine = rf'"{DATE}"' if isinstance(kind, DateType) else rf'"{DAY}(?:"|{CLOCK})'
    return rf'"\Q{name}\E"\s*:\s*(?!\s|null|{fine})'
