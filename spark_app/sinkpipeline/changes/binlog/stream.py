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

from collections.abc import Callable, Iterator

from sinkpipeline.changes.binlog.executed import Executed
from sinkpipeline.changes.binlog.halves import HalfTransaction
from sinkpipeline.changes.binlog.held import Held
from sinkpipeline.changes.binlog.payload import expanded
from sinkpipeline.changes.binlog.statements import Statements
from sinkpipeline.changes.binlog.tables import Tables
from sinkpipeline.changes.ports import Altered, Begun, Ended, Event, Heard
from sinkpipeline.core.changes import binlog
from sinkpipeline.core.changes.binlog_beginning import EVENT
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
from sinkpipeline.core.changes.binlog_places import Places
from sinkpipeline.core.changes.binlog_statements import ends, opens
from sinkpipeline.core.changes.binlog_suitable import UNPARTIAL
from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.pgoutput import NotUnderstood, Truncate
from sinkpipeline.core.changes.positions import BinlogPosition, is_mark, parse_binlog
from sinkpipeline.core.changes.values import Change, Writer

_AT_ONCE = 500


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
        is_half: Callable[[BinlogPosition, str], bool] = lambda _place, _gtid: False,
    ) -> None:
        """Begins at a place.

        Args:
            tables: those that are read.
            writer: makes changes of their rows.
            start: of the progress.
            has_checksums: of what comes before the first file says it.
            executed: all that was committed before `start`; None: unknown.
            ahead: what of that comes behind `start` all the same, and is passed over.
            is_half: whether a transaction that begins at a place was never committed.
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
        self._at = Places(start.number, start.offset)
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
        self._note = ""
        """Of the newest transaction at whose place reading can begin."""
        self._has_end = False
        """Whether the transaction has said where it ends."""
        self._is_ours = ""
        """Which of our tables the transaction has changed."""
        self._held: Held | None = None
        """What it has changed, where nobody knows yet whether that counts."""
        self._executed, self._is_half = Executed(executed, ahead), is_half
        self._is_passed = False
        """Whether the transaction is in the topic, as another server had it before."""

    def events(self, data: bytes) -> Iterator[Event]:
        """What an event means for who has everything before `start`.

        Raises:
            NotUnderstood, NotServed, AnotherLog, LogIncomplete
            HalfTransaction: nothing of it was told.
        """
        head = binlog.head(data)
        said = binlog.parse(data, head, has_checksums=self._has_checksums)
        match said:
            case Format(has_checksums, born, is_start):
                self._has_checksums, self._born = has_checksums, born
                if is_start:
                    self._statements.forget_sessions()
                if not self._start.is_born(self._at.number, born):
                    raise AnotherLog(f"file {self._at.number} was begun at another time than the one that was read")
            case Rotate(file, offset):
                yield from self._rotated(file, offset)
            case Heartbeat(file):
                # Beyond 4 GiB it does not say a place, or its last 32 bits.
                if not self._is_inside and self._at.is_named:
                    self._at.number = parse_binlog(f"{file}:0").number
                    yield self._hears(head.end)
                else:
                    yield None
            case _ if head.is_in_log:
                self.read_at = head.timestamp or self.read_at
                yield from self._logged(head, said)
            case _:
                pass

    @property
    def at(self) -> BinlogPosition:
        """Where the file begins that is read."""
        return self._start.moved(self._start.commit_at(self._at.number, binlog.BEGIN))

    @property
    def is_between(self) -> bool:
        """Whether no transaction is open."""
        return not self._is_inside

    def _rotated(self, file: str, offset: int) -> Iterator[Event]:
        place = parse_binlog(f"{file}:{offset}")
        if place.log != self._start.log:
            raise AnotherLog(f"the log is called {place.log}, and was {self._start.log}")
        if place.number != self._at.number:
            self._check_whole(f"file {place.number} begins")
            self._born = None
        self._at.rotated(place.number, offset)
        if not self._is_inside:
            yield self._hears(offset)

    def _check_whole(self, what: str) -> None:
        if self._is_inside and self._is_ours:
            raise self._half(what)
        self._is_inside = False

    def _half(self, what: str) -> NotServed:
        return NotServed(
            f"{what}, and transaction {self._gtid} has not ended: the server has rolled it back as it was killed, or "
            "could not write it",
            f"look what the topic has of it, from {self._start.moved(self._commit).place} on; and go on under another "
            "spec.identity",
        )

    def _hears(self, offset: int) -> Heard:
        self.heard = max(self.heard, self._start.commit_at(self._at.number, offset))
        if self._start.index and not self._has_met and self.heard > self._start.commit:
            raise AnotherLog(f"no transaction begins at {self._start.place}, and one was read there")
        if self._born is None:
            return Heard(self.heard)
        # When its file was begun tells another log of its name, also where the last transaction is in another file.
        number, gtids = self._last
        if number != self._at.number and is_mark(gtids):
            gtids = ""
        return Heard(self.heard, self._executed.noted(gtids, self._at.number, self._born))

    def _logged(self, head: Head, said: LogEvent) -> Iterator[Event]:
        if isinstance(said, Incident):
            raise LogIncomplete
        self._at.passed(head)
        if isinstance(said, Gtid):
            self._check_whole(f"transaction {said.gtid} begins")
            yield self._begun(head, said)
        elif self._is_inside:
            self._nth += 1
            # Who ends the transaction says where; within it perhaps nobody does.
            self._has_end = self._has_end or head.end > 0
            yield from self._within(said)
        else:
            if isinstance(said, (TableMap, Rows, Partial, Payload, Xid)):
                raise AnotherLog(f"no transaction begins before {self._start.moved(self.heard).place}, and one goes on")
            # Of the log itself: what follows it begins there.
            if head.end and self._at.is_named:
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
        is_named = self._at.is_begin(head)
        before = self._placed(head, said) if is_named else self._joined(said)
        self._is_passed = self._executed.passes(said.gtid)
        if is_named:
            self._note = self._executed.noted(self._mark, self._at.number, self._born)
        self._is_inside, self._is_alone, self._is_prepared = True, said.is_alone, said.is_prepared
        self._has_end, self._is_ours, self._held = False, "", None
        committed = head.timestamp * 1000 if said.committed_us is None else said.committed_us // 1000
        self._writer.enter(self._commit, committed, "null" if said.gtid is None else f'"{said.gtid}"')
        self._executed.counts(said.gtid)
        return Begun(self._note, before)

    def _placed(self, head: Head, said: Gtid) -> int | None:
        """One that has a place of its own. Tells how many of its changes are in the topic; None: unknown."""
        if head.start < 0:
            raise NotUnderstood(f"transaction {said.gtid} does not say where it begins")
        start, mark = self._start, said.mark(head.start)
        self._commit = start.commit_at(self._at.number, head.start)
        place = start.moved(self._commit).place
        self._gtid, self._mark = said.gtid or f"at {place}", mark
        goes_on = start.index > 0 and not self._has_met
        if goes_on and (self._commit, mark) != (start.commit, start.gtids):
            raise AnotherLog(f"transaction {mark} is at {place}, where {start.gtids} was read")
        if said.gtid is not None and self._is_half(start.moved(self._commit), said.gtid):
            raise self._half("its file ends") if goes_on else HalfTransaction
        self._has_met, self._nth = True, 0
        return (start.inside or None) if goes_on else 0

    def _joined(self, said: Gtid) -> int | None:
        """One beyond 4 GiB: its events are numbered as if they were of the last one at which reading can begin."""
        if not self._has_met:
            raise NotServed(
                f"transaction {said.gtid} begins beyond 4 GiB of file {self._at.number}, where no reader can begin",
                "begin anew under another spec.identity",
            )
        self._nth += 1
        self._gtid = said.gtid or f"behind {self._start.moved(self._commit).place}"
        return None

    def _ended(self) -> Ended:
        if self._held is not None and not self._held.is_empty:
            raise NotUnderstood(f"XA transaction {self._gtid} ends, and nothing says how")
        self._is_inside = self._is_alone = False
        self._last = (self._at.number, self._mark)
        self._writer.end()
        has_place = self._has_end and self._at.is_named
        end = self._start.commit_at(self._at.number, self._at.end) if has_place else self._commit
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
