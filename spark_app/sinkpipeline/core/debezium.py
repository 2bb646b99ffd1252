"""Debezium's envelopes: what its schemas say of a value, and what stands in place of one that it did not have.

    before, after   the row before and after the change; null where there was none, or the server did not say
    op              r read by a snapshot, c created, u updated, d deleted, t truncated, m a message
    source, ts_ms   where the change was in the server's log; when Debezium saw it, which orders nothing

A type of Kafka Connect's has a *kind*: the name of its schema, such as `io.debezium.time.Date`, or else its own.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

UNAVAILABLE = "__debezium_unavailable_value"
"""In place of a value that is stored out of line and did not change: PostgreSQL's log is without it."""
_BYTES = UNAVAILABLE.encode()
UNAVAILABLE_UUID = str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
"""In an array of UUIDs: Java's `nameUUIDFromBytes` of it."""
UNAVAILABLE_BASE64 = base64.b64encode(_BYTES).decode()
"""As JSON has its bytes."""
UNAVAILABLE_NUMBERS = tuple(_BYTES)
"""In an array of numbers or of dates: its bytes, each as a number."""
OPERATIONS = ("r", "c", "u", "d", "t", "m")
WITH_ROW = ("r", "c", "u")
WITHOUT_ROW = ("t", "m")

_TIME, _DATA = "io.debezium.time.", "org.apache.kafka.connect.data."
DECIMAL = f"{_DATA}Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
STRING = "string"
NUMBERS = ("int8", "int16", "int32", "int64", "float", "double")
LAST_DAY = 2_145_031_948
"""PostgreSQL's, from 1970; an infinite date lies behind it."""
LAST_MICRO = 9_200_000_000_000_000_000
"""Infinite times lie behind it, and no year that somebody means."""
MOST_DECIMAL_BYTES = 16
"""Of a number that has at most 38 digits."""


class Times(enum.Enum):
    """What a number or a text of a kind means."""

    DAYS = "days"
    ISO_DATE = "ISO date"
    MILLIS = "milliseconds"
    MICROS = "microseconds"
    NANOS = "nanoseconds"
    ISO_TIME = "ISO time"


DATES: Mapping[str, Times] = {
    f"{_TIME}Date": Times.DAYS,
    f"{_DATA}Date": Times.DAYS,
    f"{_TIME}IsoDate": Times.ISO_DATE,
}
"""Kinds that a DATE is made of."""
TIMESTAMPS: Mapping[str, Times] = {
    f"{_TIME}Timestamp": Times.MILLIS,
    f"{_DATA}Timestamp": Times.MILLIS,
    f"{_TIME}MicroTimestamp": Times.MICROS,
    f"{_TIME}NanoTimestamp": Times.NANOS,
    f"{_TIME}ZonedTimestamp": Times.ISO_TIME,
    f"{_TIME}IsoTimestamp": Times.ISO_TIME,
}
"""Kinds that a TIMESTAMP is made of. What has no zone is taken for UTC."""


class NoEnvelope(ValueError):
    """A schema of something else; its text says why."""


def kinds_of_avro(text: str) -> dict[str, str]:
    """The kind of each column of the row that an Avro schema of envelopes has, where it is not Avro's own.

    Raises:
        NoEnvelope: it is of something else.
    """
    return {name: kind for name, kind in _kinds(text).items() if kind is not None}


def _kinds(text: str) -> dict[str, str | None]:
    """Likewise, of every column; None where it is Avro's own."""
    schema = json.loads(text)
    named = dict(_named(schema))
    fields = {each["name"]: _one(each["type"], named) for each in _fields(schema)}
    missing = [name for name in ("before", "after", "op", "source", "ts_ms") if name not in fields]
    if missing:
        raise NoEnvelope(f"it has no {missing[0]}, and Debezium's envelopes have one")
    row = fields["after"]
    if row.get("type") != "record":
        raise NoEnvelope("after is no record")
    return {each["name"]: _one(each["type"], named).get("connect.name") for each in _fields(row)}


def disagreement(reader: str, writer: str) -> str | None:
    """Where a writer's schema means another thing by a value than the reader's; None where it nowhere does.

    Avro compares types alone: a column that was milliseconds, and is microseconds now, is a long in both.
    """
    try:
        ours, theirs = _kinds(reader), _kinds(writer)
    except NoEnvelope as error:
        return str(error)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] != theirs[name]:
            return f"after.{name} is {theirs[name] or 'a plain value'}, and in the reader's {ours[name] or 'plain'}"
    return None


def _fields(schema: Any) -> list[Any]:
    return schema.get("fields", []) if isinstance(schema, dict) else []


def _one(kind: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """What a field holds: of a choice between null and one other, the other."""
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        kind = named.get(kind.rpartition(".")[2], {"type": kind})
    return kind if isinstance(kind, dict) else {}


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    """Records by their names: the second one of a name refers to the first."""
    if isinstance(schema, list):
        for each in schema:
            yield from _named(each)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") == "record":
            yield schema["name"].rpartition(".")[2], schema
        for each in (schema.get("type"), schema.get("items"), schema.get("values"), *_fields(schema)):
            yield from _named(each)
