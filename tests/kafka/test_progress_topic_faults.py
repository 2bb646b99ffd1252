"""What can be wrong with a progress topic, met by starts and by a running driver, on a real broker without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from servers.local_kafka import LocalKafka
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.progress_records import encode_partition, encode_sentinel
from sinkpipeline.kafka import ledger, progress_log, reading, waiting
from support.kafka import topics
from support.sink.driver import Driver
from support.sink.one_sink import OneSink, deliver, remembered
from support.sink.starts import once, refusal, refusal_soon, restart_soon
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("short_starts")]


def write(sink: OneSink, key: str, value: bytes | None) -> None:
    """Somebody without a right to it writes a key of this sink."""
    topics.produce(sink.servers, sink.progress, [(f"{sink.id.prefix}{key}".encode(), value)])


def state(next_: int, epoch: int = 0) -> bytes:
    return encode_partition(PartitionProgress(epoch=epoch, next=next_))


# Deleted while nothing runs


@pytest.mark.thorough("one sink of a deleted progress topic is in test_topic_faults")
def test_two_sinks_that_shared_a_deleted_progress_topic_both_go_on(kafka: LocalKafka) -> None:
    """And what is told of each covers a partition that its memory is too old to know."""
    servers = kafka.bootstrap_servers
    sinks = [OneSink(servers), OneSink(servers)]
    shared = sinks[0].settings().progress
    memories = []
    for sink in sinks:
        topics.produce_numbers(servers, sink.source, 30)
        with Driver(sink, progress=shared) as driver:
            driver.batch(10)
            memories.append(remembered(driver.starter.start()))
            driver.start()
            topics.add_partitions(servers, sink.source, 2)
            topics.produce_numbers(servers, sink.source, 7, partition=1)
    topics.delete_topic(servers, shared.name)

    for sink, memory, creates in zip(sinks, memories, (True, False), strict=True):
        with Driver(sink, memory, progress=shared) as driver:
            assert driver.started.recreated_progress_topic is creates
            assert driver.started.may_duplicate == 30 - 10 + 7
            assert {each.partition: state.next for each, state in driver.delivery.frontier.items()} == {0: 10, 1: 0}
            driver.until(30)
        assert len(set(sink.delivered())) == 30

    metas = topics.progress_truth(servers, shared.name)
    created = topics.topic_id(servers, shared.name)
    assert [metas[sink.id.meta_key]["progress"] for sink in sinks] == [created, created]


def test_a_progress_topic_that_was_restored_from_a_copy_is_not_believed(filled: OneSink) -> None:
    deliver(filled, filled.start(), range(5))
    copy = topics.read_committed(filled.servers, filled.progress)
    deliver(filled, filled.start("run-2"), range(5, 10))
    topics.recreate_topic(filled.servers, filled.progress, config=topics.COMPACTED)
    topics.produce(filled.servers, filled.progress, [(record.key, record.value) for record in copy])
    before = len(topics.read_committed(filled.servers, filled.progress))

    refusal(lambda: filled.start("run-3"), Reason.PROGRESS_LOST)

    after = topics.read_committed(filled.servers, filled.progress)[before:]
    assert {record.key for record in after} <= {SENTINEL_KEY.encode()}


# Other configurations


@pytest.mark.parametrize("wrong", ["2 partitions", "cleanup.policy=compact,delete"])
def test_a_progress_topic_that_is_altered_stops_the_next_start_and_not_the_driver(filled: OneSink, wrong: str) -> None:
    with Driver(filled) as driver:
        driver.batch(10)
        if wrong == "2 partitions":
            topics.add_partitions(filled.servers, filled.progress, 2)
        else:
            topics.alter_topic(filled.servers, filled.progress, {"cleanup.policy": "compact,delete"})
        driver.batch(20)
        driver.delivery.check_world()
        driver.delivery.snapshot()
    error = refusal(lambda: filled.start("run-2"), Reason.PROGRESS_TOPIC_INVALID)
    assert wrong in error.message
    assert filled.frontier() == {0: 20}


def test_records_of_a_progress_topic_can_only_be_deleted_once_its_policy_allows_it(filled: OneSink) -> None:
    with Driver(filled) as driver:
        driver.batch(10)
        with pytest.raises(KafkaException) as refused:
            topics.delete_records(filled.servers, filled.progress, 3)
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION

        topics.alter_topic(filled.servers, filled.progress, {"cleanup.policy": "delete"})
        topics.delete_records(filled.servers, filled.progress, topics.offsets(filled.servers, filled.progress)[1])
        topics.alter_topic(filled.servers, filled.progress, {"cleanup.policy": "compact"})
        # A driver that is killed here leaves nothing that could be believed.
        error = refusal(lambda: filled.start("run-2"), Reason.PROGRESS_UNREADABLE)
        assert "records were deleted" in error.message
        # One that is stopped writes everything once more.
        driver.delivery.snapshot()
    with Driver(filled) as driver:
        driver.until(30)
    assert len(filled.delivered()) == 30
    assert len(set(filled.delivered())) == 30


# Other writers


@contextmanager
def hanging_transaction(sink: OneSink) -> Iterator[str]:
    """Somebody else's, who shares the topic; yields its name."""
    foreign = SinkId("somebody", "else").partition_key(SourcePartition("theirs", 0))
    with topics.open_transaction(sink.servers, topics.unique("hanging"), [(sink.progress, foreign.encode(), state(1))]):
        yield "somebody/else"


@pytest.mark.thorough("test_progress_log shows that it is named")
def test_a_hanging_transaction_of_somebody_else_stops_starts_by_name_and_not_a_driver(
    filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(progress_log, "READ_DEADLINE_S", 2.5)
    with Driver(filled) as driver:
        driver.batch(10)
        with hanging_transaction(filled) as name:
            driver.batch(20)
            driver.delivery.check_world()
            error = refusal(lambda: filled.start("run-2"), Reason.PROGRESS_UNREADABLE)
            assert name in error.message
        assert filled.truth()["meta"]["run"] == driver.started.run
    with Driver(filled) as driver:
        driver.until(30)
    assert len(filled.delivered()) == 30


@pytest.mark.thorough("many records; few are in test_progress_log")
def test_thousands_of_foreign_records_hide_nothing(filled: OneSink) -> None:
    deliver(filled, filled.start(), range(10))
    foreign = [SinkId("somebody", f"else-{number}").partition_key(filled.at()).encode() for number in range(50)]
    topics.produce(filled.servers, filled.progress, [(foreign[n % 50], state(n)) for n in range(6_000)])
    with Driver(filled) as driver:
        assert driver.rows == 10
        driver.batch(20)
        topics.produce(filled.servers, filled.progress, [(foreign[n % 50], state(n)) for n in range(6_000)])
        driver.until(30)
    assert len(filled.delivered()) == 30


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("p/{source}/0", b"no JSON", Reason.PROGRESS_CORRUPT),
        ("p/{source}/0", state(3), Reason.PROGRESS_REGRESSED),
        ("p/{source}/0", b'{"v":2}', Reason.PROGRESS_VERSION_UNKNOWN),
        ("meta", b'{"v":3}', Reason.PROGRESS_VERSION_UNKNOWN),
        ("another key", b"{}", Reason.PROGRESS_CORRUPT),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else "",
)
@pytest.mark.thorough("each variant of one case", after=1)
def test_a_driver_stops_where_somebody_else_writes_its_keys(
    filled: OneSink, key: str, value: bytes, reason: Reason
) -> None:
    with Driver(filled) as driver:
        driver.batch(10)
        driver.delivery.check_world()
        write(filled, key.format(source=filled.source), value)
        refusal_soon(lambda: driver.plan(20), reason)
        refusal(driver.start, reason)
    assert len(filled.delivered()) == 10


def test_a_driver_starts_again_where_its_progress_was_moved_ahead(filled: OneSink) -> None:
    with Driver(filled) as driver:
        driver.batch(10)
        write(filled, f"p/{filled.source}/0", state(15))
        assert "knows more" in str(restart_soon(lambda: driver.plan(20)))
        driver.start()
        assert filled.frontier() == {0: 15}, "the last record of a key is the truth, whoever wrote it"


def test_a_tombstone_on_meta_is_healed_by_a_clean_stop_and_refused_after_a_kill(filled: OneSink) -> None:
    with Driver(filled) as driver:
        driver.batch(10)
        write(filled, "meta", None)
        driver.delivery.check_world()
        refusal(lambda: filled.start("run-2"), Reason.PROGRESS_CORRUPT)
        driver.delivery.snapshot()
    with Driver(filled) as driver:
        driver.until(30)
    assert len(filled.delivered()) == 30


def test_a_tombstone_on_a_partition_is_refused_by_a_driver_and_by_a_start(filled: OneSink) -> None:
    with Driver(filled) as driver:
        driver.batch(10)
        write(filled, f"p/{filled.source}/0", None)
        refusal_soon(driver.delivery.check_world, Reason.PROGRESS_CORRUPT)
        refusal(lambda: filled.start("run-2"), Reason.PROGRESS_CORRUPT)
    assert len(filled.delivered()) == 10


def test_another_owner_is_told_whose_the_identity_is(filled: OneSink) -> None:
    with Driver(filled) as driver:
        theirs = replace(driver.starter.settings.owner, name="other/pipeline")
        error = refusal(lambda: Driver(filled, owner=theirs).start(), Reason.IDENTITY_IN_USE)
        assert f"belongs to {filled.name} of a manifest file" in error.message
        driver.until(30)
        driver.delivery.check_world()


# Other moments


@pytest.mark.thorough("test_progress_log shows the same of a read")
def test_a_sentinel_that_is_compacted_away_while_a_start_reads(filled: OneSink) -> None:
    topics.create_topic(filled.servers, filled.progress, config=topics.EAGERLY_COMPACTED)
    deliver(filled, filled.start(), range(10))
    read = progress_log.ProgressLog._read
    compacted: list[bytes] = []

    def after_compaction(log: progress_log.ProgressLog, *arguments: Any, nonce: str | None, **more: Any) -> Any:
        if nonce is not None:
            compacted.append(encode_sentinel(nonce))
            other = (SENTINEL_KEY.encode(), encode_sentinel("of another reader"))
            topics.produce(filled.servers, filled.progress, [other])
            topics.compact(filled.servers, filled.progress, without=compacted[-1])
        return read(log, *arguments, nonce=nonce, **more)

    with Driver(filled) as driver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_log.ProgressLog, "_read", after_compaction)
        driver.start()
        assert len(compacted) == 3, "of step 0, 2 and 5"
        patch.undo()
        driver.until(30)
    assert len(filled.delivered()) == 30


def leads_again(sink: OneSink) -> bool:
    """A broker that did not answer for long has lost its partitions meanwhile."""
    try:
        return not any(topics.has_open_transaction(sink.servers, each) for each in (sink.data, sink.progress))
    except KafkaException:
        return False


@pytest.fixture
def quiet() -> Iterator[LocalKafka]:
    """A broker with few topics: with those of many tests it needs long until it leads all of them again."""
    with LocalKafka() as kafka:
        yield kafka


def starts(driver: Driver) -> bool:
    """Until the broker leads its partitions again a start may end with an outage, and its runner starts once more."""
    try:
        driver.start()
    except SinkPipelineError as error:
        if error.reason is not Reason.BROKER_UNREACHABLE:
            raise
        return False
    return True


@pytest.mark.parametrize("point", ["starting-after-control-init", "starting-after-meta"])
@pytest.mark.thorough("a broker of its own that stands still; tests/kafka/test_broker_faults has answers that are lost")
def test_a_broker_that_does_not_answer_while_a_start_reads(
    quiet: LocalKafka, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers again after a while: nothing was guessed meanwhile."""
    kafka, filled = quiet, OneSink(quiet.bootstrap_servers)
    topics.produce_numbers(filled.servers, filled.source, 30)
    deliver(filled, filled.start(), range(10))
    resuming = threading.Timer(3.0, kafka.resume_broker, [1])

    def pause() -> None:
        kafka.pause_broker(1)
        resuming.start()

    once(point, pause, monkeypatch)
    try:
        with ExitStack() as stack:
            driver = Driver(filled)
            stack.push(driver)
            wait_until(lambda: starts(driver), "the sink starts")
            assert driver.rows == 10
            driver.until(30)
    finally:
        resuming.join()
        kafka.resume_broker(1)
    wait_until(lambda: leads_again(filled), "the broker leads its partitions again")
    assert len(filled.delivered()) == 30


@pytest.mark.thorough("waits for a time-out")
def test_a_broker_that_does_not_answer_for_long_ends_a_start_and_leaves_nothing_new(
    kafka: LocalKafka, filled: OneSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(filled, filled.start(), range(10))
    monkeypatch.setattr(progress_log, "READ_DEADLINE_S", 1.5)
    monkeypatch.setattr(waiting, "_ANSWER_S", 1.5)
    consumed = reading.take

    def pause_and_take(*arguments: Any) -> Any:
        kafka.pause_broker(1)
        return consumed(*arguments)

    monkeypatch.setattr(reading, "take", pause_and_take)
    starter = filled.starter("run-2")
    try:
        with pytest.raises(SinkPipelineError) as caught:
            starter.start()
        # The other one where the sentinel was fetched before the broker was paused.
        assert caught.value.reason in (Reason.PROGRESS_UNREADABLE, Reason.BROKER_UNREACHABLE), caught.value
    finally:
        kafka.resume_broker(1)
    wait_until(lambda: leads_again(filled), "the broker leads its partitions again")
    assert filled.truth()["meta"]["run"] == "run-1"
    assert filled.frontier() == {0: 10}
