"""Whether a value means the same by a writer's Avro schema and by a reader's.

Avro's own rules compare types alone, and so does a registry: a decimal of two digits behind the point fits one of
four, and milliseconds fit microseconds. Spark then takes the writer's number by the reader's meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinkpipeline.core.avro_fit import Node, root
from sinkpipeline.core.debezium import DATES, TIMESTAMPS

if TYPE_CHECKING:
    from collections.abc import Iterator

_DECIMAL = "decimal"
_OTHERS = ("record", "array", "map", "enum", "fixed")
"""What only fits its own kind; others may be promoted: an int to a long, a string to bytes."""


def other_meaning(reader: Any, writer: Any) -> str | None:
    """Where a value is another one by the reader's schema than by the writer's, and why; None where it nowhere is.

    Both fit by Avro's rules, and the reader's is not recursive. A type that has no meaning beside its bytes in one of
    them has the other's, as its author added it later; but bytes are no decimal.
    """
    return next(_others(root(reader), root(writer), ""), None)


def _others(reader: Node, writer: Node, at: str) -> Iterator[str]:
    ours, _ = reader.branches()
    theirs, _ = writer.branches()
    for their in theirs:
        # Of several types a value takes one that fits it: which, is Avro's to choose.
        alike = [our for our in ours if our.kind == their.kind] or [our for our in ours if _is_promoted(our, their)]
        found = [[*_differences(our, their, at)] for our in alike]
        if found and all(found):
            yield found[0][0]


def _is_promoted(our: Node, their: Node) -> bool:
    return not {our.kind, their.kind} & {*_OTHERS}


def _differences(our: Node, their: Node, at: str) -> Iterator[str]:
    match our.kind, their.kind:
        case "record", "record":
            given = their.fields()
            for each in our.schema["fields"]:
                name = next((name for name in (each["name"], *each.get("aliases", ())) if name in given), None)
                if name is not None:
                    place = f"{at}.{each['name']}" if at else each["name"]
                    yield from _others(our.part(each["type"]), given[name], place)
        case "array", "array":
            yield from _others(our.part(our.schema["items"]), their.part(their.schema["items"]), f"{at}[]")
        case "map", "map":
            yield from _others(our.part(our.schema["values"]), their.part(their.schema["values"]), f"{at}{{}}")
        case _:
            one, other = _meaning(our), _meaning(their)
            is_other = one != other and (bool(one and other) or one[:1] == (_DECIMAL,))
            if is_other:
                of = f"field {at}" if at else "it"
                yield f"{of} is {_words(their, other)} in the writer's schema, and {_words(our, one)} in the reader's"


def _meaning(node: Node) -> tuple[Any, ...]:
    """What a number or text stands for; empty where nothing is said of it."""
    schema = node.schema if isinstance(node.schema, dict) else {}
    kind, name = schema.get("logicalType"), schema.get("connect.name")
    if kind == _DECIMAL:
        return (_DECIMAL, schema.get("scale", 0))
    if kind is not None:
        return (kind,)
    if name is None:
        return ()
    times = {**DATES, **TIMESTAMPS}.get(name)
    return (name if times is None else times.value,)


def _words(node: Node, meaning: tuple[Any, ...]) -> str:
    match meaning:
        case ("decimal", scale):
            return f"a decimal of scale {scale}"
        case (meant,):
            return f"{node.kind} of {meant}"
        case _:
            return f"plain {node.kind}"
