"""Avro values as producers write them, by fastavro: not the library that decodes them here."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

Schema = Any


def record(*fields: dict[str, Any] | tuple[str, Any], name: str = "Order") -> Schema:
    """A record's schema; a field is its name and type, or what Avro has for one."""
    entries = [{"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields]
    return {"type": "record", "name": name, "fields": entries}


def text(schema: Schema) -> str:
    return json.dumps(schema)


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
