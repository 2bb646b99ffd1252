"""What the batches of one driver cost, as Prometheus' histograms and counters want it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.commit_counts import NONE, CommitCounts, Histogram

BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""From a small batch that the driver delivers itself to one of half an hour."""

_NO_SECONDS = Histogram(BOUNDS_S)


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """Of one sink."""

    batches: Histogram = _NO_SECONDS
    """Those that were delivered: from Spark's call to the last receipt."""
    takeovers: Histogram = _NO_SECONDS
    """What tasks waited for a partition's transactional id: to fence, and to read the progress. One for each task that
    took an id."""
    commits: int = 0
    """Transactions that tasks, or the driver for a small batch, have committed."""
    in_doubt: int = 0
    """Tasks that could not know whether their last transaction was committed."""
    costs: CommitCounts = NONE

    def with_batch(self, seconds: float, receipts: Iterable[Receipt], own: CommitCounts = NONE) -> BatchCounts:
        """One more; without receipts the driver has delivered it itself, in one transaction.

        Args:
            seconds: it took.
            receipts: of its tasks.
            own: what the driver's own commits cost.
        """
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
            costs=sum((each.costs for each in told), self.costs + own),
        )

    def __add__(self, other: BatchCounts) -> BatchCounts:
        return BatchCounts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def delivered(self) -> int:
        """How many batches there were."""
        return self.batches.count
