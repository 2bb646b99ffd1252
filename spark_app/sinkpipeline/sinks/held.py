"""Records that are not known to be delivered yet, what is wrong with some, and how that is found out."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.order import after, index_of, reaches
from sinkpipeline.core.row_limits import Limits
from sinkpipeline.sinks.contract import RowBatch


class Held:
    """A batch, and the verdicts on its records: those it came with, and those that Kafka gave since."""

    def __init__(self, batch: RowBatch, limits: Limits) -> None:
        self.batch = batch
        self._refused: dict[int, Verdict] = {}
        self._refused_letters: dict[int, Verdict] = {}
        self.judge(limits)

    def judge(self, limits: Limits) -> None:
        """By these limits; what Kafka said of single records stays."""
        self._limits = limits
        self._bad = sorted({*self.batch.bad_rows(limits), *self._refused})

    def next_bad(self, begin: int, end: int) -> int:
        """The first bad record in `begin:end`; `end` where there is none."""
        at = bisect_left(self._bad, begin)
        return min(end, self._bad[at]) if at < len(self._bad) else end

    def verdict(self, index: int) -> Verdict:
        return self._refused.get(index) or self.batch.verdict(index, self._limits)

    def is_beyond_limits(self, index: int) -> bool:
        """Whether the limits alone speak against a bad record: neither Kafka, nor what was made of its record."""
        return index not in self._refused and self.batch.error(index) is None

    def beyond_ms(self, index: int) -> int:
        """By how much a bad record's timestamp is beyond the limits, where that is what speaks against it; else 0."""
        if not self.is_beyond_limits(index) or self.verdict(index).error_class is not ErrorClass.INVALID_TIMESTAMP:
            return 0
        return self._limits.beyond_ms(self.timestamp(index))

    def timestamp(self, index: int) -> int:
        """Of a bad record, that of the row which the limits speak against."""
        return self.batch.timestamp(index, self._limits)

    def nearest(self, index: int) -> int:
        """Of this and later records whose timestamps are beyond the same limit, the one that is so by the least."""
        side = self.beyond_ms(index) > 0
        found = [
            each for each in self._bad if each >= index and self.beyond_ms(each) and (self.beyond_ms(each) > 0) is side
        ]
        return min(found, key=lambda each: abs(self.beyond_ms(each)))

    def refused_letter(self, index: int) -> Verdict | None:
        """What Kafka said of the record's dead letter, where it refused that too."""
        return self._refused_letters.get(index)

    def refuse(self, index: int, verdict: Verdict) -> bool:
        """Takes down what Kafka refused: a row of it, or a bad one's dead letter. False where it had both before."""
        if self.next_bad(index, index + 1) != index:
            insort(self._bad, index)
            self._refused[index] = verdict
            return True
        if index not in self._refused_letters:
            self._refused_letters[index] = verdict
            return True
        return False

    def between(self, begin: int, end: int) -> list[int]:
        """The source offsets of its records from `begin` on and below `end`."""
        offsets = self.batch.offsets
        return offsets[index_of(offsets, begin) : index_of(offsets, end)]

    def good_between(self, begin: int, end: int) -> list[int]:
        """Likewise, of those that can be delivered: once for each row."""
        offsets = self.batch.offsets
        first, last = index_of(offsets, begin), index_of(offsets, end)
        bad = {each for each in self._bad if first <= each < last}
        good = (each for each in range(first, last) if each not in bad)
        return [offsets[each] for each in good for _ in range(self.batch.count(each, each + 1))]


class Bisection:
    """Where to cut, so that a record that Kafka refuses without telling which one ends up alone.

    What was refused together is tried again in halves, each for itself, and so on. With n records and k refused ones
    among them that takes about k·log2(n) more attempts.
    """

    def __init__(self) -> None:
        self._cuts: list[int] = []
        """Source offsets before which to cut, the nearest one last."""

    @property
    def cut(self) -> int | None:
        return self._cuts[-1] if self._cuts else None

    def split(self, offsets: Sequence[int]) -> None:
        """Two or more records, in order, were refused together."""
        end = after(offsets[-1])
        if self.cut != end:
            self._cuts.append(end)
        self._cuts.append(offsets[len(offsets) // 2])

    def told(self, offset: int, rest: Sequence[int]) -> None:
        """Of records that were refused together, the one that was refused was told; `rest`: those behind it, in order.

        What stands up to it counts next. Where that was one of many, the rest is tried in halves: else all of it would
        be sent again for each of them.
        """
        if rest:
            is_one_of_many = self.cut is not None
            end = after(rest[-1])
            if self.cut != end:
                self._cuts.append(end)
            if is_one_of_many and len(rest) > 1:
                self._cuts.append(rest[len(rest) // 2])
        if self.cut != after(offset):
            self._cuts.append(after(offset))

    def is_due(self, offset: int) -> bool:
        """Whether a cut has to be made before this offset, which is behind all that was sent."""
        return bool(self._cuts) and reaches(offset, self._cuts[-1])

    def was_cut(self, offset: int) -> None:
        """It was, and what stands before the offset counts. Before that no cut may be forgotten: it may fail."""
        while self.is_due(offset):
            self._cuts.pop()
