"""What a slot sends, for who has a part of it: each change of a transaction by the WAL record that it is of.

A server sends the same records in the same order to each of its sessions. How many changes of a transaction come before
one need not be the same: a session that has met a table under a later catalog sends changes of an older transaction
that another one leaves out (pgoutput keeps what it has found of a table until something says otherwise). So the place
inside a transaction is a record, and its index only a name.
"""

from __future__ import annotations

from sinkpipeline.changes.ports import Begun, Ended, Event, Heard
from sinkpipeline.core.changes.beginning import not_sent_again
from sinkpipeline.core.changes.pgoutput import Begin, Commit, Delete, Insert, Relation, Truncate, Update, parse
from sinkpipeline.core.changes.positions import LogPosition, Position
from sinkpipeline.core.changes.values import Change, Writer

BEGUN = Begun()


class Stream:
    """From messages to what they mean for who has everything before `start`."""

    def __init__(self, writer: Writer, start: Position, where: str) -> None:
        self.skipped = 0
        self._writer = writer
        self._where = where
        self._from = start
        self._start = (start.commit, start.index)
        self._is_inside = self._is_new = False
        self._is_found = start.index == 0
        """Whether the last change that is in the topic has come again, of a transaction in whose middle it begins."""
        self._after = start.record if isinstance(start, LogPosition) and start.index else None
        """The record of that change; None in progress of an earlier release, which goes by the index alone."""
        self._lsn, self._nth = b"", 0

    def event(self, data: bytes, lsn: bytes) -> Event:
        said, writer = parse(data), self._writer
        match said:
            case None:
                return []
            case Relation():
                writer.relation(said)
                return []
            case Begin():
                writer.begin(said)
                self._is_inside = True
                self._begin(said.lsn)
                return BEGUN
            case Commit():
                if not self._is_found and writer.place[0] == self._start[0]:
                    self._is_found = self._after is None and writer.place >= self._start
                    self._check_found()
                writer.end()
                self._is_inside = False
                return Ended(said.end)
            case _:
                if lsn != self._lsn:
                    self._lsn, self._nth = lsn, 0
                self._nth += 1
                writer.record = (lsn, self._nth)
                return self._changes(said)

    def heard(self, lsn: int) -> Heard:
        """The server has sent everything before `lsn`, or hands out a transaction just now.

        One of which it has nothing to send is left out, also the one in whose middle this begins.

        Raises:
            SinkPipelineError: SourceRolledBack.
        """
        if lsn > self._start[0] and not self._is_inside:
            self._check_found()
        return Heard(lsn)

    def _begin(self, lsn: int) -> None:
        self._is_new = (lsn, 0) >= self._start
        self._lsn = b""
        if lsn > self._start[0]:
            self._check_found()

    def _check_found(self) -> None:
        """What this session does not send of that transaction is lost: another one may have sent it."""
        if not self._is_found:
            raise not_sent_again(self._where, self._from)

    def _changes(self, said: Insert | Update | Delete | Truncate) -> list[Change]:
        writer = self._writer
        if self._is_new:
            return writer.changes(said)
        if self._after is not None and writer.place[0] == self._start[0]:
            if writer.record is not None and writer.record <= self._after:
                self._is_found = writer.record == self._after
                self.skipped += len(said.relations) if isinstance(said, Truncate) else 1
                return []
            self._check_found()
            # What was sent before need not have had as many changes.
            writer.pass_to(self._start[1])
            self._is_new = True
            return writer.changes(said)
        if not isinstance(said, Truncate):
            if writer.place >= self._start:
                return writer.changes(said)
            writer.skip(said)
            self.skipped += 1
            return []
        # Of tables that were emptied together, some may be in the topic.
        changes = writer.changes(said)
        rest = [each for each in changes if (each.commit, each.nth) >= self._start]
        self.skipped += len(changes) - len(rest)
        return rest
