"""Rows that the stream has changed while their table is read: of each, what the topic still lacks.

A row of a snapshot is older than what the stream has said of it. It is left out, but for one thing: a large value that
no change has touched stands in none of them, and in the snapshot it is as it is now.

    the stream, since the snapshot     the row of the snapshot    what comes
    nothing                            {id 7, n 1, doc "..."}     the row, as it is
    inserted, deleted, told whole      likewise                   nothing
    {id 7, n 2}, doc unchanged         likewise                   {id 7, n 2, doc "..."}
    another key 7, doc unchanged       perhaps another row        nothing: it is owed, and read by a later snapshot
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

from sinkpipeline.core.changes.pgoutput import UNCHANGED, Values
from sinkpipeline.core.changes.values import Change, Partial

MOST_BYTES: Final = 64 << 20
"""Of keys, and of rows that were not told whole."""
_ENTRY: Final = 150
"""What a key takes beside its bytes."""


class Reshaped(Exception):
    """The table has other columns than when a row of it was told."""


class _Owed(enum.Enum):
    """Of a row that had another key: the topic may lack a part, and a snapshot may have another row by its key."""

    OWED = enum.auto()


_OWED: Final = _Owed.OWED


class Touched:
    """By their keys, since a snapshot of the table was asked for."""

    def __init__(self) -> None:
        self._rows: dict[bytes, Partial | _Owed | None] = {}
        """What was told of a row that was not told whole; None: the topic has all of it, or it is gone."""
        self._size = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return self._size

    def clear(self) -> None:
        self._rows.clear()
        self._size = 0

    def note(self, changes: Sequence[Change], is_known: Callable[[bytes], bool]) -> list[bytes]:
        """What the stream has handed out of the table.

        Args:
            changes: in their order, with both halves of an update that has changed a key.
            is_known: whether the topic has all of a row, of which the stream has told nothing here.

        Returns:
            Keys of rows of which the topic may lack a part, and which a snapshot may have by another key only.

        Raises:
            Reshaped
        """
        owed = []
        for at, change in enumerate(changes):
            key, partial = change.key, change.partial
            if partial is not None and change.op == "c":
                is_whole = at > 0 and self._was_whole(changes[at - 1], change, is_known)
                self._put(key, None if is_whole else _OWED)
                if not is_whole:
                    owed.append(key)
                continue
            if at + 1 < len(changes) and _are_halves(change, changes[at + 1]):
                continue
            self._put(key, self._left(key, partial, is_known))
            if partial is not None and partial.is_by_index and self._rows[key] is not None:
                owed.append(key)
        return owed

    def _was_whole(self, before: Change, change: Change, is_known: Callable[[bytes], bool]) -> bool:
        """Of a row that has another key since: by the one before, the first half has deleted it.

        Without a first half it is one that a row filter lets through only now.
        """
        if not _are_halves(before, change):
            return False
        is_whole = self._rows[before.key] is None if before.key in self._rows else is_known(before.key)
        self._put(before.key, None)
        return is_whole

    def _left(self, key: bytes, partial: Partial | None, is_known: Callable[[bytes], bool]) -> Partial | _Owed | None:
        if partial is None:
            return None
        if key not in self._rows:
            return None if is_known(key) else partial
        told = self._rows[key]
        return _over(told, partial) if isinstance(told, Partial) else told

    def row(self, key: bytes, names: tuple[str, ...], row: Values) -> Values | None:
        """A row of the snapshot as it comes into the topic; None: it doesn't. From then on the topic has all of it.

        Args:
            key: of the row.
            names: of the snapshot's columns.
            row: as the snapshot has it.

        Raises:
            Reshaped
        """
        if key not in self._rows:
            return row
        told = self._rows[key]
        if not isinstance(told, Partial):
            return None
        if told.names != names:
            raise Reshaped
        self._put(key, None)
        return [old if new is UNCHANGED else new for old, new in zip(row, told.values, strict=True)]

    def _put(self, key: bytes, told: Partial | _Owed | None) -> None:
        if key not in self._rows:
            self._size += len(key) + _ENTRY
        self._size += _size(told) - _size(self._rows.get(key))
        self._rows[key] = told


def _are_halves(one: Change, two: Change) -> bool:
    """Of an update that has changed a key, and does not tell all of the row."""
    is_one = (one.commit, one.nth, one.op, two.op) == (two.commit, two.nth, "d", "c")
    return is_one and two.partial is not None


def _over(before: Partial, after: Partial) -> Partial | None:
    """What is known of a row by two changes, of which neither has told it whole; None where both together have."""
    if before.names != after.names:
        raise Reshaped
    values = [old if new is UNCHANGED else new for old, new in zip(before.values, after.values, strict=True)]
    return after._replace(values=values) if UNCHANGED in values else None


def _size(told: Partial | _Owed | None) -> int:
    if not isinstance(told, Partial):
        return 0
    return _ENTRY + sum(len(each) if isinstance(each, str) else 0 for each in told.values)
