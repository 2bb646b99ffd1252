"""A source that is deleted, re-created, cut short or grows at the wrong moment, on a real broker without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.source_marks import REACH
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.kafka.source.views import view_source
from sinkpipeline.sinks import beside, world
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, deliver, plan_of, remembered, rows
from support.sink.starts import once, refusal
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]


@pytest.mark.parametrize(
    ("again", "reason"), [(False, Reason.SOURCE_TOPIC_MISSING), (True, Reason.SOURCE_RECREATED)], ids=str
)
def test_a_source_that_goes_while_it_is_read(filled: OneSink, again: bool, reason: Reason) -> None:
    with Driver(filled) as driver:
        driver.batch(5)
        topics.delete_topic(filled.servers, filled.source)
        if again:
            topics.create_topic(filled.servers, filled.source)
        error = refusal(driver.delivery.check_world, reason)
        assert filled.source in error.message
        refusal(lambda: driver.plan(10), reason)
        refusal(driver.start, reason)
    assert len(filled.delivered()) == 5


def test_a_source_that_was_re_created_before_anything_was_read_is_a_first_start(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> None:
        raise RuntimeError("crash")

    once("starting-before-first-start", crash, monkeypatch)
    with pytest.raises(RuntimeError, match="crash"):
        filled.start()
    topics.recreate_topic(filled.servers, filled.source)
    topics.produce_numbers(filled.servers, filled.source, 7)

    with Driver(filled) as driver:
        driver.batch(7)

    assert len(filled.delivered()) == 7


def test_a_source_that_grows_while_a_sink_is_taken_over_has_lost_nothing(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older driver's task delivers what came after the newer one has looked at the source."""
    busy = ExactlyOnceWriter(plan_of(filled, filled.start(), 40), filled.at(), Worker())

    def go_on() -> None:
        topics.produce_numbers(filled.servers, filled.source, 10, start=30)
        busy.write(rows(range(40)))
        busy.finish()

    once("starting-after-meta", go_on, monkeypatch)
    filled.start("run-2")
    assert filled.frontier() == {0: 40}


@pytest.mark.thorough("a source that loses records once is in test_starting")
def test_a_source_that_loses_records_again_and_again(filled: OneSink) -> None:
    with Driver(filled, source={"skip_lost": True}) as driver:
        for lost in (2, 12, 22):
            topics.delete_records(filled.servers, filled.source, lost)
            truth = driver.delivery.explained(SinkPipelineError(Reason.BATCH_FAILED, "Spark failed", ""))
            assert isinstance(truth, Restart), "a batch that fails for it is no failure"
            driver.start()
            driver.batch(lost + 5)
        state = driver.delivery.progress.partitions[filled.at()]
        assert (state.next, state.rows, state.lost) == (27, 15, 2 + 5 + 5)
        topics.delete_records(filled.servers, filled.source, 29)
        driver.leave()
    error = refusal(lambda: Driver(filled).start(), Reason.SOURCE_DATA_LOST)
    assert "2 offsets are lost" in error.message
    delivered = [str(number) for begin in (2, 12, 22) for number in range(begin, begin + 5)]
    assert sorted(filled.delivered(), key=int) == delivered


@pytest.mark.thorough("test_starting has a topic that is newly listed")
def test_a_topic_that_is_listed_again_goes_on_where_it_was(filled: OneSink) -> None:
    """And is refused, if it is another one by then: nobody looked at it meanwhile."""
    other = OneSink(filled.servers)
    both = {"source": {"topics": (filled.source, other.source)}}
    deliver(filled, filled.start(**both), range(10))

    only_other = {"source": {"topics": (other.source,)}}
    filled.start("run-2", **only_other)
    assert filled.truth()["meta"]["partitions"] == {filled.source: 1, other.source: 1}
    deliver(filled, filled.start("run-3", **both), range(10, 20))
    assert sorted(filled.delivered(), key=int) == [str(number) for number in range(20)]

    filled.start("run-4", **only_other)
    topics.recreate_topic(filled.servers, filled.source)
    filled.start("run-5", **only_other)
    refusal(lambda: filled.start("run-6", **both), Reason.SOURCE_RECREATED)


def test_the_brokers_own_topics_match_no_pattern(filled: OneSink) -> None:
    filled.start()
    source = SourceSettings(connection=filled.connection, pattern=".*")
    found = view_source(source, Admin(filled.connection)).topics
    assert filled.source in found
    assert not [topic for topic in found if topic.startswith("__")], "Spark's pattern does not match them"


def test_a_topic_that_comes_later_is_found_by_the_driver(filled: OneSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is told names, never the pattern. This one would keep an engine busy for ever that tries every way."""
    monkeypatch.setattr(world, "_NEW_TOPICS_EVERY_S", 0.0)
    second = f"{filled.name}-{'a' * 60}-second-source"
    with Driver(filled, source={"topics": (), "pattern": rf"{filled.name}-(([a-z]+)+-)*source"}) as driver:
        driver.batch(5)
        topics.create_topic(filled.servers, f"{filled.name}-{'a' * 60}-source-copy")
        driver.delivery.check_world()
        topics.create_topic(filled.servers, second)
        with pytest.raises(Restart, match="a new topic matches topicPattern"):
            driver.delivery.check_world()
        driver.start()
        assert {each.topic for each in driver.delivery.frontier} == {filled.source, second}


# Logs that are cut short, as by an unclean leader election


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[LocalKafka]:
    with LocalKafka(directory=tmp_path) as kafka:
        yield kafka


@pytest.mark.thorough("stops a broker of its own and truncates its files")
def test_logs_that_lost_their_ends(forgetful: LocalKafka, tmp_path: Path) -> None:
    """Once the source's, under a driver; once the progress topic's, which only the status can tell."""
    servers = forgetful.bootstrap_servers
    source, progress = OneSink(servers), OneSink(servers)
    rolling = {"segment.ms": "1"}
    topics.alter_topic(servers, source.source, rolling)
    topics.create_topic(servers, progress.progress, config={**topics.COMPACTED, **rolling})
    for sink in (source, progress):
        topics.produce_numbers(servers, sink.source, 10)
        topics.produce_numbers(servers, sink.source, 10, start=10)
    with Driver(source) as driver:
        driver.batch(20)
        started = progress.start()
        end_of_progress = topics.offsets(servers, progress.progress)[1]
        deliver(progress, started, range(10))
        memory = remembered(progress.start("run-2"))

        forgetful.stop_broker(1)
        for topic, kept in ((source.source, 10), (progress.progress, end_of_progress)):
            for file in (tmp_path / "node-1" / "data" / f"{topic}-0").glob("[0-9]*"):
                if int(file.name.partition(".")[0]) >= kept:
                    file.unlink()
        forgetful.start_broker(1)

        truth = driver.delivery.explained(SinkPipelineError(Reason.BATCH_FAILED, "Spark failed", ""))
        assert isinstance(truth, Restart)
        error = refusal(driver.start, Reason.SOURCE_DATA_LOST)
        assert "lost records at its end" in error.message
        refusal(lambda: Driver(source, source={"skip_lost": True}).start(), Reason.SOURCE_DATA_LOST)
    error = refusal(lambda: Driver(progress, memory).start(), Reason.PROGRESS_REGRESSED)
    assert "-0 at 10, the progress says 0" in error.message


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[LocalKafka, Path]]:
    """A broker of its own, and where its data is."""
    with LocalKafka(directory=tmp_path / "kafka") as kafka:
        yield kafka, tmp_path / "kafka"


def lose_all(kafka: LocalKafka, data: Path, topic: str) -> None:
    """As an unclean election, or a lost disk of the only replica, does: the topic stays the same one."""
    kafka.stop_broker(1)
    [partition] = data.rglob(f"{topic}-0")
    for file in partition.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    kafka.start_broker(1)


def is_marked(driver: Driver, offset: int) -> bool:
    driver.delivery.check_world()
    meta = driver.delivery.progress.meta
    assert meta is not None
    return any(mark.offset == offset for mark in meta.marks.values())


@pytest.mark.parametrize("when", ["while nothing runs", "under a driver", "above the last mark that was written"])
@pytest.mark.thorough("starts brokers of its own three times", after=1)
@pytest.mark.long("each place of the loss", after=2)
def test_a_source_that_lost_its_end_and_grew_past_the_frontier_is_not_gone_on_with(
    when: str, cluster: tuple[LocalKafka, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, data = cluster
    monkeypatch.setattr(beside, "EVERY_S", 0)
    sink = OneSink(kafka.bootstrap_servers)
    topics.produce_numbers(sink.servers, sink.source, 30)
    with Driver(sink) as driver:
        driver.batch(30)
        if when == "above the last mark that was written":
            wait_until(lambda: is_marked(driver, 30 - REACH), "one of the last records that were handled is marked")
        else:
            # As a clean stop does.
            driver.delivery.snapshot()
            driver.leave()
        if when == "under a driver":
            driver.start()
        lose_all(kafka, data, sink.source)
        topics.produce_numbers(sink.servers, sink.source, 40, start=100)
        if when != "while nothing runs":
            with pytest.raises(Restart, match="another record at offset"):
                wait_until(driver.delivery.check_world, "the source is found to have lost records")
        error = refusal(driver.start, Reason.SOURCE_DATA_LOST)
        assert "lost its end and has grown again" in error.message
    # The operator starts another one by itself, after a while: whoever has seen the loss is gone then.
    refusal(Driver(sink).start, Reason.SOURCE_DATA_LOST)
    assert sorted(sink.delivered(), key=int) == [str(number) for number in range(30)]
