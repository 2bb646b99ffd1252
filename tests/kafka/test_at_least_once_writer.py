"""AtLeastOnceWriter on a real broker: what is reported was acknowledged, and a refused row never is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from servers.tcp_proxy import Api, Fate, Way
from sinkpipeline.core import troubles
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.kafka import kind, producers
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.kafka.raw import limit_produce_rate
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, plan_of
from support.sink.starts import refusal
from support.worlds.faults import Deliveries, FaultyKafka, batch_of

pytestmark = pytest.mark.kafka


def batch(values: list[bytes], *, first: int = 0, errors: list[str | None] | None = None) -> RowBatch:
    return RowBatch(
        offsets=list(range(first, first + len(values))),
        keys=[None] * len(values),
        values=list(values),
        target_partitions=None,
        timestamps=[0] * len(values),
        headers=None,
        errors=errors,
        size=sum(map(len, values)),
    )


def writer_of(
    sink: OneSink, end: int, *, run: str = "run-1", cuts: CutPolicy | None = None, **changes: object
) -> AtLeastOnceWriter:
    started = sink.start(run, exactly_once=False)
    return AtLeastOnceWriter(plan_of(sink, started, end, **changes), sink.at(), Worker(), cuts=cuts)


def test_rows_are_reported_once_they_are_acknowledged(sink: OneSink) -> None:
    writer = writer_of(sink, 5)
    writer.write(batch([b"0", b"1", b"2"]))
    assert writer.receipt().progress == replace(writer.receipt().progress, next=0, rows=0), "nothing is flushed yet"
    writer.write(batch([b"3"], first=4))
    writer.finish()

    progress = writer.receipt().progress
    assert progress is not None
    assert (progress.next, progress.rows) == (5, 4)
    assert sorted(sink.delivered()) == ["0", "1", "2", "3"]


def test_a_row_that_the_broker_refuses_is_not_reported_and_those_before_it_are(sink: OneSink) -> None:
    writer = writer_of(sink, 2)
    topics.alter_topic(sink.servers, sink.data, {"max.message.bytes": "2000"})
    writer.write(batch([b"small", b"x" * 100_000]))

    with pytest.raises(SinkPipelineError) as caught:
        writer.finish()

    assert caught.value.reason is Reason.RECORD_REFUSED
    progress = writer.receipt().progress
    assert progress is not None
    assert (progress.next, progress.rows) == (1, 1)


def test_a_row_that_cannot_be_decoded_ends_at_its_offset(sink: OneSink) -> None:
    writer = writer_of(sink, 3)

    with pytest.raises(SinkPipelineError) as caught:
        writer.write(batch([b"0", b"1", b"2"], errors=[None, "MalformedJson: no object", None]))

    assert caught.value.reason is Reason.RECORD_UNDECODABLE
    assert "offset 1" in caught.value.message
    progress = writer.receipt().progress
    assert progress is not None
    assert (progress.next, progress.rows) == (1, 1)
    assert sink.delivered() == ["0"]


# What takes longer than one cut


def texts(*ranges: range) -> list[bytes]:
    return [str(number).encode() for each in ranges for number in each]


def next_of(sink: OneSink) -> int:
    """As the progress topic says."""
    return sink.frontier()[0]


def test_each_cut_but_the_last_writes_its_progress_itself(sink: OneSink) -> None:
    writer = writer_of(sink, 10, cuts=CutPolicy(rows=4))
    seen = []
    for first in range(0, 10, 2):
        writer.write(batch(texts(range(first, first + 2)), first=first))
        seen.append(next_of(sink))
    writer.finish()
    receipt = writer.receipt()
    assert seen == [0, 4, 4, 8, 8]
    assert next_of(sink) == 10, "who has written progress once, goes on to"
    assert (receipt.claims, receipt.commits, receipt.delivered, receipt.in_doubt) == (1, 3, 10, False)
    assert sorted(sink.delivered(), key=int) == [str(number) for number in range(10)]


def test_a_batch_of_one_cut_takes_no_id(sink: OneSink) -> None:
    writer = writer_of(sink, 10, cuts=CutPolicy(rows=11))
    writer.write(batch(texts(range(10))))
    writer.finish()
    receipt = writer.receipt()
    assert (receipt.claims, receipt.commits, next_of(sink)) == (0, 0, 0), "its progress is the driver's to write"


def test_the_driver_takes_what_a_task_has_written(filled: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "CutPolicy", lambda: CutPolicy(rows=12))
    with Driver(filled, exactly_once=False) as driver:
        driver.batch(30)
        assert (driver.rows, next_of(filled), driver.delivery.exact) == (30, 30, True)
        driver.delivery.check_world()
    assert Counter(filled.delivered()) == Counter(str(number) for number in range(30))


def test_an_attempt_after_another_goes_on_where_that_was(sink: OneSink) -> None:
    """The first may live on: whatever it writes then, progress only grows."""
    started = sink.start(exactly_once=False)
    plan = plan_of(sink, started, 10)
    first = AtLeastOnceWriter(plan, sink.at(), Worker(), cuts=CutPolicy(rows=2))
    first.write(batch(texts(range(5))))
    second = AtLeastOnceWriter(plan, sink.at(), Worker(), retried=True, cuts=CutPolicy(rows=3))
    assert (next_of(sink), second.receipt().claims) == (4, 1)
    second.write(batch(texts(range(8))))
    first.write(batch(texts(range(5, 7)), first=5))
    assert next_of(sink) == 7
    second.write(batch(texts(range(8, 10)), first=8))
    second.finish()
    first.finish()
    assert next_of(sink) == 10
    assert sorted({*sink.delivered()}, key=int) == [str(number) for number in range(10)]


def test_a_newer_driver_is_noticed_by_the_first_cut(sink: OneSink) -> None:
    writer = writer_of(sink, 10, cuts=CutPolicy(rows=4))
    sink.start("run-2", exactly_once=False)
    refusal(lambda: writer.write(batch(texts(range(10)))), Reason.SUPERSEDED)
    assert next_of(sink) == 0


def test_a_commit_of_progress_whose_answer_is_lost_is_read(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = TransactionalProducer.commit, ["lost"]

    def commit(producer: TransactionalProducer, *more: float) -> None:
        real(producer, *more)
        if left and producer.transactional_id.endswith("/0"):
            raise InDoubt(left.pop())

    writer = writer_of(sink, 10, cuts=CutPolicy(rows=4))
    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    writer.write(batch(texts(range(10))))
    writer.finish()
    receipt = writer.receipt()
    assert (receipt.claims, receipt.delivered, left, next_of(sink)) == (2, 10, [], 10)
    assert Counter(sink.delivered()).keys() == {str(number) for number in range(10)}


# A way that is slow, or leads nowhere

ROW_BYTES = 20_000


@contextmanager
def slow(sink: OneSink, rate: float) -> Iterator[None]:
    limit_produce_rate(sink.servers, "rdkafka", rate)
    try:
        yield
    finally:
        limit_produce_rate(sink.servers, "rdkafka", None)


def test_a_slow_way_is_no_outage_and_a_kill_repeats_one_cut(sink: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes several times as long as anything may take without an acknowledgement."""
    monkeypatch.setattr(PlainProducer.flush, "__defaults__", (1.5,))
    monkeypatch.setattr(producers, "COMMIT_DEADLINE_S", 1.5)
    # A queue of five rows: what is produced waits for those before it.
    settings = sink.settings(properties={"queue.buffering.max.kbytes": "100", "batch.size": "20000"})
    count, cut = 40, 10
    values = [b"%03d" % number + b"x" * ROW_BYTES for number in range(count)]
    cuts = CutPolicy(rows=cut)
    topics.produce_numbers(sink.servers, sink.source, count)
    with slow(sink, 150_000):
        writer = writer_of(sink, count, cuts=cuts, settings=settings)
        writer.write(batch(values[:25]))
        assert next_of(sink) == 20
        del writer  # killed
        writer = writer_of(sink, count, run="run-2", cuts=cuts, settings=settings)
        writer.write(batch(values[20:], first=20))
        writer.finish()
    assert next_of(sink) == 40
    delivered = Counter(text[:3] for text in sink.delivered())
    assert delivered.keys() == {f"{number:03}" for number in range(count)}
    assert sum(delivered.values()) <= count + cut


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.thorough("waits for time-outs")
def test_rows_that_nobody_acknowledges_are_an_outage(faulty: FaultyKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried once more, with little at once; then the sink is told, and the core is free."""
    monkeypatch.setattr(troubles, "_OUTAGE_S", 1.0)
    deliveries = Deliveries(faulty, exactly_once=False)
    plan, at = deliveries.plan(), deliveries.sink.at()
    writer = AtLeastOnceWriter(plan, at, Worker())
    writer.write(batch_of(plan, at))
    with faulty.proxy.trap(Api.PRODUCE, Way.REQUESTS, Fate.CUT, times=1_000):
        error = refusal(writer.finish, Reason.BROKER_UNREACHABLE)
    assert "gave up after 2 attempts" in error.message
    assert writer.receipt().progress == deliveries.frontier[at]
    faulty.heal()
    deliveries.start()
    deliveries.deliver(4)
    assert deliveries.sink.frontier() == {0: 4}
