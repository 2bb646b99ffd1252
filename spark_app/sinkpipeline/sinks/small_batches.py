"""Small batches, which the driver delivers itself, under the id that it holds anyway: one transaction instead of many.

    rows of all ranges, in the order of each ──┐
    dead letters that are known ───────────────┼─► one transaction under the control id
    the progress of every range ───────────────┘

That is allowed only where everything was certain before the batch began: nobody is left who could still write what
stands in it. Tasks of such a batch only read. A task of an earlier one that wakes up takes its partition, reads that
it was overtaken, and writes nothing. A newer driver fences the control id before anything else.

What the cluster refuses, what only limits or clocks speak against, and what can have no dead letter, is for the tasks:
there it is found out which record it is. Nothing of the batch was written then.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from sinkpipeline.core.batch import (
    SMALL_OFFSETS,
    Counted,
    OffsetRange,
    Receipt,
    RecentSizes,
    completed,
    count_offsets,
    is_small,
)
from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Into
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import ascend, is_before, reaches
from sinkpipeline.core.ports import NoDeadLetter, Settings
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.sinks.contract import BatchPlan, RowBatch, Stop
from sinkpipeline.sinks.dead_letters import DeadLetters
from sinkpipeline.sinks.whole_records import WholeRecords
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.sink")

_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 3600.0
"""For so long tasks deliver after a batch that failed: where one record is refused there are often more, and tasks cut
what is too much at once for a slow cluster. Each further failure doubles it."""

Collected = Iterable[tuple[SourcePartition, RowBatch]]
"""All rows of a batch; those of a partition in offset order."""
NO_STOPS: Mapping[SourcePartition, Stop] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A batch as it is written."""

    rows: list[tuple[Into, Iterable[Row]]]
    progress: Mapping[SourcePartition, PartitionProgress]
    """Of every range."""
    delivered: int


class SmallBatches:
    """Which batches of a sink the driver delivers, and what it writes of them."""

    def __init__(self, settings: Settings, most_offsets: int = SMALL_OFFSETS) -> None:
        """`most_offsets`: of a batch, and the most rows; 0 where tasks deliver all of them."""
        self._settings = settings
        self._most_offsets = most_offsets if settings.exactly_once else 0
        self._sizes = RecentSizes()
        self._paused_until = -math.inf
        self._pause_s = _FIRST_PAUSE_S
        self._worker = Worker()

    def takes(self, plan: BatchPlan) -> bool:
        return (
            plan.certain
            and self._most_offsets > 0
            and is_small(plan.ranges, self._sizes, most_offsets=self._most_offsets)
            and plan.kind.fits_at_once(plan)
            and time.monotonic() >= self._paused_until
        )

    @property
    def largest(self) -> float | None:
        """The bytes that an offset gave in the last batches, at most; None where that is not known."""
        return self._sizes.largest

    def told(self, plan: BatchPlan, receipts: Iterable[Receipt]) -> None:
        """Tasks have delivered a batch."""
        told = list(receipts)
        size, rows = sum(each.size for each in told), sum(each.delivered for each in told)
        self._sizes.add(count_offsets(plan.ranges), size, rows)

    def failed(self, why: Exception) -> None:
        """The cluster refuses a batch, it was not confirmed, or its rows could not be collected."""
        self._paused_until = time.monotonic() + self._pause_s
        _LOG.warning("%s: a small batch failed, tasks deliver for %.0f s: %s", self._settings.id, self._pause_s, why)
        self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s)

    def left_to_tasks(self) -> None:
        """A batch was collected for nothing: where one row is for the tasks there are often more."""
        self._paused_until = time.monotonic() + _FIRST_PAUSE_S

    def succeeded(self) -> None:
        """All of a batch counts."""
        self._pause_s = _FIRST_PAUSE_S

    def prepared(self, plan: BatchPlan, collected: Collected, *, at: int) -> Prepared | None:
        """None where the batch is for the tasks, as where its records gave more rows than those of earlier ones.

        Raises:
            SinkPipelineError: InternalError, where rows are not those of the plan; and what a look at the dead-letter
                topic raises.
        """
        limits = replace(plan.limits(), row_bytes=plan.data_limits.message_bytes)
        counts: dict[SourcePartition, Counted] = {}
        rows: list[tuple[Into, Iterable[Row]]] = []
        reached: dict[SourcePartition, int] = {}
        size = 0
        for partition, batch in _whole(collected):
            _check_offsets(partition, batch, plan.ranges.get(partition), reached.get(partition))
            reached[partition] = batch.offsets[-1]
            size += batch.size
            bad = batch.bad_rows(limits)
            count = counts.setdefault(partition, Counted())
            if bad:
                verdicts = [batch.verdict(index, limits) for index in bad]
                letters = self._letters(plan, partition, batch, bad, verdicts)
                if letters is None:
                    return None
                rows.append(letters)
                for each in verdicts:
                    count.by_class.add(each.error_class.value, dead=1)
            for begin, end in _between(bad, len(batch)):
                rows.append((Into.TARGET, batch.rows(begin, end)))
                count.rows += batch.count(begin, end)
        delivered = sum(count.rows for count in counts.values())
        self._sizes.add(count_offsets(plan.ranges), size, delivered)
        if delivered > self._most_offsets:
            return None
        progress = completed(plan.ranges, plan.frontier, counts, at=at)
        return Prepared(rows=rows, progress=progress, delivered=delivered)

    def _letters(
        self, plan: BatchPlan, partition: SourcePartition, batch: RowBatch, bad: list[int], verdicts: list[Verdict]
    ) -> tuple[Into, list[Row]] | None:
        """The dead letters of bad rows; None where they are not known without a look at Kafka."""
        settings = plan.settings.dead_letter
        if settings is None or any(batch.source_record(partition, index) is None for index in bad):
            return None
        letters = DeadLetters(plan, settings, partition, self._worker)
        try:
            return Into.LETTERS, [letters.row(batch, *each) for each in zip(bad, verdicts, strict=True)]
        except NoDeadLetter:
            return None
        finally:
            letters.close()


def before_stops(plan: BatchPlan, stops: Mapping[SourcePartition, Stop]) -> BatchPlan:
    """The batch as far as it can be delivered: ranges in which nothing comes before the stop are not in it."""
    ends = {each: replace(offsets, end=stops[each].offset) for each, offsets in plan.ranges.items() if each in stops}
    ranges = {each: offsets for each, offsets in {**plan.ranges, **ends}.items() if not offsets.is_empty}
    return replace(plan, ranges=ranges)


def _whole(collected: Collected) -> Collected:
    """Of each partition, whole records."""
    records: dict[SourcePartition, WholeRecords] = {}
    for partition, batch in collected:
        for each in records.setdefault(partition, WholeRecords()).add(batch):
            yield partition, each
    for partition, rest in records.items():
        for each in rest.rest():
            yield partition, each


def _between(bad: list[int], end: int) -> Iterator[tuple[int, int]]:
    """The stretches without a bad row."""
    for before, after in pairwise([-1, *bad, end]):
        if before + 1 < after:
            yield before + 1, after


def _check_offsets(
    partition: SourcePartition, batch: RowBatch, offsets: OffsetRange | None, reached: int | None
) -> None:
    """Rows in any other order, or of other offsets, would be delivered against the progress that is written."""
    order = [*([] if reached is None else [reached]), *batch.offsets]
    fits = offsets is not None and reaches(order[0], offsets.start) and is_before(order[-1], offsets.end)
    if not (fits and ascend(order)):
        raise SinkPipelineError(
            Reason.INTERNAL_ERROR,
            f"rows of {partition} came out of order, or are not of the batch",
            "remove settings of spark.conf that repartition, coalesce or split the source; and please report this",
        )
