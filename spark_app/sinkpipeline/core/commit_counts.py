"""What the commits of tasks cost and what was in their way, as Prometheus' histograms and counters want it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any

COMMIT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a commit to a table nearby to one that waits for locks."""
COMMIT_ROWS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)


@dataclass(frozen=True)
class Histogram:
    """How many values were at most so large."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...] = ()
    """Of those at most so large, and larger than the bound before; the last one has no bound. Empty: none yet."""
    total: float = 0.0

    def with_one(self, value: float) -> Histogram:
        at = bisect_left(self.bounds, value)
        counts = tuple(count + (number == at) for number, count in enumerate(self._all))
        return replace(self, counts=counts, total=self.total + value)

    def __add__(self, other: Histogram) -> Histogram:
        counts = tuple(map(sum, zip(self._all, other._all, strict=True)))
        return replace(self, counts=counts, total=self.total + other.total)

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Upper bound and cumulative count of each."""
        bounds = (*map(str, self.bounds), "+Inf")
        return zip(bounds, map(float, accumulate(self._all)), strict=True)

    @property
    def _all(self) -> tuple[int, ...]:
        return self.counts or (0,) * (len(self.bounds) + 1)


_NO_SECONDS, _NO_ROWS = Histogram(COMMIT_S), Histogram(COMMIT_ROWS)


@dataclass(frozen=True)
class CommitCounts:
    """Of one task, or of one sink."""

    seconds: Histogram = _NO_SECONDS
    """Each commit that counts: from its request to its answer."""
    rows: Histogram = _NO_ROWS
    """Of each."""
    in_doubt: int = 0
    """Commits that were asked for and not answered; each was looked up."""
    retries: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How often a partition was taken again, by why."""

    def with_commit(self, seconds: float, rows: int) -> CommitCounts:
        return replace(self, seconds=self.seconds.with_one(seconds), rows=self.rows.with_one(rows))

    def with_doubt(self) -> CommitCounts:
        return replace(self, in_doubt=self.in_doubt + 1)

    def with_retry(self, why: str) -> CommitCounts:
        return replace(self, retries=MappingProxyType(Counter(self.retries) + Counter((why,))))

    def __add__(self, other: CommitCounts) -> CommitCounts:
        return CommitCounts(
            self.seconds + other.seconds,
            self.rows + other.rows,
            self.in_doubt + other.in_doubt,
            MappingProxyType(Counter(self.retries) + Counter(other.retries)),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seconds": [self.seconds.counts, self.seconds.total],
            "rows": [self.rows.counts, self.rows.total],
            "in_doubt": self.in_doubt,
            "retries": dict(self.retries),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CommitCounts:
        seconds, rows = document["seconds"], document["rows"]
        return cls(
            Histogram(COMMIT_S, tuple(seconds[0]), seconds[1]),
            Histogram(COMMIT_ROWS, tuple(rows[0]), rows[1]),
            document["in_doubt"],
            MappingProxyType(dict(document["retries"])),
        )


NONE = CommitCounts()
