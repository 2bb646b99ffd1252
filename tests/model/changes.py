"""Stages that read a database in memory; what can be done to them; and who judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from typing_extensions import override

from model import clients
from model.broker import Broker
from model.database import SLOT, Committed, Done, Server, Table, Wire, apply, read_from_the_model, table_of
from model.judge import Violation
from model.scheduler import Fate, Process, Scheduler, Thread
from sinkpipeline.changes.settings import AnyDatabase, DatabaseSettings, Publication, Slot, StageSettings
from sinkpipeline.changes.stage import Stage
from sinkpipeline.core.changes.positions import lsn_text
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.postgresql.settings import Connection as Database

TOPIC, PROGRESS = "changes", "progress"
_CUTS = CutPolicy(rows=3, bytes=1 << 20, seconds=0.5)
_PATIENCE_S = 600.0
_BACKOFF_S = 5.0


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
        database=world.database(),
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

    def database(self) -> AnyDatabase:
        """As stages are told of it."""
        return DatabaseSettings(
            connection=Database(servers="model:5432", database="d", user="r"),
            publication=Publication(name="p"),
            slot=Slot(name=SLOT),
            snapshot=self.has_snapshot and not self.is_incremental,
            incremental=self.is_incremental,
            idle_advance_s=2.0,
        )

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
                lsn, index, *_ = json.loads(record.value)["pos"]
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
                lsn, index, *_ = document["pos"]
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
                    lsn, index, *half = document["pos"]
                    place = (_lsn(lsn), index, *(half or [0]))
                    row = document["after"] or document["before"] or {"id": 0}
                    found.append(Done(*place, document["op"], row["id"], row.get("n", 0), row.get("doc")))
        return found

    def wrong(self) -> str | None:
        progress, start = self.told()
        changes = self.changes()
        if progress is None:
            return "changes are in the topic, and no progress" if changes else None
        if any(one[:3] >= two[:3] for one, two in pairwise(changes)):
            return f"the topic is out of order: {changes}"
        at = (_lsn(progress["pos"][0]), progress["pos"][1])
        return self._wrong_with(changes, start, at, goes_on="incremental" in progress)

    def _wrong_with(self, changes: list[Done], start: int, at: tuple[int, int], *, goes_on: bool) -> str | None:
        _ = goes_on
        rows: Table = {}
        for each in changes:
            if (each.op == "d") != (each.row in rows):
                return f"{each}, whose row is {'' if each.row in rows else 'not '}there: {changes}"
            apply(rows, [each])
        stream = [_told(each) for each in changes if each.lsn % 5 == 0]
        if not start:
            return f"the stream has begun: {stream}" if stream else None
        for log in (self.server.log, *self.server.lost):
            expected = [each for one in log if one.lsn >= start for each in one.done if each.place < at]
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
        return {each.row for each in self.changes() if each.op != "d"} >= set(self.server.table)


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
        stream = [each for each in changes if each.op != "r"]
        expected = [each for one in log if one.lsn >= start for each in one.done if each.place < at]
        if stream != expected:
            return f"the progress is {at}, and the stream has {stream}, not {expected}"
        for each in changes:
            if each.op == "r" and table_of(log, (each.lsn + 1, 0)).get(each.row) != (each.n, each.doc):
                return f"{each}, where the table has {table_of(log, (each.lsn + 1, 0))}: {changes}"
        rows: Table = {}
        apply(rows, changes)
        if not goes_on and rows != table_of(log, at):
            return f"all rows are read, up to {at}, and the topic has {rows}, not {table_of(log, at)}: {changes}"
        return None

    @override
    def _is_complete(self) -> bool:
        progress, _ = self.told()
        last = self.server.log[-1].end if self.server.log else 0
        return progress is not None and "incremental" not in progress and _lsn(progress["pos"][0]) >= last


def _told(done: Done) -> Done:
    """As the log of the server has it: a deletion tells nothing but the key, or all of a row that is taken back."""
    return Done(*done[:5]) if done.op == "d" else done


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


class Troubles:
    """What can be done to stages, whatever they read."""

    def __init__(
        self, world: ChangesWorld, draw: Callable[[st.SearchStrategy[Any]], Any], labels: Sequence[str]
    ) -> None:
        """`labels`: of the calls at which something is done to them; a label that is there twice is drawn as often."""
        self._world = world
        self._draw = draw
        self._labels = labels

    def _go_on(self) -> None:
        seconds = self._draw(st.sampled_from([0.3, 3.0, 30.0]))
        self._world.run(seconds=seconds, steps=self._draw(st.sampled_from([5, 60, 400])))

    def _to(self) -> Thread | None:
        label, nth = self._draw(st.sampled_from(self._labels)), self._draw(st.integers(1, 3))
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


class Script(Troubles):
    """What Hypothesis lets happen in one world."""

    def __init__(self, world: ChangesWorld, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        super().__init__(world, draw, SNAPSHOT_LABELS if world.has_snapshot else LABELS)

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
        if world.is_incremental:
            actions += [self._change, self._change, self._truncate, world.server.end_snapshots]
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

    def _change(self) -> None:
        """Perhaps to a key before all others, or behind them; perhaps just after a snapshot was made."""
        if self._draw(st.booleans()):
            self._world.scheduler.run_to(lambda thread: thread.label == "copy")
        for _ in range(self._draw(st.integers(1, 3))):
            to = self._draw(st.sampled_from([None, None, 1, 2, 1_000_000, -1]))
            if to == -1:
                self._world.server.take_over(self._draw(st.integers(0, 9)))
                continue
            self._world.server.change(self._draw(st.integers(0, 9)), to=to, doc=self._draw(st.booleans()))

    def _truncate(self) -> None:
        """Perhaps while rows are read, and some of them were not taken."""
        if self._draw(st.booleans()):
            self._world.scheduler.run_to(lambda thread: thread.label == "copy", nth=self._draw(st.integers(1, 4)))
            self._world.scheduler.run_to(lambda thread: thread.label == "receive")
        self._world.server.truncate()

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
