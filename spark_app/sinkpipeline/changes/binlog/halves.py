"""Transactions that a server has not written to their end, as it was killed, and has rolled back.

    file 1:  GTID 1 rows Xid  GTID 2 rows Xid  GTID 3 rows ro     killed here
    file 2:  has 1 and 2      GTID 3 rows Xid                     another transaction

MariaDB leaves the half in its file, gives the number anew, and writes at the beginning of the next file which
transactions it has. MySQL cuts the half off. A file that is being written is handed out up to a transaction's end.

Source: MDEV-4725, and what MariaDB 10.11 has handed out after it was killed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, takewhile

from sinkpipeline.changes.binlog import look
from sinkpipeline.changes.binlog.look import Connect
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.positions import BinlogPosition


class HalfTransaction(Exception):
    """What begins here was never committed, and the log goes on in the next file."""


class Halves:
    """Of one log; of one thread.

    Raises (all methods):
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """

    def __init__(
        self, connect: Connect, whole_before: Callable[[BinlogPosition], Gtids | None], *, has_checksums: bool
    ) -> None:
        """`whole_before`: what a server has in front of a file; None where it leaves no halves, or has no such file."""
        self._connect = connect
        self._whole_before = whole_before
        self._has_checksums = has_checksums
        self._asked: tuple[int, Gtids | None] = (-1, None)
        """Of the newest file that was asked about, what the next one says."""

    def may_end_with_one(self, place: BinlogPosition) -> bool:
        """Whether the file of a place is written no more, and its server leaves halves."""
        return self._whole(place) is not None

    def is_one(self, place: BinlogPosition, gtid: str) -> bool:
        """Whether the transaction that begins at a place was not committed."""
        whole = self._whole(place)
        return whole is not None and not whole.has(gtid) and self._is_last(place)

    def _whole(self, place: BinlogPosition) -> Gtids | None:
        if self._asked[0] != place.number:
            self._asked = (place.number, self._whole_before(look.begin_of_next(place)))
        return self._asked[1]

    def _is_last(self, place: BinlogPosition) -> bool:
        """Of its file. Numbers that somebody has set may be lower than those before them, so they alone do not tell."""
        found = look.transactions(self._connect, place, has_checksums=self._has_checksums)
        return len(list(islice(takewhile(lambda each: each[0].number == place.number, found), 2))) == 1
