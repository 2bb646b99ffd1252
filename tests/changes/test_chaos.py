"""Load, and lives of a stage that end in every way at any time: the topic is what the server decodes."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from sinkpipeline.core.cuts import CutPolicy
from support.changes.lab import LOGICAL, Lab, StageProcess
from support.changes.load import Load
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
CUTS = CutPolicy(rows=300, bytes=1 << 20, seconds=0.1)


@pytest.fixture
def own(kafka: LocalKafka, tmp_path: Path) -> Iterator[Lab]:
    # Short buffers: a large transaction is spilled.
    with LocalPostgresql(settings={**LOGICAL, "logical_decoding_work_mem": "64kB"}) as server:
        lab = Lab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        lab.watch()
        lab.live()
        yield lab
        lab.close()


class Chaos:
    """Does something to the stage, and leaves one that runs."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._lab = lab
        self._chance = random.Random(seed)
        self._stage = self._start()

    def _start(self) -> StageProcess:
        return self._lab.start(cuts=CUTS)

    def step(self, what: str) -> None:
        self._wait()
        self.done[what] += 1
        old = self._stage
        match what:
            case "kill":
                old.kill()
                self._stage = self._start()
            case "rival":
                # One that has not claimed yet would be the rival's rival.
                old.wait_for("claimed")
                self._stage = self._start()
                assert old.wait() in (1, 4), old.log
            case "frozen":
                old.wait_for("claimed")
                old.signal(signal.SIGSTOP)
                self._stage = self._start()
                self._stage.wait_for("claimed")
                self._wait()
                old.signal(signal.SIGCONT)
                assert old.wait() in (1, 4), old.log
            case "term":
                # Before that nothing catches it.
                old.wait_for("claimed")
                assert old.end() == 0, old.log
                self._stage = self._start()
            case _:
                self._lab.server.kill()
                assert old.wait() == 1, old.log
                self._lab.server.start()
                self._stage = self._start()

    def _wait(self) -> None:
        """Until it has claimed, and a moment longer, or a moment less."""
        if self._chance.random() < 0.8:
            self._stage.wait_for("claimed")
        commits = self._chance.randrange(6)

        def is_there() -> bool:
            return len(self._stage.of("committed")) >= commits or self._is_idle()

        wait_until(is_there, "it has committed something", 60, poll_s=0.01)

    def _is_idle(self) -> bool:
        states = self._stage.of("state")
        return bool(states) and self._stage.of("committed") != [] and not self._chance.randrange(20)

    def end(self) -> None:
        self._lab.caught_up()
        # The one before it may have written all: this one may not catch a signal yet.
        self._stage.wait_for("claimed")
        assert self._stage.end() == 0, self._stage.log


WAYS = ("kill", "rival", "frozen", "postmaster", "term", "kill")


def live_through(lab: Lab, *, steps: int, rows: int, seed: int) -> int:
    with Load(lab, rows=rows, seed=seed) as load:
        chaos = Chaos(lab, seed)
        for step in range(steps):
            chaos.step(WAYS[step % len(WAYS)])
        load.join()
        chaos.end()
    count = lab.check()
    assert sum(chaos.done.values()) == steps
    return count


@pytest.mark.thorough("every end of a life, under load")
def test_lives_that_end_in_every_way(own: Lab) -> None:
    assert live_through(own, steps=6, rows=15_000, seed=7) > 10_000


@pytest.mark.long("test_lives_that_end_in_every_way does the same for half a minute")
@pytest.mark.parametrize("seed", range(3))
def test_many_lives(own: Lab, seed: int) -> None:
    assert live_through(own, steps=30, rows=150_000, seed=seed) > 100_000


def fill(lab: Lab, rows: int) -> None:
    """In one transaction, whose rows were written by three COPYs and an update."""
    with lab.connected(autocommit=False) as session:
        for part in range(3):
            with session.cursor() as cursor, cursor.copy("COPY orders FROM STDIN") as copy:
                low, high = rows * part // 3, rows * (part + 1) // 3
                copy.write("".join(f"{row}\tcopied\n" for row in range(low, high)))
        session.execute("UPDATE orders SET note = 'updated' WHERE id % 100 = 0")
        session.commit()


@pytest.mark.thorough("a transaction that is larger than what is committed at once, killed inside")
def test_a_large_transaction(own: Lab) -> None:
    fill(own, 100_000)
    large = CutPolicy(rows=10_000, bytes=1 << 24, seconds=0.5)
    for _ in range(2):
        stage = own.start("after-commit", cuts=large)
        stage.wait_at("after-commit")
        stage.release_until_again("after-commit")
        stage.kill()
        assert own.progress()[1] > 0
    own.live(cuts=large)
    assert own.check() == 101_000


@pytest.mark.long("test_a_large_transaction is one of a tenth")
def test_a_very_large_transaction(own: Lab) -> None:
    fill(own, 1_000_000)
    large = CutPolicy(rows=10_000, bytes=1 << 24, seconds=0.5)
    for kill in range(4):
        stage = own.start(cuts=large)
        commits = 5 + kill * 3
        wait_until(lambda: len(stage.of("committed")) >= commits, "it is inside the transaction", 120)  # noqa: B023
        stage.kill()
        assert own.progress()[1] > 0
    own.live(cuts=large, timeout_s=300)
    assert own.check() == 1_010_000
