"""What a kind of sink gives the runtime, and what the runtime gives it.

For each source partition of a batch the runtime makes one writer, hands it the rows in offset order, calls `idle` while
the next rows are late, and `finish` at the end of the range. After any error of a writer, `receipt` still tells how far
it got.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.cuts import MOST_BYTES, CutPolicy
from sinkpipeline.core.deadletter import ErrorClass, SourceRecord, Stage, Verdict
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Columns, Headers, batch_size
from sinkpipeline.core.row_limits import Limits
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


@dataclass(frozen=True)
class Stop:
    """Where the rows of a partition end, as the schema of the next record is not known."""

    offset: int
    """Of that record."""
    frames: tuple[bytes, ...]
    """Of it, and of those behind it that are not known either."""


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
    """Which worker keeps the producer of a partition; the token in it names host, process and term."""
    certain: bool = False
    """Whether the frontier was all that is, and can be, delivered so far when the batch began."""
    store: str = ""
    """The store that the driver reads, where a kind can tell: a task that meets another one writes nothing."""

    @property
    def term(self) -> str:
        """As long as it is the same, a session that a worker keeps is good."""
        return f"{self.run}/{self.store}" if self.store else self.run

    def limits(self, *, of_time: bool = True) -> Limits:
        """As of now. Without dead letters a row that Kafka would refuse is left to Kafka: it stops the sink anyway.

        `of_time`: whether our clock may judge.
        """
        data = self.data_limits
        topics = {name: self._limits(each, of_time=False) for name, each in data.parts.items()}
        return replace(self._limits(data, of_time=of_time), topics=topics or None)

    def _limits(self, data: TopicLimits, *, of_time: bool) -> Limits:
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


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Records of one source partition, in offset order, and the rows that were made of them, column by column.

    A record gives one row, or several. Whoever has a batch counts in records: only here it is known which rows are of
    which one. So the rows of a record go, are cut, and are refused together.
    """

    offsets: list[int]
    """Of the records; the other columns have an entry for each row."""
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
    target_topics: list[str | None] | None = None
    """The topic of each row, of a sink that has several; null beside an error."""
    firsts: list[int] | None = None
    """Where the rows of each record begin, and at last their number; None where each record has one row."""

    def __len__(self) -> int:
        return len(self.offsets)

    def rows(self, begin: int, end: int) -> Columns:
        """Those of the records from `begin` on and before `end`."""
        sources = partial(self._sources, begin, end)
        begin, end = self._row(begin), self._row(end)
        return Columns(
            self.values[begin:end],
            self.keys[begin:end],
            [-1] * (end - begin) if self.target_partitions is None else self.target_partitions[begin:end],
            self.timestamps[begin:end],
            [None] * (end - begin) if self.headers is None else self.headers[begin:end],
            sources,
            # Who has no topic is bad, and not among them.
            None if self.target_topics is None else self.target_topics[begin:end],  # type: ignore[arg-type]
        )

    def _sources(self, begin: int, end: int) -> list[int]:
        """Of each row of these records its offset."""
        if self.firsts is None:
            return self.offsets[begin:end]
        return [self.offsets[each] for each in range(begin, end) for _ in range(self.count(each, each + 1))]

    def count(self, begin: int, end: int) -> int:
        """How many rows `rows` gives."""
        return self._row(end) - self._row(begin)

    def within(self, begin: int, rows: int) -> int:
        """The record before which there are at most so many rows from `begin` on, and at least one record."""
        if self.firsts is None:
            return min(len(self), begin + rows)
        return max(begin + 1, bisect_right(self.firsts, self.firsts[begin] + rows) - 1)

    def record_of(self, begin: int, row: int) -> tuple[int, bool]:
        """The record of a row that `rows(begin, ...)` gives, by its place there; whether it is the record's first."""
        if self.firsts is None:
            return begin + row, True
        place = self.firsts[begin] + row
        record = bisect_right(self.firsts, place) - 1
        return record, place == self.firsts[record]

    def part(self, begin: int, end: int) -> RowBatch:
        """These records alone, where they may have several rows."""
        first, last = self._row(begin), self._row(end)
        found = RowBatch(
            offsets=self.offsets[begin:end],
            keys=self.keys[first:last],
            values=self.values[first:last],
            target_partitions=None if self.target_partitions is None else self.target_partitions[first:last],
            target_topics=None if self.target_topics is None else self.target_topics[first:last],
            timestamps=self.timestamps[first:last],
            headers=None if self.headers is None else self.headers[first:last],
            errors=None if self.errors is None else self.errors[first:last],
            size=0,
            firsts=None if self.firsts is None else [each - first for each in self.firsts[begin : end + 1]],
        )
        return replace(found, size=content_bytes(found))

    def is_too_large(self, index: int) -> bool:
        """Whether the rows of a record don't fit into one commit."""
        return self.size > MOST_BYTES and self.part(index, index + 1).size > MOST_BYTES

    def bad_rows(self, limits: Limits) -> list[int]:
        """The records of which a row can't be delivered, in order. Costs nothing where columns and sizes say so."""
        found = self._bad(limits)
        if self.firsts is None:
            return sorted(found)
        records = {self.record_of(0, row)[0] for row in found}
        if self.size > MOST_BYTES:
            records.update(i for i in range(len(self)) if self.is_too_large(i))
        return sorted(records)

    def _bad(self, limits: Limits) -> set[int]:
        found = self._beyond(limits)
        if limits.topics is None or self.target_topics is None:
            return found
        # What keeps to the strictest limits needs no look at those of its own topic.
        found = {row for row in found if self._is_bad(row, limits)}
        if not limits.topics.keys() >= set(self.target_topics):
            found.update(i for i, topic in enumerate(self.target_topics) if topic not in limits.topics)
        return found

    def _is_bad(self, row: int, limits: Limits) -> bool:
        own = self._own(row, limits)
        if own is None or (self.errors is not None and self.errors[row] is not None):
            return True
        target = -1 if self.target_partitions is None else self.target_partitions[row]
        if not -1 <= target < own.partitions or (own.keyed and self.keys[row] is None):
            return True
        return own.row_bytes is not None and self._row_bytes(row) > own.row_bytes

    def _own(self, row: int, limits: Limits) -> Limits | None:
        """Those of the row's topic; None where the sink has no such topic."""
        if limits.topics is None or self.target_topics is None:
            return limits
        return limits.topics.get(self.target_topics[row] or "")

    def _beyond(self, limits: Limits) -> set[int]:
        found: set[int] = set()
        rows = range(len(self.keys))
        if self.errors is not None:
            found.update(i for i, error in enumerate(self.errors) if error is not None)
        if self.target_partitions is not None:
            found.update(i for i, target in enumerate(self.target_partitions) if not -1 <= target < limits.partitions)
        if limits.row_bytes is not None and self._may_exceed(limits.row_bytes):
            found.update(i for i in rows if self._row_bytes(i) > limits.row_bytes)
        early = limits.earliest is not None and min(self.timestamps) < limits.earliest
        if early or (limits.latest is not None and max(self.timestamps) > limits.latest):
            found.update(i for i, timestamp in enumerate(self.timestamps) if limits.beyond_ms(timestamp))
        if limits.keyed and None in self.keys:
            found.update(i for i, key in enumerate(self.keys) if key is None)
        return found

    def error(self, index: int) -> str | None:
        """Why nothing can be made of a record, whatever the limits."""
        row = self._failed(index)
        return None if row is None or self.errors is None else self.errors[row]

    def verdict(self, index: int, limits: Limits) -> Verdict:
        """Why a bad record can't be delivered."""
        row = self.culprit(index, limits)
        if row is None:
            return Verdict(ErrorClass.TOO_MANY_ROWS, f"its rows have more than the {MOST_BYTES} bytes of one commit")
        error = None if self.errors is None else self.errors[row]
        if error is not None:
            return Verdict.of(error)
        own = self._own(row, limits)
        return _NOT_DECLARED if own is None else self._beyond_own(row, own)

    def _beyond_own(self, row: int, limits: Limits) -> Verdict:
        target = -1 if self.target_partitions is None else self.target_partitions[row]
        if not -1 <= target < limits.partitions:
            return Verdict(ErrorClass.PARTITION_OUT_OF_RANGE, f"{target} of {limits.partitions}")
        timestamp = self.timestamps[row]
        if limits.beyond_ms(timestamp):
            return Verdict(
                ErrorClass.INVALID_TIMESTAMP, f"its timestamp, {timestamp}, is beyond what the data topic takes"
            )
        if limits.keyed and self.keys[row] is None:
            return Verdict(ErrorClass.RECORD_REFUSED, "it has no key, and the data topic is compacted")
        size = self._row_bytes(row)
        return Verdict(ErrorClass.RECORD_TOO_LARGE, f"it has {size} bytes, and the data topic takes {limits.row_bytes}")

    def culprit(self, index: int, limits: Limits) -> int | None:
        """The row for which a record is bad, the first with an error before others; None where it is all together."""
        if self.firsts is None:
            return index
        first, failed = self.firsts[index], self._failed(index)
        if failed is not None:
            return failed
        alone = self.part(index, index + 1)
        bad = alone._bad(limits)  # noqa: SLF001 - of the same class
        return first + min(bad) if bad else None

    def timestamp(self, index: int, limits: Limits) -> int:
        """Of a bad record, that of the row for which it is bad."""
        row = self.culprit(index, limits)
        return self.timestamps[self._row(index) if row is None else row]

    def source_record(self, partition: SourcePartition, index: int) -> SourceRecord | None:
        """A bad record as the source has it; None where its rows are what was made of it."""
        row = self._failed(index)
        if row is None or self.errors is None:
            return None
        if Verdict.of(self.errors[row] or "").error_class.stage not in _MADE_OF_ROWS:
            return None
        return SourceRecord(
            partition=partition,
            offset=self.offsets[index],
            key=self.keys[row],
            value=self.values[row],
            headers=None if self.headers is None else self.headers[row],
            timestamp=self.timestamps[row] or -1,
        )

    def _row(self, record: int) -> int:
        """Its first row."""
        return record if self.firsts is None else self.firsts[record]

    def _failed(self, index: int) -> int | None:
        """The first row of a record that has an error."""
        if self.errors is None:
            return None
        rows = range(self._row(index), self._row(index + 1))
        return next((row for row in rows if self.errors[row] is not None), None)

    def _may_exceed(self, row_bytes: int) -> bool:
        if self.size + _ROW_OVERHEAD <= row_bytes:
            return False
        if self.headers is not None:
            return True
        return _longest(self.keys) + _longest(self.values) + _ROW_OVERHEAD > row_bytes

    def _row_bytes(self, index: int) -> int:
        return batch_size(self.values[index], self.keys[index], None if self.headers is None else self.headers[index])


_NOT_DECLARED = Verdict(ErrorClass.TOPIC_NOT_DECLARED, "its topic is none of the sink's")
_MADE_OF_ROWS = (Stage.DECODE, Stage.TRANSFORM)
"""Of records that failed here nothing was made, or what was made is not in the row: the row is the record."""


def content_bytes(batch: RowBatch) -> int:
    """Of all rows."""
    size = sum(map(len, filter(None, batch.keys))) + sum(map(len, filter(None, batch.values)))
    return size + sum(len(name) + len(content or b"") for each in batch.headers or () for name, content in each or ())


_ROW_OVERHEAD = 128
"""More than the frame of a record without headers."""


def _longest(column: list[bytes | None]) -> int:
    return max(map(len, filter(None, column)), default=0)


class SinkKind(Protocol):
    """What a kind of sink gives tasks; it travels to them with each plan, and holds nothing."""

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> Claim:
        """`rows`: whether they are written under it too; else only the progress is."""

    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> Sender:
        """For rows of this partition: the one that this worker has kept, or a new one."""

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

    def cuts(self) -> CutPolicy:
        """What a commit holds at most."""

    def cure(self, why: str) -> str:
        """What a person does about a row that the target refuses for this."""
