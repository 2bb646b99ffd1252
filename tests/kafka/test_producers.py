from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from servers.local_kafka import LocalKafka
from servers.waiting import crowding
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from support.kafka import topics

pytestmark = pytest.mark.kafka

LIMIT = 2_000
"""Of one record, for the topics and producers here that have a limit."""

LARGE = b"x" * 3_000

JAVA_MURMUR2_MODULO_7: dict[bytes, int] = {
    b"21": 3,
    b"foobar": 0,
    b"a-little-bit-long-string": 1,
    b"a-little-bit-longer-string": 0,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": 3,
    b"abc": 4,
    b"": 2,
    b"order-1": 4,
    b"0": 3,
    b"1": 2,
    b"42": 3,
    "ümläut".encode(): 4,
}
"""Utils.toPositive(Utils.murmur2(key)) % 7, computed by Kafka 4.1.1's own class."""


def row(value: bytes, key: bytes | None = None, partition: int = 0) -> Row:
    return value, key, partition, 0, None


@pytest.fixture
def connection(kafka: LocalKafka) -> Connection:
    return Connection(bootstrap_servers=kafka.bootstrap_servers)


@pytest.fixture
def topic(connection: Connection) -> str:
    name = topics.unique("producers")
    topics.create_topic(connection.bootstrap_servers, name)
    return name


@pytest.fixture
def small_topic(connection: Connection) -> str:
    """A topic that takes only small batches."""
    name = topics.unique("producers-small")
    topics.create_topic(connection.bootstrap_servers, name, config={"max.message.bytes": str(LIMIT)})
    return name


@pytest.fixture
def take(connection: Connection) -> Iterator[Callable[..., TransactionalProducer]]:
    """Makes transactional producers, and closes them after the test."""
    with ExitStack() as stack:

        def take_one(transactional_id: str, **properties: str) -> TransactionalProducer:
            producer = TransactionalProducer(connection, transactional_id, properties)
            stack.enter_context(closing(producer))
            return producer

        yield take_one


def committed(connection: Connection, topic: str) -> list[str]:
    return topics.texts(topics.read_committed(connection.bootstrap_servers, topic))


def test_one_transaction_is_visible_as_a_whole(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    producer = take(topics.unique("id"))
    assert not producer.in_transaction
    producer.begin()
    assert producer.in_transaction
    producer.produce_rows(
        topic, [(b"a", b"k", 0, 1234, [("h", b"1"), ("h", None)]), row(b"b"), (None, b"k", 0, 0, None)]
    )
    producer.produce_record(topic, "key", b"c")
    producer.commit()
    assert not producer.in_transaction
    first, second, tombstone, last = topics.read_committed(connection.bootstrap_servers, topic)
    assert (first.key, first.value, first.timestamp) == (b"k", b"a", 1234)
    assert first.headers == [("h", b"1"), ("h", None)]
    assert (second.key, second.value) == (None, b"b")
    assert time.time() * 1000 - second.timestamp < 60_000
    assert (tombstone.key, tombstone.value) == (b"k", None)
    assert (last.key, last.value) == (b"key", b"c")


def test_a_producer_is_good_for_many_transactions(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    producer = take(topics.unique("id"))
    for number in range(5):
        producer.write(topic, [("k", str(number).encode()), ("l", b"-")])
    assert committed(connection, topic) == ["0", "-", "1", "-", "2", "-", "3", "-", "4", "-"]


def test_a_second_instance_fences_the_first(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    transactional_id = topics.unique("id")
    first = take(transactional_id)
    first.begin()
    first.produce_rows(topic, [row(b"of the first")])
    second = take(transactional_id)
    with pytest.raises(Fenced):
        first.commit()
    second.write(topic, [("k", b"of the second")])
    assert committed(connection, topic) == ["of the second"]


def test_a_fenced_producer_learns_it_also_without_an_open_transaction(
    topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    transactional_id = topics.unique("id")
    first = take(transactional_id)
    first.write(topic, [("k", b"v")])
    take(transactional_id)
    with pytest.raises(Fenced):
        first.write(topic, [("k", b"late")])


def test_taking_an_id_with_an_open_transaction_is_quick_and_aborts_it(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    transactional_id = topics.unique("id")
    with topics.open_transaction(connection.bootstrap_servers, transactional_id, [(topic, b"k", b"left open")]):
        began = time.monotonic()
        producer = take(transactional_id)
        assert time.monotonic() - began < 30, "init must not wait for the transaction's time-out of a minute"
        producer.write(topic, [("k", b"mine")])
    assert committed(connection, topic) == ["mine"]


def test_a_dead_broker_is_unreachable_within_the_deadline(unused_address: str) -> None:
    began = time.monotonic()
    with pytest.raises(SinkPipelineError) as caught:
        TransactionalProducer(Connection(bootstrap_servers=unused_address), "id", deadline_s=1)
    assert caught.value.reason is Reason.BROKER_UNREACHABLE
    assert time.monotonic() - began < 5 * crowding()


@pytest.fixture
def unused_address() -> str:
    return "127.0.0.1:9"


def test_a_record_too_large_for_the_client_is_refused_with_its_index(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    producer = take(topics.unique("id"), **{"message.max.bytes": str(LIMIT)})
    producer.begin()
    with pytest.raises(RecordRefused, match="size too large") as caught:
        producer.produce_rows(topic, [row(b"0"), row(b"1"), row(LARGE), row(b"3")])
    assert caught.value.index == 2
    producer.commit()
    assert committed(connection, topic) == ["0", "1"], "what stands before the refused record can still be committed"


def test_an_unknown_partition_is_refused_with_its_index(topic: str, take: Callable[..., TransactionalProducer]) -> None:
    producer = take(topics.unique("id"))
    producer.write(topic, [("k", b"so that the client knows the topic")])
    producer.begin()
    with pytest.raises(RecordRefused) as caught:
        producer.produce_rows(topic, [row(b"0"), row(b"1", partition=7)])
    assert caught.value.index == 1


def test_a_record_that_only_the_broker_refuses_takes_its_transaction_along(
    connection: Connection, small_topic: str, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    producer = take(topics.unique("id"))
    producer.begin()
    producer.produce_record(topic, "k", b"in another topic")
    with pytest.raises(RecordRefused, match="Message size too large") as caught:
        _produce_and_commit(producer, small_topic, [row(b"small"), row(LARGE)])
    assert caught.value.index is None
    # The id is taken again, as a driver would, which ends the transaction.
    take(producer.transactional_id)
    assert committed(connection, small_topic) == []
    assert committed(connection, topic) == []


def test_a_fence_is_told_where_a_record_tells_only_that_the_client_has_ended(
    topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    """Else a driver that was replaced would take its id back."""
    producer = take(topics.unique("id"))
    producer.begin()
    producer.produce_record(topic, "k", b"v")
    producer._producer.flush(10)
    take(producer.transactional_id)
    assert isinstance(producer._failed(KafkaException(KafkaError(KafkaError._FATAL))), Fenced)


def test_a_refusal_that_comes_while_more_is_produced_is_one(
    small_topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    """The client says only that the transaction has failed, and the reason to who polls."""
    producer = take(topics.unique("id"), **{"linger.ms": "0"})
    producer.begin()
    deadline = time.monotonic() + 20

    def produce_until_it_fails() -> None:
        producer.produce_rows(small_topic, [row(LARGE)])
        while time.monotonic() < deadline:
            producer.produce_rows(small_topic, [row(b"small")])

    with pytest.raises(RecordRefused, match="Message size too large") as caught:
        produce_until_it_fails()
    assert (caught.value.index, caught.value.topic) == (None, small_topic)


@pytest.fixture
def recent_topic(connection: Connection) -> str:
    """One that takes no record that is older than an hour."""
    topic = topics.unique("recent")
    topics.create_topic(connection.bootstrap_servers, topic, config={"message.timestamp.before.max.ms": "3600000"})
    return topic


ONE_IS_OLD: list[Row] = [(b"v", b"k", 0, timestamp, None) for timestamp in (0, 0, 1_000, 0)]


def test_the_invalid_one_of_several_records_is_the_cause(
    recent_topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    producer = take(topics.unique("id"))
    producer.begin()
    with pytest.raises(RecordRefused) as caught:
        _produce_and_commit(producer, recent_topic, ONE_IS_OLD)
    assert caught.value.verdict.error_class is ErrorClass.INVALID_TIMESTAMP
    assert caught.value.topic == recent_topic


def test_the_invalid_one_of_several_records_is_the_cause_of_a_plain_producer_too(
    connection: Connection, recent_topic: str
) -> None:
    with closing(PlainProducer(connection)) as producer:
        producer.produce_rows(recent_topic, ONE_IS_OLD)
        with pytest.raises(RecordRefused) as caught:
            producer.flush()
    assert caught.value.verdict.error_class is ErrorClass.INVALID_TIMESTAMP
    assert caught.value.topic == recent_topic


def _produce_and_commit(producer: TransactionalProducer, topic: str, rows: list[Row]) -> None:
    producer.produce_rows(topic, rows)
    producer.commit()


@pytest.mark.usefixtures("short_transactions")
def test_a_transaction_that_the_broker_timed_out_is_fenced(kafka: LocalKafka) -> None:
    servers = kafka.bootstrap_servers
    connection = Connection(bootstrap_servers=servers)
    topic = topics.unique("timed-out")
    topics.create_topic(servers, topic)
    with closing(TransactionalProducer(connection, topics.unique("id"))) as producer:
        producer.begin()
        producer.produce_rows(topic, [row(b"too late")])
        producer._producer.flush(10)
        topics.wait_until_settled(servers, topic)
        with pytest.raises(Fenced):
            producer.commit()
    assert committed(connection, topic) == []


@pytest.mark.parametrize("kind", ["transactional", "plain"])
def test_rows_go_where_the_java_clients_put_them(
    connection: Connection, kind: str, take: Callable[..., TransactionalProducer]
) -> None:
    topic = topics.unique("murmur2")
    topics.create_topic(connection.bootstrap_servers, topic, partitions=7)
    rows = [row(b"v", key, -1) for key in JAVA_MURMUR2_MODULO_7]
    if kind == "transactional":
        producer = take(topics.unique("id"))
        producer.begin()
        _produce_and_commit(producer, topic, rows)
    else:
        with closing(PlainProducer(connection)) as plain:
            plain.produce_rows(topic, rows)
            plain.flush()
    found = topics.read_committed(connection.bootstrap_servers, topic)
    assert {record.key or b"": record.partition for record in found} == JAVA_MURMUR2_MODULO_7


def test_rows_without_a_key_are_spread(connection: Connection) -> None:
    topic = topics.unique("no-key")
    topics.create_topic(connection.bootstrap_servers, topic, partitions=4)
    with closing(PlainProducer(connection, {"sticky.partitioning.linger.ms": "0"})) as producer:
        producer.produce_rows(topic, [row(b"v", None, -1)] * 200)
        producer.flush()
    assert {record.partition for record in topics.read_committed(connection.bootstrap_servers, topic)} == {0, 1, 2, 3}


def test_a_full_queue_is_waited_for(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    producer = take(topics.unique("id"), **{"queue.buffering.max.messages": "10"})
    producer.begin()
    _produce_and_commit(producer, topic, [row(str(number).encode()) for number in range(100)])
    assert committed(connection, topic) == [str(number) for number in range(100)]


def test_flush_acknowledges_every_row(connection: Connection, topic: str) -> None:
    with closing(PlainProducer(connection)) as producer:
        producer.produce_rows(topic, [row(b"a"), row(b"b")])
        producer.flush()
        assert committed(connection, topic) == ["a", "b"]


def test_flush_raises_for_a_row_that_the_broker_refuses(connection: Connection, small_topic: str) -> None:
    with closing(PlainProducer(connection)) as producer:
        producer.produce_rows(small_topic, [row(LARGE)])
        with pytest.raises(RecordRefused, match="Message size too large"):
            producer.flush()
        # A producer that lost a row never says that all is well.
        with pytest.raises(RecordRefused):
            producer.flush()


def test_a_row_too_large_for_the_plain_client_is_refused_with_its_index(connection: Connection, topic: str) -> None:
    with closing(PlainProducer(connection, {"message.max.bytes": str(LIMIT)})) as producer:
        with pytest.raises(RecordRefused) as caught:
            producer.produce_rows(topic, [row(b"0"), row(LARGE)])
        assert caught.value.index == 1


def test_a_kafka_without_answer_is_unreachable_for_flush(unused_address: str) -> None:
    with closing(PlainProducer(Connection(bootstrap_servers=unused_address))) as producer:
        producer.produce_rows("t", [row(b"v")])
        with pytest.raises(SinkPipelineError) as caught:
            producer.flush(0.5)
        assert caught.value.reason is Reason.BROKER_UNREACHABLE


def test_two_threads_that_take_one_id_leave_exactly_one_holder(
    connection: Connection, topic: str, take: Callable[..., TransactionalProducer]
) -> None:
    transactional_id = topics.unique("id")

    def hold(_: int) -> TransactionalProducer | None:
        try:
            return take(transactional_id)
        except (Fenced, KafkaException):
            return None

    with ThreadPoolExecutor(2) as pool:
        holders = [holder for holder in pool.map(hold, range(2)) if holder is not None]
    written = 0
    for number, holder in enumerate(holders):
        try:
            holder.write(topic, [("k", str(number).encode())])
        except (Fenced, InDoubt):
            continue
        written += 1
    assert written == 1
    assert len(committed(connection, topic)) == 1
