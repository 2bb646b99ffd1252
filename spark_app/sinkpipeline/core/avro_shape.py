"""Whether two Avro schemas write the same bytes for the same value, whatever else a registry makes of their texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def writes_alike(one: str, other: str) -> bool:
    """By names and types of fields, in their order; namespaces, docs and defaults are of no matter here.

    Raises:
        ValueError: one of the texts is no JSON of a schema.
    """
    try:
        return bool(_shape(json.loads(one)) == _shape(json.loads(other)))
    except (TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError("no Avro schema") from error


def _shape(schema: Any) -> Any:
    if isinstance(schema, str):
        # Of a name that was defined before: registries differ in whether they spell out its namespace.
        return schema.rpartition(".")[2]
    if isinstance(schema, list):
        return "union", [_shape(each) for each in schema]
    kind = schema["type"]
    if not isinstance(kind, str):
        return _shape(kind)
    parts = _PARTS.get(kind)
    if parts is not None:
        return kind, parts(schema)
    more = [schema.get(each) for each in ("size", "logicalType", "precision", "scale")]
    return (kind, *more) if any(each is not None for each in more) else kind


_PARTS: dict[str, Callable[[Any], Any]] = {
    "record": lambda schema: [(each["name"], _shape(each["type"])) for each in schema["fields"]],
    "array": lambda schema: _shape(schema["items"]),
    "map": lambda schema: _shape(schema["values"]),
    "enum": lambda schema: schema["symbols"],
}
