"""Batches that a driver delivers itself, and who may come in between: on a real broker, without Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.commit_counts import NONE
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.progress_records import WRITER_HEADER
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka import control, producers
from sinkpipeline.kafka.control import ControlProducer
from sinkpipeline.kafka.settings import DeadLetterSettings
from sinkpipeline.sinks.contract import Restart
from support.kafka import topics
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, rows
from support.sink.starts import refusal
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka, FaultySink
from support.worlds.worker_process import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts"), pytest.mark.timeout(180)]

POINTS = ("delivered-rows-before-progress", "delivered-progress-before-commit", "delivered-after-commit")


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def at_point(monkeypatch: pytest.MonkeyPatch, point: str, action: Callable[[], object]) -> None:
    """Does something the first time that a small batch reaches a failpoint."""
    pending = {point: action}
    monkeypatch.setattr(control, "failpoint", lambda name: pending.pop(name, lambda: None)())


def letters(sink: OneSink) -> DeadLetterSettings:
    return DeadLetterSettings(topic=TopicRequest(name=sink.dead))


def test_small_batches_and_batches_of_tasks_follow_each_other(kafka: LocalKafka) -> None:
    """One transaction has the rows, the dead letters and the progress of every range, also where nothing survived."""
    sink = OneSink(kafka.bootstrap_servers, partitions=2)
    for number in range(2):
        topics.produce_numbers(sink.servers, sink.source, 14, partition=number)
    with Driver(sink, dead_letter=letters(sink)) as driver:
        plan = driver.plan(2)
        assert driver.delivery.takes(plan)
        assert driver.delivery.deliver(plan, [])
        assert sink.frontier() == {0: 2, 1: 2}
        before = topics.offsets(sink.servers, sink.progress)[1]
        assert driver.small(6, bad=[3])
        # The progress of two partitions, and one marker.
        assert topics.offsets(sink.servers, sink.progress)[1] == before + 3
        writers = [dict(each.headers) for each in topics.read(sink.servers, sink.progress)[-2:]]
        assert writers == [{WRITER_HEADER: sink.id.control_id.encode()}] * 2, "their keys would tell of tasks"
        driver.batch(10)
        assert driver.small(12)
        own = driver.delivery.take_costs()
        assert (own.rows.count, own.rows.total, own.seconds.count) == (3, 10, 3)
        assert driver.delivery.take_costs() == NONE
        # There is no such partition: which record it is, tasks find out, and they deliver what follows for a while.
        assert not driver.small(13, target_partitions=[99])
        following = driver.plan(14)
        assert following.certain
        assert not driver.delivery.takes(following)
        driver.batch(14)
        assert driver.delivery.exact
        states = [sink.truth()[f"p/{sink.source}/{number}"] for number in range(2)]
    kept = [str(number) for number in range(2, 14) if number not in (3, 12)]
    assert sorted(sink.delivered()) == sorted(kept * 2)
    assert [(state["next"], state["rows"], state["dead"], state["deadByClass"]) for state in states] == [
        (14, 10, 2, {"MalformedJson": 1, "PartitionOutOfRange": 1})
    ] * 2
    found = topics.read_committed(sink.servers, sink.dead)
    assert sorted(topics.texts(found)) == ["12", "12", "3", "3"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.thorough("each point of a small batch", after=1)
def test_a_newer_driver_starts_in_the_middle_of_a_small_batch(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    sink = filled
    newer = Driver(sink)

    def overtake() -> None:
        newer.start()
        newer.until(4)

    with Driver(sink) as driver:
        driver.batch(2)
        at_point(monkeypatch, point, overtake)
        if point == POINTS[-1]:
            assert driver.small(4)
        else:
            refusal(lambda: driver.small(4), Reason.SUPERSEDED)
            assert not driver.delivery.exact
        newer.until(6)
        newer.leave()
    assert (sink.delivered(), sink.frontier()) == (numbers(6), {0: 6})


@pytest.mark.parametrize("point", POINTS[:2])
@pytest.mark.parametrize("zombie_at", ["after-init", "after-progress-before-commit"])
@pytest.mark.thorough("each point of a zombie", after=1)
def test_a_task_of_the_batch_before_wakes_up_in_a_small_batch(
    filled: OneSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, zombie_at: str
) -> None:
    """It was given up, and the attempt after it came to its end: so the driver is certain, and the zombie too late."""
    sink, at = filled, filled.at()
    with Driver(sink) as driver, WorkerProcess(tmp_path) as zombie, WorkerProcess(tmp_path) as other:
        plan = driver.plan(4)
        late = zombie.write(plan, at, point=zombie_at)
        receipt = other.write(plan, at, retried=True).result(60)
        driver.delivery.end(plan, [replace(receipt, retried=True)])

        def wake() -> None:
            """Until it has taken its partition: then it reads, and waits for a transaction that is open there."""
            end = topics.offsets(sink.servers, sink.progress)[1]
            zombie.let_go()
            wait_until(lambda: topics.offsets(sink.servers, sink.progress)[1] > end, "the zombie's sentinel", 60)

        at_point(monkeypatch, point, wake)
        try:
            assert driver.small(6)
        except Restart:
            # A reader ends a transaction of its own sink that it would have to wait for (docs/design/0001).
            driver.start()
        told = late.result(120)
        assert (told.error, told.commits) == (None, 0)
        driver.until(8)
    assert sink.delivered() == ["0:0", "0:1", "0:2", "0:3", *numbers(8)[4:]]
    assert sink.frontier() == {0: 8}


def test_a_small_batch_that_is_refused_goes_to_tasks_which_find_the_record(
    sink: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind another start: whoever has aborted a transaction writes no other one. Later they are taken again."""
    # What the client could not compress.
    values = [b"1", random.Random(1).randbytes(5_000).hex().encode(), b"3"]
    topics.produce(sink.servers, sink.source, [(value, value) for value in (b"0", *values, b"4", b"5")])
    with Driver(sink, dead_letter=letters(sink)) as driver:
        assert driver.small(1)
        topics.alter_topic(sink.servers, sink.data, {"max.message.bytes": "2000"})
        with pytest.raises(Restart, match="taken anew"):
            driver.small(4, values=values, keys=values)
        driver.start()
        assert not driver.delivery.takes(driver.plan(4)), "where one is refused there are often more"
        driver.batch(4, values=values, keys=values)
        driver.delivery.snapshot()
        topics.alter_topic(sink.servers, sink.data, {"max.message.bytes": "1000000"})
        # A start knows the limits of its topics.
        driver.start()
        monkeypatch.setattr(driver.small_batches, "_paused_until", 0.0)
        assert driver.small(5)
        assert driver.small(6)
    assert (sink.delivered(), sink.frontier()) == (["0", "1", "3", "4", "5"], {0: 6})
    assert topics.texts(topics.read_committed(sink.servers, sink.dead)) == [values[1].decode()]


@pytest.mark.parametrize("by", ["a small batch", "a snapshot"])
@pytest.mark.thorough("each thing that a driver writes under its control id", after=1)
def test_a_newer_driver_that_takes_its_time_is_not_fenced_back(sink: OneSink, by: str) -> None:
    """The older one learns of it before it has announced itself, and would take its id away again and again."""
    topics.produce_numbers(sink.servers, sink.source, 6)
    with Driver(sink) as older, ThreadPoolExecutor() as pool:
        assert older.small(2)
        # As far as a start's first step.
        ControlProducer(sink.connection, sink.id.control_id).close()
        write = older.delivery.snapshot if by == "a snapshot" else partial(older.small, 4)
        written = pool.submit(refusal, write, Reason.SUPERSEDED)
        with Driver(sink) as newer:
            written.result(60)
            newer.until(6)
    assert (sink.delivered(), sink.frontier()) == (numbers(6), {0: 6})


def test_an_outage_is_told_as_one_and_tasks_deliver_what_follows(
    faulty: FaultyKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else starts that go well, and batches that fail, would open the circuit."""
    monkeypatch.setattr(producers, "_DELIVERY_TIMEOUT_MS", 2_000)
    sink = FaultySink(faulty.direct, proxied=faulty.servers)
    topics.produce_numbers(sink.servers, sink.source, 30)
    with Driver(sink) as driver:
        driver.batch(2)
        at_point(monkeypatch, POINTS[0], faulty.proxy.refuse)
        refusal(lambda: driver.small(4), Reason.BROKER_UNREACHABLE)
        assert not driver.delivery.exact
        faulty.heal()
        driver.start()
        driver.until(6)
    assert (sink.delivered(), sink.frontier()) == (numbers(6), {0: 6})


def test_a_small_batch_whose_rows_are_not_of_its_ranges_writes_nothing(filled: OneSink) -> None:
    sink = filled
    with Driver(sink) as driver:
        driver.batch(4)
        plan = driver.plan(6)
        for offsets in (range(3, 6), range(4, 7), range(5, 3, -1)):
            batch = [(sink.at(), rows(offsets))]
            refusal(partial(driver.delivery.deliver, plan, batch), Reason.INTERNAL_ERROR)
    assert (sink.delivered(), sink.frontier()) == (numbers(4), {0: 4})
