"""Envelopes as Debezium and Kafka Connect's converters wrote them; `dev/debezium/record.py` has recorded them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinkpipeline.core.schemas import Known, Writer

_DATA = Path(__file__).parents[1] / "data" / "debezium"


@dataclass(frozen=True)
class Recorded:
    """One record of a connector."""

    topic: str
    key: str | None
    plain: bytes | None
    """JSON without Connect's schema; None: a tombstone."""
    wrapped: bytes | None
    """JSON with it."""
    avro: bytes | None
    """Framed; the schema's number is that of `Run.schemas`."""
    payload: dict[str, Any]

    @property
    def op(self) -> str | None:
        return self.payload.get("op")


@dataclass(frozen=True)
class Run:
    """What one run of a connector gave."""

    records: tuple[Recorded, ...]
    schemas: tuple[str, ...]
    """Of Avro."""
    table: tuple[tuple[str | None, ...], ...] = ()
    """What the source's table had in the end, as texts."""

    def of(self, topic: str) -> list[Recorded]:
        return [each for each in self.records if each.topic == topic]

    def known(self, *unusable: Writer) -> Known:
        """Each schema as a writer, but for those that are `unusable`."""
        frames = {each.frame for each in unusable}
        writers = tuple(Writer(frame(number), each) for number, each in enumerate(self.schemas))
        return Known().learnt([each for each in writers if each.frame not in frames], unusable)


def documented(connector: str) -> list[bytes]:
    """Wrapped envelopes by the documentation of a connector that nobody ran: a snapshot, a creation, an update and a
    deletion."""
    found = json.loads((_DATA / "by-documentation.json").read_text())[connector]
    return [json.dumps({"schema": found["schema"], "payload": each}).encode() for each in found["changes"]]


def connect_schema(name: str) -> str:
    """Kafka Connect's schema of the first record of a file."""
    with (_DATA / f"{name}.jsonl").open() as lines:
        schema: str = json.loads(next(lines))["connect"]
    return schema


def frame(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def recorded(name: str) -> Run:
    records: list[Recorded] = []
    connect: list[str] = []
    avro: list[str] = []
    for line in (_DATA / f"{name}.jsonl").read_text().splitlines():
        each = json.loads(line)
        if "schema" in each:
            connect.append(each["connect"])
            avro.append(each["avro"])
            continue
        if "table" in each:
            return Run(tuple(records), tuple(avro), tuple(map(tuple, each["table"])))
        payload = each.get("payload")
        has = payload is not None
        records.append(
            Recorded(
                each["topic"],
                each["key"],
                payload.encode() if has else None,
                f'{{"schema":{connect[each["of"]]},"payload":{payload}}}'.encode() if has else None,
                frame(each["of"]) + base64.b64decode(each["body"]) if has and each["body"] else None,
                json.loads(payload) if has else {},
            )
        )
    return Run(tuple(records), tuple(avro))
