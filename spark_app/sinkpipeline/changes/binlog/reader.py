"""A server with a binary log, as a stage reads it: looked at, read in order. It keeps nothing for us."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from sinkpipeline.changes.binlog import look
from sinkpipeline.changes.binlog.dialect import Dialect
from sinkpipeline.changes.binlog.halves import HalfTransaction, Halves
from sinkpipeline.changes.binlog.log_refused import log_refused
from sinkpipeline.changes.binlog.stream import AnotherLog, LogIncomplete, Stream
from sinkpipeline.changes.binlog.tables import Tables
from sinkpipeline.changes.binlog.wire import OutOfEvents, SqlFault, Wire, refused
from sinkpipeline.changes.ports import AnotherServer, Event, Look, TableSnapshot
from sinkpipeline.changes.settings import BinlogSettings
from sinkpipeline.core.changes.binlog_beginning import Seen, at_risk, check_there
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_suitable import (
    Facts,
    check_suitable,
    keyless,
    quoted,
    unlogged,
    unsuitable_tables,
)
from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.gtids import MOST_TEXT, Gtids
from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.positions import BinlogPosition, Position
from sinkpipeline.core.changes.taking_over import executed_at
from sinkpipeline.core.changes.values import Writer
from sinkpipeline.core.errors import SinkPipelineError

T = TypeVar("T")

_LOG = logging.getLogger("sinkpipeline.changes")

_WHO_S: Final = 15.0
"""How often an address is asked who answers there."""


def name_of(kind: BinlogKind, settings: BinlogSettings) -> str:
    """Names the server, for people."""
    return f"{kind.title} at {settings.connection.server}"


class Reader:
    """One connection that streams, and one for questions meanwhile; of one thread.

    Raises (all methods):
        SinkPipelineError: SourceUnreachable, and what their own docstrings name.
    """

    def __init__(self, dialect: Dialect, settings: BinlogSettings) -> None:
        """Connects.

        Raises:
            SinkPipelineError: also AuthenticationFailed, SecretNotFound.
        """
        self.settings = settings
        self.dialect = dialect
        self.where = name_of(dialect.kind, settings)
        self.skipped = 0
        self.heard = 0
        self._read_at: int | None = None
        self._shift = 0
        self._asked_at = time.monotonic()
        self._wire: Wire | None = None
        self._side = Wire(settings.connection, self.where)
        self.server = self._asked(self._side)
        """Who answers, as its kind tells one server from another."""
        [(self.user,)] = self._side.rows("SELECT current_user()")
        self.logs_cascades = False
        self._beyond = 0
        """How many looks in a row have seen an end before the position."""

    def connected(self) -> Wire:
        """Another connection to the same server, for whoever closes it."""
        wire = Wire(self.settings.connection, self.where)
        try:
            self.check_server(self._asked(wire))
        except BaseException:
            wire.close()
            raise
        return wire

    def check_server(self, server: str) -> None:
        """That who answers is who has answered before.

        Raises:
            SinkPipelineError: SourceUnreachable.
        """
        if server != self.server:
            raise look.another_server(self.dialect.kind, self.where, self.server, server)

    def _check_address(self) -> None:
        try:
            self.connected().close()
        except AnotherServer:
            raise
        except SinkPipelineError as error:
            # As where it takes no more connections: what is read comes all the same, or says why not.
            _LOG.warning("%s: who answers there could not be asked: %s", self.where, error)

    def _asked(self, wire: Wire) -> str:
        with self._told():
            return look.server(wire, self.dialect.kind)

    def close(self) -> None:
        for wire in (self._wire, self._side):
            if wire is not None:
                wire.close()

    def facts(self) -> Facts:
        """Raises SinkPipelineError: also SourceUnsuitable."""
        with self._told():
            found = self.dialect.facts(self._side, self.settings.tables)
            # Until something was read, the position is as old as this.
            self._read_at = look.clock(self._side, 0).clock // 1000
        self.logs_cascades = found.logs_cascades
        check_suitable(found, self.where)
        for error in unlogged(found, self.settings.tables, self.where):
            raise error
        return found

    def check_tables(self, facts: Facts) -> None:
        """For a first start. Raises SinkPipelineError: also SourceUnsuitable."""
        settings = self.settings
        for error in unsuitable_tables(facts, settings.tables, self.where, snapshot=settings.reads_rows):
            raise error

    def check_copied(self, facts: Facts, tables: Sequence[str]) -> None:
        """That rows of these can be read while the stream goes on.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        for error in unsuitable_tables(facts, tables, self.where, snapshot=True):
            raise error
        for name in tables:
            with self._told():
                if not look.key_of(self._side, name):
                    raise keyless(name, self.where)

    def is_missing(self, table: str) -> bool:
        """Whether there is none of this name; false where the user may not know."""
        try:
            self._side.rows(f"SELECT 1 FROM {quoted(table)} LIMIT 0")  # noqa: S608 - names are quoted
        except SqlFault as fault:
            return fault.is_of_no_table
        return False

    def seen(self, place: Position | None = None) -> Seen:
        """The server, with what was noted at a place, or at its end."""
        at = place if isinstance(place, BinlogPosition) else None
        with self._told():
            return self.dialect.seen(self._side, self.where, self.connected, at)

    def with_executed(self, place: BinlogPosition) -> BinlogPosition:
        """With the GTIDs of all before it, where that was not known and the server can tell.

        By the file, from its beginning: no statement tells it for a place without a right of its own.
        """
        if place.executed:
            return place
        dialect = self.dialect
        with self._told():
            if not dialect.gives_gtids(self._side):
                return place
            if dialect.files(self._side, self.where).size_of(place.number) is None:
                return place
            unlogged = dialect.unlogged(self._side)
            found = dialect.previous(self._side, place.file)
            has_checksums = look.has_checksums(self._side)
            try:
                if not look.add_gtids(self.connected, place, found, has_checksums=has_checksums):
                    return place
            except SqlFault as fault:
                # As where some of the file was logged in another gtid_mode.
                if not fault.is_of_the_log:
                    raise
                return place
        found.join(unlogged)
        return place.with_executed(text) if len(text := str(found)) <= MOST_TEXT else place

    def begin_of(self, place: BinlogPosition) -> BinlogPosition:
        """Where the transaction begins that another reader names otherwise by a place."""
        with self._told():
            if self.dialect.files(self._side, self.where).size_of(place.number) is None:
                return place
            return self.dialect.begin_of(self._side, self.connected, place)

    def prepared(self) -> int:
        """How many XA transactions are neither committed nor rolled back; 0 also where the user may not know."""
        with contextlib.suppress(SqlFault):
            return len(self._side.rows("XA RECOVER"))
        return 0

    def hold(self) -> None:
        """Nothing is to be taken: a log has any number of readers. Who has our server_id is ended where it is read."""

    def confirm(self, upto: int) -> None:
        """The server keeps its log by age, whoever needs it."""

    def look(self, place: Position) -> Look:
        """How the log stands; now and then also whether the address still leads to this server."""
        if time.monotonic() - self._asked_at > _WHO_S:
            self._asked_at = time.monotonic()
            self._check_address()
        with self._told():
            seen = self.dialect.files(self._side, self.where)
            last = seen.end if not isinstance(place, BinlogPosition) else seen.end.shifted(place.shift)
            end = look.clock(self._side, last.commit)
            expires_s = look.expires_s(self._side)
        # What it has handed out is not in its log any more: whoever asks again is told what has happened.
        self._beyond = self._beyond + 1 if end.commit < place.commit else 0
        if self._beyond > 1 and isinstance(place, BinlogPosition):
            check_there(place, seen, self.where)
        behind = seen.behind(place)
        told = {
            "serverEnd": last.place,
            "lagBytes": behind,
            "retainedBytes": None,
            "safeBytes": None,
            "timeline": None,
            "atRisk": at_risk(behind, self._read_at, end.clock // 1000, expires_s),
        }
        return Look(end=end, told=told, state=seen)

    def ask(self, question: Callable[[Dialect, Wire], T]) -> T:
        """What the dialect answers by asking the server."""
        with self._told():
            return question(self.dialect, self._side)

    def read_to_end(self, start: BinlogPosition) -> Generator[Event, None, None]:
        """Likewise, to the end of the log, and without ending anybody who reads it."""
        try:
            with contextlib.suppress(OutOfEvents):
                yield from self.read(start, 0, server_id=0)
        finally:
            if self._wire is not None:
                self._wire.close()
            self.skipped = self.heard = 0

    def read(self, start: Position, wait_s: float, *, server_id: int | None = None) -> Iterator[Event]:
        """What comes, for ever; changes before `start` are passed over, and counted.

        Args:
            start: of the progress.
            wait_s: the server says itself ten times a second that nothing has come.
            server_id: as whom, by default as the stage.

        Raises:
            SinkPipelineError: also SourceDataLost, SourceRecreated, SourceUnsuitable.
        """
        _ = wait_s
        if not isinstance(start, BinlogPosition):
            raise TypeError(f"{start} is no place in a binary log")
        settings = self.settings
        with self._told():
            decodes, folds = look.decodes(self._side), look.folds(self._side)
            tables = Tables(settings.tables, decodes, self, self.dialect.kind, folds=folds)
            writer = Writer(
                tables.key_of,
                large_as_text=settings.large_integers_as_text,
                place_text=lambda commit: start.moved(commit).place,
            )
            kind, has_checksums = self.dialect.kind, look.has_checksums(self._side)
            halves = Halves(self.connected, self._whole_before, has_checksums=has_checksums)
            stream = Stream(
                tables,
                writer,
                start,
                has_checksums=has_checksums,
                executed=executed_at(kind, start),
                ahead=kind.gtids.parse(start.ahead),
                is_half=halves.is_one,
            )
            self._shift = start.shift
        with self._of_the_log(start):
            place = start
            while True:
                yield from self._to_a_half(
                    stream, halves, place, settings.server_id if server_id is None else server_id
                )
                place = look.begin_of_next(stream.at)

    def _to_a_half(self, stream: Stream, halves: Halves, place: BinlogPosition, server_id: int) -> Iterator[Event]:
        """What comes from a place on, for ever, or until a file ends with a transaction that has no end."""
        self._wire = wire = self.connected()
        wire.dump(place.file, place.offset, server_id)
        try:
            while True:
                for event in stream.events(wire.receive()):
                    self.skipped, self.heard = stream.skipped, stream.heard
                    self._read_at = stream.read_at or self._read_at
                    yield event
        except HalfTransaction:
            pass
        except SqlFault as fault:
            # Not even the first event of the half is whole.
            if not (fault.is_of_a_half and stream.is_between and halves.may_end_with_one(stream.at)):
                raise
        _LOG.warning("%s was killed as it wrote file %s, and has rolled back its end", self.where, stream.at.file)
        wire.close()

    def _whole_before(self, place: BinlogPosition) -> Gtids | None:
        """What the server has in its log in front of a file; None where there is no such file."""
        if self.dialect.files(self._side, self.where).size_of(place.number) is None:
            return None
        return self.dialect.whole_before(self._side, place.file)

    def placed(self, snapshot: TableSnapshot) -> Position:
        """Where a snapshot beside it stands in what it reads."""
        if not isinstance(snapshot.start, BinlogPosition):
            raise TypeError(f"{snapshot.start} is no place in a binary log")
        self.check_server(snapshot.server)
        return snapshot.start.shifted(self._shift)

    def types(self, schema: str, table: str) -> Mapping[str, str]:
        """Of each column of a table as it is now; none where the user may not see it."""
        with self._told():
            return look.types(self._side, schema, table)

    def cascade(self, table: str) -> str | None:
        """What a foreign key of a table does to its rows by itself, as it is now, and the server does not log."""
        if self.logs_cascades:
            return None
        try:
            return look.cascade_of(self._side, table)
        except SqlFault:
            # It is gone, or not for us.
            return None

    @contextlib.contextmanager
    def _of_the_log(self, start: BinlogPosition) -> Iterator[None]:
        try:
            yield
        except (SqlFault, AnotherLog, LogIncomplete, NotServed, NotUnderstood) as refusal:
            if isinstance(refusal, SqlFault):
                if not refusal.is_of_the_log:
                    raise self._refused(refusal) from refusal
                # Why, the files tell; what the server says is no more than a sentence.
                with self._told():
                    check_there(start, self.dialect.files(self._side, self.where), self.where)
            raise log_refused(refusal, start, self.heard, self.where, self.dialect.kind) from refusal

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SqlFault as fault:
            raise self._refused(fault) from fault

    def _refused(self, fault: SqlFault) -> SinkPipelineError:
        return refused(fault, self.where, self.user, self.dialect.kind)


def connect_as(dialect: Dialect) -> Callable[[Any], Reader]:
    """What connects to a server of a kind."""
    return partial(Reader, dialect)
