"""A database whose changes are read by stages, in memory; what can be done to it and to them; and who judges.

The product's stage runs on it as it is: what is replaced is the connection (`changes/postgresql/wire.py`) and what is
asked by SQL. The server keeps what matters of PostgreSQL: commits in one order, a slot that forwards silently, a
confirmation that a crash takes back, keepalives, and standbys that lack the end.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, NoReturn, TypeVar
from unittest import mock

from hypothesis import strategies as st
from typing_extensions import override

from model import clients
from model.broker import Broker
from model.judge import Violation
from model.scheduler import Fate, Process, Scheduler, Thread
from sinkpipeline.changes import incremental
from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.ports import Batch
from sinkpipeline.changes.postgresql import beside, exported, reader, rows
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.wire import Busy, SqlFault
from sinkpipeline.changes.settings import DatabaseSettings, Publication, Slot, StageSettings
from sinkpipeline.changes.stage import Stage
from sinkpipeline.changes.table_reading import Ending
from sinkpipeline.core.changes.beginning import Identity, Seen, SlotState
from sinkpipeline.core.changes.incremental import IncrementalMark
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.changes.pgoutput import Column, Relation
from sinkpipeline.core.changes.positions import lsn_text
from sinkpipeline.core.changes.suitable import Facts
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.topics import TopicRequest, progress_request
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.postgresql.settings import Connection as Database

T = TypeVar("T")

TOPIC, PROGRESS, SLOT = "changes", "progress", "slot"
PUBLICATION = "16390"
_CUTS = CutPolicy(rows=3, bytes=1 << 20, seconds=0.5)
_PATIENCE_S = 600.0
_BACKOFF_S = 5.0
_SITTING_S = 2.0
_OID = 7
_RELATION = (
    b"R" + struct.pack(">I", _OID) + b"public\0t\0d" + struct.pack(">H", 1) + b"\1id\0" + struct.pack(">Ii", 23, -1)
)
_ORIGIN = b"O" + struct.pack(">Q", 0) + b"\0"


@dataclass(frozen=True)
class Committed:
    """A transaction of the database."""

    lsn: int
    end: int
    changes: int
    number: int
    removed: tuple[int, ...] = ()
    """The rows that it deletes; of a transaction that inserts some, none."""

    @property
    def positions(self) -> list[tuple[int, int, int]]:
        """Of its changes, with its number: after a failover another one may stand at the same place."""
        return [(self.lsn, index, self.number) for index in range(self.changes)]

    @property
    def rows(self) -> list[tuple[int, int, str, int]]:
        """Of its changes, what each does to which row."""
        if self.removed:
            return [(self.lsn, index, "d", row) for index, row in enumerate(self.removed)]
        return [(self.lsn, index, "c", self.number * 100 + index) for index in range(self.changes)]


def table_of(log: list[Committed], upto: tuple[int, int]) -> set[int]:
    """The rows of the table when everything before a position has happened."""
    found: set[int] = set()
    for lsn, index, op, row in (each for one in log for each in one.rows):
        if (lsn, index) < upto:
            found = found | {row} if op == "c" else found - {row}
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

    def commit(self, changes: int) -> None:
        lsn = self.end
        self.end += 5
        if changes:
            self.log.append(Committed(lsn, self.end, changes, next(self._numbers)))

    def remove(self, rows: int, *, newest: bool = False) -> None:
        """Deletes the oldest ones, or the newest."""
        there = sorted(table_of(self.log, (self.end, 0)))
        removed = tuple(there[-rows:] if newest else there[:rows])
        if removed:
            self.log.append(Committed(self.end, self.end + 5, len(removed), next(self._numbers), removed))
            self.end += 5

    def end_reader(self) -> None:
        if self.reader is not None:
            self.reader.is_over = True
            self.reader = None

    def crash(self) -> None:
        """A confirmation that was not on the disk is forgotten, and all connections end."""
        self.end_reader()
        self._end_snapshots()
        if self.slot is not None:
            self.slot = min(self.slot, self.saved)

    def checkpoint(self) -> None:
        if self.slot is not None:
            self.saved = self.slot

    def fail_over(self, behind: int) -> None:
        """A standby with the slot as it was saved takes over, which lacks so many of the last transactions."""
        self.end_reader()
        self._end_snapshots()
        self.lost.append(list(self.log))
        gone = self.log[len(self.log) - behind :] if behind else []
        self.log = self.log[: len(self.log) - len(gone)]
        switch = gone[0].lsn if gone else self.end
        self.forks = {**{old: min(at, switch) for old, at in self.forks.items()}, self.timeline: switch}
        self.timeline += 1
        self.end = switch
        if self.slot is not None:
            self.slot = min(self.slot, self.saved, switch)

    def _end_snapshots(self) -> None:
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


def _framed(payload: bytes) -> bytes:
    return b"w" + bytes(24) + payload


class Wire:
    """In place of the product's: a connection to the server of the run that goes on."""

    server: Server
    entered: list[Wire] = []  # noqa: RUF012 - of the run that goes on
    """Those that read by a snapshot."""

    def __init__(self, _connection: Database, _where: str, *, replication: bool = False) -> None:
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

    def rows(self, _statement: str, *_: object) -> list[tuple[Any, ...]]:
        return [("id 23",)]

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
        for index in range(transaction.changes):
            text = b"%d" % transaction.rows[index][3]
            kind, which = (b"D", b"K") if transaction.removed else (b"I", b"N")
            yield kind + struct.pack(">IcH", _OID, which, 1) + b"t" + struct.pack(">I", len(text)) + text
            if index == transaction.changes // 2:
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
            version=150000, wal_level="logical", encoding="UTF8", role="r", may_replicate=True, in_recovery=False
        )

    @staticmethod
    def tables(_wire: Wire, _publication: str) -> tuple[Any, ...]:
        return ()

    @staticmethod
    def published(_wire: Wire, _publication: str) -> dict[str, str]:
        return {"public.t": "public.t"}

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
        relation = Relation(_OID, "public", "t", "d", (Column("id", True, 23),))
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
    def rows(wire: Wire) -> set[int]:
        return table_of(wire.server.log, (wire.next_at, 0))

    @classmethod
    def lines(cls, wire: Wire, _table: object, after: list[str] | None, most: int, _wait_s: float) -> Iterator[bytes]:
        def effect() -> list[int]:
            if wire.is_over:
                raise _unreachable()
            first = -1 if after is None else int(after[0])
            return sorted(row for row in cls.rows(wire) if row > first)[:most]

        for row in ask("copy", effect):
            yield b"%d\n" % row


class TableReading:
    """In place of a thread: who asks for a snapshot has it at once, and each batch when it is taken."""

    def __init__(self, kind: Any, database: Any, mark: IncrementalMark) -> None:
        self._made: Any = None
        self._refusal: SinkPipelineError | None = None
        self._until = time.monotonic() + _SITTING_S
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
        if time.monotonic() > self._until:
            return Ending.LATE
        found: Batch | Ending | None = next(self._batches, Ending.ALL)
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


class Stop:
    """In place of an event of threads."""

    def __init__(self) -> None:
        self.asked = False

    def is_set(self) -> bool:
        return self.asked


class Driver:
    """Begins a life of its stage after the other, until it is refused or superseded."""

    def __init__(self, world: ChangesWorld, number: int) -> None:
        self.process = Process(f"driver{number}", 0.001)
        self.stop = Stop()
        self.error: SinkPipelineError | None = None
        self._world = world
        self._run = f"run{number}"
        self._claimed = False
        self.thread: Thread = world.scheduler.spawn(self.process, "stage", "stage", self._live)

    def _live(self) -> None:
        try:
            while not self.stop.is_set():
                self._one_life()
                if self.error is not None and not self.error.reason.retry:
                    return
                self._world.scheduler.wait("backoff", None, _BACKOFF_S)
        finally:
            self.process.over = True

    def _one_life(self) -> None:
        settings = _settings(self._run, takes_over=not self._claimed, world=self._world)
        try:
            Stage(settings, self._say, self.stop).run()  # type: ignore[arg-type]
        except SinkPipelineError as error:
            self.error = error
            self._world.scheduler.tell(f"{self.process.name}: {error}")

    def _say(self, event: str, **_: Any) -> None:
        self._claimed |= event == "claimed"
        if event == "claimed":
            self.error = None


def _is_superseded(driver: Driver) -> bool:
    return driver.error is not None and driver.error.reason is Reason.SUPERSEDED


def _settings(run: str, *, takes_over: bool, world: ChangesWorld) -> StageSettings:
    return StageSettings(
        id=SinkId("i", "changes"),
        owner=Owner(cluster="file", name="model"),
        run=run,
        takes_over=takes_over,
        kafka=Connection(bootstrap_servers="model:9092"),
        topic=TopicRequest(name=TOPIC, partitions=1),
        progress=progress_request(PROGRESS, None),
        database=DatabaseSettings(
            connection=Database(servers="model:5432", database="d", user="r"),
            publication=Publication(name="p"),
            slot=Slot(name=SLOT),
            snapshot=world.has_snapshot and not world.is_incremental,
            incremental=world.is_incremental,
            idle_advance_s=2.0,
        ),
        cuts=_CUTS,
        # What was delivered before its progress was is nowhere: progress and changes are in one transaction.
        refuse_existing_data=True,
    )


class ChangesWorld:
    """A broker, a server, drivers, and a judge who reads off the logs without the product's code."""

    has_snapshot = False
    is_incremental = False

    def __init__(self) -> None:
        self.broker = Broker(marker_delay_s=0.0)
        self.scheduler = Scheduler(pass_time=self.broker.pass_time, limit=60_000)
        self.server = Server(self.scheduler, on_confirm=self._judge_confirmation)
        Wire.server = self.server
        Wire.entered = []
        clients.connect(clients.Cluster(self.broker, self.scheduler))
        self.broker.on_commit = self._judge
        self.drivers: list[Driver] = []
        self.justified: set[Reason] = set()
        self.begins_at: int | None = None
        self.violation: Violation | None = None

    def close(self) -> None:
        self.scheduler.close()
        clients.connect(None)

    def start(self) -> Driver:
        self.drivers.append(Driver(self, len(self.drivers)))
        return self.drivers[-1]

    def alive(self) -> list[Driver]:
        return [each for each in self.drivers if not each.process.dead and not each.thread.done]

    def run(self, *, seconds: float, steps: int) -> None:
        self.scheduler.run(seconds=seconds, steps=steps)
        self.check()

    def check(self) -> None:
        if self.violation is not None:
            raise self.violation

    def fail(self, text: str) -> None:
        self.violation = self.violation or Violation(text + "\n" + "\n".join(self.scheduler.trace[-200:]))
        self.scheduler.stopped = True

    # Who judges

    def progress(self) -> tuple[int, int] | None:
        """The newest committed position."""
        if PROGRESS not in self.broker.topics:
            return None
        found = None
        for record in self.broker.log(PROGRESS, 0).history:
            if record.is_committed and record.key == b"sinkpipeline/v1/i/changes/p/postgresql/0" and record.value:
                lsn, index = json.loads(record.value)["pos"]
                high, low = lsn.split("/")
                found = (int(high, 16) << 32 | int(low, 16), index)
                self.begins_at = found[0] if self.begins_at is None else self.begins_at
        return found

    def topic(self) -> list[tuple[int, int, int]]:
        if TOPIC not in self.broker.topics:
            return []
        found = []
        for record in self.broker.log(TOPIC, 0).history:
            if record.is_committed:
                document = json.loads(record.value or b"")
                lsn, index = document["pos"]
                number, nth = divmod(document["after"]["id"], 100)
                if nth != index:
                    self.fail(f"change {nth} of transaction {number} has index {index}")
                found.append((int(lsn.split("/")[1], 16), index, number))
        return found

    def expected(self, log: list[Committed], upto: tuple[int, int]) -> list[tuple[int, int, int]]:
        begins = self.begins_at or 0
        return [each for one in log if one.lsn >= begins for each in one.positions if each[:2] < upto]

    def _judge(self) -> None:
        progress, topic = self.progress(), self.topic()
        if progress is None:
            if topic:
                self.fail("changes are in the topic, and no progress")
            return
        # What was read of a server that was left since is still one whole history, but never a part of two.
        if all(topic != self.expected(log, progress) for log in (self.server.log, *self.server.lost)):
            self.fail(
                f"the progress is {progress}, and the topic has {topic}, not {self.expected(self.server.log, progress)}"
            )

    def _judge_confirmation(self, upto: int) -> None:
        progress = self.progress()
        if progress is None or upto > progress[0]:
            self.fail(f"the slot was confirmed up to {lsn_text(upto)}, and the progress is {progress}")

    def settle(self) -> None:
        """When nothing goes wrong any more, everything is delivered, or refused for a reason."""
        for thread in self.scheduler.held():
            thread.held = False
        while self.scheduler.late:
            self.scheduler.deliver(0)
        self.check()
        last = self.start()

        def is_over() -> bool:
            # One whose request took long may have come behind the last one.
            return self._is_complete() or (last.thread.done and (not _is_superseded(last) or not self.alive()))

        self.scheduler.run(is_over, seconds=_PATIENCE_S)
        self.check()
        for driver in self.drivers:
            reason = None if driver.error is None else driver.error.reason
            if reason is Reason.INTERNAL_ERROR:
                raise Violation(f"a bug: {driver.error}")
        if self._is_complete():
            return
        ends = [each for each in self.drivers if not _is_superseded(each)] if _is_superseded(last) else [last]
        reasons = {None if each.error is None else each.error.reason for each in ends}
        if not reasons & self.justified:
            raise Violation(f"not all was delivered: {last.error}\n" + "\n".join(self.scheduler.trace[-100:]))

    def _is_complete(self) -> bool:
        progress = self.progress()
        last = self.server.log[-1].end if self.server.log else 0
        return (
            progress is not None
            and progress[0] >= last
            and self.topic() == self.expected(self.server.log, (1 << 60, 0))
        )


Done = tuple[int, int, str, int]
"""A change in the topic: its position, what it is, and of which row."""


class SnapshotWorld(ChangesWorld):
    """The same, where stages read the table first. Its judge applies what is in the topic, as whoever reads it does."""

    has_snapshot = True

    def told(self) -> tuple[dict[str, Any] | None, int]:
        """The newest committed progress, and where the stream began; 0 as long as it has not."""
        newest, start = None, 0
        if PROGRESS in self.broker.topics:
            for record in self.broker.log(PROGRESS, 0).history:
                if record.is_committed and record.key == b"sinkpipeline/v1/i/changes/p/postgresql/0" and record.value:
                    newest = json.loads(record.value)
                    if "snapshot" not in newest:
                        start = start or _lsn(newest["pos"][0])
        return newest, start

    def changes(self) -> list[Done]:
        found = []
        if TOPIC in self.broker.topics:
            for record in self.broker.log(TOPIC, 0).history:
                if record.is_committed:
                    document = json.loads(record.value or b"")
                    lsn, index = document["pos"]
                    row = (document["after"] or document["before"])["id"]
                    found.append((_lsn(lsn), index, document["op"], row))
        return found

    def wrong(self) -> str | None:
        progress, start = self.told()
        changes = self.changes()
        if progress is None:
            return "changes are in the topic, and no progress" if changes else None
        if any(one[:2] >= two[:2] for one, two in pairwise(changes)):
            return f"the topic is out of order: {changes}"
        at = (_lsn(progress["pos"][0]), progress["pos"][1])
        return self._wrong_with(changes, start, at, goes_on="incremental" in progress)

    def _wrong_with(self, changes: list[Done], start: int, at: tuple[int, int], *, goes_on: bool) -> str | None:
        _ = goes_on
        rows: set[int] = set()
        for *_, op, row in changes:
            if (op == "d") != (row in rows):
                return f"{op} of row {row}, which is {'' if row in rows else 'not '}there: {changes}"
            rows ^= {row}
        stream = [each for each in changes if each[0] % 5 == 0]
        if not start:
            return f"the stream has begun: {stream}" if stream else None
        for log in (self.server.log, *self.server.lost):
            expected = [each for one in log if one.lsn >= start for each in one.rows if each[:2] < at]
            if stream == expected and rows == table_of(log, at):
                return None
        return f"the progress is {at}, and the topic has {changes}, of {self.server.log}"

    @override
    def _judge(self) -> None:
        wrong = self.wrong()
        if wrong is not None:
            self.fail(wrong)

    @override
    def _judge_confirmation(self, upto: int) -> None:
        progress, start = self.told()
        if progress is None or not start or upto > _lsn(progress["pos"][0]):
            self.fail(f"the slot was confirmed up to {lsn_text(upto)}, and the progress is {progress}")

    @override
    def _is_complete(self) -> bool:
        progress, start = self.told()
        last = self.server.log[-1].end if self.server.log else 0
        if progress is None or not start or _lsn(progress["pos"][0]) < last:
            return False
        return {row for *_, op, row in self.changes() if op != "d"} >= table_of(self.server.log, (1 << 60, 0))


class IncrementalWorld(SnapshotWorld):
    """The same, where stages read the rows beside the stream."""

    is_incremental = True

    def __init__(self) -> None:
        super().__init__()
        self.server.tells_by_itself = True

    @override
    def _wrong_with(self, changes: list[Done], start: int, at: tuple[int, int], *, goes_on: bool) -> str | None:
        logs = (self.server.log, *self.server.lost)
        faults = [self._wrong_of(log, changes, start, at, goes_on=goes_on) for log in logs]
        return None if None in faults else faults[0]

    @staticmethod
    def _wrong_of(
        log: list[Committed], changes: list[Done], start: int, at: tuple[int, int], *, goes_on: bool
    ) -> str | None:
        stream = [each for each in changes if each[2] != "r"]
        expected = [each for one in log if one.lsn >= start for each in one.rows if each[:2] < at]
        if stream != expected:
            return f"the progress is {at}, and the stream has {stream}, not {expected}"
        rows: set[int] = set()
        for lsn, _, op, row in changes:
            if op == "r" and row not in table_of(log, (lsn + 1, 0)):
                return f"row {row} is read at {lsn}, where it is not there: {changes}"
            rows = rows - {row} if op == "d" else rows | {row}
        if not goes_on and rows != table_of(log, at):
            return f"all rows are read, up to {at}, and the topic has {rows}, not {table_of(log, at)}: {changes}"
        return None

    @override
    def _is_complete(self) -> bool:
        progress, _ = self.told()
        last = self.server.log[-1].end if self.server.log else 0
        return progress is not None and "incremental" not in progress and _lsn(progress["pos"][0]) >= last


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


FATES = [Fate.FAILED, Fate.LOST, Fate.LATE, Fate.TIMED_OUT, Fate.LOST_LONG]
LABELS = [
    "init",
    "send",
    "commit",
    "read",
    "connect",
    "look",
    "free",
    "stream",
    "receive",
    "confirm",
    "create",
    "await",
]
SNAPSHOT_LABELS = [*LABELS, "copy", "copy", "commit", "enter", "drop", "offsets"]


class Script:
    """What Hypothesis lets happen in one world."""

    def __init__(self, world: ChangesWorld, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._world = world
        self._draw = draw

    def play(self, steps: int) -> None:
        world = self._world
        if world.has_snapshot:
            self._write()
        world.start()
        actions: list[Callable[[], None]] = [
            self._write,
            self._write,
            self._go_on,
            self._go_on,
            self._trouble,
            self._trouble,
            self._kill,
            self._rival,
            self._frozen,
            self._thaw,
            world.server.crash,
            world.server.checkpoint,
            self._late,
            self._fail_over,
            self._touch_slot,
        ]
        if world.has_snapshot:
            actions += [self._kill, self._remove]
        for _ in range(steps):
            self._draw(st.sampled_from(actions))()
            world.check()
        world.settle()

    def _write(self) -> None:
        for changes in self._draw(st.lists(st.sampled_from([0, 1, 2, 5, 8]), min_size=1, max_size=4)):
            self._world.server.commit(changes)

    def _remove(self) -> None:
        newest = self._world.is_incremental and self._draw(st.booleans())
        self._world.server.remove(self._draw(st.integers(1, 3)), newest=newest)

    def _go_on(self) -> None:
        seconds = self._draw(st.sampled_from([0.3, 3.0, 30.0]))
        self._world.run(seconds=seconds, steps=self._draw(st.sampled_from([5, 60, 400])))

    def _to(self) -> Thread | None:
        labels = SNAPSHOT_LABELS if self._world.has_snapshot else LABELS
        label, nth = self._draw(st.sampled_from(labels)), self._draw(st.integers(1, 3))
        return self._world.scheduler.run_to(lambda thread: thread.label == label, nth=nth)

    def _trouble(self) -> None:
        thread = self._to()
        if thread is not None:
            self._world.scheduler.step(thread, self._draw(st.sampled_from(FATES)))

    def _kill(self) -> None:
        thread = self._to()
        if thread is not None:
            self._world.scheduler.kill(thread.process)
        if not self._world.alive():
            self._world.start()

    def _rival(self) -> None:
        if len(self._world.alive()) < 3:
            self._world.start()

    def _frozen(self) -> None:
        """Another driver begins while one is frozen."""
        thread = self._to()
        if thread is not None and len(self._world.alive()) < 3:
            thread.held = True
            self._world.start()

    def _thaw(self) -> None:
        for thread in self._world.scheduler.held():
            self._world.scheduler.go_alone(thread, steps=self._draw(st.sampled_from([1, 5, 50])))

    def _late(self) -> None:
        if self._world.scheduler.late:
            self._world.scheduler.deliver(0)

    def _fail_over(self) -> None:
        server = self._world.server
        if server.slot is None or self._draw(st.integers(0, 2)):
            return
        behind = self._draw(st.integers(0, min(2, len(server.log))))
        self._world.justified |= {Reason.SOURCE_ROLLED_BACK}
        server.fail_over(behind)

    def _touch_slot(self) -> None:
        """Only of a slot that nobody reads: the server refuses the rest. Perhaps between a look and the stream."""
        server = self._world.server
        label = self._draw(st.sampled_from(["", "free", "stream"]))
        if label:
            self._world.scheduler.run_to(lambda thread: thread.label == label)
        if server.slot is None or server.is_read or self._draw(st.integers(0, 2)):
            return
        what = self._draw(st.sampled_from(["drop", "advance", "anew"]))
        if what == "drop":
            server.slot = None
            # A first start that was interrupted makes it anew: nothing was read yet.
            self._world.justified |= {Reason.SLOT_LOST}
        else:
            server.slot = server.saved = server.end
            self._world.justified |= {Reason.SOURCE_DATA_LOST}


WORLDS: dict[str, type[ChangesWorld]] = {
    "stream": ChangesWorld,
    "snapshot": SnapshotWorld,
    "incremental": IncrementalWorld,
}


def play(draw: Callable[[st.SearchStrategy[Any]], Any], steps: int = 12, *, of: str = "stream") -> None:
    """One run, in the world of this name."""
    with read_from_the_model():
        world = WORLDS[of]()
        try:
            Script(world, draw).play(steps)
        finally:
            world.close()
