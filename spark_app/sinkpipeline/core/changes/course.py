"""When a stage commits, with which position, and what it may confirm then: always less than what was committed.

    Begin  change  change │ change  Commit(end)  keepalive(wal)  Begin ...
                     cut ─┘ (L, 2)       └ (end, 0)    └ (wal, 0), where nothing is open for a while

A cut may be inside a transaction of the database. What is confirmed is then the end of the last whole one before it.
"""

from __future__ import annotations

from sinkpipeline.core.changes.positions import Position
from sinkpipeline.core.cuts import CutPolicy


class Course:
    """How far a stage has come in the stream, in Kafka, and towards the server."""

    def __init__(self, start: Position, cuts: CutPolicy, *, whole: bool = False) -> None:
        """`start`: of the progress. `whole`: never cut inside a transaction of the database."""
        self.committed = start
        """Of the progress that counts."""
        self.is_inside = False
        """Whether a transaction of the database has begun and not ended."""
        self.rows = self.size = 0
        """Changes and bytes of the open transaction of Kafka."""
        self._cuts = cuts
        self._whole = whole
        self._next = (start.commit, start.index)
        self._note = start.note
        """What the source has noted of the transaction that `next` is of."""
        self._begun = ""
        self._inside: int | None = start.inside or None
        """How many changes of the newest transaction were handed to Kafka, now or in earlier lives; None: unknown."""
        self._ended = start.commit if start.index == 0 else 0
        self.confirmable = self._ended
        """Up to where the server may be told that it is not needed again, as that counts; 0: nothing is known.

        Also at a start: the server may have forgotten what it was told, or never have heard it.
        """
        self._heard = 0
        self._heard_note: str | None = None

    @property
    def next(self) -> Position:
        """What to commit now."""
        return self.committed.moved(*self._next, self._note, self._inside or 0)

    @property
    def is_open(self) -> bool:
        return self.rows > 0

    def begun(self, note: str = "", before: int | None = 0) -> None:
        """A transaction of the database begins.

        Args:
            note: what its source notes of it.
            before: how many of its changes are in the topic; None: unknown.
        """
        self.is_inside = True
        self._begun, self._inside = note, before

    def handed(self, commit: int, index: int, size: int) -> None:
        """A change was handed to Kafka, as it is or as a dead letter; of one in two halves, each."""
        if (commit, index + 1) != self._next:
            self._next = (commit, index + 1)
            self._note = self._begun
            self._inside = None if self._inside is None else self._inside + 1
            self.rows += 1
        self.size += size

    def read(self, size: int) -> None:
        """A row of a table was handed to Kafka, which stands at no place of the stream."""
        self.rows += 1
        self.size += size

    def ended(self, end: int) -> None:
        """The transaction of the database has ended; `end`: where, in the order of commits."""
        self.is_inside = False
        # One that was skipped as a whole ends before the position.
        if (end, 0) > self._next:
            self._next, self._note = (end, 0), self._begun
        self._ended = max(self._ended, end)

    def heard(self, wal: int, note: str | None = None) -> None:
        """A keepalive: everything that commits before `wal` was sent, which says nothing of what is being sent.

        `note`: what is to be noted of that place; None: what was noted of the last transaction.
        """
        if not self.is_inside and not self.is_open and wal >= self._heard:
            self._heard, self._heard_note = wal, note

    def is_full(self) -> bool:
        """Whether to commit at once."""
        return self.may_cut and self._cuts.is_full(rows=self.rows, size=self.size)

    def is_due(self, open_s: float) -> bool:
        """Whether to commit, as the transaction of Kafka has been open for so long."""
        return self.is_open and self.may_cut and self._cuts.is_due(open_s=open_s)

    @property
    def may_cut(self) -> bool:
        return not (self._whole and self.is_inside)

    def idle(self) -> bool:
        """Whether there is something to commit although no change came: takes the position of the last keepalive."""
        if self.is_open or self.is_inside:
            return False
        if (self._heard, 0) > self._next:
            self._next = (self._heard, 0)
            self._ended = self._heard
            if self._heard_note is not None:
                self._note = self._heard_note
        return self._next > (self.committed.commit, self.committed.index)

    def has_committed(self) -> None:
        """What was open counts now, with the position `next`."""
        self.committed = self.next
        self.rows = self.size = 0
        self.confirmable = self._ended
