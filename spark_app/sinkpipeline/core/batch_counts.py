"""What the batches of one driver cost, as Prometheus' histograms and counters want it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import accumulate

from sinkpipeline.core.batch import Receipt

BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""From a small batch that the driver delivers itself to one of half an hour."""


@dataclass(frozen=True)
class Seconds:
    """A histogram of durations."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """How many were at most so long, and longer than the bound before; the last one has no bound."""
    total: float = 0.0

    def with_one(self, seconds: float) -> Seconds:
        at = bisect_left(BOUNDS_S, seconds)
        counts = tuple(count + (number == at) for number, count in enumerate(self.counts))
        return Seconds(counts, self.total + seconds)

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.total + other.total)

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Upper bound and cumulative count of each."""
        bounds = (*map(str, BOUNDS_S), "+Inf")
        return zip(bounds, map(float, accumulate(self.counts)), strict=True)


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """Of one sink."""

    batches: Seconds = Seconds()
    """Those that were delivered: from Spark's call to the last receipt."""
    takeovers: Seconds = Seconds()
    """What tasks waited for a partition's transactional id: to fence, and to read the progress. One for each task that
    took an id."""
    commits: int = 0
    """Transactions that tasks, or the driver for a small batch, have committed."""
    in_doubt: int = 0
    """Tasks that could not know whether their last transaction was committed."""

    def with_batch(self, seconds: float, receipts: Iterable[Receipt]) -> BatchCounts:
        """One more; without receipts the driver has delivered it itself, in one transaction."""
        told = list(receipts)
        takeovers = self.takeovers
        for each in told:
            if each.claims:
                takeovers = takeovers.with_one(each.claiming_s)
        return BatchCounts(
            batches=self.batches.with_one(seconds),
            takeovers=takeovers,
            commits=self.commits + (sum(each.commits for each in told) if told else 1),
            in_doubt=self.in_doubt + sum(each.in_doubt for each in told),
        )

    def __add__(self, other: BatchCounts) -> BatchCounts:
        return BatchCounts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def delivered(self) -> int:
        """How many batches there were."""
        return sum(self.batches.counts)
