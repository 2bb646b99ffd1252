"""Columns of a JSON Schema: a subset of it, by name. What is outside of it is refused, never guessed.

    string STRING, integer BIGINT, number DOUBLE, boolean BOOLEAN, array ARRAY, object with properties STRUCT, object
    with additionalProperties alone MAP; `required` is NOT NULL; `type` with "null", and oneOf or anyOf of null and one
    other; `$ref` into the schema itself

What only narrows values (bounds, pattern, enum, format) changes no column, and nobody here checks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.quoting import quoted

_PLAIN = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_REFUSED = (
    *("allOf", "not", "if", "then", "else", "patternProperties", "prefixItems", "dependencies", "dependentSchemas"),
    *("$dynamicRef", "$recursiveRef"),
)
_DEEPEST = 32
_MOST = 4096
_NULL = "null"


class NoColumns(ValueError):
    """A schema, or a part of it, that has no columns; its text says where and why."""


def columns_of(text: str) -> str:
    """The columns, as a Spark DDL schema.

    Raises:
        NoColumns: the schema is outside of the subset.
    """
    try:
        schema = parse_json(text)
    except ValueError as error:
        raise NoColumns("it is no JSON") from error
    reader = _Reader(schema)
    root, nullable = reader.resolved(schema, "#", ())
    if nullable or root.get("type") != "object" or "properties" not in root:
        raise NoColumns("it is not of one object with properties")
    return ", ".join(f"{name} {kind}" for name, kind in reader.fields(root, "#", ()))


class _Reader:
    """Of one schema; `seen` are the references that led to a part of it."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._parts = 0

    def resolved(self, part: Any, at: str, seen: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
        """What a part means, without references and null, and whether it may be null; with one `type`."""
        if not isinstance(part, dict):
            raise NoColumns(f"{at} is no object")
        self._parts += 1
        # References make many parts of few.
        if at.count("/") > 2 * _DEEPEST or self._parts > _MOST:
            raise NoColumns(f"it is deeper than {_DEEPEST}, or has more than {_MOST} parts")
        if found := [each for each in _REFUSED if each in part]:
            raise NoColumns(f"{at} has {found[0]}")
        if "$ref" in part:
            return self.resolved(self._referred(part["$ref"], at, seen), at, (*seen, str(part["$ref"])))
        for choice in ("oneOf", "anyOf"):
            if choice in part:
                return self._of_choice(part[choice], f"{at}/{choice}", seen)
        kinds = part.get("type")
        several = kinds if isinstance(kinds, list) else [kinds]
        rest = [each for each in several if each != _NULL]
        if len(rest) != 1 or not isinstance(rest[0], str):
            raise NoColumns(f"{at} has not one type")
        return {**part, "type": rest[0]}, len(rest) < len(several)

    def fields(self, of: dict[str, Any], at: str, seen: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Names and types of an object's properties."""
        properties, required = of["properties"], of.get("required", [])
        readable = isinstance(properties, dict) and isinstance(required, list)
        if not readable or not properties or not all(isinstance(each, str) for each in required):
            raise NoColumns(f"{at} has no properties that can be read")
        if missing := [each for each in required if each not in properties]:
            raise NoColumns(f"{at} requires {missing[0]}, which is not among its properties")
        for name, each in properties.items():
            if not name or "\n" in name:
                raise NoColumns(f"{at} has a property without a name that a column can have")
            kind, nullable = self._kind(each, f"{at}/properties/{name}", seen)
            yield quoted(name), kind if nullable or name not in required else f"{kind} NOT NULL"

    def _kind(self, part: Any, at: str, seen: tuple[str, ...]) -> tuple[str, bool]:
        found, nullable = self.resolved(part, at, seen)
        seen = (*seen, *((part["$ref"],) if "$ref" in part else ()))
        match found["type"]:
            case "array":
                items = found.get("items")
                return f"ARRAY<{self._kind(items, f'{at}/items', seen)[0]}>", nullable
            case "object" if "properties" in found:
                inner = ", ".join(f"{name}: {kind}" for name, kind in self.fields(found, at, seen))
                return f"STRUCT<{inner}>", nullable
            case "object" if isinstance(found.get("additionalProperties"), dict):
                values = self._kind(found["additionalProperties"], f"{at}/additionalProperties", seen)[0]
                return f"MAP<STRING, {values}>", nullable
            case str(name) if name in _PLAIN:
                return _PLAIN[name], nullable
            case other:
                raise NoColumns(f"{at} is of type {other}, and does not say of what")

    def _of_choice(self, choices: Any, at: str, seen: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
        known = choices if isinstance(choices, list) else []
        rest = [each for each in known if not (isinstance(each, dict) and each.get("type") == _NULL)]
        if len(rest) != 1:
            raise NoColumns(f"{at} is more than a choice between null and one other")
        found, nullable = self.resolved(rest[0], at, seen)
        return found, nullable or len(rest) < len(known)

    def _referred(self, ref: Any, at: str, seen: tuple[str, ...]) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#/"):
            raise NoColumns(f"{at} refers to something outside of it")
        if ref in seen:
            raise NoColumns(f"{at} refers to itself")
        found = self._whole
        for step in ref.removeprefix("#/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise NoColumns(f"{at} refers to {ref}, which is not there")
            found = found[name]
        return found
