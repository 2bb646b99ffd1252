"""Rows as Spark's Kafka source gives them, and letters of which such rows are made again."""

from __future__ import annotations

from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.records import Headers
from sinkpipeline.core.redrive import Letter, LetterId

SOURCE = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def letter(
    offset: int,
    source: int,
    value: bytes | None,
    *,
    headers: Headers = None,
    timestamp: int = 5_000,
    partition: int = 0,
) -> Letter:
    record = SourceRecord(
        partition=SourcePartition("t", partition),
        offset=source,
        key=None if value is None else b"k",
        value=value,
        headers=headers,
        timestamp=timestamp,
    )
    verdict = Verdict(ErrorClass.WRONG_TYPE, "x")
    return Letter(LetterId(0, offset), 0, DeadLetter(sink=SinkId("i", "s"), verdict=verdict, record=record))
