"""Which columns a JSON Schema has, and which has none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sinkpipeline.core.json_columns import NoColumns, columns_of

INT = {"type": "integer"}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def columns(of: Any) -> str:
    return columns_of(json.dumps(of))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ({"type": "string", "format": "date-time", "pattern": "x"}, "STRING"),
        (INT, "BIGINT"),
        ({"type": "number", "minimum": 1}, "DOUBLE"),
        ({"type": ["boolean", "null"]}, "BOOLEAN"),
        ({"oneOf": [{"type": "null", "title": "x"}, INT]}, "BIGINT"),
        ({"anyOf": [{"$ref": "#/$defs/x~1y"}]}, "STRING"),
        ({"$ref": "#/definitions/part"}, "STRUCT<`n`: BIGINT NOT NULL, `m`: BIGINT>"),
        ({"type": "array", "items": {"oneOf": [{"type": "null"}, INT]}}, "ARRAY<BIGINT>"),
        ({"type": "object", "additionalProperties": {"type": "array", "items": INT}}, "MAP<STRING, ARRAY<BIGINT>>"),
    ],
)
def test_a_type(kind: Any, column: str) -> None:
    more = {"$defs": {"x/y": {"type": "string"}}, "definitions": {"part": {**schema(n=INT, m=INT), "required": ["n"]}}}
    assert columns({**schema(a=kind), **more}) == f"`a` {column}"


def test_what_is_required_and_takes_no_null_is_not_null() -> None:
    of = {**schema(a=INT, b={"type": ["integer", "null"]}, c=INT), "required": ["a", "b"]}
    assert columns(of) == "`a` BIGINT NOT NULL, `b` BIGINT, `c` BIGINT"
    assert columns(schema(**{"a `b`, c": INT})) == "`a ``b``, c` BIGINT"


_TWICE = {
    f"d{each}": schema(a={"$ref": f"#/$defs/d{each + 1}"}, b={"$ref": f"#/$defs/d{each + 1}"}) for each in range(30)
}
_DEEP: Any = INT
for _ in range(200):
    _DEEP = {"oneOf": [_DEEP]}


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ([], "# is no object"),
        (True, "# is no object"),
        (INT, "not of one object"),
        ({"type": "object"}, "not of one object"),
        ({**schema(a=INT), "type": ["object", "null"]}, "not of one object"),
        (schema(), "no properties that can be read"),
        ({**schema(a=INT), "required": ["b"]}, "requires b"),
        ({**schema(a=INT), "required": [[]]}, "can be read"),
        (schema(a={}), "#/properties/a has not one type"),
        (schema(a={"type": ["integer", "string"]}), "not one type"),
        (schema(a={"type": "null"}), "not one type"),
        (schema(a=True), "is no object"),
        (schema(a={"type": "object"}), "does not say of what"),
        (schema(a={"type": "array"}), "#/properties/a/items is no object"),
        (schema(a={"type": "array", "items": [INT]}), "is no object"),
        (schema(a={"oneOf": [INT, {"type": "string"}]}), "more than a choice between null and one other"),
        (schema(a={"allOf": [INT]}), "has allOf"),
        (schema(a={**INT, "not": INT}), "has not"),
        (schema(a={"$ref": "other.json"}), "outside of it"),
        (schema(a={"$ref": "#/nothing"}), "which is not there"),
        (schema(a={"$ref": "#"}), "outside of it"),
        (schema(a={"$ref": "#/properties/a"}), "refers to itself"),
        (
            {**schema(a={"$ref": "#/$defs/t"}), "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}},
            "itself",
        ),
        ({**schema(a={"$ref": "#/$defs/d0"}), "$defs": {**_TWICE, "d30": INT}}, "more than 4096 parts"),
        (schema(a=_DEEP), "deeper than 32"),
    ],
)
def test_outside_of_the_subset(of: Any, words: str) -> None:
    with pytest.raises(NoColumns, match=words):
        columns(of)


def test_no_json() -> None:
    for text in ("{", "[" * 100_000):
        with pytest.raises(NoColumns, match="no JSON"):
            columns_of(text)
