"""Whether rows of one Avro schema can be written with another one, and mean the same there.

A writer looks less closely: Spark's cuts microseconds to milliseconds, takes a field by its name in another case, and
knows nothing of most logical types. Whatever differs here is told, with its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMED = {"record", "enum", "fixed", "error"}
_MEANING = ("logicalType", "spark.sql.catalyst.type")
"""What a type has beside its bytes."""
_WIDER = {("string", "enum"), ("bytes", "fixed")}
"""A value that is none of the second's fails when it is written."""
_DECIMAL = {"bytes", "fixed"}


def misfit(own: Any, given: Any) -> str | None:
    """Why not all that `own` describes can be written with `given`; None where it can."""
    return next(_misfits(root(own), root(given), ""), None)


@dataclass(frozen=True)
class Node:
    """A part of a schema."""

    schema: Any
    space: str
    names: Mapping[str, Node]
    """Of the whole schema, by full name."""

    def part(self, schema: Any) -> Node:
        """What stands below, where a name stands for what was defined before."""
        if isinstance(schema, str):
            full = schema if "." in schema or not self.space else f"{self.space}.{schema}"
            known = self.names.get(full) or self.names.get(schema)
            if known is not None:
                return known
        return Node(schema, _space_of(schema, self.space), self.names)

    @property
    def kind(self) -> str:
        return str(self.schema.get("type")) if isinstance(self.schema, dict) else str(self.schema)

    def branches(self) -> tuple[list[Node], bool]:
        """Its types beside null, and whether null is one."""
        found = [self.part(each) for each in self.schema] if isinstance(self.schema, list) else [self]
        others = [each for each in found if each.kind != "null"]
        return others, len(others) < len(found)

    def fields(self) -> dict[str, Node]:
        return {each["name"]: self.part(each["type"]) for each in self.schema["fields"]}

    def meaning(self) -> tuple[Any, ...]:
        if not isinstance(self.schema, dict):
            return (None,) * len(_MEANING)
        found: tuple[Any, ...] = tuple(self.schema.get(each) for each in _MEANING)
        if found[0] == "decimal":
            found += (self.schema.get("precision"), self.schema.get("scale", 0))
        return found

    def words(self) -> str:
        meaning, *more = (each for each in self.meaning() if each is not None) if any(self.meaning()) else ("",)
        of = f"{meaning}({', '.join(map(str, more))})" if more else meaning
        return f"{self.kind} {of}".rstrip()


def root(schema: Any) -> Node:
    """Where one begins to walk through a schema."""
    names: dict[str, Node] = {}
    _name_all(schema, "", names)
    return Node("", "", names).part(schema)


def _space_of(schema: Any, around: str) -> str:
    """The namespace of what stands in it."""
    if not isinstance(schema, dict) or schema.get("type") not in _NAMED:
        return around
    return _full_name(schema, around).rpartition(".")[0]


def _full_name(schema: dict[str, Any], around: str) -> str:
    name = str(schema.get("name"))
    space = schema.get("namespace", around)
    return name if "." in name or not space else f"{space}.{name}"


def _name_all(schema: Any, around: str, names: dict[str, Node]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _name_all(each, around, names)
    elif isinstance(schema, dict):
        space = _space_of(schema, around)
        if schema.get("type") in _NAMED:
            names[_full_name(schema, around)] = Node(schema, space, names)
        below = [schema.get("items"), schema.get("values"), *(each["type"] for each in schema.get("fields", ()))]
        for each in below:
            _name_all(each, space, names)


def _misfits(own: Node, given: Node, at: str) -> Iterator[str]:
    ours, _ = own.branches()
    theirs, takes_null = given.branches()
    if len(theirs) > 1:
        yield f"{_told(at)} is a union of several types there"
    elif not ours:
        if not takes_null and theirs:
            yield f"{_told(at)} is always null, and takes no null there"
    elif not theirs:
        yield f"{_told(at)} is {ours[0].words()}, and always null there"
    else:
        yield from _differences(ours[0], theirs[0], at)


def _differences(own: Node, given: Node, at: str) -> Iterator[str]:
    match own.kind, given.kind:
        case "record", "record":
            yield from _of_fields(own.fields(), given.fields(), at)
        case "array", "array":
            yield from _misfits(own.part(own.schema["items"]), given.part(given.schema["items"]), f"{at}[]")
        case "map", "map":
            yield from _misfits(own.part(own.schema["values"]), given.part(given.schema["values"]), f"{at}{{}}")
        case kinds:
            meaning = own.meaning()
            same = kinds[0] == kinds[1] or kinds in _WIDER or (meaning[0] == "decimal" and set(kinds) <= _DECIMAL)
            if not same or meaning != given.meaning():
                yield f"{_told(at)} is {own.words()}, and {given.words()} there"


def _of_fields(ours: Mapping[str, Node], theirs: Mapping[str, Node], at: str) -> Iterator[str]:
    for name, own in ours.items():
        place = f"{at}.{name}" if at else name
        if name in theirs:
            yield from _misfits(own, theirs[name], place)
        else:
            yield f"{_told(place)} is not there"
    for name, given in theirs.items():
        others, takes_null = given.branches()
        if name not in ours and others and not takes_null:
            yield f"{_told(f'{at}.{name}' if at else name)} takes no null there, and is not given"


def _told(at: str) -> str:
    return f"field {at}" if at else "it"
