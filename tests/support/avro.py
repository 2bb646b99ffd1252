"""Avro values as producers write them, by fastavro: not the library that decodes them here."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.registry import Answers, Found, FoundReader

Schema = Any


def record(*fields: dict[str, Any] | tuple[str, Any], name: str = "Order") -> Schema:
    """A record's schema; a field is its name and type, or what Avro has for one."""
    entries = [{"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields]
    return {"type": "record", "name": name, "fields": entries}


def text(schema: Schema) -> str:
    return json.dumps(schema)


def parsed(schema: Schema) -> Schema:
    """For many values: they need not parse it again."""
    return fastavro.parse_schema(schema)


def body(schema: Schema, value: Any) -> bytes:
    """A value without a frame."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def frame(number: int, *, size: int = 4) -> bytes:
    """Confluent's: the magic byte 0, and the schema's number."""
    return b"\0" + number.to_bytes(size, "big")


def framed(number: int, schema: Schema, value: Any, *, size: int = 4) -> bytes:
    return frame(number, size=size) + body(schema, value)


@dataclass
class Registry:
    """In memory: asked like `kafka.registry.Registry`."""

    schemas: Mapping[bytes, Found]
    """By frame."""
    latest: Schema
    asked: list[frozenset[bytes]] = field(default_factory=list)
    away: bool = False
    reader_found: Found | None = None
    """Where it is not `latest`, in Avro."""

    def reader(self, subject: str, version: str) -> FoundReader:
        return FoundReader(self.reader_found or Found(text(self.latest), "AVRO"), subject, 2, int(version))

    def writers(self, frames: Sequence[bytes]) -> Answers:
        self.asked.append(frozenset(frames))
        if self.away:
            return Answers({}, SinkPipelineError(Reason.SCHEMA_REGISTRY_UNREACHABLE, "away", "none"))
        return Answers({each: self.schemas.get(each) for each in frames})
