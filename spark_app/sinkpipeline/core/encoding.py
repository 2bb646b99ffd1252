"""How a part of a row is written with a schema of a registry: a frame that names the schema, and the data.

The schema is settled once, when a sink starts, and stands in the plan: no task asks a registry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinkpipeline.core.manifest import Sink

EncodeFormat = Literal["avro", "json"]

LAST_NUMBER = 2**31 - 1
"""Registries count in Java's int, from 1."""


@dataclass(frozen=True)
class Encoding:
    """Of one part of a sink's rows."""

    part: Literal["key", "value"]
    format: EncodeFormat
    record: str
    """The full name of the record."""
    path: str
    """In the manifest."""
    schema: str | None = None
    """What the data is written with; None until that is settled."""
    frame: bytes | None = None
    """What stands before it; likewise."""

    def settled(self, schema: str, number: int) -> Encoding:
        """With a schema, by its number in the registry; 0 where it has none yet, which only a preview shows.

        Raises:
            ValueError: no reader takes that number.
        """
        if not 0 <= number <= LAST_NUMBER:
            raise ValueError(f"{self.path}: a schema has no number {number}")
        return replace(self, schema=schema, frame=frame_of(number))


def frame_of(number: int) -> bytes:
    """As of Confluent's serializers."""
    return b"\0" + number.to_bytes(4, "big")


def encodings_of(sink: Sink, at: str) -> tuple[Encoding, ...]:
    """Of the sink that stands `at` this path of the manifest."""
    return tuple(
        Encoding(
            part=part,
            format=each.format.value,
            record=each.schema_registry.record_name or part.capitalize(),
            path=f"{at}.kafka.encode.{part}",
        )
        for part, each in sink.encodings()
    )


def evolvable(schema: Any) -> Any:
    """An Avro schema whose fields are null by default, where they may be null.

    A later version without such a field, or with one more, can then be read with this one, and the other way round.
    """
    match schema:
        case list():
            return sorted(map(evolvable, schema), key=lambda each: each != "null")
        case {"type": "record", "fields": fields}:
            return {**schema, "fields": list(_fields(fields))}
        case {"type": "array", "items": items}:
            return {**schema, "items": evolvable(items)}
        case {"type": "map", "values": values}:
            return {**schema, "values": evolvable(values)}
        case _:
            return schema


def _fields(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in fields:
        kind = evolvable(each["type"])
        optional = isinstance(kind, list) and kind[0] == "null"
        yield {**each, "type": kind, **({"default": None} if optional else {})}
