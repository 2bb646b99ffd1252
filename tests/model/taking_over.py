"""Stages that read a binary log in memory, also of a server that takes over; and who judges.

The judge knows transactions by their numbers, and nothing of files, places or GTIDs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

from hypothesis import strategies as st
from typing_extensions import override

from model import binlogs
from model.binlogs import SCHEMA, TABLE, Machine, Network, Wire
from model.changes import PROGRESS, TOPIC, ChangesWorld, Troubles
from model.judge import Violation
from sinkpipeline.changes.settings import AnyDatabase, BinlogConnection, BinlogSettings
from sinkpipeline.core.errors import Reason

_LABELS = [
    *("init", "send", "commit", "commit", "read", "connect", "connect", "look", "look", "dump", "receive", "await"),
]
_KEY = b"sinkpipeline/v1/i/changes/p/mysql/0"
_META = b"sinkpipeline/v1/i/changes/meta"


class BinlogWorld(ChangesWorld):
    """Two servers, each of which may have what the other has, in an order of its own."""

    def __init__(self, *, has_gtids: bool = True) -> None:
        super().__init__()
        born = count(1_800_000_000)
        self.network = Network(self.scheduler, [Machine(number, born, has_gtids=has_gtids) for number in (1, 2)])
        Wire.network = self.network
        self.numbers = count(1)
        self.sizes: dict[int, int] = {}
        """Of each transaction that there ever was, how many rows it has."""
        self.gone: set[int] = set()
        """Those that no server has any more, or that one has not that has taken over since."""
        self.histories: list[set[int]] = []
        """What a server had before it lost something."""
        self._judged = 0
        self.before: set[int] | None = None
        """Those that were there before the first start began."""

    @override
    def database(self) -> AnyDatabase:
        return BinlogSettings(
            connection=BinlogConnection(server="model:3306", user="cdc"),
            tables=(f"{SCHEMA}.{TABLE}",),
            server_id=77,
            name="mysql",
            idle_advance_s=2.0,
        )

    def write(self, rows: int, *, is_giant: bool = False) -> None:
        self.network.current.commit(self.number(rows), rows, is_giant=is_giant)

    def number(self, rows: int) -> int:
        """Of another transaction with so many rows."""
        found = next(self.numbers)
        self.sizes[found] = rows
        return found

    def delivered(self) -> list[tuple[tuple[int, int], int, int]]:
        """The place, the transaction, and which row of it, as the topic has them."""
        found = []
        if TOPIC in self.broker.topics:
            for record in self.broker.log(TOPIC, 0).history:
                if record.is_committed:
                    document = json.loads(record.value or b"")
                    number, nth = divmod(document["after"]["id"], 100)
                    found.append((_place(document["pos"]), number, nth))
        return found

    def _newest(self, key: bytes) -> dict[str, Any] | None:
        found = None
        if PROGRESS in self.broker.topics:
            for record in self.broker.log(PROGRESS, 0).history:
                if record.is_committed and record.key == key and record.value:
                    found = json.loads(record.value)
        return found

    @override
    def _judge(self) -> None:
        progress, delivered = self._newest(_KEY), self.delivered()
        if progress is None:
            if delivered:
                self.fail("changes are in the topic, and no progress")
            return
        if self.before is None:
            self.before = self._before(progress)
        places = [place for place, _, _ in delivered]
        if any(one >= two for one, two in pairwise(places)):
            self.fail(f"the topic is out of order: {delivered}")
        if places and places[-1] >= _place(progress["pos"]):
            self.fail(f"the progress is {progress['pos']}, and the topic has {delivered[-1]}")
        if progress["next"] != len(delivered):
            self.fail(f"the progress counts {progress['next']} changes, and the topic has {len(delivered)}")
        self._judge_transactions(self.before, [(number, nth) for _, number, nth in delivered])

    def _judge_transactions(self, before: set[int], delivered: list[tuple[int, int]]) -> None:
        """Each is there once, whole and without others in between; only the last one may lack its end."""
        whole: set[int] = set()
        rows = 0
        for at, (number, nth) in enumerate(delivered):
            if rows and delivered[at - 1][0] != number:
                self.fail(f"transaction {delivered[at - 1][0]} has {rows} rows before others: {delivered}")
            if number in whole or nth != rows:
                self.fail(f"row {nth} of transaction {number} is there behind {rows}: {delivered}")
            rows = nth + 1
            if rows == self.sizes[number]:
                whole.add(number)
                rows = 0
        numbers = {number for number, _ in delivered}
        logs = [
            {each.transaction.number for each in machine.log}
            for machine in (*self.network.machines, *self.network.former)
        ]
        if len(delivered) > self._judged and not any(numbers <= each for each in (*logs, *self.histories)):
            self.fail(f"no server ever had all of {numbers}: {logs}")
        self._judged = len(delivered)
        if whole & before:
            self.fail(f"transactions {whole & before} were there before the beginning")

    def _before(self, progress: dict[str, Any]) -> set[int]:
        """What the server had of which the first start was told where its log ends."""
        meta = self._newest(_META)
        server = (meta or {})["source"]["server"]
        commit, _ = _place(progress["pos"])
        machine = next(each for each in (*self.network.machines, *self.network.former) if each.uuid == server)
        return {each.transaction.number for each in machine.log if (each.file << 32 | each.start) < commit}

    @override
    def settle(self) -> None:
        """Nobody was refused for nothing, either: a person would have been called."""
        super().settle()
        for driver in self.drivers:
            error = driver.error
            if (
                error is not None
                and not error.reason.retry
                and error.reason not in self.justified | {Reason.SUPERSEDED}
            ):
                raise Violation(f"a stage was refused for nothing: {error}\n" + "\n".join(self.scheduler.trace[-100:]))

    @override
    def _is_complete(self) -> bool:
        if self.before is None:
            return False
        there = {each.transaction.number for each in self.network.current.log if each.transaction.rows}
        rows = {(number, nth) for _, number, nth in self.delivered() if number not in self.gone}
        return rows == {
            (number, nth) for number in there - self.before - self.gone for nth in range(self.sizes[number])
        }


def _place(pos: list[Any]) -> tuple[int, int]:
    file, offset = pos[0].rsplit(":", 1)
    return sum(map(int, file.rsplit(".", 1)[1].split("+"))) << 32 | int(offset), pos[1]


class Script(Troubles):
    """What Hypothesis lets happen."""

    _world: BinlogWorld

    def __init__(self, world: BinlogWorld, draw: Callable[[st.SearchStrategy[Any]], Any], *, has_other: bool) -> None:
        super().__init__(world, draw, _LABELS)
        self._has_other = has_other

    def play(self, steps: int) -> None:
        world = self._world
        if self._draw(st.booleans()):
            self._write()
        if self._has_other and self._draw(st.integers(0, 3)) == 0:
            # A first start at a server that was made of another one.
            self._clone()
            world.network.current = world.network.machines[1]
        world.start()
        actions: list[Callable[[], None]] = [
            *(self._write, self._write, self._go_on, self._go_on, self._trouble, self._trouble),
            *(self._kill, self._rival, self._frozen, self._thaw, self._late, self._rotate, self._crash, self._purge),
        ]
        if self._has_other:
            actions += [self._replicate, self._replicate, self._take_over, self._take_over, self._part, self._clone]
        else:
            actions += [self._giant]
        for _ in range(steps):
            self._draw(st.sampled_from(actions))()
            world.check()
        world.settle()

    def _write(self) -> None:
        """Perhaps between two questions of a stage."""
        if self._draw(st.booleans()):
            self._to()
        for rows in self._draw(st.lists(st.sampled_from([0, 1, 2, 5, 8, 16]), min_size=1, max_size=4)):
            self._world.write(rows)

    def _giant(self) -> None:
        """Behind it, and behind others perhaps, places begin at 0 again until the file ends."""
        # At that moment nobody can begin at the end of the log.
        if self._world.before is not None:
            self._world.write(self._draw(st.sampled_from([0, 1, 5])), is_giant=True)

    def _rotate(self) -> None:
        for machine in self._world.network.machines:
            if self._draw(st.booleans()):
                machine.begin_file()

    def _purge(self) -> None:
        """Also what nobody has read yet, seldom."""
        machine = self._draw(st.sampled_from(self._world.network.machines))
        if self._draw(st.integers(0, 3)) == 0 and machine.purge():
            self._world.justified |= {Reason.SOURCE_DATA_LOST}

    def _crash(self) -> None:
        world = self._world
        machine = world.network.current
        lost = 0 if self._has_other else self._draw(st.sampled_from([0, 0, 1, 2]))
        there = {each.number for each in machine.files}
        can_be_lost = sum(each.file in there for each in machine.log)
        world.histories.append({each.transaction.number for each in machine.log})
        if not self._has_other and machine.has_gtids and not lost and self._draw(st.booleans()):
            rows = self._draw(st.sampled_from([1, 5, 16]))
            events = self._draw(st.integers(0, 6))
            machine.write_half(world.number(rows), rows, events, is_cut_off=self._draw(st.booleans()))
        gone = machine.crash(min(lost, can_be_lost))
        if gone:
            world.gone |= {each.number for each in gone}
            world.justified |= {Reason.SOURCE_ROLLED_BACK, Reason.SOURCE_RECREATED}

    def _replicate(self) -> None:
        """The other one gets some, or all, in the same order or another one."""
        current = self._world.network.current
        for machine in self._world.network.machines:
            if machine is not current:
                self._give(machine, current, most=self._draw(st.sampled_from([1, 3, 100])))

    def _give(self, machine: Machine, source: Machine, most: int) -> None:
        missing = machine.missing(source)
        if len(missing) > 1 and self._draw(st.integers(0, 2)) == 0:
            missing = self._draw(st.permutations(missing))
            # A part of a transaction can't be gone on with behind others.
            self._world.justified |= {Reason.SOURCE_RECREATED}
        for each in missing[:most]:
            machine.apply(each)
            if self._draw(st.integers(0, 5)) == 0:
                machine.begin_file()

    def _clone(self) -> None:
        """The other server is made anew, of what the current one has, as operators make replicas."""
        network = self._world.network
        for at, machine in enumerate(network.machines):
            if machine is not network.current:
                machine.end_connections()
                network.former.append(machine)
                number = int(machine.uuid.replace("-", ""), 16) + 10
                network.machines[at] = Machine(number, machine.born, has_gtids=True, clone_of=network.current)
        # What the topic lacks of that, the clone can't tell; and what the former one had alone is gone.
        self._world.justified |= {Reason.SOURCE_DATA_LOST}

    def _take_over(self) -> None:
        world = self._world
        before = world.network.current
        [machine] = [each for each in world.network.machines if each is not before]
        if self._draw(st.integers(0, 4)):
            self._give(machine, before, most=100)
        lacking = {each.number for each in machine.missing(before)}
        if lacking:
            world.gone |= lacking
            world.justified |= {Reason.SOURCE_ROLLED_BACK}
        self._has_others(machine, before)
        label = self._draw(st.sampled_from(["", "connect", "connect", "look", "dump", "receive"]))
        if label:
            # Of the connections of one life, some may lead to the former one.
            world.scheduler.run_to(lambda thread: thread.label == label, nth=self._draw(st.integers(1, 4)))
        world.network.current = machine
        if self._draw(st.booleans()):
            before.end_connections()
        if self._draw(st.booleans()) and not lacking:
            self._give(before, machine, most=100)

    def _has_others(self, machine: Machine, before: Machine) -> None:
        """What the former one never had stands before what it had, also before what the topic has a part of."""
        if before.missing(machine):
            self._world.justified |= {Reason.SOURCE_RECREATED}

    def _part(self) -> None:
        """Stages end in the middle of a transaction, one after the other, before another server takes over."""
        world = self._world
        before = world.network.current
        [machine] = [each for each in world.network.machines if each is not before]
        world.write(16)
        self._give(machine, before, most=100)
        for _ in range(self._draw(st.integers(1, 3))):
            thread = world.scheduler.run_to(lambda thread: thread.label == "commit", nth=self._draw(st.integers(1, 3)))
            if thread is not None:
                world.scheduler.step(thread)
                world.scheduler.kill(thread.process)
            if not world.alive():
                world.start()
        if not machine.missing(before):
            self._has_others(machine, before)
            world.network.current = machine
            before.end_connections()


def play(draw: Callable[[st.SearchStrategy[Any]], Any], steps: int = 12, *, of: str = "takeover") -> None:
    """One run: of a server that others take over from, or of one alone, with GTIDs or without."""
    with binlogs.read_from_the_model():
        has_other = of == "takeover"
        world = BinlogWorld(has_gtids=has_other or draw(st.booleans()))
        try:
            Script(world, draw, has_other=has_other).play(steps)
        finally:
            world.close()
