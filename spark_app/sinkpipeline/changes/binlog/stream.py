"""From the events of a binary log to changes: transactions, rows of the tables that are read, and their positions.

    GTID  table map  rows  rows  Xid          a transaction: Begun, changes, Ended
    GTID  TRUNCATE                            a statement that is one by itself
    GTID  BEGIN  table map  rows  Xid         a transaction of MySQL, whose GTID event does not say which of these it is
    GTID  XA START  table map  rows  prepared likewise: its last event says whether it is committed, so its rows wait
    GTID  table map  rows  XA PREPARE         refused where it is about our tables: nobody knows yet what becomes of it

A change is named by its transaction's GTID event, by the number of its event behind that, and of its row in there. What
is of other tables has a number too, so that the tables which are read may change.
"""

from __future__ import annotations

from collections.abc import Iterator

from sinkpipeline.changes.binlog.held import Held
from sinkpipeline.changes.binlog.payload import expanded
from sinkpipeline.changes.binlog.statements import Statements
from sinkpipeline.changes.binlog.tables import Tables
from sinkpipeline.changes.ports import Altered, Begun, Ended, Event, Heard
from sinkpipeline.core.changes import binlog
from sinkpipeline.core.changes.binlog_beginning import EVENT, UNPARTIAL
from sinkpipeline.core.changes.binlog_events import Event as LogEvent
from sinkpipeline.core.changes.binlog_events import (
    Format,
    Gtid,
    Head,
    Heartbeat,
    Incident,
    Partial,
    Payload,
    Prepared,
    Query,
    Rotate,
    Rows,
    TableMap,
    Xid,
)
from sinkpipeline.core.changes.binlog_statements import ends, opens
from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.gtids import MOST_TEXT, Gtids
from sinkpipeline.core.changes.pgoutput import NotUnderstood, Truncate
from sinkpipeline.core.changes.positions import BinlogPosition, is_mark, noted, parse_binlog
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

    def __init__(
        self,
        tables: Tables,
        writer: Writer,
        start: BinlogPosition,
        *,
        has_checksums: bool,
        executed: Gtids | None = None,
        ahead: Gtids | None = None,
    ) -> None:
        """Begins at a place.

        Args:
            tables: those that are read.
            writer: makes changes of their rows.
            start: of the progress.
            has_checksums: of what comes before the first file says it.
            executed: all that was committed before `start`; None: unknown.
            ahead: what of that comes behind `start` all the same, and is passed over.
        """
        self.skipped = 0
        """Changes that were read again, and are in the topic."""
        self.heard = start.commit
        """Everything before it has come."""
        self.read_at: int | None = None
        """When the newest event was logged, in Unix seconds."""
        self._tables = tables
        self._statements = Statements(tables)
        self._writer = writer
        self._start = start
        self._number = start.number
        self._has_checksums = has_checksums
        self._born: int | None = None
        """When the file was begun that is read; None: it has not said it yet."""
        self._last = (start.noted_in, start.gtids)
        """What is to be noted of the last transaction, and in which file that is."""
        self._has_met = False
        """Whether a transaction has come."""
        self._is_inside = False
        self._is_alone: bool | None = False
        self._is_prepared = False
        self._commit = 0
        self._gtid = self._mark = ""
        self._nth = 0
        self._begins = 0
        """Where the transaction's first event ends."""
        self._end = 0
        """Where the next one begins, by its last 32 bits, if the newest has said it."""
        self._reach = 0
        """Where the next one begins at the least, and not cut to 32 bits."""
        self._is_ours = ""
        """Which of our tables the transaction has changed."""
        self._held: Held | None = None
        """What it has changed, where nobody knows yet whether that counts."""
        self._executed, self._ahead = executed, ahead
        self._is_passed = False
        """Whether the transaction is in the topic, as another server had it before."""

    def events(self, data: bytes) -> Iterator[Event]:
        """What an event means for who has everything before `start`.

        Raises:
            NotUnderstood, NotServed, AnotherLog, LogIncomplete
        """
        head = binlog.head(data)
        said = binlog.parse(data, head, has_checksums=self._has_checksums)
        match said:
            case Format(has_checksums, born, is_start):
                self._has_checksums, self._born = has_checksums, born
                if is_start:
                    self._statements.forget_sessions()
                if not self._start.is_born(self._number, born):
                    raise AnotherLog(f"file {self._number} was begun at another time than the one that was read")
            case Rotate(file, offset):
                yield from self._rotated(file, offset)
            case Heartbeat(file):
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
        if place.number != self._number:
            self._number, self._born = place.number, None
        if not self._is_inside:
            yield self._hears(offset)

    def _hears(self, offset: int) -> Heard:
        self.heard = max(self.heard, self._start.commit_at(self._number, offset))
        if self._born is None:
            return Heard(self.heard)
        # When its file was begun tells another log of its name, also where the last transaction is in another file.
        number, gtids = self._last
        if number != self._number and is_mark(gtids):
            gtids = ""
        return Heard(self.heard, self._noted(gtids))

    def _noted(self, gtids: str) -> str:
        ahead = "" if self._ahead is None or self._ahead.is_empty else str(self._ahead)
        executed = "" if self._executed is None else str(self._executed)
        if len(executed) > MOST_TEXT and not ahead:
            # It is not spelled again for each transaction.
            self._executed, executed = None, ""
        return noted(gtids, self._number, self._born, executed, ahead)

    def _logged(self, head: Head, said: LogEvent) -> Iterator[Event]:
        if isinstance(said, Incident):
            raise LogIncomplete
        if isinstance(said, Gtid):
            yield self._begun(head, said)
        elif self._is_inside:
            self._nth += 1
            self._reach += head.size
            # Who ends the transaction says where; within it perhaps nobody does.
            self._end = head.end or self._end
            yield from self._within(said)
        else:
            if isinstance(said, (TableMap, Rows, Partial, Payload, Xid)):
                raise AnotherLog(f"no transaction begins before {self._start.moved(self.heard).place}, and one goes on")
            # Of the log itself: what follows it begins there.
            if head.end:
                yield self._hears(head.end)

    def _within(self, said: LogEvent) -> Iterator[Event]:
        match said:
            case TableMap():
                self._meet(said)
            case Rows():
                yield from self._changes(said) if self._held is None else self._held.hold(self._changes(said))
            case Query():
                if self._is_alone is None:
                    self._opened(said)
                yield from self._asked(said)
                # Before it there may be values that it is to be run with.
                if self._is_alone:
                    yield self._ended()
            case Payload():
                yield from self._unpacked(said)
            case Partial():
                self._refuse_partial(said)
            case Prepared():
                yield from self._decided(said)
            case Xid():
                yield self._ended()
            case _:
                pass

    def _meet(self, said: TableMap) -> None:
        # What is passed over may be logged in a way that can't be read.
        if not self._is_passed:
            self._tables.meet(said, self._writer)

    def _unpacked(self, said: Payload) -> Iterator[Event]:
        for data in expanded(said):
            self._nth += 1
            yield from self._within(binlog.parse(data, binlog.head(data), has_checksums=False))

    def _decided(self, said: Prepared) -> Iterator[Event]:
        if self._held is not None:
            if self._is_ours and not said.is_committed:
                raise self._prepared(self._is_ours)
            yield from self._held.given()
        yield self._ended()

    def _opened(self, said: Query) -> None:
        """The first statement of a transaction of MySQL."""
        how = opens(said)
        self._is_alone = how is None
        if how == "XA":
            self._held = Held(self._gtid)

    def _begun(self, head: Head, said: Gtid) -> Begun:
        if head.start < 0:
            raise NotUnderstood(f"transaction {said.gtid} does not say where it begins")
        start, mark = self._start, said.mark(head.start)
        self._commit = start.commit_at(self._number, head.start)
        place = start.moved(self._commit).place
        self._gtid, self._mark = said.gtid or f"at {place}", mark
        if start.index and not self._has_met and (self._commit, mark) != (start.commit, start.gtids):
            raise AnotherLog(f"transaction {mark} is at {place}, where {start.gtids} was read")
        before = 0 if self._has_met or not start.index else start.inside or None
        self._has_met = True
        self._is_passed = self._passes(said.gtid)
        self._is_inside, self._is_alone, self._is_prepared = True, said.is_alone, said.is_prepared
        self._begins = self._end = self._reach = head.end
        self._nth, self._is_ours, self._held = 0, "", None
        committed = head.timestamp * 1000 if said.committed_us is None else said.committed_us // 1000
        self._writer.enter(self._commit, committed, "null" if said.gtid is None else f'"{said.gtid}"')
        note = self._noted(mark)
        self._counts(said.gtid)
        return Begun(note, before)

    def _passes(self, gtid: str | None) -> bool:
        if self._ahead is None or self._ahead.is_empty:
            return False
        if gtid is None:
            raise NotServed(
                f"a transaction without a GTID stands before {self._ahead}: nothing tells whether it is in the topic, "
                "as that was read from another server",
                "name the former server if it is still there; else begin anew under another spec.identity",
            )
        return self._ahead.meet(gtid)

    def _counts(self, gtid: str | None) -> None:
        """Behind this transaction it is one that was executed."""
        if self._executed is None:
            return
        if gtid is None:
            # No other server can tell whether it has it.
            self._executed = None
        else:
            self._executed.add(gtid)

    def _ended(self) -> Ended:
        if self._held is not None and not self._held.is_empty:
            raise NotUnderstood(f"XA transaction {self._gtid} ends, and nothing says how")
        self._is_inside = self._is_alone = False
        self._last = (self._number, self._mark)
        self._writer.end()
        # Beyond 4 GiB places begin at 0 again: then the end has none that anybody could go on at.
        has_place = self._begins < self._end and self._reach < _PLACES
        end = self._start.commit_at(self._number, self._end) if has_place else self._commit
        self.heard = max(self.heard, end)
        return Ended(end)

    def _changes(self, said: Rows) -> Iterator[list[Change]]:
        name = self._tables.of(said)
        if name is None or self._is_passed:
            return
        self._is_ours = name
        if self._is_prepared:
            raise self._prepared(name)
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

    def _prepared(self, table: str) -> NotServed:
        return NotServed(
            f"transaction {self._gtid} changes table {table}, and was prepared by XA: its rows are logged before "
            "anybody knows whether it is committed",
            "change this table by transactions without XA PREPARE",
        )

    def _asked(self, said: Query) -> Iterator[Event]:
        """A statement that is logged as text."""
        said = self._statements.read(said)
        if self._is_passed:
            self._statements.pass_over(said)
        else:
            table = self._statements.emptied(said)
            if table is not None:
                yield from self._emptied(*table)
                return
            self._statements.check(said, self._gtid)
            for name in self._statements.altered(said):
                yield Altered(name)
        how = ends(said)
        if how in ("ROLLBACK", "SAVEPOINT") and self._is_ours:
            raise NotServed(
                f"transaction {self._gtid} was rolled back, and is logged with changes of table {self._is_ours}, as it "
                "has also changed a table that can't roll back, or made a temporary one",
                "store all tables of one transaction by InnoDB, and make temporary tables before it begins",
            )
        if how in ("COMMIT", "ROLLBACK"):
            yield self._ended()

    def _refuse_partial(self, said: Partial) -> None:
        name = self._tables.of(said)
        if name is not None and not self._is_passed:
            raise NotServed(
                f"transaction {self._gtid} changes table {name}, and of a value of JSON only what has changed was "
                "logged (binlog_row_value_options)",
                UNPARTIAL,
            )

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
