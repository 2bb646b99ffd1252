"""A record as a producer takes it, and how large a batch that holds it alone is on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

Headers = list[tuple[str, str | bytes | None]] | None
Row = tuple[bytes | None, bytes | None, int, int, Headers]
"""Value, key, target partition (-1: the partitioner's), timestamp in ms (0: now), headers."""


@dataclass(frozen=True)
class Columns:
    """The same of several records, column by column, for a client that is called without a line of Python for each."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    partitions: Sequence[int]
    timestamps: Sequence[int]
    headers: Sequence[Headers]
    sources: Callable[[], Sequence[int]] | None = None
    """Of each row the source offset, for a sink that writes it; made only where it is asked for."""
    topics: Sequence[str] | None = None
    """Where each goes; None where all go into one topic, which whoever sends them knows."""

    def __len__(self) -> int:
        return len(self.values)

    def row(self, index: int) -> Row:
        return (
            self.values[index],
            self.keys[index],
            self.partitions[index],
            self.timestamps[index],
            self.headers[index],
        )

    def __iter__(self) -> Iterator[Row]:
        return zip(self.values, self.keys, self.partitions, self.timestamps, self.headers, strict=False)


def columns(rows: Iterable[Row]) -> Columns:
    """Rows as columns, which may be columns already."""
    if isinstance(rows, Columns):
        return rows
    found = list(rows)
    return Columns(*(zip(*found, strict=True) if found else [()] * 5))


_BATCH_OVERHEAD = 61
"""Of Kafka's record batch, version 2."""
_RECORD_OVERHEAD = 3
"""Attributes, and the deltas of timestamp and offset, which are 0 in a batch of one."""


def batch_size(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """The bytes of the record's own batch, not compressed: what the brokers compare with max.message.bytes."""
    body = _RECORD_OVERHEAD + _sized(key) + _sized(value) + _varint(len(headers or ()))
    for name, content in headers or ():
        body += _sized(name.encode("utf-8", "replace"))
        body += _sized(content.encode("utf-8", "replace") if isinstance(content, str) else content)
    return _BATCH_OVERHEAD + _varint(body) + body


def _sized(content: bytes | None) -> int:
    """A null's length is -1, which takes a byte."""
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """The bytes of a number that is not negative; its sign takes a bit."""
    return max(1, ((2 * number).bit_length() + 6) // 7)
