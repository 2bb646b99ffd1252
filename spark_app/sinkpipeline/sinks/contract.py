"""What a kind of sink gives the runtime, and what the runtime gives it.

For each source partition of a batch the runtime makes one writer, hands it the rows in offset order, calls `idle` while
the next rows are late, and `finish` at the end of the range. After any error of a writer, `receipt` still tells how far
it got.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Headers, Row
from sinkpipeline.kafka.settings import SinkSettings


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What the driver tells every task of a batch. Pickles, and holds no secret."""

    settings: SinkSettings
    run: str
    data_partitions: int
    max_message_bytes: int
    data_topic_id: str
    progress_topic_id: str
    verified: int
    """The driver has seen every progress record below this offset, and the run in it was ours."""
    ranges: Mapping[SourcePartition, OffsetRange]
    frontier: Mapping[SourcePartition, PartitionProgress]
    owners: Mapping[SourcePartition, str]
    """Which worker keeps the producer of a partition; the token in it names host, process and run."""


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Rows of one source partition, in offset order, column by column; all columns are of one length."""

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    target_partitions: list[int] | None
    """-1 where the partitioner decides; None where it always does."""
    timestamps: list[int]
    """Milliseconds; 0 for now."""
    headers: list[Headers] | None
    errors: list[str | None] | None
    """Why a record could not be decoded; None where all could."""
    size: int
    """Bytes, about."""

    def __len__(self) -> int:
        return len(self.offsets)

    def rows(self, begin: int, end: int) -> Iterator[Row]:
        return zip(
            self.values[begin:end],
            self.keys[begin:end],
            repeat(-1) if self.target_partitions is None else self.target_partitions[begin:end],
            self.timestamps[begin:end],
            repeat(None) if self.headers is None else self.headers[begin:end],
            strict=False,
        )

    def first_bad(self, begin: int, end: int, partitions: int) -> tuple[int, str] | None:
        """The first row in `begin:end` that can't be delivered, with why."""
        found: tuple[int, str] | None = None
        if self.errors is not None:
            found = next(
                ((i, error) for i, error in enumerate(self.errors[begin:end], begin) if error is not None), None
            )
        if self.target_partitions is not None:
            stop = end if found is None else found[0]
            for i, target in enumerate(self.target_partitions[begin:stop], begin):
                if not -1 <= target < partitions:
                    return i, f"PartitionOutOfRange: {target} of {partitions}"
        return found


class SinkWriter(Protocol):
    """Writes the rows of one source partition of one batch."""

    def write(self, batch: RowBatch) -> None: ...

    def idle(self) -> None:
        """Called about once a second while the next rows are late."""

    def finish(self) -> None:
        """The range has no more rows."""

    def receipt(self) -> Receipt:
        """How far the writer got; without `error` and `retried`, which the runtime knows."""


def undecodable(partition: SourcePartition, offset: int, why: str) -> SinkPipelineError:
    """The error that stops a sink at a record that can't be delivered; where dead letters will branch off."""
    return SinkPipelineError(
        Reason.RECORD_UNDECODABLE,
        f"the record at {_place(partition)}, offset {offset} can't be delivered: {why}",
        "everything before it in its partition was delivered; correct decode or transform, or let it pass",
    )


def refused(partition: SourcePartition, offset: int, end: int, why: str) -> SinkPipelineError:
    """The error for records that Kafka refuses; `end` is exclusive."""
    which = f"offset {offset}" if end == offset + 1 else f"one of offsets {offset} to {end - 1}"
    if "timestamp" in why.lower():
        cure = "correct transform.select.timestamp, or widen message.timestamp.{before,after}.max.ms of the data topic"
    else:
        cure = "if it is too large, raise max.message.bytes of the data topic"
    return SinkPipelineError(
        Reason.RECORD_REFUSED,
        f"the record at {_place(partition)}, {which} was refused: {why}",
        f"{cure}; or leave such records out with transform.where",
    )


def _place(partition: SourcePartition) -> str:
    return f"topic {partition.topic}, partition {partition.partition}"
