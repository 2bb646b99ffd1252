"""Starts and writers on three brokers, one of which is killed in the worst moment. Without Spark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException

from servers.local_kafka import LocalKafka
from sinkpipeline.core import troubles
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka import producers, session
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import extent, make_consumer
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.starting import StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.sink.driver import Driver
from support.sink.one_sink import deliver, plan_of, rows
from support.sink.starts import refusal
from support.waiting import wait_until
from support.worlds.three_brokers import (
    DEADLINE_S,
    ReplicatedSink,
    coordinator,
    create_topic,
    followers,
    leaders,
    restored,
    three_brokers,
    wait_until_in_sync,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PARTITIONS = 3
ROWS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with three_brokers() as cluster:
        yield cluster


@pytest.fixture
def sink(cluster: LocalKafka) -> ReplicatedSink:
    sink = ReplicatedSink(cluster.bootstrap_servers, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        topics.produce_numbers(sink.servers, sink.source, ROWS, partition=partition)
    return sink


def start_as_a_driver_does(sink: ReplicatedSink) -> StartedSink:
    """Starts again after what may pass by itself, within the default failurePolicy."""
    starter = sink.starter()
    starter.new_run = lambda: topics.unique("run")
    failures: list[SinkPipelineError] = []
    while len(failures) < 5:
        try:
            started = starter.start()
        except SinkPipelineError as error:
            if not error.reason.retry:
                raise
            failures.append(error)
        else:
            started.hold.close()
            return started
    raise AssertionError(f"the circuit would be open: {failures}")


@dataclass
class Away:
    """Takes the broker that plays a role away, once."""

    cluster: LocalKafka
    sink: ReplicatedSink
    how: str
    role: str
    node: int | None = None

    def at(self, point: str) -> Callable[[str], None]:
        """A failpoint at which it happens."""

        def reached(here: str) -> None:
            if here == point and self.node is None:
                self.node = self._find()
                (self.cluster.kill_broker if self.how == "killed" else self.cluster.pause_broker)(self.node)

        return reached

    def _find(self) -> int:
        sink = self.sink
        if self.role == "leader of the progress topic":
            return leaders(sink.servers)[sink.progress, 0]
        ids = {
            "coordinator of the control id": sink.id.control_id,
            "coordinator of a partition id": sink.id.partition_id(sink.at(0)),
        }
        return coordinator(sink.servers, ids[self.role])


@pytest.mark.thorough("starts three brokers")
def test_what_two_brokers_have_is_committed(sink: ReplicatedSink) -> None:
    start_as_a_driver_does(sink)
    assert sink.starter().target.durability() is Durability.COMMITTED


@pytest.mark.thorough("starts three brokers")
def test_clients_find_the_brokers_that_are_left(cluster: LocalKafka) -> None:
    """Admins, although librdkafka waits for the broker that it knows as controller or as leader; and owners of ids."""
    servers = cluster.bootstrap_servers
    connection = Connection(bootstrap_servers=servers)
    topic = topics.unique("left")
    create_topic(servers, topic, partitions=PARTITIONS)
    partitions = [SourcePartition(topic, number) for number in range(PARTITIONS)]
    victim = leaders(servers)[topic, 0]
    ids = [each for each in (topics.unique("id") for _ in range(30)) if coordinator(servers, each) == victim][:3]

    def learned() -> list[Admin]:
        admin = Admin(connection)
        admin.end_offsets(partitions, read_committed=True)
        return [admin] if admin._client.list_topics(topic).controller_id == victim else []

    def take(value: bytes) -> list[TransactionalProducer]:
        """Takes every id, and leaves a row of it in an open transaction."""
        producers = [TransactionalProducer(connection, each) for each in ids]
        for producer in producers:
            producer.begin()
            producer.produce_rows(topic, [(value, None, -1, 0, None)])
            producer._producer.flush(topics.DEADLINE_S)
        return producers

    (describing,), (listing,) = (wait_until(learned, f"an admin takes {victim} for the controller") for _ in "12")
    first, second = take(b"first"), take(b"second")
    with restored(cluster):
        cluster.kill_broker(victim)
        began = time.process_time()
        found = describing.topics([topic])[topic]
        ends = listing.end_offsets(partitions, read_committed=False)
        assert time.process_time() - began < 5, "nobody takes a core while waiting"
        assert found is not None
        assert sum(ends.values()) >= 2 * len(ids)
        third = take(b"third")
        for producer in third:
            producer.commit()
        assert topics.texts(topics.read_committed(servers, topic)) == ["third"] * len(ids)
    for producer in (*first, *second, *third):
        producer.close()


@pytest.mark.thorough("starts three brokers")
def test_a_client_that_never_knew_a_leader_finds_it_when_it_is_back(cluster: LocalKafka) -> None:
    """librdkafka alone would look for it again after five minutes."""
    servers, topic = cluster.bootstrap_servers, topics.unique("alone")
    create_topic(servers, topic, replicas=1)
    consumer = make_consumer(Connection(bootstrap_servers=servers), "anybody")

    def asked() -> list[tuple[int, int]]:
        with contextlib.suppress(KafkaException):
            return [extent(consumer, topic, 0)]
        return []

    with restored(cluster):
        cluster.kill_broker(leaders(servers)[topic, 0])
        wait_until(lambda: leaders(servers)[topic, 0] == -1, "nobody leads it", DEADLINE_S)
        assert asked() == []
    wait_until(lambda: leaders(servers)[topic, 0] != -1, "it has a leader again", DEADLINE_S)
    assert wait_until(asked, "the client knows it", DEADLINE_S) == [(0, 0)]
    consumer.close()


@pytest.mark.parametrize(
    ("point", "how", "victim"),
    [
        ("starting-after-control-init", "killed", "coordinator of the control id"),
        ("starting-after-meta", "paused", "leader of the progress topic"),
        ("starting-before-first-start", "killed", "coordinator of a partition id"),
    ],
)
@pytest.mark.thorough("starts three brokers; each step of a start")
@pytest.mark.long("each step; tests/kafka/test_broker_faults has each answer that is lost", after=1)
def test_a_broker_goes_away_between_the_steps_of_a_start(
    cluster: LocalKafka, sink: ReplicatedSink, monkeypatch: pytest.MonkeyPatch, point: str, how: str, victim: str
) -> None:
    away = Away(cluster, sink, how, victim)
    monkeypatch.setattr(failpoints, "failpoint", away.at(point))

    with restored(cluster):
        started = start_as_a_driver_does(sink)

        assert away.node is not None
        assert sink.frontier() == dict.fromkeys(range(PARTITIONS), 0)
        for partition in range(PARTITIONS):
            deliver(sink, started, range(ROWS), partition=partition)
        assert sink.frontier() == dict.fromkeys(range(PARTITIONS), ROWS)
        assert sorted(sink.delivered()) == sorted(PARTITIONS * [str(number) for number in range(ROWS)])


@pytest.mark.parametrize(
    ("how", "victim"), [("killed", "coordinator of a partition id"), ("paused", "leader of the progress topic")]
)
@pytest.mark.thorough("starts three brokers")
@pytest.mark.long("the other role; tests/kafka/test_broker_faults has each answer that is lost", after=1)
def test_a_broker_goes_away_in_the_middle_of_a_transaction(
    cluster: LocalKafka, sink: ReplicatedSink, monkeypatch: pytest.MonkeyPatch, how: str, victim: str
) -> None:
    started = start_as_a_driver_does(sink)
    away = Away(cluster, sink, how, victim)
    monkeypatch.setattr(session, "failpoint", away.at("after-progress-before-commit"))

    with restored(cluster):
        for partition in range(PARTITIONS):
            receipt = deliver(sink, started, range(ROWS), partition=partition)
            assert receipt.progress is not None
            assert (receipt.progress.next, receipt.progress.rows, receipt.in_doubt) == (ROWS, ROWS, False)

        assert away.node is not None
        assert sink.frontier() == dict.fromkeys(range(PARTITIONS), ROWS)
        assert sorted(sink.delivered()) == sorted(PARTITIONS * [str(number) for number in range(ROWS)])


@pytest.mark.thorough("starts three brokers")
def test_a_broker_dies_under_rows_that_are_delivered_at_least_once(cluster: LocalKafka, sink: ReplicatedSink) -> None:
    """Where others lost 609 of 5,000: rows that were handed to the client, but not acknowledged yet."""
    count = 5_000
    topics.produce_numbers(sink.servers, sink.source, count - ROWS, start=ROWS)
    started = sink.start(exactly_once=False, data=TopicRequest(name=sink.data, partitions=PARTITIONS))
    writer = AtLeastOnceWriter(plan_of(sink, started, count), sink.at(), Worker())

    with restored(cluster):
        for first in range(0, count, 1_000):
            writer.write(rows(range(first, first + 1_000)))
            if first == 2_000:
                cluster.kill_broker(leaders(sink.servers)[sink.data, 0])
        writer.finish()

        receipt = writer.receipt()
        assert receipt.progress is not None
        assert (receipt.progress.next, receipt.progress.rows) == (count, count)
        assert set(sink.delivered()) == {str(number) for number in range(count)}


@pytest.mark.parametrize("exactly_once", [True, False], ids=["ExactlyOnce", "AtLeastOnce"])
@pytest.mark.thorough("starts three brokers")
@pytest.mark.long("the other guarantee meets the same answer", after=1)
def test_too_few_replicas_of_a_data_topic_are_an_outage_that_does_not_count(
    cluster: LocalKafka, sink: ReplicatedSink, monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    """All else goes on: the coordinators, the progress topic, and so each takeover."""
    monkeypatch.setattr(producers, "_DELIVERY_TIMEOUT_MS", 3_000)
    monkeypatch.setattr(PlainProducer.flush, "__defaults__", (3.0,))
    monkeypatch.setattr(TransactionalProducer.__init__, "__kwdefaults__", {"deadline_s": 15.0})
    monkeypatch.setattr(troubles, "_OUTAGE_S", 2.0)
    two = TopicRequest(
        name=sink.data, partitions=1, replication_factor=2, config={"min.insync.replicas": "2", "retention.ms": "-1"}
    )
    with Driver(sink, exactly_once=exactly_once, data=two) as driver, restored(cluster):
        driver.batch(ROWS // 2)
        [follower] = followers(sink.servers, sink.data)
        cluster.kill_broker(follower)

        def refused() -> bool:
            began = time.monotonic()
            error = refusal(lambda: driver.batch(ROWS), Reason.BROKER_UNREACHABLE)
            assert not error.reason.counted
            assert time.monotonic() - began < PARTITIONS * 30, "nobody holds a core for six time-outs"
            if "bring back the brokers" not in error.remedy:
                driver.start()
                return False
            return True

        # While the others elect new leaders, what is asked before a row is written may be in vain.
        wait_until(refused, "the outage is that of the data topic", DEADLINE_S)
        cluster.start_broker(follower)
        wait_until_in_sync(sink.servers)
        driver.start()
        driver.until(ROWS)
        expected = PARTITIONS * [str(number) for number in range(ROWS)]
        found = sink.delivered()
        assert sorted(found) == sorted(expected) if exactly_once else set(found) == set(expected)
        assert sink.frontier() == dict.fromkeys(range(PARTITIONS), ROWS)
