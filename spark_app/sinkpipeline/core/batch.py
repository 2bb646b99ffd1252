"""One micro-batch, seen by the driver: the ranges it was given, what the tasks report, and what follows from both."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sinkpipeline.core.commit_counts import NONE, CommitCounts
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between, is_before, reaches
from sinkpipeline.core.progress import PartitionProgress, advance
from sinkpipeline.core.progress_records import decode_partition, encode_partition
from sinkpipeline.core.tally import Counting, plus

SMALL_OFFSETS = 50_000
"""The most source offsets, and rows, of a batch that the driver delivers itself, unless the manifest says otherwise.

At 10,000 rows/s fewer than that come while tasks deliver a batch. So a sink that stalled once returns to the driver.
"""
SMALL_BYTES = 16 * 1024 * 1024
"""About how large the rows of such a batch may be."""
_LARGEST_ROW_BYTES = 16 * 1024
"""What a row is taken for as long as none was seen: as large as a counted one may be."""
_BATCHES_REMEMBERED = 8
AT_ONCE_BYTES = 1024 * 1024
"""About how much travels to a Python worker in one piece."""


@dataclass(frozen=True)
class OffsetRange:
    """Source offsets `start` to `end - 1`."""

    start: int
    end: int

    @property
    def is_new(self) -> bool:
        """Whether the partition has appeared with this batch: nobody has said where it begins."""
        return self.start < 0

    @property
    def is_empty(self) -> bool:
        return reaches(self.start, self.end)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What a task tells the driver; as JSON, because it travels as a row.

    A task that saw no row doesn't know its partition, and says so with None.
    """

    partition: SourcePartition | None = None
    progress: PartitionProgress | None = None
    """As last committed by the task; under AtLeastOnce what may be committed, as every row was acknowledged."""
    delivered: int = 0
    """Rows of this batch; less than the range where some were delivered by an earlier attempt."""
    commits: int = 0
    """Transactions, and so progress records, that the task wrote."""
    owner: str | None = None
    """Names the worker that keeps the partition's producer."""
    verified: int | None = None
    """The task read the progress topic gap-free up to this offset and found our run."""
    retried: bool = False
    """Whether an earlier attempt of this task failed or was lost."""
    in_doubt: bool = False
    """Whether a transaction of the task may be committed beyond `progress`."""
    claims: int = 0
    """How often the task made a new producer: 0 where it kept the worker's."""
    claiming_s: float = 0.0
    """The seconds that took: fence, sentinel, read."""
    oversized: bool = False
    """The task stopped before a record that is larger than the batch's bound for one row."""
    unknown: tuple[str, ...] = ()
    """The task stopped before a record whose schema is not known; these frames, in hexadecimal digits, it has met.

    In the order in which it met them: the first one is that of the record where it stopped.
    """
    size: int = 0
    """Bytes of the rows that the task was given, about."""
    clock_skew: bool = False
    """Whether brokers have shown the worker's clock to be wrong."""
    costs: CommitCounts = NONE
    """Of its commits."""
    error: SinkPipelineError | None = None

    def to_json(self) -> str:
        document: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("partition", "progress", "costs", "error")
        }
        document["partition"] = None if self.partition is None else [self.partition.topic, self.partition.partition]
        document["progress"] = None if self.progress is None else encode_partition(self.progress).decode()
        document["costs"] = self.costs.to_dict()
        document["error"] = None if self.error is None else self.error.to_dict()
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        document = json.loads(text)
        partition, progress, error = document.pop("partition"), document.pop("progress"), document.pop("error")
        unknown, costs = tuple(document.pop("unknown")), CommitCounts.from_dict(document.pop("costs"))
        return cls(
            unknown=unknown,
            costs=costs,
            partition=None if partition is None else SourcePartition(*partition),
            progress=None if progress is None else decode_partition(progress.encode(), "the receipt"),
            error=None if error is None else SinkPipelineError.from_dict(error),
            **document,
        )


def check_contiguous(
    ranges: Mapping[SourcePartition, OffsetRange], frontier: Mapping[SourcePartition, PartitionProgress]
) -> None:
    """Refuses ranges that don't begin where the frontier stands: records between would be skipped or repeated.

    Raises:
        SinkPipelineError: SourceDataLost.
    """
    for partition, offsets in sorted(ranges.items()):
        state = frontier.get(partition)
        if state is None or offsets.start != state.next:
            raise SinkPipelineError(
                Reason.SOURCE_DATA_LOST,
                f"Spark reads {partition} from offset {offsets.start}, the frontier is at "
                f"{'none' if state is None else state.next}",
                "the source lost records; set source.kafka.onDataLoss: Skip to go on and count them",
            )


def fold_receipts(
    frontier: Mapping[SourcePartition, PartitionProgress], receipts: Iterable[Receipt]
) -> dict[SourcePartition, PartitionProgress]:
    """The frontier after a batch, as the tasks report it."""
    folded = dict(frontier)
    for receipt in receipts:
        if receipt.partition is not None and receipt.progress is not None:
            folded[receipt.partition] = receipt.progress
    return folded


def first_error(receipts: Iterable[Receipt]) -> SinkPipelineError | None:
    """The error to act on: `Superseded` before one that waits for a person, that before one that may pass by itself."""
    errors = [receipt.error for receipt in receipts if receipt.error is not None]
    return min(
        errors,
        key=lambda error: (error.reason is not Reason.SUPERSEDED, error.reason.retry, error.message),
        default=None,
    )


def is_certain(
    receipts: Iterable[Receipt],
    ranges: Mapping[SourcePartition, OffsetRange],
    frontier: Mapping[SourcePartition, PartitionProgress],
) -> bool:
    """Whether nothing was, or will be, delivered beyond the frontier that these receipts tell.

    An attempt that was given up may live on. Where the one after it came to its end, there is nothing left to deliver;
    where it ended before, or reported nothing, the earlier one may still take the partition back and go on.
    """
    told = list(receipts)
    if any(receipt.in_doubt for receipt in told):
        return False
    if not any(receipt.retried for receipt in told):
        return True
    if any(receipt.error is not None or receipt.oversized or receipt.unknown for receipt in told):
        return False
    reported = {receipt.partition for receipt in told}
    return all(
        partition in reported or reaches(frontier[partition].next, ranges[partition].end) for partition in ranges
    )


def unfinished(
    ranges: Mapping[SourcePartition, OffsetRange],
    frontier: Mapping[SourcePartition, PartitionProgress],
    *,
    at: int,
) -> dict[SourcePartition, PartitionProgress]:
    """The progress to write under control after a batch without errors: ranges at whose end nothing survived."""
    return {
        partition: advance(frontier[partition], to=offsets.end, at=at)
        for partition, offsets in ranges.items()
        if is_before(frontier[partition].next, offsets.end)
    }


class RecentSizes:
    """What came of each source offset of the last batches: those that were filtered out count as 0."""

    def __init__(self) -> None:
        self._bytes_per_offset: deque[float] = deque(maxlen=_BATCHES_REMEMBERED)
        self._rows_per_offset: deque[float] = deque(maxlen=_BATCHES_REMEMBERED)

    def add(self, offsets: int, size: int, rows: int) -> None:
        # One of which nothing is left says nothing of the next rows.
        if offsets > 0 and size > 0:
            self._bytes_per_offset.append(size / offsets)
            self._rows_per_offset.append(rows / offsets)

    @property
    def largest(self) -> float | None:
        """The bytes per offset of the batch with the largest ones: what comes next may be like any of them.

        None as long as nothing is known.
        """
        return max(self._bytes_per_offset, default=None)

    @property
    def bytes_per_offset(self) -> float:
        """Likewise; of what is not known the worst."""
        return float(_LARGEST_ROW_BYTES) if self.largest is None else self.largest

    @property
    def rows_per_offset(self) -> float:
        """Likewise; at least 1, as filters may let more pass."""
        return max(1.0, max(self._rows_per_offset, default=1.0))


def count_offsets(ranges: Mapping[SourcePartition, OffsetRange]) -> int:
    return sum(between(offsets.start, offsets.end) for offsets in ranges.values())


def is_small(ranges: Mapping[SourcePartition, OffsetRange], sizes: RecentSizes, *, most_offsets: int) -> bool:
    """Whether the driver has room for a batch."""
    offsets = count_offsets(ranges)
    return offsets * sizes.rows_per_offset <= most_offsets and offsets * sizes.bytes_per_offset <= SMALL_BYTES


def rows_at_once(most: int, now: int, largest: float | None) -> int:
    """How many rows travel in one piece: so many as before, `now`, unless that is twice too many or too few.

    Args:
        most: of small rows.
        now: as it was until now.
        largest: the bytes that an offset gave lately, at most; None where that is not known.
    """
    wanted = most if largest is None else max(1, min(most, int(AT_ONCE_BYTES / max(1.0, largest))))
    return now if now / 2 < wanted < now * 2 and (wanted < most or now == most) else wanted


@dataclass
class Counted:
    """What is written of one source partition and doesn't count yet."""

    rows: int = 0
    by_class: Counting = dataclasses.field(default_factory=Counting)

    @property
    def dead(self) -> int:
        return self.by_class.sums.dead

    @property
    def handled(self) -> int:
        return self.rows + sum(self.by_class.sums)

    def on(self, state: PartitionProgress, next_offset: int, *, at: int) -> PartitionProgress:
        """The progress once it counts."""
        undelivered = self.by_class.sums
        return replace(
            state,
            next=next_offset,
            rows=state.rows + self.rows,
            dead=state.dead + undelivered.dead,
            dropped=state.dropped + undelivered.dropped,
            by_class=plus(state.by_class, self.by_class),
            at=at,
        )


def completed(
    ranges: Mapping[SourcePartition, OffsetRange],
    frontier: Mapping[SourcePartition, PartitionProgress],
    counts: Mapping[SourcePartition, Counted],
    *,
    at: int,
) -> dict[SourcePartition, PartitionProgress]:
    """The progress of all ranges of a batch, those in which nothing survived included, once all of it counts."""
    return {
        partition: counts.get(partition, Counted()).on(frontier[partition], offsets.end, at=at)
        for partition, offsets in ranges.items()
    }
