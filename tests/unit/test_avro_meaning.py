"""A value that would be another one by the reader's schema is told before it is read."""

from __future__ import annotations

from typing import Any

import pytest

from sinkpipeline.core.avro_meaning import other_meaning

LONG, INT, STRING, BYTES = "long", "int", "string", "bytes"


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def connect(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, "connect.parameters": parameters}


def decimal(scale: int | None, precision: int = 10, kind: str = BYTES) -> dict[str, Any]:
    return logical(kind, "decimal", precision=precision, **({} if scale is None else {"scale": scale}))


def record(of: Any, name: str = "R", field: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": of, **more}]}


MILLIS, MICROS = logical(LONG, "timestamp-millis"), logical(LONG, "timestamp-micros")
ENUM = "io.debezium.data.Enum"
POINT = {"type": "record", "name": "P", "namespace": "n", "fields": [{"name": "x", "type": ["null", decimal(2)]}]}
WIDER = {**POINT, "fields": [{"name": "x", "type": ["null", decimal(4)]}]}


@pytest.mark.parametrize(
    ("reader", "writer", "told"),
    [
        (decimal(4), decimal(2), "decimal of scale 2 in the writer's schema, and a decimal of scale 4"),
        (decimal(2), decimal(None), "decimal of scale 0"),
        (["null", decimal(4)], decimal(2), "field a is a decimal of scale 2"),
        (decimal(4), ["null", decimal(2)], "field a is a decimal of scale 2"),
        (decimal(2), BYTES, "field a is plain bytes"),
        (decimal(2), STRING, "field a is plain string"),
        (
            MICROS,
            MILLIS,
            "long of timestamp-millis in the writer's schema, and long of timestamp-micros in the reader's",
        ),
        (MILLIS, logical(INT, "date"), "int of date"),
        (MILLIS, logical(LONG, "local-timestamp-millis"), "long of local-timestamp-millis"),
        ({"type": "array", "items": MICROS}, {"type": "array", "items": MILLIS}, "field a[] is"),
        ({"type": "map", "values": ["null", MICROS]}, {"type": "map", "values": MILLIS}, "field a{} is"),
        (WIDER, POINT, "field a.x is"),
        (
            connect(LONG, "io.debezium.time.MicroTimestamp"),
            connect(LONG, "io.debezium.time.Timestamp"),
            "long of milliseconds in the writer's schema, and long of microseconds in the reader's",
        ),
        (connect(STRING, "io.debezium.data.Json"), connect(STRING, "io.debezium.data.Xml"), "io.debezium.data.Xml"),
        ([STRING, MICROS], [STRING, MILLIS], "timestamp-millis"),
    ],
)
def test_it_is_told_with_its_place(reader: Any, writer: Any, told: str) -> None:
    found = other_meaning(record(reader), record(writer))
    assert found is not None
    assert told in found


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (decimal(2, 12), decimal(2, 10)),
        (MILLIS, LONG),
        (LONG, MICROS),
        (BYTES, decimal(2)),
        (LONG, INT),
        (STRING, logical(STRING, "uuid")),
        ([STRING, decimal(2)], STRING),
        (connect(LONG, "io.debezium.time.Timestamp"), connect(LONG, "org.apache.kafka.connect.data.Timestamp")),
        (
            connect(STRING, "io.debezium.data.Enum", allowed="a"),
            connect(STRING, "io.debezium.data.Enum", allowed="a,b"),
        ),
        (POINT, {**POINT, "namespace": "other"}),
        (STRING, POINT),
    ],
)
def test_what_means_the_same_is_not(reader: Any, writer: Any) -> None:
    assert other_meaning(record(reader), record(writer)) is None


def test_names_and_aliases_are_followed() -> None:
    twice = {"type": "record", "name": "n.R", "fields": [{"name": "p", "type": POINT}, {"name": "q", "type": "n.P"}]}
    wider = {
        "type": "record",
        "name": "n.R",
        "fields": [{"name": "p", "type": POINT}, {"name": "q", "type": {**WIDER, "name": "Q"}}],
    }
    assert "field q.x is" in str(other_meaning(wider, twice))
    assert "field b is" in str(other_meaning(record(MICROS, field="b", aliases=["a"]), record(MILLIS)))
    assert other_meaning(record(MICROS, field="b"), record(MILLIS)) is None


def test_a_recursive_writer_is_no_trap() -> None:
    tree = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "v", "type": MILLIS}, {"name": "next", "type": ["null", "T"]}],
    }
    flat = {"type": "record", "name": "T", "fields": [{"name": "v", "type": MICROS}]}
    assert "field v" in str(other_meaning(flat, tree))
