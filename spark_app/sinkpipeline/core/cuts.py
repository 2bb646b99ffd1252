"""When a transaction is cut: by rows, bytes and seconds, always between two source offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CutPolicy:
    """The bounds of one transaction.

    `seconds` must stay far below transaction.timeout.ms (60 s): a transaction that the broker times out is replayed.
    """

    rows: int = 500_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 15.0

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
