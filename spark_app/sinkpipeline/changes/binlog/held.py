"""Changes of an XA transaction of MySQL, whose last event alone says whether it is committed: in one phase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.values import Change

MOST = 64 * 1024 * 1024
"""Bytes that a transaction may have so: they are in memory."""


class Held:
    """Of one transaction."""

    def __init__(self, transaction: str) -> None:
        """`transaction`: for people."""
        self._transaction = transaction
        self._chunks: list[list[Change]] = []
        self._size = 0

    def hold(self, chunks: Iterable[list[Change]]) -> tuple[()]:
        """Nothing is to be handed out yet. Raises NotServed: it is too large."""
        for chunk in chunks:
            self._chunks.append(chunk)
            self._size += sum(len(each.key) + len(each.value) for each in chunk)
            if self._size > MOST:
                raise NotServed(
                    f"XA transaction {self._transaction} has more than {MOST} bytes of changes, and only its end says "
                    "whether it is committed",
                    "change so many rows by smaller transactions, or by ones without XA",
                )
        return ()

    def given(self) -> Iterator[list[Change]]:
        """All of them: it is committed."""
        yield from self._chunks
        self._chunks = []

    @property
    def is_empty(self) -> bool:
        return not self._chunks
