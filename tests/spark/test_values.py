"""Values of JSON and CSV beside what Python reads of the same text: the same value, or an error, never another one.

Texts are those that producers write, and others that differ from them by a few characters.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import pytest

from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.spark.transform import output_rows
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AT: Final = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
KINDS: Final = {
    "d": "DECIMAL(12,3)",
    "x": "DOUBLE",
    "f": "FLOAT",
    "i": "BIGINT",
    "y": "TINYINT",
    "b": "BOOLEAN",
    "t": "TIMESTAMP",
    "n": "TIMESTAMP_NTZ",
    "day": "DATE",
    "s": "STRING",
}
COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
SHOWN: Final = {
    "t": "CAST(unix_micros(t) AS STRING)",
    "n": "CAST(unix_micros(CAST(n AS TIMESTAMP)) AS STRING)",
    "day": "CAST(unix_date(day) AS STRING)",
}
"""How a value is shown so that nothing of it is lost; the others by a cast."""
SELECT: Final = RowSelect(
    value="to_json(named_struct({}))".format(
        ", ".join(f"'{name}', {SHOWN.get(name, f'CAST({name} AS STRING)')}" for name in KINDS)
    )
)


def words(text: str) -> list[str]:
    return text.split()


LEAST: Final = Decimal("1e-300")
CASES: Final = [1_000, pytest.param(10_000, marks=pytest.mark.thorough("more of the same texts"))]

NUMBERS: Final = words("""
0 1 -1 12.5 12.500 12.3456 1.005 -0 -0.0 00 01 +1 1. .5 1e3 1E-3 1e400 123456789.123 1234567890.1 999999999.9995
9223372036854775807 9223372036854775808 127 128 16777217 0.1 0.30000000000000004 1e308 3.5e38 12,50 1,250 1_000 0x10
0x1p3 1f 1d NaN Infinity -Infinity INF 1e3.5 --1 ٣ 1714979289 1714979289123 20240506 1e0012 12.5e1 1E-33 12.5e-1 12, ,5
""")
TIMES: Final = words("""
2024-05-06T07:08:09Z 2024-05-06_07:08:09 2024-05-06T07:08:09.123456789Z 2024-05-06T07:08 2024-05-06 2024-5-6 2024-05
2024 07:08:09 T07:08 2024-05-06T07:08:09+02:00 2024-05-06T07:08:09+0200 2024-05-06T07:08:09_+02:00
2024-05-06T07:08:09+2 2024-05-06T07:08:09_UTC 2024-05-06T07:08:09Europe/Berlin 2024-05-06T07:08:09[UTC] 2024-02-30
2023-02-29 2024-02-29 0001-01-01 1582-10-10 9999-12-31T23:59:60Z 12024-05-06 -2024-05-06 +2024-05-06
2024-05-06T24:00:00Z 2024-05-06T7:8:9Z 20240506T070809Z 6.5.2024 05/06/2024 2024-05-06T 2024-05-06Z 2024-05-06T07Z now
today epoch 1970-01-01T00:00:00.000001Z 2024-05-06T07:08:09.1Z 2024-05-06T07:08:09,123Z 2024-05-06t07:08:09z
1969-12-31T23:59:59.999999Z 202405
""")
TEXTS: Final = (
    "",
    "a",
    "null",
    "true",
    "TRUE",
    "false",
    "yes",
    "1",
    "0",
    "ü",
    "€",
    "a b",
    "?",
    "\\",
    "😀",
    "None",
    "-",
)
LETTERS: Final = "0123456789.,eE+-:TZ /_n'"
_TIME: Final = re.compile(
    r"([+-]?\d{4,7})-(\d{1,2})-(\d{1,2})(?:[T ](?:(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)? *(\S.*)?)?", re.ASCII
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2})(?::?(\d{2}))?)?", re.ASCII)


class NoValueError(Exception):
    """The text is none of that kind."""


def texts(seed: int, cases: int) -> Iterator[tuple[str, str]]:
    """Names of columns, each with a text that stands there: of a kind, mostly altered a little."""
    rng = random.Random(seed)
    times = [each.replace("_", " ") for each in TIMES]
    everything = (*NUMBERS, *times, *TEXTS)
    names = [*KINDS]
    fitting = {"t": times, "n": times, "day": times, "s": TEXTS, "b": TEXTS}
    yield from ((name, text) for name in names for text in everything)
    for _ in range(cases):
        name = rng.choice(names)
        text = rng.choice(fitting.get(name, NUMBERS))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(("", *LETTERS)) + text[at + rng.randint(0, 1) :]
        yield name, text


def seen(spark: SparkSession, plan: RowPlan, values: list[bytes]) -> list[dict[str, str] | None]:
    """By record, the fields that are not null; None for a dead letter."""
    found = [(b"k", bytearray(value), "t", 0, offset, AT, 0, None) for offset, value in enumerate(values)]
    rows = output_rows(spark.createDataFrame(found, SOURCE).coalesce(1), plan).collect()
    return [None if row.error is not None else json.loads(bytes(row.value)) for row in rows]


def micros_of(text: str) -> int:
    """Of a time as people write it, in UTC where it says nothing; digits behind the microseconds are cut off."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise NoValueError(text)
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        at = dt.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=dt.timezone.utc
        )
    except ValueError as error:
        raise NoValueError(text) from error
    micros = (at - EPOCH) // dt.timedelta(microseconds=1) + int((fraction or "").ljust(6, "0")[:6])
    return micros - offset_of(zone or "Z", at)


def offset_of(zone: str, at: dt.datetime) -> int:
    if zone.upper() in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is not None:
        sign, hours, minutes, seconds = match.groups()
        return (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000
    try:
        offset = at.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    except (ValueError, OSError, LookupError) as error:
        raise NoValueError(zone) from error
    assert offset is not None
    return offset // dt.timedelta(microseconds=1)


def _single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def number(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def of(text: str) -> Any:
        if "_" in text:
            raise NoValueError(text)
        try:
            return read(text)
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise NoValueError(text) from error

    return of


def boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise NoValueError(text)
    return text.strip().lower() == "true"


MEANINGS: Final[dict[str, Callable[[str], Any]]] = {
    "d": number(Decimal),
    "x": number(float),
    "f": number(lambda text: _single(float(text))),
    "i": number(int),
    "y": number(int),
    "b": boolean,
    "t": micros_of,
    "n": micros_of,
    "day": lambda text: micros_of(text.strip()[:10]) // 86_400_000_000,
    "s": str,
}

READ: Final[dict[str, Callable[[str], Any]]] = {
    "d": Decimal,
    "x": float,
    "f": lambda text: _single(float(text)),
    **dict.fromkeys(("i", "y", "t", "n", "day"), int),
    "b": lambda text: text == "true",
    "s": str,
}
"""What is shown of a column, as the same in Python."""


def check(
    cases: list[tuple[str, str]], found: list[dict[str, str] | None], written: Callable[[str, str], Any], least: int
) -> None:
    """That at least so many were read, and each of them as it is written."""
    told = set()
    for (name, text), fields in zip(cases, found, strict=True):
        if fields is None:
            continue
        value = None if name not in fields else READ[name](fields[name])
        try:
            meant = written(name, text)
        except NoValueError:
            told.add(f"{KINDS[name]}: {text!r} is no value, and was read as {value!r}")
            continue
        if value != meant and not (isinstance(value, float) and math.isnan(value) and math.isnan(meant)):
            told.add(f"{KINDS[name]}: {text!r} is {meant!r}, and was read as {value!r}")
    assert not told, "\n".join(sorted(told))
    assert sum(each is not None for each in found) >= least


@pytest.mark.parametrize("cases", CASES)
def test_fields_of_csv(spark: SparkSession, cases: int) -> None:
    tried = [(name, text) for name, text in texts(cases + 1, cases) if "," not in text]
    values = [",".join(text if each == name else "" for each in KINDS).encode() for name, text in tried]

    def written(name: str, text: str) -> Any:
        return None if text == "" else MEANINGS[name](text)

    check(tried, seen(spark, RowPlan("csv", COLUMNS, select=SELECT), values), written, 400)


@pytest.mark.parametrize("cases", CASES)
def test_fields_of_json(spark: SparkSession, cases: int) -> None:
    rng = random.Random(cases)
    both = [
        (name, form)
        for name, text in texts(cases + 2, cases)
        for form in (text, json.dumps(text), f'"{escaped(text, rng)}"')
    ]
    # Of a number, a text has the digits of a DOUBLE (docs/manifest.md).
    tried = [(name, form) for name, form in both if name != "s" or form.startswith('"')]
    values = [f'{{"{name if rng.random() < 0.9 else escaped(name, rng)}": {text}}}'.encode() for name, text in tried]

    def written(name: str, text: str) -> Any:
        try:
            value = json.loads(text, parse_float=str, parse_int=str, parse_constant=_no_value)
        except ValueError as error:
            raise NoValueError(text) from error
        if value is None:
            return None
        if isinstance(value, bool):
            value = str(value).lower()
        meant = MEANINGS[name](value)
        # As a DOUBLE it is none (docs/design/0110).
        return Decimal(0) if name == "d" and not text.startswith('"') and abs(meant) < LEAST else meant

    check(tried, seen(spark, RowPlan("json", COLUMNS, select=SELECT), values), written, 400)


def escaped(text: str, rng: random.Random) -> str:
    """With one of its characters as JSON may have it, too."""
    at = rng.randrange(len(text)) if text else 0
    middle = "".join(f"\\u{ord(each):04x}" if ord(each) < 0x10000 else each for each in text[at : at + 1])
    return json.dumps(text[:at])[1:-1] + middle + json.dumps(text[at + 1 :])[1:-1]


def _no_value(text: str) -> Any:
    raise NoValueError(text)
