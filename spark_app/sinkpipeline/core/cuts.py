"""When a transaction is cut: by rows, bytes and seconds, always between two source records."""

from __future__ import annotations

from dataclasses import dataclass, replace

_LEAST_BYTES = 256 * 1024
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CutPolicy:
    """The bounds of one transaction.

    `seconds` must stay far below transaction.timeout.ms (60 s): a transaction that the broker times out is replayed.
    """

    rows: int = 500_000
    bytes: int = MOST_BYTES
    seconds: float = 15.0
    least_rows: int = 1_000
    """After trouble a transaction becomes no smaller; nor than 256 KiB."""

    def room(self, *, rows: int, size: int, row_size: float) -> int:
        """How many more rows of about `row_size` bytes fit into a transaction; at least one."""
        by_rows = self.rows - rows
        if by_rows * row_size <= self.bytes - size:
            return max(1, by_rows)
        return max(1, int((self.bytes - size) / row_size))

    def is_full(self, *, rows: int, size: int) -> bool:
        return rows >= self.rows or size >= self.bytes

    def is_due(self, *, open_s: float) -> bool:
        return open_s >= self.seconds

    def after_trouble(self, *, rows: int, size: int, share: float | None = None) -> CutPolicy:
        """Of a transaction that did not come through, tried again: a part of it, as it may have been too much at once.

        A broker that is slow, or slowed down by a quota, would time out the same one again and again. The part is half
        of the `share` that did come through, and half of the whole where that is not known.
        """
        part = 0.5 if share is None else share / 2
        return replace(
            self,
            rows=min(self.rows, max(self.least_rows, int(rows * part))),
            bytes=min(self.bytes, max(_LEAST_BYTES, int(size * part))),
        )
