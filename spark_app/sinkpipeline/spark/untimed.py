"""The record whose timestamp Spark has no time for.

Spark's source makes a time of each record's timestamp before anything else sees the record, and fails for one in
nanoseconds: the batch is never read, whatever its values are, and Spark does not say where the record is. So the batch
is read once more here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sinkpipeline.core.errors import Reason, SinkPipelineError

if TYPE_CHECKING:
    from sinkpipeline.core.batch import OffsetRange
    from sinkpipeline.core.naming import SourcePartition
    from sinkpipeline.core.ports import Settings

LAST_MS: Final = (2**63 - 1) // 1000
"""Spark's times are microseconds since 1970, in 64 bits."""
_SECONDS: Final = 60.0
"""How long it is looked for."""


def named(
    error: SinkPipelineError, settings: Settings, ranges: Mapping[SourcePartition, OffsetRange]
) -> SinkPipelineError:
    """The error with the record's place; as it was where the record is not found in time."""
    try:
        found = next(_untimed(settings, ranges, time.monotonic() + _SECONDS), None)
    except SinkPipelineError:
        return error
    if found is None:
        return error
    partition, offset, timestamp = found
    place = f"{partition.topic}:{partition.partition}={offset + 1}"
    return SinkPipelineError(
        Reason.RECORD_UNDECODABLE,
        f"the record at topic {partition.topic}, partition {partition.partition}, offset {offset} can't be read: "
        f"Spark has no time for its timestamp, {timestamp} ms",
        f"correct the producer; to skip the record, reset sink {settings.id.sink} to {place}, the offset after it. "
        "Brokers refuse such records by the topic's message.timestamp.after.max.ms",
    )


def _untimed(
    settings: Settings, ranges: Mapping[SourcePartition, OffsetRange], until: float
) -> Iterator[tuple[SourcePartition, int, int]]:
    # Only who needs it pays for the client.
    from sinkpipeline.kafka.source.reader import SourceReader  # noqa: PLC0415

    source: Any = settings.source
    for partition, each in sorted(ranges.items()):
        with contextlib.closing(SourceReader(source.connection, settings.group_id, partition)) as reader:
            # A new partition's first range begins nowhere that is known.
            for offset in range(0 if each.is_new else each.start, each.end):
                if time.monotonic() > until:
                    return
                record = reader.read(offset)
                if record is not None and abs(record.timestamp) > LAST_MS:
                    yield partition, offset, record.timestamp
