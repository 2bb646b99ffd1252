"""Which texts of Avro schemas write the same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sinkpipeline.core.avro_shape import writes_alike

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields], **more}


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("long", {"type": "long"}, True),
        (record(("a", "int")), record(("a", {"type": "int"}), namespace="of.others", doc="d"), True),
        (record(("a", "int"), ("b", "int")), record(("b", "int"), ("a", "int")), False),
        (record(("a", "int")), record(("a", ["null", "int"])), False),
        (record(("a", DECIMAL)), record(("a", {**DECIMAL, "scale": 3})), False),
        (record(("a", DECIMAL)), record(("a", {**DECIMAL, "doc": "d"})), True),
        (record(("a", {"type": "array", "items": "R"})), record(("a", {"type": "array", "items": "n.R"})), True),
        (record(("a", {"type": "map", "values": "int"})), record(("a", {"type": "map", "values": "long"})), False),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["B"]}, False),
        ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}, False),
        ({"type": {"type": "array", "items": "int"}}, {"type": "array", "items": "int"}, True),
    ],
)
def test_names_and_types_in_their_order_count(one: Any, other: Any, alike: bool) -> None:
    assert writes_alike(json.dumps(one), json.dumps(other)) is alike


@pytest.mark.parametrize("text", ["{", "{}", "7", '{"type": "record"}', '{"type": 1}'])
def test_what_is_no_schema_is_told(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any
        writes_alike(text, '{"type": "record", "name": "R", "fields": []}')
