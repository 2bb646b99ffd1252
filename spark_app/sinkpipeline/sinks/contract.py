"""What a kind of sink gives the runtime, and what the runtime gives it.

For each source partition of a batch the runtime makes one writer, hands it the rows in offset order, calls `idle` while
the next rows are late, and `finish` at the end of the range. After any error of a writer, `receipt` still tells how far
it got.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.deadletter import ErrorClass, Stage, Verdict, reason_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import NoDeadLetter, Settings
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Headers, Row, batch_size
from sinkpipeline.core.schemas import names_of
from sinkpipeline.core.task_ports import Claim, LetterBox, RecordReader, Sender

if TYPE_CHECKING:
    from sinkpipeline.sinks.worker import Worker


class Restart(Exception):
    """The sink must be started again; this is not a failure."""


class OversizedRecord(Restart):
    """The tasks stopped before a record that is too large for how rows travel; the next start must let it pass."""

    def __init__(self) -> None:
        super().__init__("a record is larger than what Arrow batches by count allow: from now on they are measured")


class UnknownSchemas(Restart):
    """The tasks stopped before records whose schemas the plan doesn't have; the next start must have them."""

    def __init__(self, frames: tuple[bytes, ...]) -> None:
        """`frames`: those that are needed first come first."""
        super().__init__(f"records name schemas that are not known yet: {names_of(frames)}")
        self.frames = frames


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What the driver tells every task of a batch. Pickles, and holds no secret."""

    kind: SinkKind
    settings: Settings
    run: str
    data_limits: TopicLimits
    letter_limits: TopicLimits
    """Of the dead-letter topic. Either may change at any time: what doesn't keep to it is looked at again."""
    data_topic_id: str
    progress_topic_id: str
    verified: int
    """The driver has seen every progress record below this offset, and the run in it was ours."""
    ranges: Mapping[SourcePartition, OffsetRange]
    frontier: Mapping[SourcePartition, PartitionProgress]
    owners: Mapping[SourcePartition, str]
    """Which worker keeps the producer of a partition; the token in it names host, process and run."""
    certain: bool = False
    """Whether the frontier was all that is, and can be, delivered so far when the batch began."""

    def limits(self, *, of_time: bool = True) -> Limits:
        """As of now. Without dead letters a row that Kafka would refuse is left to Kafka: it stops the sink anyway.

        `of_time`: whether our clock may judge.
        """
        data = self.data_limits
        if self.settings.dead_letter is None:
            return Limits(data.partitions)
        now = int(time.time() * 1000)
        age, ahead = (data.max_age_ms, data.max_ahead_ms) if of_time else (None, None)
        return Limits(
            partitions=data.partitions,
            row_bytes=data.message_bytes,
            earliest=None if age is None else now - age - _CLOCKS_DIFFER_MS,
            latest=None if ahead is None else now + ahead + _CLOCKS_DIFFER_MS,
            keyed=data.needs_key,
        )


_CLOCKS_DIFFER_MS = 60_000
"""Our clock isn't the brokers': what is nearer to a limit they judge themselves."""
CLOCK_SKEW = (
    "a broker took a row whose timestamp is beyond its limit by a worker's clock: that clock is wrong, and from now on "
    "only the brokers judge timestamps; set the clocks of the nodes by NTP"
)
_BOUNDLESS = frozenset({0, -1})
"""The client's now, and what Kafka calls none."""


@dataclass(frozen=True)
class Limits:
    """What rows must keep to."""

    partitions: int
    """Of the data topic."""
    row_bytes: int | None = None
    """How large one row may be; None where the producer refuses it."""
    earliest: int | None = None
    """The bounds of timestamps in milliseconds."""
    latest: int | None = None
    keyed: bool = False
    """Whether each needs a key."""

    def beyond_ms(self, timestamp: int) -> int:
        """By how much a timestamp is too late; negative where it is too early, 0 where it is neither."""
        if timestamp in _BOUNDLESS:
            return 0
        if self.earliest is not None and timestamp < self.earliest:
            return timestamp - self.earliest
        return max(0, timestamp - self.latest) if self.latest is not None else 0


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
    """Why a record could not be decoded, or can't be sent as it is; None where all could."""
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

    def bad_rows(self, limits: Limits) -> list[int]:
        """The rows that can't be delivered, in order. Costs nothing where columns and sizes rule them out."""
        found: set[int] = set()
        if self.errors is not None:
            found.update(i for i, error in enumerate(self.errors) if error is not None)
        if self.target_partitions is not None:
            found.update(i for i, target in enumerate(self.target_partitions) if not -1 <= target < limits.partitions)
        if limits.row_bytes is not None and self._may_exceed(limits.row_bytes):
            found.update(i for i in range(len(self)) if self._row_bytes(i) > limits.row_bytes)
        early = limits.earliest is not None and min(self.timestamps) < limits.earliest
        if early or (limits.latest is not None and max(self.timestamps) > limits.latest):
            found.update(i for i, timestamp in enumerate(self.timestamps) if limits.beyond_ms(timestamp))
        if limits.keyed and None in self.keys:
            found.update(i for i, key in enumerate(self.keys) if key is None)
        return sorted(found)

    def verdict(self, index: int, limits: Limits) -> Verdict:
        """Why a bad row can't be delivered."""
        error = None if self.errors is None else self.errors[index]
        if error is not None:
            return Verdict.of(error)
        target = -1 if self.target_partitions is None else self.target_partitions[index]
        if not -1 <= target < limits.partitions:
            return Verdict(ErrorClass.PARTITION_OUT_OF_RANGE, f"{target} of {limits.partitions}")
        timestamp = self.timestamps[index]
        if limits.beyond_ms(timestamp):
            return Verdict(
                ErrorClass.INVALID_TIMESTAMP, f"its timestamp, {timestamp}, is beyond what the data topic takes"
            )
        if limits.keyed and self.keys[index] is None:
            return Verdict(ErrorClass.RECORD_REFUSED, "it has no key, and the data topic is compacted")
        size = self._row_bytes(index)
        return Verdict(ErrorClass.RECORD_TOO_LARGE, f"it has {size} bytes, and the data topic takes {limits.row_bytes}")

    def _may_exceed(self, row_bytes: int) -> bool:
        if self.size + _ROW_OVERHEAD <= row_bytes:
            return False
        if self.headers is not None:
            return True
        return _longest(self.keys) + _longest(self.values) + _ROW_OVERHEAD > row_bytes

    def _row_bytes(self, index: int) -> int:
        return batch_size(self.values[index], self.keys[index], None if self.headers is None else self.headers[index])


_ROW_OVERHEAD = 128
"""More than the frame of a record without headers."""


def _longest(column: list[bytes | None]) -> int:
    return max(map(len, filter(None, column)), default=0)


class SinkKind(Protocol):
    """What a kind of sink gives tasks; it travels to them with each plan, and holds nothing."""

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> Claim:
        """`rows`: whether they are written under it too; else only the progress is."""

    def sender(self, plan: BatchPlan, worker: Worker) -> Sender:
        """The one that this worker has kept, or a new one."""

    def letter_box(self, plan: BatchPlan, worker: Worker) -> LetterBox: ...

    def reader(self, plan: BatchPlan, partition: SourcePartition) -> RecordReader:
        """Of the source."""

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:
        """Of the target, and of what takes dead letters; None where that is missing.

        Raises:
            SinkPipelineError: BrokerUnreachable and the like.
        """

    def fits_at_once(self, plan: BatchPlan) -> bool:
        """Whether a driver can deliver a batch as it does, and nothing takes less at once than what it sends."""


class SinkWriter(Protocol):
    """Writes the rows of one source partition of one batch."""

    def write(self, batch: RowBatch) -> None: ...

    def idle(self) -> None:
        """Called about once a second while the next rows are late."""

    def finish(self, *, whole: bool = True) -> None:
        """There are no more rows: of the whole range; or, where it is not, for this writer."""

    def receipt(self) -> Receipt:
        """How far the writer got; without `error` and `retried`, which the runtime knows."""


def stopped(partition: SourcePartition, offset: int, verdict: Verdict) -> SinkPipelineError:
    """The error that stops a sink without dead letters at a record that can't be delivered."""
    if verdict.error_class.stage is Stage.WRITE:
        return refused(partition, offset, offset + 1, verdict.text)
    return SinkPipelineError(
        Reason.RECORD_UNDECODABLE,
        f"the record at {_place(partition)}, offset {offset} can't be delivered: "
        f"{verdict.error_class.error(verdict.text)}",
        "everything before it in its partition was delivered; correct decode or transform, or give the sink a "
        "deadLetter; to skip the record, reset the sink to the offset after it",
    )


def not_dead_lettered(
    partition: SourcePartition, offset: int, verdict: Verdict, failure: NoDeadLetter
) -> SinkPipelineError:
    """The error that stops a sink under `onFailure: Stop`."""
    return SinkPipelineError(
        Reason.DEAD_LETTER_FAILED,
        f"the record at {_place(partition)}, offset {offset} can't be delivered "
        f"({verdict.error_class.error(reason_of(verdict.text))}), and its dead letter can't be written: {failure.fact}",
        f"everything before it in its partition was delivered; {failure.remedy}, or let such records go with "
        "onFailure: DropAndContinue",
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
