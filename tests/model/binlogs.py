"""Servers with a binary log in memory, of which one takes over from another, and what can be done to them.

The product's stage runs on them as it is, with its own parser and what it knows of MySQL: what is replaced is the
connection (`changes/binlog/wire.py`). A server keeps what matters of MySQL: files of events, GTIDs that are the same on
all servers, a log that is kept by age, replicas that may commit in another order and split rows in their own way.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar
from unittest import mock

from model.scheduler import Fate, Scheduler
from sinkpipeline.changes.binlog import look, reader
from sinkpipeline.changes.binlog.wire import OutOfEvents, SqlFault
from sinkpipeline.changes.mysql import dialect
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.changes.binlog_kinds import MYSQL
from sinkpipeline.core.changes.binlog_suitable import Facts
from sinkpipeline.core.changes.gtids import MysqlGtids
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.errors import Reason, SinkPipelineError

T = TypeVar("T")

LOG, SCHEMA, TABLE = "bin", "d", "t"
_BEGIN = 4
_ARTIFICIAL = 0x20
_PLACES = 1 << 32
_GIANT = 3 << 30
_QUERY, _ROTATE, _FORMAT, _XID, _TABLE_MAP, _HEARTBEAT, _ROWS, _GTID, _ANONYMOUS, _PREVIOUS = (
    *(2, 4, 15, 16, 19, 27, 30, 33, 34, 35),
)
_NO_DUMP = 1236


class Transaction(NamedTuple):
    """One that inserts rows, the same on each server."""

    number: int
    """By which rows are told apart: `number * 100` is the key of its first one."""
    gtid: str | None
    rows: int


class Stands(NamedTuple):
    """A transaction in a log."""

    file: int
    start: int
    end: int
    transaction: Transaction


@dataclass
class File:
    number: int
    born: int
    previous: str
    events: list[tuple[int, bytes]] = field(default_factory=list)
    """With the place of each."""
    end: int = _BEGIN
    is_cut_off: bool = False
    """Whether it ends in the middle of an event, as its server was killed."""

    @property
    def name(self) -> str:
        return f"{LOG}.{self.number:06d}"

    def add(self, kind: int, body: bytes, more: int = 0) -> None:
        """`more`: so many bytes longer it says it is."""
        size = 19 + len(body) + more
        self.events.append((self.end, _event(kind, body, self.end + size, self.born, size=size)))
        self.end += size


def _event(kind: int, body: bytes, end: int, at: int = 0, flags: int = 0, size: int = 0) -> bytes:
    return struct.pack("<IBIIIH", at, kind, 1, size or 19 + len(body), end % _PLACES, flags) + body


def _format(created: int) -> bytes:
    return struct.pack("<H50sIB", 4, b"8.4.0", created, 19) + bytes(8) + b"\0" + bytes(4)


def _named(name: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\0"


def _table_map() -> bytes:
    names = b"\x02id"
    optional = b"\x01\x01\x00" + bytes([4, len(names)]) + names + b"\x08\x01\x00"
    return struct.pack("<Q", 7)[:6] + bytes(2) + _named(SCHEMA) + _named(TABLE) + b"\x01\x08\x00\x00" + optional


def _rows(keys: Sequence[int]) -> bytes:
    head = struct.pack("<Q", 7)[:6] + bytes(2) + b"\x02\x00" + b"\x01\xff"
    return head + b"".join(b"\x00" + struct.pack("<q", key) for key in keys)


class Machine:
    """One server."""

    def __init__(self, number: int, born: Iterator[int], *, has_gtids: bool, clone_of: Machine | None = None) -> None:
        """`clone_of`: of whom it has all, without a word of it in its own log."""
        self.uuid = str(uuid.UUID(int=number))
        self.has_gtids = has_gtids
        self.executed = MysqlGtids() if clone_of is None else clone_of.executed.copy()
        self.files: list[File] = []
        self.log: list[Stands] = (
            [] if clone_of is None else [Stands(0, 0, 0, each.transaction) for each in clone_of.log]
        )
        self.wires: list[Wire] = []
        self._rows_in_event = 1 + number
        self.born = born
        self._logged = MysqlGtids()
        self.begin_file(number * 3)

    def begin_file(self, number: int | None = None, *, closed: bool = True) -> None:
        """`closed`: the former one says which one follows; a server that was killed has not written that."""
        following = number or self.files[-1].number + 1
        if self.files and closed:
            name = f"{LOG}.{following:06d}"
            self.files[-1].add(_ROTATE, struct.pack("<Q", _BEGIN) + name.encode())
        made = File(following, next(self.born), str(self._logged))
        made.add(_FORMAT, _format(0 if closed else made.born))
        made.add(_PREVIOUS, bytes(8))
        self.files.append(made)

    def commit(self, number: int, rows: int, *, is_giant: bool = False) -> None:
        """A transaction of its own; one that is a giant is of 3 GiB."""
        self.apply(self._next(number, rows), _GIANT if is_giant else 0)

    def _next(self, number: int, rows: int) -> Transaction:
        spans = dict(self.executed.items()).get(self.uuid, [(0, 0)])
        return Transaction(number, f"{self.uuid}:{spans[0][1] + 1}" if self.has_gtids else None, rows)

    def apply(self, transaction: Transaction, more: int = 0) -> None:
        """One of its own, or of another server."""
        file, start = self.files[-1], self.files[-1].end
        self._write(transaction, more)
        if transaction.gtid is not None:
            self.executed.add(transaction.gtid)
            self._logged.add(transaction.gtid)
        self.log.append(Stands(file.number, start, file.end, transaction))

    def write_half(self, number: int, rows: int, events: int, *, is_cut_off: bool) -> None:
        """A transaction with which it is killed: so many of its events are in the file, as MariaDB leaves them."""
        file, before = self.files[-1], len(self.files[-1].events)
        self._write(self._next(number, rows), 0)
        # Without its last one.
        kept = min(before + events, len(file.events) - 1)
        file.end = file.events[kept][0]
        del file.events[kept:]
        file.is_cut_off = is_cut_off

    def _write(self, transaction: Transaction, more: int) -> None:
        file = self.files[-1]
        server, nth = (transaction.gtid or f"{uuid.UUID(int=0)}:0").rsplit(":", 1)
        when = transaction.number.to_bytes(7, "little")
        body = struct.pack("<B16sq17s7s", 0, uuid.UUID(server).bytes, int(nth), bytes(17), when)
        file.add(_GTID if transaction.gtid else _ANONYMOUS, body)
        file.add(_QUERY, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0BEGIN", more)
        keys = [transaction.number * 100 + each for each in range(transaction.rows)]
        for first in range(0, len(keys), self._rows_in_event):
            file.add(_TABLE_MAP, _table_map())
            file.add(_ROWS, _rows(keys[first : first + self._rows_in_event]))
        file.add(_XID, bytes(8))

    @property
    def unlogged(self) -> MysqlGtids:
        """What it has, and no file of its log."""
        first = self.files[0].number
        there = [each.transaction.gtid for each in self.log if each.file >= first and each.transaction.gtid]
        return MysqlGtids.parse(",".join(there)).lacks(self.executed)

    def missing(self, other: Machine) -> list[Transaction]:
        """What another one has, and this one has not."""
        there = {each.transaction.number for each in self.log}
        return [each.transaction for each in other.log if each.transaction.number not in there]

    def crash(self, lost: int = 0) -> list[Transaction]:
        """All connections end. What it had not written to its disk is gone: so many of the last transactions."""
        self.end_connections()
        gone = self.log[len(self.log) - lost :] if lost else []
        for each in reversed(gone):
            self._forget(each)
        self.log = self.log[: len(self.log) - len(gone)]
        self.begin_file(closed=False)
        return [each.transaction for each in gone]

    def _forget(self, one: Stands) -> None:
        # Files that were begun behind it are gone with it.
        self.files = [each for each in self.files if each.number <= one.file]
        file = self.files[-1]
        file.events = [each for each in file.events if each[0] < one.start]
        file.end = one.start
        if one.transaction.gtid is not None:
            gone = MysqlGtids.parse(one.transaction.gtid)
            self.executed, self._logged = gone.lacks(self.executed), gone.lacks(self._logged)

    def end_connections(self) -> None:
        for wire in self.wires:
            wire.is_over = True
        self.wires.clear()

    def purge(self) -> bool:
        """Removes its oldest file, unless it is the only one."""
        if len(self.files) > 1:
            del self.files[0]
            return True
        return False

    def file(self, name: str) -> File:
        for each in self.files:
            if each.name == name:
                return each
        raise SqlFault(_NO_DUMP, "Could not find first log file name in binary log index file")

    def begin(self, wire: Wire, server_id: int) -> None:
        """Who has read the log under this number is ended."""
        for other in [each for each in self.wires if server_id and each.server_id == server_id and each is not wire]:
            other.is_over = True
            self.wires.remove(other)
        wire.server_id = server_id


class Network:
    """Where the address of a source leads."""

    def __init__(self, scheduler: Scheduler, machines: list[Machine]) -> None:
        self.scheduler = scheduler
        self.machines = machines
        self.former: list[Machine] = []
        """Those that were made anew since."""
        self.current = machines[0]


def _unreachable(kind: type[SinkPipelineError] = SinkPipelineError) -> SinkPipelineError:
    return kind(Reason.SOURCE_UNREACHABLE, "the server", "none")


def _no_answer(_: Fate) -> NoReturn:
    raise _unreachable()


class Wire:
    """In place of the product's: a connection to the server to which the address leads as it is made."""

    network: Network

    def __init__(self, _connection: BinlogConnection, _where: str) -> None:
        self.is_over = False
        self.server_id = 0
        self._messages: deque[bytes] = deque()
        self._at = (0, 0)
        self._ends = False
        self.machine = self.network.scheduler.call("connect", self._connect, _no_answer)

    def _connect(self) -> Machine:
        machine = self.network.current
        machine.wires.append(self)
        return machine

    def close(self) -> None:
        # A process that was killed closes nothing.
        current = self.network.scheduler.current
        if current is None or not current.process.dead:
            self.is_over = True
            with contextlib.suppress(ValueError):
                self.machine.wires.remove(self)

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.network.scheduler.call("look", lambda: self._answer(statement, parameters), _no_answer)

    def _answer(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        machine = self.machine
        if self.is_over:
            raise _unreachable()
        if statement == "SHOW BINLOG EVENTS IN %s LIMIT 4":
            return [(None, None, "Previous_gtids", None, None, machine.file(parameters[0]).previous)]
        last = machine.files[-1]
        answers: dict[str, list[tuple[Any, ...]]] = {
            "SELECT @@global.server_uuid": [(machine.uuid,)],
            "SELECT current_user()": [("cdc@%",)],
            "SELECT @@global.gtid_mode": [("ON" if machine.has_gtids else "OFF",)],
            "SELECT @@global.gtid_executed": [(str(machine.executed),)],
            "SELECT @@global.gtid_purged": [(str(machine.unlogged),)],
            "SHOW BINARY LOGS": [(each.name, each.end) for each in machine.files],
            "SHOW BINARY LOG STATUS": [(last.name, last.end, "", "", "")],
            "XA RECOVER": [],
        }
        return answers[statement]

    def dump(self, file: str, offset: int, server_id: int = 0) -> None:
        def effect() -> None:
            if self.is_over:
                raise _unreachable()
            self.machine.begin(self, server_id)
            self._at, self._ends = (int(file.rsplit(".", 1)[1]), offset), not server_id
            found = self.machine.file(file)
            if offset > found.end:
                raise SqlFault(_NO_DUMP, "Client requested master to start replication from position > file size")
            self._told(found, offset)

        self.network.scheduler.call("dump", effect, _no_answer)

    def _told(self, file: File, offset: int) -> None:
        body = struct.pack("<Q", offset) + file.name.encode()
        self._messages.append(_event(_ROTATE, body, 0, flags=_ARTIFICIAL))
        if offset > _BEGIN:
            self._messages.append(_event(_FORMAT, _format(0), 0, file.born))

    def receive(self) -> bytes:
        if not self._messages:
            self.network.scheduler.call("receive", self._fetch, _no_answer)
        if not self._messages:
            file, offset = self.machine.files[-1], self._at[1]
            self.network.scheduler.wait("await", lambda: self.is_over or file.end > offset, 0.1)
            self._messages.append(_event(_HEARTBEAT, file.name.encode(), offset, flags=_ARTIFICIAL))
        return self._messages.popleft()

    def _fetch(self) -> None:
        if self.is_over:
            raise _unreachable()
        number, offset = self._at
        machine = self.machine
        file = machine.file(f"{LOG}.{number:06d}")
        if offset < file.end:
            there = [each for each in file.events if each[0] >= offset]
            if not any(at == offset for at, _ in file.events):
                raise SqlFault(_NO_DUMP, "bogus data in log event")
            # A part of what there is; the rest comes with the next look.
            self._messages += (data for _, data in there[:4])
            self._at = (number, there[4][0] if len(there) > 4 else file.end)
            return
        if file.is_cut_off:
            raise SqlFault(_NO_DUMP, "binlog truncated in the middle of event; consider out of disk space on master")
        following = next((each for each in machine.files if each.number > number), None)
        if following is not None:
            self._at = (following.number, _BEGIN)
            self._told(following, _BEGIN)
        elif self._ends:
            raise _unreachable(OutOfEvents)


def _facts(_dialect: Any, _wire: Wire, _tables: Sequence[str]) -> Facts:
    return Facts(
        kind=MYSQL,
        version="9.6.0",
        has_log=True,
        format="ROW",
        image="FULL",
        metadata="FULL",
        engines={f"{SCHEMA}.{TABLE}": "InnoDB"},
        logs_cascades=True,
    )


@contextlib.contextmanager
def read_from_the_model() -> Iterator[None]:
    answers: dict[str, Callable[..., Any]] = {
        "decodes": lambda _: {},
        "folds": lambda _: False,
        "has_checksums": lambda _: False,
        "clock": lambda _, commit: End(commit, 0),
        "expires_s": lambda _: 0,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(look, name, answer))
        stack.enter_context(mock.patch.object(reader, "Wire", Wire))
        stack.enter_context(mock.patch.object(dialect.MysqlDialect, "facts", _facts))
        # What MariaDB says at the beginning of a file; MySQL leaves no halves.
        whole_before, at_place = dialect.MysqlDialect.previous, partial(look.at_place, may_be_cut_off=True)
        stack.enter_context(mock.patch.object(look, "at_place", at_place))
        stack.enter_context(mock.patch.object(dialect.MysqlDialect, "whole_before", whole_before))
        yield
