"""From the events of a binary log to changes: transactions, rows of the tables that are read, and their positions.

    GTID  table map  rows  rows  Xid          a transaction: Begun, changes, Ended
    GTID  TRUNCATE                            a statement that is one by itself
    GTID  table map  rows  XA PREPARE         refused where it is about our tables: nobody knows yet what becomes of it

A change is named by its transaction's GTID event, by the number of its event behind that, and of its row in there. What
is of other tables has a number too, so that the tables which are read may change.
"""

from __future__ import annotations

from collections.abc import Iterator

from sinkpipeline.changes.mariadb.tables import Tables
from sinkpipeline.changes.ports import Begun, Ended, Event, Heard
from sinkpipeline.core.changes import binlog
from sinkpipeline.core.changes.binlog_beginning import EVENT
from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.pgoutput import NotUnderstood, Truncate
from sinkpipeline.core.changes.positions import BinlogPosition, binlog_commit, noted, parse_binlog
from sinkpipeline.core.changes.values import Change, Writer

_AT_ONCE = 500
_PLACES = 1 << 32
"""A place in a file has 32 bits."""


class AnotherLog(Exception):
    """Where a transaction goes on, the log has another one. Its text says which."""


class LogIncomplete(Exception):
    """The server says that its log lacks changes."""


class Stream:
    """Of one connection; `events` is given what comes, event by event."""

    def __init__(self, tables: Tables, writer: Writer, start: BinlogPosition, *, has_checksums: bool) -> None:
        """`has_checksums`: of what comes before the first file says it."""
        self.skipped = 0
        """Changes that were read again, and are in the topic."""
        self.heard = start.commit
        """Everything before it has come."""
        self.read_at: int | None = None
        """When the newest event was logged, in Unix seconds."""
        self._tables = tables
        self._writer = writer
        self._start = start
        self._number = start.number
        self._has_checksums = has_checksums
        self._born: int | None = None
        self._has_met = False
        """Whether a transaction has come."""
        self._is_inside = False
        self._is_alone = False
        self._is_prepared = False
        self._commit = 0
        self._gtid = ""
        self._nth = 0
        self._begins = 0
        """Where the transaction's first event ends."""
        self._end = 0
        """Where the next one begins, by its last 32 bits, if the newest has said it."""
        self._reach = 0
        """Where the next one begins at the least, and not cut to 32 bits."""
        self._is_ours = ""
        """Which of our tables the transaction has changed."""

    def events(self, data: bytes) -> Iterator[Event]:
        """What an event means for who has everything before `start`.

        Raises:
            NotUnderstood, NotServed, AnotherLog, LogIncomplete
        """
        head = binlog.head(data)
        said = binlog.parse(data, head, has_checksums=self._has_checksums)
        match said:
            case binlog.Format(has_checksums, born):
                self._has_checksums, self._born = has_checksums, born
                if not self._start.is_born(self._number, born):
                    raise AnotherLog(f"file {self._number} was begun at another time than the one that was read")
            case binlog.Rotate(file, offset):
                yield from self._rotated(file, offset)
            case binlog.Heartbeat(file):
                self._number = parse_binlog(f"{file}:0").number
                if not self._is_inside:
                    yield self._hears(head.end)
            case _ if head.is_in_log:
                self.read_at = head.timestamp or self.read_at
                yield from self._logged(head, said)
            case _:
                pass

    def _rotated(self, file: str, offset: int) -> Iterator[Event]:
        place = parse_binlog(f"{file}:{offset}")
        if place.log != self._start.log:
            raise AnotherLog(f"the log is called {place.log}, and was {self._start.log}")
        self._number = place.number
        if not self._is_inside:
            yield self._hears(offset)

    def _hears(self, offset: int) -> Heard:
        self.heard = max(self.heard, binlog_commit(self._number, offset))
        return Heard(self.heard)

    def _logged(self, head: binlog.Head, said: binlog.Event) -> Iterator[Event]:
        if isinstance(said, binlog.Incident):
            raise LogIncomplete
        if isinstance(said, binlog.Gtid):
            yield self._begun(head, said)
        elif self._is_inside:
            self._nth += 1
            self._reach += head.size
            # Who ends the transaction says where; within it perhaps nobody does.
            self._end = head.end or self._end
            yield from self._within(said)
        else:
            if isinstance(said, (binlog.TableMap, binlog.Rows, binlog.Xid)):
                raise AnotherLog(f"no transaction begins before {self._start.moved(self.heard).place}, and one goes on")
            # Of the log itself: what follows it begins there.
            if head.end:
                yield self._hears(head.end)

    def _within(self, said: binlog.Event) -> Iterator[Event]:
        match said:
            case binlog.TableMap():
                self._tables.meet(said, self._writer)
            case binlog.Rows():
                yield from self._changes(said)
            case binlog.Query():
                yield from self._asked(said)
                # Before it there may be values that it is to be run with.
                if self._is_alone:
                    yield self._ended()
            case binlog.Xid() | binlog.Prepared():
                yield self._ended()
            case _:
                pass

    def _begun(self, head: binlog.Head, said: binlog.Gtid) -> Begun:
        if head.start < 0:
            raise NotUnderstood(f"transaction {said.gtid} does not say where it begins")
        self._commit, self._gtid = binlog_commit(self._number, head.start), said.gtid
        start = self._start
        if start.index and not self._has_met and (self._commit, said.gtid) != (start.commit, start.gtids):
            raise AnotherLog(f"GTID {said.gtid} is at {start.moved(self._commit).place}, where {start.gtids} was read")
        self._has_met = True
        self._is_inside, self._is_alone, self._is_prepared = True, said.is_alone, said.is_prepared
        self._begins = self._end = self._reach = head.end
        self._nth, self._is_ours = 0, ""
        self._writer.enter(self._commit, head.timestamp * 1000, f'"{said.gtid}"')
        return Begun(noted(said.gtid, self._number, self._born))

    def _ended(self) -> Ended:
        self._is_inside = self._is_alone = False
        self._writer.end()
        # Beyond 4 GiB places begin at 0 again: then the end has none that anybody could go on at.
        has_place = self._begins < self._end and self._reach < _PLACES
        end = binlog_commit(self._number, self._end) if has_place else self._commit
        self.heard = max(self.heard, end)
        return Ended(end)

    def _changes(self, said: binlog.Rows) -> Iterator[list[Change]]:
        name = self._tables.of(said)
        if name is None:
            return
        self._is_ours = name
        if self._is_prepared:
            raise NotServed(
                f"transaction {self._gtid} changes table {name}, and was prepared by XA: its rows are logged before "
                "anybody knows whether it is committed",
                "change this table by transactions without XA PREPARE",
            )
        start, writer = (self._start.commit, self._start.index), self._writer
        index, made = self._nth * EVENT, list[Change]()
        most = index + EVENT
        for each in self._tables.rows(said, name):
            if index == most:
                raise NotServed(
                    f"an event of table {name} has more than {EVENT} rows",
                    "lower binlog_row_event_max_size of the server",
                )
            writer.pass_to(index)
            if (self._commit, index) < start:
                self.skipped += 1
            else:
                made += writer.changes(each)
                if len(made) >= _AT_ONCE:
                    yield made
                    made = []
            index += 1
        if made:
            yield made

    def _asked(self, said: binlog.Query) -> Iterator[Event]:
        """A statement that is logged as text."""
        emptied = binlog.emptied(said)
        if emptied is not None:
            yield from self._emptied(*emptied)
            return
        if binlog.changes_rows(said) and (name := self._tables.mentioned(said.text)) is not None:
            raise NotServed(
                f"transaction {self._gtid} has a statement that changes rows, perhaps of table {name}, and the log has "
                f"not these rows: {' '.join(said.statement.split()[:3])} ...",
                "run SET GLOBAL binlog_format = 'ROW', and end the session that has set it otherwise",
            )
        if binlog.cascade(said.text) is not None:
            self._tables.check_cascades()
        how = binlog.ends(said)
        if how in ("ROLLBACK", "SAVEPOINT") and self._is_ours:
            raise NotServed(
                f"transaction {self._gtid} was rolled back, and is logged with changes of table {self._is_ours}, as it "
                "has also changed a table that can't roll back",
                "store all tables of one transaction by InnoDB",
            )
        if how in ("COMMIT", "ROLLBACK"):
            yield self._ended()

    def _emptied(self, schema: str, table: str) -> Iterator[list[Change]]:
        number = self._tables.emptied(schema, table, self._writer)
        if number is None:
            return
        index = self._nth * EVENT
        self._writer.pass_to(index)
        if (self._commit, index) < (self._start.commit, self._start.index):
            self.skipped += 1
            return
        yield self._writer.changes(Truncate((number,)))


__all__ = ["AnotherLog", "LogIncomplete", "NotServed", "NotUnderstood", "Stream"]
