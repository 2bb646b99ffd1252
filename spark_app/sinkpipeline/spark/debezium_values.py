"""What the values of an envelope of Debezium are, by their kinds: SQL over arrays of values, one array for each type.

A value is STRUCT<name, column, type, text, kind, base, scale, quoted, ...>. An array is converted by one expression,
however many columns there are: the plan would grow with each column else. Nothing here raises for a value: it is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
    VariantType,
)

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.debezium import (
    DATES,
    DECIMAL,
    LAST_DAY,
    LAST_MICRO,
    MOST_DECIMAL_BYTES,
    NUMBERS,
    STRING,
    TIMESTAMPS,
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
    VARIABLE_DECIMAL,
    Times,
)

_ISO_DATE = r"^\d{4}-\d\d-\d\dZ?$"
_ISO_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d:\d\d)$"
_NUMBER = r"^-?\d+(\.\d+)?$"
_WITH_EXPONENT = r"^-?\d+(\.\d+)?[eE][+-]?\d+$"
_MOST_SCALE = 16_383
"""PostgreSQL's."""
_HALF = 16
"""Hexadecimal digits of 64 bits."""
_IN_ARRAYS = (
    [UNAVAILABLE],
    [UNAVAILABLE_UUID],
    [UNAVAILABLE_BASE64],
    list(UNAVAILABLE_NUMBERS),
)
_BYTES = f"X'{UNAVAILABLE.encode().hex()}'"
_AS_TEXTS = (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE.encode().hex(),
    *(json.dumps(each, separators=(",", ":")) for each in ({UNAVAILABLE: UNAVAILABLE}, *_IN_ARRAYS)),
)
"""Also what JSON has for an array or an hstore, where it is read as a text."""


def literal(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{inner}'"


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(literal, names))


def dates(values: str) -> str:
    """ARRAY<DATE> of such values."""
    of_days, of_iso = _of(Times.DAYS, DATES), _of(Times.ISO_DATE, DATES)
    number = "try_cast(x.text AS BIGINT)"
    # What JSON calls a number can only be days.
    days = f"x.kind IN ({of_days}) OR x.kind IS NULL AND NOT x.quoted"
    iso = f"x.kind IN ({of_iso}, '{STRING}') OR x.kind IS NULL AND x.quoted"
    return (
        f"transform({values}, x -> CASE WHEN {days} THEN CASE WHEN {number} BETWEEN -{LAST_DAY} AND {LAST_DAY} "
        f"THEN date_from_unix_date(CAST({number} AS INT)) END "
        f"WHEN ({iso}) AND x.text RLIKE r'{_ISO_DATE}' THEN try_cast(replace(x.text, 'Z', '') AS DATE) END)"
    )


def binaries(values: str) -> str:
    """ARRAY<BINARY>: of bytes, which JSON has in base64. Hexadecimal digits, or any text, may look like base64."""
    return (
        f"transform({values}, x -> CASE WHEN x.base = 'bytes' AND x.kind != '{DECIMAL}' OR x.kind IS NULL AND x.quoted "
        "THEN try_to_binary(x.text, 'base64') END)"
    )


def is_of_bytes(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, BinaryType)


def texts_as_bytes(name: str, value: str, items: str) -> str:
    """STRING: why an array of bytes is refused, of which the wrapper says that it holds something else."""
    told = ErrorClass.WRONG_TYPE.error(f"{name} is no array<binary> by what the record says of it")
    return f"CASE WHEN {value} IS NOT NULL AND {items} != 'bytes' THEN {literal(told)} END"


def times(values: str) -> str:
    """ARRAY<TIMESTAMP>."""
    number = "try_cast(x.text AS BIGINT)"
    millis, micros, nanos, iso = (
        _of(each, TIMESTAMPS) for each in (Times.MILLIS, Times.MICROS, Times.NANOS, Times.ISO_TIME)
    )
    return (
        f"transform({values}, x -> CASE "
        f"WHEN x.kind IN ({millis}) THEN CASE WHEN {number} BETWEEN -{LAST_MICRO // 1000} AND {LAST_MICRO // 1000} "
        f"THEN timestamp_micros({number} * 1000) END "
        f"WHEN x.kind IN ({micros}) THEN CASE WHEN {number} BETWEEN -{LAST_MICRO} AND {LAST_MICRO} "
        f"THEN timestamp_micros({number}) END "
        f"WHEN x.kind IN ({nanos}) THEN CASE WHEN {number} % 1000 = 0 THEN timestamp_micros({number} div 1000) END "
        f"WHEN (x.kind IN ({iso}, '{STRING}') OR x.kind IS NULL AND x.quoted) AND x.text RLIKE r'{_ISO_TIME}' "
        "THEN try_cast(x.text AS TIMESTAMP) END)"
    )


def texts(values: str) -> str:
    """ARRAY<STRING>: texts, and the digits of decimals, for which `whole` and `fraction` say how many there may be.

    Without a kind a text is no decimal: it may be digits, or bytes in base64 that look like some.
    """
    is_variable = f"(x.kind = '{VARIABLE_DECIMAL}' OR x.kind IS NULL AND x.whole IS NOT NULL AND x.text LIKE '{{%')"
    # A number of JSON would look like base64.
    is_decimal = f"(x.kind = '{DECIMAL}' AND (x.whole IS NULL OR x.quoted))"
    is_number = f"(x.kind IN ({listed((STRING, *NUMBERS))}) OR x.kind IS NULL AND NOT x.quoted)"
    is_shifted = f"(x.whole IS NOT NULL AND {is_number} AND x.text RLIKE r'{_WITH_EXPONENT}')"
    of_bytes = (
        f"transform({values}, x -> named_struct('x', x, "
        f"'is', coalesce({is_decimal}, false) OR coalesce({is_variable}, false) OR coalesce({is_shifted}, false), "
        f"'bytes', try_to_binary(CASE WHEN {is_decimal} THEN x.text WHEN {is_variable} "
        "THEN get_json_object(x.text, '$.value') END, 'base64'), "
        f"'digits', CASE WHEN {is_shifted} THEN regexp_replace(x.text, r'[.]|[eE].*$', '') END, "
        rf"'scale', CASE WHEN {is_shifted} THEN try_subtract(length(regexp_extract(x.text, r'[.](\d+)', 1)), "
        "try_cast(regexp_extract(x.text, '[eE](.*)$', 1) AS INT)) "
        f"ELSE try_cast(CASE WHEN {is_decimal} THEN x.scale WHEN {is_variable} "
        "THEN get_json_object(x.text, '$.scale') END AS INT) END))"
    )
    plain = (
        f"CASE WHEN x.x.whole IS NULL THEN x.x.text WHEN (x.x.kind IN ({listed((STRING, *NUMBERS))}) "
        f"OR x.x.kind IS NULL AND NOT x.x.quoted) AND x.x.text RLIKE r'{_NUMBER}' THEN x.x.text END"
    )
    digits = f"transform(transform({of_bytes}, {_whole_number()}), x -> named_struct('x', x.x, 'text', CASE WHEN x.is "
    digits += f"THEN {_with_point('x.number', 'x.scale')} ELSE {plain} END))"
    too_long = (
        r"length(trim(LEADING '0' FROM regexp_extract(x.text, r'^-?(\d*)', 1))) > x.x.whole OR "
        r"length(trim(TRAILING '0' FROM regexp_extract(x.text, r'\.(\d*)$', 1))) > x.x.fraction"
    )
    # Of a text nothing is asked: it may be long.
    fits = f"x.x.whole IS NULL OR NOT coalesce({too_long}, false)"
    return f"transform({digits}, x -> CASE WHEN {fits} THEN x.text END)"


def _whole_number() -> str:
    """As a lambda: two's complement, most significant byte first, as a text; at most 38 digits. Or what is digits."""
    digits = "hex(x.bytes)"
    filled = f"lpad({digits}, {2 * _HALF}, CASE WHEN substr({digits}, 1, 1) >= '8' THEN 'F' ELSE '0' END)"
    high = f"CAST(conv(substr({filled}, 1, {_HALF}), 16, -10) AS DECIMAL(20, 0))"
    low = f"CAST(conv(substr({filled}, {_HALF + 1}, {_HALF}), 16, 10) AS DECIMAL(20, 0))"
    number = f"CAST(try_add(try_multiply({high}, {2**64}BD), {low}) AS STRING)"
    fits = f"octet_length(x.bytes) BETWEEN 1 AND {MOST_DECIMAL_BYTES}"
    kept = "'x', x.x, 'is', x.is, 'scale', x.scale"
    return f"x -> named_struct({kept}, 'number', coalesce(x.digits, CASE WHEN {fits} THEN {number} END))"


def _with_point(number: str, scale: str) -> str:
    plain = f"trim(LEADING '-' FROM {number})"
    padded = f"lpad({plain}, greatest(length({plain}), {scale} + 1), '0')"
    left = f"length({padded}) - {scale}"
    sign = f"CASE WHEN {number} LIKE '-%' THEN '-' ELSE '' END"
    with_point = f"concat({sign}, substr({padded}, 1, {left}), '.', substr({padded}, {left} + 1))"
    return (
        f"CASE WHEN {scale} BETWEEN 1 AND {_MOST_SCALE} THEN {with_point} "
        f"WHEN {scale} BETWEEN -{_MOST_SCALE} AND 0 THEN concat({number}, repeat('0', -{scale})) END"
    )


def _of(what: Times, kinds: Iterable[str]) -> str:
    return listed(each for each in kinds if {**DATES, **TIMESTAMPS}[each] is what)


def is_unavailable(value: str, kind: DataType) -> str | None:
    """Whether a value is what stands in place of one; None where a type has no such."""
    text, found = literal(UNAVAILABLE), None
    match kind:
        case StringType():
            found = f"{value} IN ({listed(_AS_TEXTS)})"
        case VariantType():
            found = is_unavailable(f"try_variant_get({value}, '$', 'string')", StringType())
        case BinaryType():
            found = f"{value} = {_BYTES}"
        case ArrayType(elementType=StringType()):
            arrays = (f"{value} = array({listed(map(str, each))})" for each in _IN_ARRAYS)
            found = f"({' OR '.join(arrays)})"
        case ArrayType(elementType=BinaryType()):
            found = f"{value} = array({_BYTES})"
        case ArrayType() if isinstance(kind.elementType, NumericType):
            numbers = ", ".join(f"{each}D" for each in UNAVAILABLE_NUMBERS)
            found = f"CAST({value} AS ARRAY<DOUBLE>) = array({numbers})"
        case MapType(keyType=StringType(), valueType=StringType()):
            found = f"try_element_at({value}, {text}) = {text}"
        case ArrayType(elementType=VariantType()) | MapType(valueType=VariantType()):
            found = is_unavailable(f"to_json({value})", StringType())
        case StructType() if UNAVAILABLE in kind.names:
            found = f"{value}.{UNAVAILABLE} = {text}"
    return found
