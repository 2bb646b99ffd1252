"""What of one Avro schema is something else in another one."""

from __future__ import annotations

from typing import Any

import pytest

from sinkpipeline.core.avro_fit import misfit
from sinkpipeline.core.encoding import Encoding, frame_of
from support.avro import record


def of(kind: str, logical: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": logical, **more}


def decimal(kind: str, precision: int, **more: Any) -> Any:
    return of(kind, "decimal", precision=precision, **({"name": "d", "size": 4} if kind == "fixed" else {}), **more)


MICROS = of("long", "timestamp-micros")
ITEM = {"type": "record", "name": "Item", "namespace": "a.b", "fields": [{"name": "n", "type": "long"}]}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ("long", "long"),
        ("long", {"type": "long", "doc": "anything"}),
        ("long", ["null", "long"]),
        ("long", ["long", "null"]),
        (["null", "long"], "long"),
        ("null", ["null", "long"]),
        (MICROS, ["null", MICROS]),
        (decimal("fixed", 9, scale=2), decimal("bytes", 9, scale=2)),
        (decimal("fixed", 9, scale=0), decimal("bytes", 9)),
        ("string", ENUM),
        ("bytes", FIXED),
        ({"type": "map", "values": ["null", "long"]}, {"type": "map", "values": "long"}),
    ],
)
def test_what_means_the_same_fits(own: Any, given: Any) -> None:
    assert misfit(record(("f", own)), record(("f", given), ("more", ["null", "string"]), name="Other")) is None


@pytest.mark.parametrize(
    ("own", "given", "words"),
    [
        (MICROS, "long", "is long timestamp-micros, and long there"),
        (MICROS, of("long", "timestamp-millis"), "is long timestamp-micros, and long timestamp-millis there"),
        (
            MICROS,
            of("long", "local-timestamp-micros"),
            "is long timestamp-micros, and long local-timestamp-micros there",
        ),
        ("long", MICROS, "is long, and long timestamp-micros there"),
        (of("int", "date"), "int", "is int date, and int there"),
        (of("int", "date"), of("int", "time-millis"), "is int date, and int time-millis there"),
        ("bytes", decimal("bytes", 9), "is bytes, and bytes decimal(9, 0) there"),
        ("bytes", of("fixed", "duration", size=12, name="d"), "is bytes, and fixed duration there"),
        ("string", of("string", "uuid"), "is string, and string uuid there"),
        (
            decimal("fixed", 9, scale=2),
            decimal("fixed", 9, scale=3),
            "fixed decimal(9, 2), and fixed decimal(9, 3) there",
        ),
        (decimal("fixed", 9), FIXED, "is fixed decimal(9, 0), and fixed there"),
        ("int", "long", "is int, and long there"),
        ("long", ["string", "long"], "is a union of several types there"),
        ("long", ["null", "string", "long"], "is a union of several types there"),
        ("long", "null", "is long, and always null there"),
        ("null", "long", "is always null, and takes no null there"),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, "{} is long, and int there"),
        (record(("a", "long")), record(("A", "long")), ".a is not there"),
        (record(("a", "long")), record(("a", "long"), ("b", "long")), ".b takes no null there, and is not given"),
        (record(("member0", "string")), ["string", "long"], "is a union of several types there"),
        ({"type": "long", "spark.sql.catalyst.type": "interval day"}, "long", "is long interval day, and long there"),
    ],
)
def test_what_differs_is_told_with_its_place(own: Any, given: Any, words: str) -> None:
    found = misfit(record(("f", {"type": "array", "items": own})), record(("f", {"type": "array", "items": given})))
    assert found is not None
    assert found.startswith("field f[]")
    assert found.endswith(words)


def test_a_name_stands_for_what_was_defined_before() -> None:
    given = {**record(("first", ITEM), ("again", "Item"), ("far", "a.b.Item")), "namespace": "a.b"}
    own = [record(("n", kind), name=name) for name, kind in (("X", "long"), ("Y", "long"), ("Z", "int"))]
    places = ("first", "again", "far")
    whole = {**record(*zip(places, own, strict=True)), "namespace": "ours"}
    assert misfit(whole, given) == "field far.n is int, and long there"


@pytest.mark.parametrize("number", [-1, 2**31, 2**32])
def test_no_frame_has_a_number_that_no_reader_takes(number: int) -> None:
    encoding = Encoding("value", "avro", "Value", "spec.sinks[0].kafka.encode.value")
    with pytest.raises(ValueError, match=r"encode\.value: a schema has no number"):
        encoding.settled("{}", number)
    assert encoding.settled("{}", 7).frame == frame_of(7)
