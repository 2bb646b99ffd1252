"""A broker is killed while a stage writes: the topic has what the server decodes, each change once and in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from sinkpipeline.core.cuts import CutPolicy
from support.changes.lab import Lab, StageProcess
from support.changes.load import Load
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
CUTS = CutPolicy(rows=200, bytes=1 << 20, seconds=0.1)
KILLS = 2


@contextmanager
def own(logical: LocalPostgresql, directory: Path) -> Iterator[tuple[LocalKafka, Lab]]:
    """A broker of its own, which keeps its data."""
    with LocalKafka(directory=directory / "kafka") as kafka:
        lab = Lab(logical, kafka.bootstrap_servers, directory)
        lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        try:
            yield kafka, lab
        finally:
            lab.close()


class Driver:
    """Begins the next life of a stage where one has ended, as a driver does."""

    def __init__(self, lab: Lab, **settings: Any) -> None:
        self._lab = lab
        self._settings = settings
        self.stage = self._start()
        self.lives = 1

    def _start(self) -> StageProcess:
        return self._lab.start(cuts=CUTS, **self._settings)

    def has_committed(self, more: int) -> bool:
        """Whether the life that goes on has committed so often; the next one begins where one has ended."""
        code = self.stage.exit_code
        if code is not None:
            assert code == 1, self.stage.log
            self.stage = self._start()
            self.lives += 1
        return len(self.stage.of("committed")) >= more

    def goes_on(self) -> None:
        before = self.stage
        had = len(before.of("committed"))
        wait_until(lambda: self.has_committed(had + 2 if self.stage is before else 2), "changes are delivered", 120)


@pytest.mark.thorough("a broker of its own; tests/kafka has every answer of a broker that is lost")
def test_under_load(logical: LocalPostgresql, tmp_path: Path) -> None:
    chance = random.Random(5)
    with own(logical, tmp_path) as (kafka, lab):
        lab.watch()
        lab.live()
        with Load(lab, rows=25_000, seed=5) as load:
            driver = Driver(lab)
            for _ in range(KILLS):
                driver.goes_on()
                commits = len(driver.stage.of("committed")) + chance.randrange(4)
                wait_until(lambda: driver.has_committed(commits), "a moment passes", 60, poll_s=0.005)  # noqa: B023
                kafka.kill_broker(1)
                kafka.start_broker(1)
            load.join()
        wait_until(lambda: driver.has_committed(0) and lab.progress()[0] >= lab.end_of_log(), "it has caught up", 120)
        driver.stage.wait_for("claimed")
        assert driver.stage.end() == 0
        assert lab.check() > 10_000


@pytest.mark.long("test_under_load kills it likewise; test_snapshot kills the stage at each point")
def test_in_a_snapshot(logical: LocalPostgresql, tmp_path: Path) -> None:
    with own(logical, tmp_path) as (kafka, lab):
        lab.watch()
        lab.sql("INSERT INTO orders SELECT g, 'there' FROM generate_series(1, 60000) AS g")
        driver = Driver(lab, database={"snapshot": True})
        for _ in range(KILLS):
            driver.goes_on()
            lab.sql("UPDATE orders SET note = 'changed' WHERE id % 1000 = 0")
            kafka.kill_broker(1)
            kafka.start_broker(1)

        def is_complete() -> bool:
            driver.has_committed(0)
            return any(each.get("snapshot", 0) is None for each in driver.stage.of("committed"))

        wait_until(is_complete, "the snapshot is complete", 240)
        lab.sql("DELETE FROM orders WHERE id = 7")
        wait_until(lambda: driver.has_committed(0) and lab.progress()[0] >= lab.end_of_log(), "it has caught up", 120)
        assert driver.stage.end() == 0
        assert lab.check_copy("public.orders") >= 1
