"""A database in memory whose changes are read by stages, and what can be done to it.

The product's stage runs on it as it is: what is replaced is the connection (`changes/postgresql/wire.py`) and what is
asked by SQL. The server keeps what matters of PostgreSQL: commits in one order, a slot that forwards silently, a
confirmation that a crash takes back, keepalives, standbys that lack the end, and large values that the log is without
where they were not touched.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, NoReturn, TypeVar
from unittest import mock

from model.scheduler import Fate, Scheduler
from sinkpipeline.changes import incremental
from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.ports import Batch
from sinkpipeline.changes.postgresql import beside, exported, reader, rows
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.wire import Busy, SqlFault
from sinkpipeline.changes.table_reading import Ending
from sinkpipeline.core.changes.beginning import Identity, Seen, SlotState
from sinkpipeline.core.changes.incremental import IncrementalMark, Listed
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.changes.pgoutput import Column, Relation
from sinkpipeline.core.changes.suitable import Facts
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.postgresql.settings import Connection as Database

T = TypeVar("T")

SLOT = "slot"
PUBLICATION = "16390"
_SITTING_S = 2.0
_AHEAD = 2
_OID = 7
_RELATION = (
    b"R"
    + struct.pack(">I", _OID)
    + b"public\0t\0d"
    + struct.pack(">H", 3)
    + b"".join(
        struct.pack(">B", is_key) + name + b"\0" + struct.pack(">Ii", kind, -1)
        for is_key, name, kind in ((1, b"id", 23), (0, b"n", 23), (0, b"doc", 25))
    )
)
_ORIGIN = b"O" + struct.pack(">Q", 0) + b"\0"


class Step(NamedTuple):
    """What a transaction does to one row: c(reate), u(pdate), m(ove: another key), d(elete); t(runcate) has no row."""

    op: str
    row: int = 0
    n: int = 0
    doc: str | None = None
    """Its large value; None: not touched, so that the log is without it."""
    old: int = 0
    """Of one whose key changes, the key before."""


@dataclass(frozen=True)
class Committed:
    """A transaction of the database."""

    lsn: int
    end: int
    number: int
    steps: tuple[Step, ...]

    @property
    def positions(self) -> list[tuple[int, int, int]]:
        """Of its changes, with its number: after a failover another one may stand at the same place."""
        return [(self.lsn, index, self.number) for index in range(len(self.steps))]

    @property
    def done(self) -> list[Done]:
        """Its changes as the topic has them."""
        found = []
        for index, step in enumerate(self.steps):
            at, new = (self.lsn, index), (step.row, step.n, step.doc)
            match step.op:
                case "m":
                    found += [Done(*at, 0, "d", step.old), Done(*at, 1, "c", *new)]
                case "d":
                    found.append(Done(*at, 0, "d", step.row))
                case "t":
                    found.append(Done(*at, 0, "t"))
                case op:
                    found.append(Done(*at, 0, op, *new))
        return found


class Done(NamedTuple):
    """A change as the topic has it."""

    lsn: int
    index: int
    half: int
    op: str
    row: int = 0
    n: int = 0
    doc: str | None = None
    """None: it is not told."""

    @property
    def place(self) -> tuple[int, int]:
        return (self.lsn, self.index)


Table = dict[int, tuple[int, str | None]]
"""By its key, what a row has; None where somebody who was told nothing of its large value has it."""


def apply(table: Table, done: list[Done]) -> None:
    """What becomes of a table: of the server's, or of whoever reads the topic."""
    gone: dict[tuple[int, int], str | None] = {}
    for each in done:
        if each.op == "t":
            table.clear()
        elif each.op == "d":
            gone[each.place] = table.pop(each.row, (0, None))[1]
        else:
            before = gone.get(each.place) if each.half else table.get(each.row, (0, None))[1]
            table[each.row] = (each.n, before if each.doc is None else each.doc)


def table_of(log: list[Committed], upto: tuple[int, int]) -> Table:
    """The table when everything before a position has happened."""
    found: Table = {}
    apply(found, [each for one in log for each in one.done if each.place < upto])
    return found


@dataclass
class Server:
    scheduler: Scheduler
    log: list[Committed] = field(default_factory=list)
    end: int = 100
    timeline: int = 1
    forks: dict[int, int] = field(default_factory=dict)
    slot: int | None = None
    """Its confirmed_flush_lsn."""
    saved: int = 100
    """What of it is on the disk."""
    reader: Wire | None = None
    lost: list[list[Committed]] = field(default_factory=list)
    """The logs of earlier timelines."""
    on_confirm: Callable[[int], None] = lambda _: None
    tells_by_itself: bool = False
    """Whether it tells where its log ends without being asked, as servers do now and then."""
    snapshots: dict[str, tuple[Wire, int]] = field(default_factory=dict)
    """By name, who keeps each, and of which moment it is."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def is_read(self) -> bool:
        return self.reader is not None

    @property
    def table(self) -> Table:
        return table_of(self.log, (self.end, 0))

    def commit(self, changes: int) -> None:
        """Inserts so many rows."""
        number = next(self._numbers)
        self._log([Step("c", number * 100 + index, 0, f"doc {number}") for index in range(changes)], number)

    def remove(self, rows: int, *, newest: bool = False) -> None:
        """Deletes the oldest ones, or the newest."""
        there = sorted(self.table)
        self._log([Step("d", row) for row in (there[-rows:] if newest else there[:rows])])

    def change(self, nth: int, *, to: int | None, doc: bool) -> None:
        """Updates a row, or gives it another key, which nobody has; `doc`: also its large value."""
        there = sorted(self.table)
        if not there or to in there:
            return
        row, number = there[nth % len(there)], next(self._numbers)
        value = f"doc {number}" if doc else None
        self._log([Step("u", row, number, value) if to is None else Step("m", to, number, value, row)], number)

    def take_over(self, nth: int) -> None:
        """A row goes, and another one has its key since; perhaps it moves on."""
        there = sorted(self.table)
        if len(there) > 1:
            gone, other, number = there[nth % len(there)], there[(nth + 1) % len(there)], next(self._numbers)
            self._log([Step("d", gone), Step("m", gone, number, None, other)], number)

    def truncate(self) -> None:
        """Waits for nobody: the sessions that hold a lock are ended."""
        self.end_snapshots()
        self._log([Step("t")])

    def _log(self, steps: list[Step], number: int | None = None) -> None:
        lsn = self.end
        self.end += 5
        if steps:
            self.log.append(Committed(lsn, self.end, next(self._numbers) if number is None else number, tuple(steps)))

    def end_reader(self) -> None:
        if self.reader is not None:
            self.reader.is_over = True
            self.reader = None

    def crash(self) -> None:
        """A confirmation that was not on the disk is forgotten, and all connections end."""
        self.end_reader()
        self.end_snapshots()
        if self.slot is not None:
            self.slot = min(self.slot, self.saved)

    def checkpoint(self) -> None:
        if self.slot is not None:
            self.saved = self.slot

    def fail_over(self, behind: int) -> None:
        """A standby with the slot as it was saved takes over, which lacks so many of the last transactions."""
        self.end_reader()
        self.end_snapshots()
        self.lost.append(list(self.log))
        gone = self.log[len(self.log) - behind :] if behind else []
        self.log = self.log[: len(self.log) - len(gone)]
        switch = gone[0].lsn if gone else self.end
        self.forks = {**{old: min(at, switch) for old, at in self.forks.items()}, self.timeline: switch}
        self.timeline += 1
        self.end = switch
        if self.slot is not None:
            self.slot = min(self.slot, self.saved, switch)

    def end_snapshots(self) -> None:
        for wire in Wire.entered:
            wire.is_over = True
        Wire.entered.clear()
        self.snapshots.clear()

    def export(self, wire: Wire) -> tuple[int, str]:
        if self.slot is not None:
            raise SqlFault("42710", "the slot exists")
        # The server writes a record of what runs at the moment.
        self.end += 5
        self.slot = self.saved = self.end
        name = f"snapshot-{next(self._numbers)}"
        self.snapshots[name] = (wire, self.end)
        return self.end, name

    def export_beside(self, wire: Wire) -> tuple[int, str]:
        """Likewise, of a slot that is gone with its connection."""
        self.end += 5
        name = f"snapshot-{next(self._numbers)}"
        self.snapshots[name] = (wire, self.end)
        return self.end, name

    def drop(self, state: SlotState) -> None:
        if self.slot == state.confirmed and self.reader is None:
            self.slot = None

    def begin(self, wire: Wire) -> None:
        if self.slot is None:
            raise SinkPipelineError(Reason.SLOT_LOST, "no slot", "none")
        if self.reader is not None:
            raise Busy("slot is active")
        self.reader = wire
        wire.next_at = self.slot

    def confirm(self, wire: Wire, upto: int) -> None:
        if wire.is_over or self.slot is None:
            raise _unreachable()
        if upto:
            # Older servers take any, also one that goes back.
            self.slot = upto
            self.on_confirm(upto)

    def seen(self) -> Seen:
        return Seen(identity=self._identity(), slot=self.state(), flushed=self.end, forks=dict(self.forks))

    def _identity(self) -> Identity:
        return Identity(system="1", timeline=self.timeline, database="5", slot=SLOT, publication=PUBLICATION)

    def state(self) -> SlotState | None:
        if self.slot is None:
            return None
        return SlotState(plugin="pgoutput", database="5", confirmed=self.slot, restart=self.slot)

    def create_slot(self) -> int:
        if self.slot is not None:
            raise SinkPipelineError(Reason.SOURCE_UNSUITABLE, "the slot exists", "none")
        self.slot = self.saved = self.end
        return self.end


def _unreachable() -> SinkPipelineError:
    return SinkPipelineError(Reason.SOURCE_UNREACHABLE, "the server", "none")


def _no_answer(_: Fate) -> NoReturn:
    raise _unreachable()


def _keepalive(wal: int) -> bytes:
    return struct.pack(">cQqB", b"k", wal, 0, 0)


def _told(step: Step) -> bytes:
    """As the plugin tells it."""
    oid = struct.pack(">I", _OID)
    row = _row(str(step.row), str(step.n), step.doc)
    match step.op:
        case "c":
            return b"I" + oid + b"N" + row
        case "u":
            return b"U" + oid + b"N" + row
        case "m":
            return b"U" + oid + b"K" + _row(str(step.old)) + b"N" + row
        case "d":
            return b"D" + oid + b"K" + _row(str(step.row))
        case _:
            return b"T" + struct.pack(">IB", 1, 0) + oid


def _row(key: str, *more: str | None) -> bytes:
    """Of a key alone nothing else has a value; of a row, what has none was not touched."""
    values = [key, *(more or (None, None))]
    missing = b"u" if more else b"n"
    told = [missing if each is None else b"t" + struct.pack(">I", len(each)) + each.encode() for each in values]
    return struct.pack(">H", len(values)) + b"".join(told)


def _framed(payload: bytes) -> bytes:
    return b"w" + bytes(24) + payload


class Wire:
    """In place of the product's: a connection to the server of the run that goes on."""

    server: Server
    entered: list[Wire] = []  # noqa: RUF012 - of the run that goes on
    """Those that read by a snapshot."""

    version = 150000

    def __init__(
        self, _connection: Database, _where: str, *, replication: bool = False, version: int | None = None
    ) -> None:
        assert version in {None, self.version}
        self.is_over = False
        self.next_at = 0
        self._known = False
        self._messages: deque[bytes] = deque()
        self._wanted = 0
        self._replication = replication
        ask("connect", lambda: None)

    def close(self) -> None:
        # A process that was killed closes nothing: its connection lives until the server ends it.
        current = self.server.scheduler.current
        if current is None or not current.process.dead:
            self._leave()

    def _leave(self) -> None:
        self.is_over = True
        if self.server.reader is self:
            self.server.reader = None

    def cancel(self) -> None:
        """Nothing waits."""

    def rows(self, statement: str, *_: object) -> list[tuple[Any, ...]]:
        """The oldest transaction of the slot, or a key that nobody alters."""
        return [("700",)] if "catalog_xmin" in statement else [("id 23", True)]

    def stream(self, _slot: str, _publication: str) -> None:
        ask("stream", lambda: self.server.begin(self))

    def receive(self) -> memoryview | None:
        if not self._messages:
            self.server.scheduler.call("receive", self._fetch, _no_answer)
        return memoryview(self._messages.popleft()) if self._messages else None

    def _fetch(self) -> None:
        server = self.server
        if self.is_over:
            raise _unreachable()
        following = next((each for each in server.log if each.lsn >= self.next_at), None)
        if following is not None:
            told = [_framed(each) for each in self._told(following)]
            # What is heard while a transaction is handed out says nothing of it, though its record was read.
            told.insert(len(told) // 2, _keepalive(following.end))
            self._messages += told
            self.next_at = following.end
        elif self._wanted or (server.tells_by_itself and server.end > self.next_at):
            self._wanted = 0
            self._messages.append(_keepalive(server.end))
            self.next_at = max(self.next_at, server.end)

    def _told(self, transaction: Committed) -> Iterator[bytes]:
        yield b"B" + struct.pack(">QqI", transaction.lsn, 0, transaction.number)
        if not self._known:
            yield _RELATION
            self._known = True
        for index, step in enumerate(transaction.steps):
            yield _told(step)
            if index == len(transaction.steps) // 2:
                # The origin of what comes; where a server hands out changes it may say this at any time.
                yield _ORIGIN
        yield b"C" + struct.pack(">BQQq", 0, transaction.lsn, transaction.end, 0)

    def wait(self, seconds: float) -> None:
        self.server.scheduler.wait("await", lambda: self.is_over, seconds)

    def tell(self, confirmed: int) -> None:
        self._wanted += 1
        ask("confirm", lambda: self.server.confirm(self, confirmed))


def ask(label: str, effect: Callable[[], T]) -> T:
    return Wire.server.scheduler.call(label, effect, _no_answer)


class _Look:
    """In place of what is asked by SQL."""

    @staticmethod
    def facts(_wire: Wire, _publication: str) -> Facts:
        return Facts(
            version=Wire.version, wal_level="logical", encoding="UTF8", role="r", may_replicate=True, in_recovery=False
        )

    @staticmethod
    def tables(_wire: Wire, _publication: str) -> tuple[Any, ...]:
        return ()

    @staticmethod
    def published(_wire: Wire, _publication: str) -> dict[str, Listed]:
        return {"public.t": Listed("table 1", "7")}

    @staticmethod
    def seen(wire: Wire, _slot: str, _publication: str) -> Seen:
        return ask("look", wire.server.seen)

    @staticmethod
    def server(wire: Wire) -> tuple[str, int]:
        return ask("look", lambda: ("1", wire.server.timeline))

    @staticmethod
    def slot_state(wire: Wire, _slot: str) -> SlotState | None:
        return ask("look", wire.server.state)

    @staticmethod
    def end(wire: Wire) -> End:
        return ask("look", lambda: End(wire.server.end, 0))

    @staticmethod
    def primary_key(_wire: Wire, _table: int) -> tuple[str, ...]:
        return ()


class _Making:
    @staticmethod
    def publishing_generated(*_: object, **__: object) -> str:
        return "ALTER PUBLICATION"

    @staticmethod
    def create_slot(wire: Wire, *_: object) -> int:
        return ask("create", wire.server.create_slot)

    @staticmethod
    def free(wire: Wire, *_: object) -> None:
        ask("free", wire.server.end_reader)

    @staticmethod
    def busy(*_: object) -> SinkPipelineError:
        return SinkPipelineError(Reason.SLOT_BUSY, "busy", "none")


class Copying:
    """In place of what a snapshot asks by SQL: of one table, in chunks of two rows."""

    @staticmethod
    def pinned(_wire: Wire, table: CopiedTable) -> CopiedTable:
        return table

    @staticmethod
    def tables(_wire: Wire, *_: object) -> list[CopiedTable]:
        columns = (Column("id", True, 23), Column("n", False, 23), Column("doc", False, 25))
        relation = Relation(_OID, "public", "t", "d", columns)
        table = CopiedTable(relation=relation, key=(0,), is_partitioned=False, only_rows=None, estimate=1)
        return ask("look", lambda: [table])

    @staticmethod
    def export_slot(wire: Wire, *_: object) -> tuple[int, str]:
        return ask("create", lambda: wire.server.export(wire))

    @staticmethod
    def export_temporary(wire: Wire, _name: str) -> tuple[int, str]:
        return ask("create", lambda: wire.server.export_beside(wire))

    @staticmethod
    def drop_slot(wire: Wire, _name: str, state: SlotState) -> None:
        ask("drop", lambda: wire.server.drop(state))

    @staticmethod
    def enter(wire: Wire, snapshot: str, _tables: object) -> int:
        def effect() -> None:
            keeper, lsn = wire.server.snapshots.get(snapshot, (None, 0))
            if keeper is None or keeper.is_over:
                raise SqlFault("22023", "invalid snapshot identifier")
            wire.next_at = lsn
            Wire.entered.append(wire)

        ask("enter", effect)
        return 0

    @staticmethod
    def check_beside(*_: object) -> None:
        """Its table can be read."""

    @staticmethod
    def rewritten(_wire: Wire, _tables: object) -> list[str]:
        return []

    @staticmethod
    def rows(wire: Wire) -> Table:
        return table_of(wire.server.log, (wire.next_at, 0))

    @classmethod
    def lines(cls, wire: Wire, _table: object, after: list[str] | None, most: int, _wait_s: float) -> Iterator[bytes]:
        def effect() -> list[bytes]:
            if wire.is_over:
                raise _unreachable()
            first = -1 if after is None else int(after[0])
            rows = sorted((row, *rest) for row, rest in cls.rows(wire).items() if row > first)
            return [f"{row}\t{n}\t{doc}\n".encode() for row, n, doc in rows[:most]]

        yield from ask("copy", effect)


class TableReading:
    """In place of a thread: who asks for a snapshot has it at once, and some batches before they are taken."""

    def __init__(self, kind: Any, database: Any, mark: IncrementalMark) -> None:
        self._made: Any = None
        self._refusal: SinkPipelineError | None = None
        self._until = time.monotonic() + _SITTING_S
        self._ahead: deque[Batch | Ending | SinkPipelineError] = deque()
        try:
            self._made = kind.copy_table(database, mark.waiting[0], Cancellation())
            self._batches = self._made.read(mark.by(self._made.key).after)
        except SinkPipelineError as error:
            self._refusal = error

    def snapshot(self) -> Any:
        if self._refusal is not None:
            raise self._refusal
        return self._made

    def take(self, _wait_s: float) -> Batch | Ending | None:
        while len(self._ahead) < _AHEAD:
            try:
                self._ahead.append(Ending.LATE if time.monotonic() > self._until else next(self._batches, Ending.ALL))
            except SinkPipelineError as error:
                self._ahead.append(error)
        found = self._ahead.popleft()
        if isinstance(found, SinkPipelineError):
            raise found
        return found

    def leave(self) -> None:
        if self._made is not None:
            self._made.close()

    close = leave


@contextlib.contextmanager
def read_from_the_model() -> Iterator[None]:
    with (
        mock.patch.object(exported, "Wire", Wire),
        mock.patch.object(exported, "copying", Copying),
        mock.patch.object(rows, "CHUNK", 2),
        mock.patch.object(rows, "copying", Copying),
        mock.patch.object(beside, "Wire", Wire),
        mock.patch.object(beside, "copying", Copying),
        mock.patch.object(beside, "look", _Look),
        mock.patch.object(incremental, "TableReading", TableReading),
        # One chunk at a time.
        mock.patch.object(incremental, "_STRETCH_S", -1.0),
        mock.patch.object(incremental, "MOST_TOUCHED", 4),
        mock.patch.object(reader, "copying", Copying),
        mock.patch.object(reader, "Wire", Wire),
        mock.patch.object(reader, "look", _Look),
        mock.patch.object(reader, "making", _Making),
    ):
        yield
