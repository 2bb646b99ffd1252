"""What a kind of server with a binary log says in words of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sinkpipeline.changes.binlog.look import Connect
from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.core.changes.binlog_beginning import Seen
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_suitable import Facts
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.positions import BinlogPosition


class Dialect(Protocol):
    """Of one kind.

    Raises (all methods):
        SqlFault
        SinkPipelineError: SourceUnreachable, SourceUnsuitable.
    """

    @property
    def kind(self) -> BinlogKind: ...

    def facts(self, wire: Wire, tables: Sequence[str]) -> Facts:
        """Whether the server suits, and what is there of the tables."""

    def files(self, wire: Wire, where: str) -> Seen:
        """The server and its files, without what was at a place."""

    def seen(self, wire: Wire, where: str, connect: Connect, place: BinlogPosition | None = None) -> Seen:
        """The server, its files, and what was noted at a place; without one, at the end."""

    def previous(self, wire: Wire, file: str) -> Gtids:
        """The GTIDs of all that its log has before a file."""

    def whole_before(self, wire: Wire, file: str) -> Gtids | None:
        """Likewise; None where its log has no transactions but these, whatever has ended the server."""

    def unlogged(self, wire: Wire) -> Gtids:
        """Of all that it has, what its log has never had, or has no more."""

    def lacks(self, wire: Wire, executed: Gtids) -> str | None:
        """Which of these the server has never had, for people; None: none."""

    def missing(self, wire: Wire, connect: Connect, begin: BinlogPosition, executed: Gtids) -> str | None:
        """What of it nobody can read any more, and is not among these, for people; None: nothing.

        `begin`: of a file of its log, before which there is nothing else than these.
        """

    def ahead(self, wire: Wire, previous: Gtids, executed: Gtids) -> Gtids:
        """Which of `executed` its log has behind the file before which it has `previous`."""

    def gives_gtids(self, wire: Wire) -> bool:
        """Whether each transaction has one."""

    def begin_of(self, wire: Wire, connect: Connect, place: BinlogPosition) -> BinlogPosition:
        """Where the transaction begins that another reader names otherwise by a place."""

    def snapshot(self, wire: Wire, tables: Sequence[str], connect: Connect, *, begins: bool) -> BinlogPosition:
        """Begins a transaction on `wire` that sees the tables as they were at a place of the log, which it answers.

        `begins`: whether the stream begins at that place, and nobody has read what stands before it.
        """
