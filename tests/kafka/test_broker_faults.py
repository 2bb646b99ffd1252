"""Connections that break and brokers that die or stand still, at every request that a sink makes. On a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from servers.tcp_proxy import Api, Fate, Trap, Way
from servers.waiting import Patience
from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka import admin, errors, kind
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.follower import ProgressFollower
from sinkpipeline.kafka.producers import _DELIVERY_TIMEOUT_MS, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.sink_writer import SinkWriter
from sinkpipeline.spark.task import run_task
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE
from support.sink.one_sink import OneSink
from support.waiting import wait_until
from support.worlds.faults import Deliveries, FaultyKafka, FaultySink, batch_of, rows_of, write, writer_of

T = TypeVar("T")

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

IN_A_BATCH = (Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN)
IN_A_TAKEOVER = (Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID, *IN_A_BATCH, Api.FETCH, Api.METADATA)
IN_A_START = (*IN_A_TAKEOVER, Api.LIST_OFFSETS, Api.DESCRIBE_CONFIGS)

both_fates = pytest.mark.parametrize("fate", [Fate.CUT, Fate.LOST], ids=["cut", "lost"])
both_ways = pytest.mark.parametrize("way", Way, ids=["before it is forwarded", "before it is answered"])


@contextmanager
def fault(faulty: FaultyKafka, api: Api, way: Way, fate: Fate) -> Iterator[None]:
    """One fault, which must happen."""
    with faulty.proxy.trap(api, way, fate) as trap:
        yield
        assert trap.caught == 1, f"no {way.value[:-1]} of {api.name} was {fate.value}"
    faulty.proxy.heal()


# One fault at a time


@both_fates
@both_ways
@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_batch_is_delivered_once_whatever_request_fails(faulty: FaultyKafka, way: Way, fate: Fate) -> None:
    deliveries = Deliveries(faulty)
    for api in IN_A_BATCH:
        plan, at = deliveries.plan(), deliveries.sink.at()
        writer = writer_of(plan, at)
        with fault(faulty, api, way, fate):
            receipt = finish(writer, batch_of(plan, at))
        deliveries.take(receipt)
        assert receipt.delivered == 4
    assert deliveries.verdict() == EXACTLY_ONCE
    assert deliveries.sink.frontier() == {0: 4 * len(IN_A_BATCH)}


@pytest.mark.usefixtures("short_requests")
def test_an_answer_that_comes_when_its_request_was_sent_again_counts_once(faulty: FaultyKafka) -> None:
    deliveries = Deliveries(faulty)
    for api in IN_A_BATCH:
        plan, at = deliveries.plan(), deliveries.sink.at()
        writer = writer_of(plan, at)
        with faulty.proxy.trap(api, Way.ANSWERS, held=True) as trap, ThreadPoolExecutor() as pool:
            finished = pool.submit(finish, writer, batch_of(plan, at))
            trap.wait()
            faulty.proxy.seen.clear()
            wait_until(partial(faulty.proxy.seen.get, api), f"{api.name} is sent again")
            trap.release()
            deliveries.take(finished.result(60))
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 4 * len(IN_A_BATCH)})


def test_a_refusal_is_not_held_up_by_records_behind_it(faulty: FaultyKafka) -> None:
    """Their request is out of sequence then; the client keeps them until an abort, or for 45 s."""
    small = topics.unique("small")
    topics.create_topic(faulty.direct, small, config={"max.message.bytes": "2000"})
    connection = Connection(bootstrap_servers=faulty.servers)
    with closing(TransactionalProducer(connection, topics.unique("id"))) as producer, ThreadPoolExecutor() as pool:
        producer.begin()
        with faulty.proxy.trap(Api.PRODUCE, Way.ANSWERS, Fate.FORWARDED, held=True) as trap:
            producer.produce_rows(small, [(b"x" * 3_000, None, 0, 0, None)])
            trap.wait()
            before = faulty.proxy.seen[Api.PRODUCE]
            producer.produce_rows(small, [(b"behind it", None, 0, 0, None)])
            wait_until(lambda: faulty.proxy.seen[Api.PRODUCE] > before, "both are on their way")
            committed = pool.submit(producer.commit)
            wait_until(lambda: not producer.in_transaction, "the commit has begun")
            # The refusal is known before the other answer comes.
            faulty.proxy.delay(Way.ANSWERS, 0.2)
            trap.release()
            with pytest.raises(RecordRefused, match="Message size too large"):
                committed.result(_DELIVERY_TIMEOUT_MS / 2000)


@both_fates
@both_ways
@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("another request that fails: starts and batches are in make test")
def test_a_partition_is_taken_over_whatever_request_fails(faulty: FaultyKafka, way: Way, fate: Fate) -> None:
    """Each time from a task that died in the middle of a transaction, which the takeover has to abort."""
    deliveries = Deliveries(faulty)
    for api in IN_A_TAKEOVER:
        leave_open(deliveries)
        with fault(faulty, api, way, fate):
            receipt = deliveries.deliver()
        assert receipt.delivered == 4
    assert deliveries.verdict() == EXACTLY_ONCE


@both_fates
@both_ways
@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_sink_starts_whatever_request_fails(faulty: FaultyKafka, way: Way, fate: Fate) -> None:
    """A connection that is lost is made again; an answer that never comes may end a start, never with a refusal."""
    deliveries = Deliveries(faulty)
    for api in IN_A_START:
        with fault(faulty, api, way, fate):
            started = outcome(deliveries.start)
        if started is not None:
            assert (started.reason, fate) == (Reason.BROKER_UNREACHABLE, Fate.LOST), f"{api.name}: {started}"
            deliveries.start()
        deliveries.deliver()
    assert deliveries.verdict() == EXACTLY_ONCE
    assert deliveries.sink.frontier() == {0: 4 * len(IN_A_START)}


def outcome(step: Callable[[], object]) -> SinkPipelineError | None:
    try:
        step()
    except SinkPipelineError as error:
        return error
    return None


def finish(writer: SinkWriter, batch: RowBatch) -> Receipt:
    writer.write(batch)
    writer.finish()
    return writer.receipt()


def leave_open(deliveries: Deliveries) -> None:
    """What a task leaves that dies with rows in the log."""
    sink = deliveries.sink
    key, values = sink.id.partition_id(sink.at()), [(sink.data, b"k", b"never committed")]
    producer = TransactionalProducer(sink.connection, key)
    producer.begin()
    producer.produce_rows(sink.data, [(value, key_, 0, 0, None) for _, key_, value in values])
    assert producer._producer.flush(topics.DEADLINE_S) == 0
    # As a process that is killed: what is closed aborts.
    del producer._producer
    assert topics.has_open_transaction(sink.servers, sink.data)


@pytest.mark.parametrize("offsets", StartingOffsets)
@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("another request that fails: starts and batches are in make test")
def test_no_offset_is_made_up_where_an_answer_was_lost(faulty: FaultyKafka, offsets: StartingOffsets) -> None:
    """The client gives offset -1001, and no error, for a partition whose leader did not answer."""
    for lost in range(4):
        sink = FaultySink(faulty.direct, proxied=faulty.servers)
        topics.produce_numbers(sink.servers, sink.source, 5)
        topics.delete_records(sink.servers, sink.source, 2)
        with (
            faulty.proxy.trap(Api.LIST_OFFSETS, Way.ANSWERS, Fate.FORWARDED, times=lost),
            faulty.proxy.trap(Api.LIST_OFFSETS, Way.ANSWERS, Fate.CUT) as trap,
        ):
            sink.start(source={"starting_offsets": offsets})
            assert trap.caught
        assert sink.frontier() == {0: 2 if offsets is StartingOffsets.EARLIEST else 5}


@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("waits for a time-out")
def test_offsets_of_a_broker_that_never_answers_are_unknown(faulty: FaultyKafka) -> None:
    sink = FaultySink(faulty.direct, proxied=faulty.servers)
    admin = Admin(sink.connection)
    admin.topics([sink.source])
    with (
        faulty.proxy.trap(Api.LIST_OFFSETS, Way.ANSWERS, Fate.LOST, times=100),
        pytest.raises(SinkPipelineError) as caught,
    ):
        admin.end_offsets([sink.at()], read_committed=True)
    assert caught.value.reason is Reason.BROKER_UNREACHABLE


# Every phase at once


IN_PHASES_OF_A_TAKEOVER = (
    (Api.INIT_PRODUCER_ID, Way.ANSWERS),
    (Api.PRODUCE, Way.ANSWERS),  # of the sentinel
    (Api.END_TXN, Way.REQUESTS),
    (Api.END_TXN, Way.ANSWERS),
)
IN_PHASES_OF_A_BATCH = (
    (Api.PRODUCE, Way.ANSWERS),  # between produce and commit
    (Api.END_TXN, Way.REQUESTS),
    (Api.END_TXN, Way.ANSWERS),  # between commit and its answer
)
IN_PHASES_OF_A_START = (
    (Api.INIT_PRODUCER_ID, Way.ANSWERS),
    (Api.END_TXN, Way.REQUESTS),
    (Api.END_TXN, Way.ANSWERS),
)


def patiently(step: Callable[[], T]) -> T:
    """As a driver does: what may pass by itself is tried again."""
    patience = Patience(90)
    while True:
        try:
            return step()
        except SinkPipelineError as error:
            if not error.reason.retry or patience.is_over():
                raise


class Crowd:
    """Tasks of one sink, each in another phase; starts of others; and reads that begin while the broker is away."""

    def __init__(self, faulty: FaultyKafka, stack: ExitStack) -> None:
        self._faulty = faulty
        phases = (*IN_PHASES_OF_A_TAKEOVER, *IN_PHASES_OF_A_BATCH)
        self.tasks = Deliveries(faulty, partitions=len(phases))
        self.starts = [Deliveries(faulty) for _ in IN_PHASES_OF_A_START]
        for each in self.starts:
            each.deliver()
        sink = self.tasks.sink
        self._plans = [self.tasks.plan(partition=partition) for partition in range(len(phases))]
        begun = range(len(IN_PHASES_OF_A_TAKEOVER), len(phases))
        self._writers = {partition: writer_of(self._plans[partition], sink.at(partition)) for partition in begun}
        self._pool = stack.enter_context(ThreadPoolExecutor(20))
        # Before the pool ends, which waits for those who are held.
        stack.callback(faulty.heal)
        self._traps = [self._hold(stack, phase, sink.id.partition_id(sink.at(n))) for n, phase in enumerate(phases)]
        for each, phase in zip(self.starts, IN_PHASES_OF_A_START, strict=True):
            self._traps.append(self._hold(stack, phase, each.sink.id.control_id))
        self._receipts = [self._pool.submit(self._finish, partition) for partition in range(len(phases))]
        self._started = [self._pool.submit(patiently, each.start) for each in self.starts]
        self._reads: list[Future[Progress]] = []
        for trap in self._traps:
            trap.wait()

    def _hold(self, stack: ExitStack, phase: tuple[Api, Way], transactional_id: str) -> Trap:
        trap = self._faulty.proxy.trap(*phase, held=True, containing=transactional_id.encode())
        return stack.enter_context(trap)

    def _finish(self, partition: int) -> Receipt:
        plan, at = self._plans[partition], self.tasks.sink.at(partition)
        return finish(self._writers.get(partition) or writer_of(plan, at), batch_of(plan, at))

    def release(self, fate: Fate) -> None:
        for trap in self._traps:
            trap.release(fate)

    def read(self) -> None:
        sink = self.starts[0].sink
        ways = (ProgressLog.observe, ProgressLog.decide)
        self._reads = [self._pool.submit(patiently, partial(read, sink, way)) for way in ways]

    def judge(self) -> None:
        for receipt in self._receipts:
            assert receipt.result(120).delivered == 4
            self.tasks.take(receipt.result())
        for started in self._started:
            started.result(120)
        for progress in self._reads:
            assert progress.result(120).partitions[self.starts[0].sink.at()].next == 4
        for each in self.starts:
            each.deliver()
            assert (each.verdict(), each.sink.frontier()) == (EXACTLY_ONCE, {0: 8})
        assert self.tasks.verdict() == EXACTLY_ONCE
        assert set(self.tasks.sink.frontier().values()) == {4}


@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("takes a broker down in each phase; one phase is in test_dead_letter_faults")
def test_a_broker_that_dies_in_every_phase(faulty: FaultyKafka) -> None:
    with ExitStack() as stack:
        crowd = Crowd(faulty, stack)
        faulty.kafka.kill_broker(1)
        crowd.release(Fate.CUT)
        crowd.read()
        faulty.kafka.start_broker(1)
        crowd.judge()


@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("the time-outs of each phase; one is shown by a commit in doubt")
def test_a_broker_that_stands_still_in_every_phase(faulty: FaultyKafka) -> None:
    with ExitStack() as stack:
        crowd = Crowd(faulty, stack)
        faulty.kafka.pause_broker(1)
        crowd.read()
        before = faulty.proxy.seen[Api.API_VERSIONS]
        wait_until(lambda: faulty.proxy.seen[Api.API_VERSIONS] > before + 10, "clients have given up and come again")
        crowd.release(Fate.FORWARDED)
        faulty.kafka.resume_broker(1)
        crowd.judge()


def read(sink: FaultySink, how: Callable[[ProgressLog, SinkId], Progress]) -> Progress:
    with ProgressLog(sink.connection, sink.progress, "a-test") as log:
        return how(log, sink.id)


# Longer than anybody waits


@pytest.mark.usefixtures("short_requests")
def test_a_creation_that_was_lost_is_asked_for_again(faulty: FaultyKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a broker that has no way to its controller for a while."""
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_S", 1.0)
    # Both together take longer than requests are repeated for, as they do outside of tests.
    monkeypatch.setattr(errors, "REQUEST_TIMEOUT_S", 3.0)
    monkeypatch.setattr(admin, "_IN_DOUBT_S", 2.5)
    monkeypatch.setattr(admin, "_VISIBLE_DEADLINE_S", 3.0)
    sink = OneSink(faulty.servers)
    with fault(faulty, Api.CREATE_TOPICS, Way.REQUESTS, Fate.LOST):
        assert Admin(sink.connection).create_topic(TopicRequest(name=sink.data)).is_ours


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("way", Way, ids=["never forwarded", "forwarded"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_commit_that_stays_in_doubt_is_told_and_found_out_by_the_next_start(faulty: FaultyKafka, way: Way) -> None:
    deliveries = Deliveries(faulty)
    deliveries.deliver()
    plan, at = deliveries.plan(), deliveries.sink.at()
    writer = writer_of(plan, at)
    writer.write(batch_of(plan, at))
    with faulty.proxy.trap(Api.END_TXN, way, held=True) as trap, ThreadPoolExecutor() as pool:
        finished = pool.submit(writer.finish)
        trap.wait()
        # Whatever comes now is answered no more; the first one is lost on its way back, or on its way there.
        faulty.proxy.swallow(Way.REQUESTS)
        trap.release(Fate.LOST)
        with pytest.raises(SinkPipelineError) as caught:
            finished.result(60)
    assert caught.value.reason is Reason.BROKER_UNREACHABLE, caught.value
    receipt = writer.receipt()
    assert receipt.in_doubt
    assert (receipt.progress, receipt.delivered) == (deliveries.frontier[at], 0)
    faulty.heal()

    deliveries.start()

    # The producer that was given up lives until its request has been answered, and may still have sent it.
    assert deliveries.frontier[at].next in ((4, 8) if way is Way.REQUESTS else (8,))
    deliveries.deliver(12 - deliveries.frontier[at].next)
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 12})


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("way", Way, ids=["never forwarded", "forwarded"])
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_commit_in_doubt_is_found_out_by_its_own_task(
    faulty: FaultyKafka, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries = Deliveries(faulty)
    plan, at = deliveries.plan(), deliveries.sink.at()
    writer = writer_of(plan, at)
    writer.write(batch_of(plan, at))
    with faulty.proxy.trap(Api.END_TXN, way, held=True) as trap, ThreadPoolExecutor() as pool:
        finished = pool.submit(writer.finish)
        trap.wait()
        faulty.proxy.refuse()
        trap.release(Fate.CUT)
        wait_until(lambda: "InDoubt" in caplog.text, "the commit is given up")
        faulty.heal()
        finished.result(60)
    receipt = writer.receipt()
    # Its own commit where the first one did not come through; the producer that was given up may still have sent that.
    assert receipt.commits in ((0, 1) if way is Way.REQUESTS else (0,))
    assert (receipt.claims, receipt.delivered, receipt.in_doubt) == (2, 4, False)
    deliveries.take(receipt)
    deliveries.deliver()
    assert (deliveries.verdict(), deliveries.sink.frontier()) == (EXACTLY_ONCE, {0: 8})


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.thorough("waits for the time-out of each call")
def test_every_call_ends_while_nothing_answers(faulty: FaultyKafka) -> None:
    """A dead broker must not hold what others need: all deadlines here are 3 or 4 s."""
    deliveries, rare = Deliveries(faulty, partitions=4), Deliveries(faulty, exactly_once=False)
    sink = deliveries.sink
    holder = TransactionalProducer(sink.connection, sink.id.control_id)
    begun, rare_begun = deliveries.plan(partition=1), rare.plan()
    writer, rare_writer = writer_of(begun, sink.at(1)), writer_of(rare_begun, rare.sink.at())
    follower = ProgressFollower(sink.connection, sink.progress, "a-test", sink.id)
    follower.poll()
    calls: dict[str, Callable[[], object]] = {
        "a start": lambda: sink.start("another"),
        "resume": lambda: read(sink, lambda log, id_: log.resume(id_, holder)),
        "decide": lambda: read(sink, ProgressLog.decide),
        "observe": lambda: read(sink, ProgressLog.observe),
        "a takeover": lambda: write(deliveries.plan(), sink.at()),
        "a batch": lambda: finish(writer, batch_of(begun, sink.at(1))),
        "a batch at least once": lambda: finish(rare_writer, batch_of(rare_begun, rare.sink.at())),
        "admin": lambda: Admin(sink.connection).topics([sink.data]),
        "offsets": lambda: Admin(sink.connection).end_offsets([sink.at()], read_committed=True),
    }

    def call_it(call: Callable[[], object]) -> tuple[str, float]:
        began = time.monotonic()
        with pytest.raises((SinkPipelineError, InDoubt)) as caught:
            call()
        error = caught.value
        reason = error.reason.value if isinstance(error, SinkPipelineError) else "InDoubt"
        return reason, time.monotonic() - began

    faulty.proxy.swallow(Way.REQUESTS)
    with ThreadPoolExecutor(len(calls)) as pool:
        outcomes = dict(zip(calls, pool.map(call_it, calls.values()), strict=True))
    follower.poll()
    follower.close()

    told = {name: reason for name, (reason, _) in outcomes.items()}
    assert told == {name: "InDoubt" if name == "resume" else "BrokerUnreachable" for name in calls}
    took_s = {name: seconds for name, (_, seconds) in outcomes.items()}
    assert max(took_s.values()) < 40, took_s
    for each in (writer, rare_writer):
        assert each.receipt().delivered == 0
    faulty.heal()
    deliveries.start()
    rare.start()
    for partition in range(4):
        deliveries.deliver(partition=partition)
    rare.deliver()
    assert deliveries.verdict() == EXACTLY_ONCE
    assert (rare.verdict().missing, rare.sink.frontier()) == (0, {0: 4})


# A source that stalls


class Stalling:
    """The input of a task, whose second batch comes only when something has happened."""

    def __init__(self, plan: BatchPlan, partition: SourcePartition, until: Callable[[], object]) -> None:
        self._batches = [arrow(partition, offsets) for offsets in halves(plan.ranges[partition])]
        self._until = until

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        first, second = self._batches
        yield first
        self._until()
        yield second


def halves(offsets: OffsetRange) -> tuple[range, range]:
    middle = (offsets.start + offsets.end) // 2
    return range(offsets.start, middle), range(middle, offsets.end)


def arrow(partition: SourcePartition, offsets: range) -> pa.RecordBatch:
    count, values = len(offsets), [f"{partition.partition}:{offset}".encode() for offset in offsets]
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition.partition] * count, pa.int32()),
            "offset": list(offsets),
            "key": values,
            "value": values,
            "timestamp_ms": [0] * count,
            "notes": pa.nulls(count, pa.string()),
        }
    )


def test_what_was_read_is_committed_while_the_source_stalls(
    faulty: FaultyKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "CutPolicy", lambda: CutPolicy(seconds=0.5))
    deliveries = Deliveries(faulty)
    sink, plan = deliveries.sink, deliveries.plan(10)

    def first_half_is_there() -> None:
        wait_until(lambda: len(topics.read_committed(sink.servers, sink.data, settled=False)) == 5, "an idle cut")

    receipt = run_task(plan, Stalling(plan, sink.at(), first_half_is_there), retried=False)

    assert (receipt.error, receipt.delivered, receipt.commits, receipt.claims) == (None, 10, 2, 1)
    assert (deliveries.verdict(), sink.frontier()) == (EXACTLY_ONCE, {0: 10})


@pytest.mark.thorough("another request that fails: starts and batches are in make test")
@pytest.mark.usefixtures("short_transactions")
def test_a_transaction_that_times_out_while_the_source_stalls_is_replayed(faulty: FaultyKafka) -> None:
    deliveries = Deliveries(faulty)
    sink, plan = deliveries.sink, deliveries.plan(10)

    def first_half_is_aborted() -> None:
        wait_until(lambda: len(topics.read_uncommitted(sink.servers, sink.data)) == 5, "the rows are in the log")
        topics.wait_until_settled(sink.servers, sink.data)

    receipt = run_task(plan, Stalling(plan, sink.at(), first_half_is_aborted), retried=False)

    assert (receipt.error, receipt.delivered, receipt.commits, receipt.claims) == (None, 10, 1, 2)
    assert (deliveries.verdict(), sink.frontier()) == (EXACTLY_ONCE, {0: 10})
    assert len(topics.read_uncommitted(sink.servers, sink.data)) == 15, "five of them were aborted"


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("guarantee", [True, False], ids=["exactly once", "at least once"])
@pytest.mark.thorough("another request that fails: starts and batches are in make test")
def test_an_error_at_the_end_of_a_range_is_told(faulty: FaultyKafka, guarantee: bool) -> None:
    """The task has read its input to the end by then, and must not wait for more."""
    deliveries = Deliveries(faulty, exactly_once=guarantee)
    plan, at = deliveries.plan(), deliveries.sink.at()
    batches = [arrow(at, each) for each in halves(plan.ranges[at])]
    rows_of_it = faulty.proxy.trap(Api.PRODUCE, Way.REQUESTS, held=True, containing=deliveries.sink.data.encode())
    with rows_of_it as trap, ThreadPoolExecutor() as pool:
        task = pool.submit(run_task, plan, batches, retried=False)
        trap.wait()
        faulty.proxy.swallow(Way.REQUESTS)
        trap.release(Fate.LOST)
        receipt = task.result(60)
    assert receipt.error is not None
    assert receipt.error.reason is Reason.BROKER_UNREACHABLE
    assert (receipt.delivered, receipt.progress) == (0, deliveries.frontier[at])


# Records that the broker refuses


REFUSALS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "too large": ("max.message.bytes", "2000", {"values": [b"x" * 100_000]}, "max.message.bytes"),
    "from the future": (
        "message.timestamp.after.max.ms",
        "60000",
        {"timestamps": [4_000_000_000_000]},
        "transform.select.timestamp",
    ),
}
"""What the topic no longer takes once the sink has started; a row like that; and a word of the remedy."""


@pytest.mark.parametrize("guarantee", [True, False], ids=["exactly once", "at least once"])
@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.thorough("another request that fails: starts and batches are in make test")
def test_a_row_that_only_the_broker_refuses_is_not_delivered_nor_any_behind_it(
    faulty: FaultyKafka, refusal: str, guarantee: bool
) -> None:
    key, limit, columns, word = REFUSALS[refusal]
    deliveries = Deliveries(faulty, exactly_once=guarantee)
    sink, at = deliveries.sink, deliveries.sink.at()
    deliveries.deliver()
    topics.alter_topic(sink.servers, sink.data, {key: limit})
    writer = writer_of(deliveries.plan(4), at)

    def write_all() -> None:
        writer.write(rows_of(at, range(4, 5)))
        writer.write(rows_of(at, range(5, 6), **columns))
        writer.write(rows_of(at, range(6, 8)))
        writer.finish()

    error = outcome(write_all)
    assert error is not None
    assert error.reason is Reason.RECORD_REFUSED
    assert f"topic {sink.source}, partition 0, offset 5 was refused" in error.message
    assert word in error.remedy
    receipt = writer.receipt()
    assert receipt.progress is not None
    assert (receipt.progress.next, receipt.delivered, receipt.in_doubt) == (5, 1, False)

    deliveries.start()
    assert deliveries.frontier[at].next == 5
    deliveries.deliver()
    verdict = deliveries.verdict()
    assert verdict.missing == 0
    assert verdict == EXACTLY_ONCE or not guarantee


@both_fates
@both_ways
@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_refusal_is_told_also_where_its_abort_fails(faulty: FaultyKafka, way: Way, fate: Fate) -> None:
    deliveries = Deliveries(faulty)
    sink, at = deliveries.sink, deliveries.sink.at()
    topics.alter_topic(sink.servers, sink.data, {"max.message.bytes": "2000"})
    writer = writer_of(deliveries.plan(2), at)
    with fault(faulty, Api.END_TXN, way, fate):
        error = outcome(lambda: finish(writer, rows_of(at, range(2), values=[b"0:0", b"x" * 100_000])))
    assert error is not None
    assert error.reason is Reason.RECORD_REFUSED
    assert writer.receipt().delivered == 1, "the row before it"
    deliveries.start()
    deliveries.deliver()
    assert (deliveries.verdict(), sink.frontier()) == (EXACTLY_ONCE, {0: 5})


# At least once


@both_fates
@both_ways
@pytest.mark.usefixtures("short_requests")
@pytest.mark.thorough("each variant of one case", after=1)
def test_nothing_is_lost_at_least_once_whatever_request_fails(faulty: FaultyKafka, way: Way, fate: Fate) -> None:
    deliveries = Deliveries(faulty, exactly_once=False)
    for api in (Api.INIT_PRODUCER_ID, Api.METADATA, Api.PRODUCE):
        plan, at = deliveries.plan(), deliveries.sink.at()
        with fault(faulty, api, way, fate):
            receipt = write(plan, at)
        deliveries.take(receipt)
        assert receipt.delivered == 4
    records = topics.texts(topics.read_committed(deliveries.sink.servers, deliveries.sink.data))
    assert len(set(records)) == 12
