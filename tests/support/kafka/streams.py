"""A source whose every record is known, and the judgement of what was delivered from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from support.kafka.topics import Record, create_topic, produce, read_committed


@dataclass
class Stream:
    """A source topic whose records are `<partition>:<n>`, n counting up within each partition."""

    servers: str
    topic: str
    partitions: int = 4
    _counts: Counter[int] = field(default_factory=Counter)

    def create(self) -> Stream:
        create_topic(self.servers, self.topic, partitions=self.partitions)
        return self

    def feed(self, rows: int, *, only: int | None = None) -> None:
        """Appends rows to every partition, or to one."""
        for partition in range(self.partitions) if only is None else [only]:
            values = self.next_rows(rows, partition)
            produce(self.servers, self.topic, [(value, value) for value in values], partition=partition)

    def next_rows(self, rows: int, partition: int) -> list[bytes]:
        """Rows that the caller appends to a partition."""
        start = self._counts[partition]
        self._counts[partition] += rows
        return [f"{partition}:{n}".encode() for n in range(start, start + rows)]

    @property
    def total(self) -> int:
        return sum(self._counts.values())

    @property
    def rows(self) -> set[str]:
        """All that were fed."""
        return {f"{partition}:{n}" for partition, count in self._counts.items() for n in range(count)}

    def judge(self, data_topic: str) -> Verdict:
        """Counts by an independent read_committed consumer."""
        return judge(read_committed(self.servers, data_topic), self.rows)


@dataclass(frozen=True)
class Verdict:
    duplicates: int
    missing: int
    foreign: int
    disorder: int
    """Rows behind a later row of their own source partition, within one partition of the data topic."""


EXACTLY_ONCE = Verdict(duplicates=0, missing=0, foreign=0, disorder=0)


def judge(delivered: list[Record], expected: set[str]) -> Verdict:
    counts = Counter(record.text for record in delivered)
    last: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    disorder = 0
    for record in delivered:
        source, _, number = record.text.partition(":")
        disorder += int(number) <= last[record.partition, source]
        last[record.partition, source] = int(number)
    return Verdict(
        duplicates=sum(count - 1 for count in counts.values()),
        missing=len(expected - counts.keys()),
        foreign=len(counts.keys() - expected),
        disorder=disorder,
    )
