"""What was read of a dead-letter topic: which letters are wanted, and which of them are pending."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.redrive import Ledger, Letter, LetterId
from sinkpipeline.core.topics import Topic


@dataclass(frozen=True, slots=True)
class Matched:
    """What is kept of each letter that is wanted."""

    error_class: str
    source_topic: str
    timestamp: int
    """Of its record, in milliseconds; -1 where it has none."""

    @classmethod
    def of(cls, found: Letter) -> Matched:
        letter, record = found.letter, found.letter.record
        # There are few topics, and may be many letters.
        return cls(letter.verdict.error_class.value, sys.intern(record.partition.topic), record.timestamp)


@dataclass
class PartitionView:
    """What was read of one partition."""

    number: int
    end: int
    """Letters from here on are of a later redrive."""
    ledger: Ledger
    matched: dict[int, Matched] = field(default_factory=dict)
    """By its offset every letter that is wanted, pending or not."""
    foreign: dict[int, str] = field(default_factory=dict)
    """Offset of what is no letter, and why."""
    hidden: int = 0
    """Offsets that open transactions hide for now."""

    def may_hold(self, sink: SinkId, ids: Collection[LetterId] = ()) -> bool:
        """Whether a letter is pending, or could be where nobody could read yet. `ids`: those wanted, where any are."""
        stable = self.end - self.hidden
        hides = self.hidden and (
            not ids or any(each.partition == self.number and each.offset >= stable for each in ids)
        )
        return bool(hides or self.pending(sink))

    def pending(self, sink: SinkId) -> list[int]:
        return [offset for offset in sorted(self.matched) if self.ledger.outcome(sink, offset) is None]


@dataclass
class Survey:
    """What was read of a dead-letter topic."""

    sink: SinkId
    topic: Topic
    partitions: list[PartitionView]

    @property
    def by_class(self) -> Counter[str]:
        """Pending letters."""
        return Counter(each.error_class for each in self.letters())

    @property
    def by_source(self) -> Counter[str]:
        """Pending letters, by the topic that their records are of."""
        return Counter(each.source_topic for each in self.letters())

    @property
    def pending(self) -> int:
        return sum(1 for _ in self.letters())

    @property
    def hidden(self) -> int:
        return sum(view.hidden for view in self.partitions)

    @property
    def foreign(self) -> list[str]:
        return [f"{view.number}:{offset}: {why}" for view in self.partitions for offset, why in view.foreign.items()]

    def letters(self) -> Iterator[Matched]:
        """Those that are pending."""
        for view in self.partitions:
            yield from (view.matched[offset] for offset in view.pending(self.sink))
