"""Tasks that are taken for dead and are not: whenever they wake up, each row is delivered once. On a real broker."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from servers.tcp_proxy import Api, Fate, Way
from servers.waiting import crowding
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka import leaving
from sinkpipeline.kafka.producers import TransactionalProducer
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE
from support.worlds.faults import Deliveries, FaultyKafka, batch_of, writer_of
from support.worlds.worker_process import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SEED = 20261122


# Requests that come late: the zombie's connection holds one, while its partition is handled elsewhere


class Zombie:
    """A task whose next request of an API stands still in the network, with all that follows it."""

    def __init__(self, deliveries: Deliveries, stack: ExitStack, faulty: FaultyKafka, api: Api, *, begun: bool) -> None:
        plan, at = deliveries.plan(), deliveries.sink.at()
        writer = writer_of(plan, at) if begun else None
        name = deliveries.sink.id.partition_id(at).encode()
        self.trap = stack.enter_context(faulty.proxy.trap(api, Way.REQUESTS, held=True, containing=name))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(self.wake)

        def work() -> Receipt:
            found = writer or writer_of(plan, at)
            found.write(batch_of(plan, at))
            found.finish()
            return found.receipt()

        self._receipt = pool.submit(work)
        self.trap.wait()

    def wake(self) -> None:
        self.trap.release(Fate.FORWARDED)

    def end(self) -> Receipt:
        return self._receipt.result(120)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def test_a_zombie_that_takes_its_partition_late_delivers_nothing_more(faulty: FaultyKafka, stack: ExitStack) -> None:
    deliveries = Deliveries(faulty)
    zombie = Zombie(deliveries, stack, faulty, Api.INIT_PRODUCER_ID, begun=False)
    deliveries.deliver()
    zombie.wake()
    receipt = zombie.end()
    # An attempt of the same task: what it finds delivered, the other one has delivered.
    assert (receipt.delivered, receipt.commits, receipt.progress) == (4, 0, deliveries.frontier[deliveries.sink.at()])
    deliveries.deliver()
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 8})


def test_a_zombie_that_takes_its_partition_in_the_middle_of_another_s_transaction(
    faulty: FaultyKafka, stack: ExitStack
) -> None:
    """Both are live then, and both finish; each row was committed by one of them."""
    deliveries = Deliveries(faulty)
    plan, at = deliveries.plan(), deliveries.sink.at()
    zombie = Zombie(deliveries, stack, faulty, Api.INIT_PRODUCER_ID, begun=False)
    other = writer_of(plan, at)
    other.write(batch_of(plan, at))
    zombie.wake()
    receipts = [zombie.end()]
    other.finish()
    receipts.append(other.receipt())
    assert [receipt.progress and receipt.progress.next for receipt in receipts] == [4, 4]
    assert sum(receipt.commits for receipt in receipts) == 1
    deliveries.take(receipts[1])
    deliveries.deliver()
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 8})


@pytest.mark.parametrize("api", [Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN], ids=lambda api: api.name)
@pytest.mark.parametrize("newer_driver", [False, True], ids=["another task", "a newer driver"])
@pytest.mark.thorough("each request of a zombie", after=2)
def test_what_a_zombie_sent_comes_late_and_counts_for_nothing(
    faulty: FaultyKafka, stack: ExitStack, api: Api, newer_driver: bool
) -> None:
    deliveries = Deliveries(faulty)
    sink = deliveries.sink
    zombie = Zombie(deliveries, stack, faulty, api, begun=True)
    if newer_driver:
        deliveries.start()
    deliveries.deliver()
    zombie.wake()
    if newer_driver:
        with pytest.raises(SinkPipelineError) as caught:
            zombie.end()
        assert caught.value.reason is Reason.SUPERSEDED
    else:
        receipt = zombie.end()
        assert (receipt.commits, receipt.progress) == (0, deliveries.frontier[sink.at()])
    for topic in (sink.data, sink.progress):
        assert not topics.has_open_transaction(sink.servers, topic), f"something hangs in {topic}"
    deliveries.deliver()
    assert (deliveries.verdict(), sink.frontier()) == (EXACTLY_ONCE, {0: 8})


# Processes


POINTS = ("after-init", "after-rows-before-progress", "after-progress-before-commit", "after-commit")


def test_a_stopped_worker_wakes_up_behind_another_one(faulty: FaultyKafka, tmp_path: Path) -> None:
    deliveries = Deliveries(faulty)
    at = deliveries.sink.at()
    with WorkerProcess(tmp_path) as stopped:
        for point in POINTS:
            receipt = stopped.write(deliveries.plan(), at, point=point)
            stopped.stop()
            stopped.let_go()
            other = deliveries.deliver()
            stopped.wake()
            late = receipt.result(120)
            assert (late.error, late.progress and late.progress.next) == (None, deliveries.frontier[at].next), point
            assert other.commits + late.commits == 1, point
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 4 * len(POINTS)})


@pytest.mark.thorough("waits for time-outs; another task in the driver's place is beside it")
def test_a_stopped_worker_wakes_up_behind_a_newer_driver(faulty: FaultyKafka, tmp_path: Path) -> None:
    deliveries = Deliveries(faulty)
    at = deliveries.sink.at()
    with WorkerProcess(tmp_path) as stopped:
        for point in POINTS:
            receipt = stopped.write(deliveries.plan(), at, point=point)
            stopped.stop()
            stopped.let_go()
            deliveries.start()
            stopped.wake()
            late = receipt.result(120)
            if point == "after-commit":
                assert late.error is None, "it knows nothing of the newer driver, and has nothing more to write"
            else:
                assert late.error is not None, point
                assert late.error.reason is Reason.SUPERSEDED, point
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 4})


@pytest.mark.thorough("many moves; one is in the tests of the writer")
def test_partitions_move_between_workers_that_are_killed(faulty: FaultyKafka, tmp_path: Path) -> None:
    """As Spark schedules: any worker, any partition; a task whose worker dies is tried again by another."""
    chance = random.Random(SEED)
    deliveries = Deliveries(faulty, partitions=3)
    owners: dict[SourcePartition, str] = {}
    kept = killed = 0
    with ExitStack() as stack:
        workers = [stack.enter_context(WorkerProcess(tmp_path)) for _ in range(2)]
        for _ in range(24):
            at = deliveries.sink.at(chance.randrange(3))
            plan = deliveries.plan(partition=at.partition, owners=dict(owners))
            here = chance.randrange(2)
            what = chance.choice(["", "", "its worker dies", "its receipt is lost"])
            if what == "its receipt is lost":
                workers[here].write(plan, at).result(120)
                here = chance.randrange(2)
            elif what and killed < 3:
                point = chance.choice(POINTS[1:])
                workers[here].write(plan, at, point=point)
                workers[here].kill()
                killed += 1
                workers[here] = stack.enter_context(WorkerProcess(tmp_path))
                here = 1 - here
            receipt = workers[here].write(plan, at, retried=bool(what)).result(120)
            assert receipt.error is None
            assert receipt.owner is not None
            kept += receipt.claims == 0
            owners[at] = receipt.owner
            deliveries.take(receipt)
    assert killed >= 2
    assert kept, "some producers were used again"
    assert deliveries.verdict() == EXACTLY_ONCE
    assert sum(deliveries.sink.frontier().values()) == 24 * 4


def test_a_fenced_zombie_lives_until_its_rows_are_answered(faulty: FaultyKafka, stack: ExitStack) -> None:
    """An answer that comes while its client is destroyed can end the whole process: docs/design/0035."""
    deliveries = Deliveries(faulty)
    settings, at = deliveries.sink.settings(), deliveries.sink.at()
    trap = stack.enter_context(faulty.proxy.trap(Api.PRODUCE, Way.ANSWERS, held=True))
    zombie = TransactionalProducer(settings.connection, settings.id.partition_id(at))
    zombie.begin()
    zombie.produce_rows(settings.data.name, [(b"0:0", b"key", 0, 0, None)])
    trap.wait()
    with closing(TransactionalProducer(settings.connection, settings.id.partition_id(at))):
        before = len(leaving._kept)
        began = time.monotonic()
        zombie.close()
        assert time.monotonic() - began < 5 * crowding()
        assert len(leaving._kept) == before + 1
    trap.release()
    deliveries.deliver()
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 4})
