"""Whatever is killed, and whenever: nothing twice, nothing missing, order kept. 26 SIGKILLs in all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.source.groups import Groups
from support.app.command import App, by_driver, manifest
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

POINTS_OF_STARTING = ("starting-after-control-init", "starting-after-meta", "starting-before-first-start")
POINTS_OF_A_TRANSACTION = ("after-rows-before-progress", "after-progress-before-commit", "after-commit")
POINTS_OF_THE_DRIVER = (
    "delivered-rows-before-progress",
    "delivered-progress-before-commit",
    "delivered-after-commit",
)
POINT_BETWEEN_BATCHES = "after-batch"

SEED = 20261121


def small_batches(kafka: LocalKafka, name: str, source: Stream, *, by_driver_up_to: int = 0) -> dict[str, Any]:
    """Delivered by tasks, but for those that have at most so many offsets."""
    trigger = {"interval": "0s", "maxOffsetsPerTrigger": 800}
    spark = by_driver(by_driver_up_to)
    return manifest(kafka.bootstrap_servers, name, [source.topic], trigger=trigger, spark=spark)


@pytest.mark.long("ten starts of Spark; a kill is beside it")
def test_the_driver_with_all_its_workers_is_killed(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("drivers")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    app = App(tmp_path, small_batches(kafka, name, source))
    chance = random.Random(SEED)

    for point in (*POINTS_OF_STARTING, "after-init", *POINTS_OF_A_TRANSACTION, POINT_BETWEEN_BATCHES):
        source.feed(500)
        app.arm(point)
        with app.start() as run:
            run.until_held(point)
            run.kill()
        app.disarm()
    for _ in range(2):
        source.feed(500)
        with app.start() as run:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                run.wait(chance.uniform(4, 12))
            run.kill()
    app.run_until_idle()

    assert source.judge(f"{name}-out") == EXACTLY_ONCE
    assert all(line["lag"] == 0 for line in app.progress())
    assert sum(line["rows"] for line in app.progress()) == source.total


@pytest.mark.thorough("six starts of Spark; tests/kafka/test_small_batches has each point")
def test_the_driver_is_killed_in_batches_of_its_own_and_of_its_tasks(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("drivers")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    document = small_batches(kafka, name, source, by_driver_up_to=500)
    document["spec"]["source"]["kafka"]["commitGroupOffsets"] = True
    app = App(tmp_path, document)

    for point in (*POINTS_OF_THE_DRIVER, *POINTS_OF_A_TRANSACTION[:2]):
        # Into each of four partitions; what is not delivered comes again with the next ones.
        source.feed(30 if point in POINTS_OF_THE_DRIVER else 200)
        app.arm(point)
        with app.start() as run:
            run.until_held(point)
            run.kill()
        app.disarm()
    app.run_until_idle()

    assert source.judge(f"{name}-out") == EXACTLY_ONCE
    progress = app.progress()
    assert sum(line["rows"] for line in progress) == source.total
    groups = Groups(Connection(bootstrap_servers=kafka.bootstrap_servers))
    assert groups.offsets(f"sinkpipeline.test.{name}.{name}") == {
        SourcePartition(line["topic"], line["partition"]): line["next"] for line in progress
    }


@pytest.mark.long("eight kills; one kill is beside it")
def test_workers_are_killed_while_the_driver_goes_on(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("workers")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    app = App(tmp_path, small_batches(kafka, name, source))
    chance = random.Random(SEED)
    source.feed(100)

    with app.start() as run:
        run.until_rows(source.total)
        for point in POINTS_OF_A_TRANSACTION:
            app.arm(point)
            source.feed(200)
            held = run.until_held(point)
            # The attempt after it takes the partition over, and is killed as soon as it has.
            app.arm("after-init")
            os.kill(held, signal.SIGKILL)
            os.kill(run.until_held("after-init"), signal.SIGKILL)
            app.disarm()
            run.until_rows(source.total)
        for _ in range(4):
            source.feed(400)
            with suppress(psutil.NoSuchProcess):
                chance.choice(run.workers()).kill()
            run.until_rows(source.total)
        assert run.terminate() == 0, run.stderr

    assert source.judge(f"{name}-out") == EXACTLY_ONCE


@pytest.mark.each_spark
def test_a_worker_that_outlives_its_driver_delivers_nothing_more(kafka: LocalKafka, tmp_path: Path) -> None:
    """Only the driver's own process is killed, with a transaction of a task complete but for its commit."""
    name = unique("orphans")
    source = Stream(kafka.bootstrap_servers, f"{name}-in").create()
    app = App(tmp_path, small_batches(kafka, name, source))
    source.feed(300)

    app.arm("after-progress-before-commit")
    with app.start() as run:
        run.until_held("after-progress-before-commit")
        run.kill_driver()
        app.run_until_idle()
        app.release("after-progress-before-commit")

    assert source.judge(f"{name}-out") == EXACTLY_ONCE
