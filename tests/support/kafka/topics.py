"""A test's own view of Kafka: independent of the product's clients, so that it can judge them.

Every function takes the bootstrap servers first. Tests share a broker and keep apart by names: see `unique`.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from support.waiting import result_of, wait_until

K = TypeVar("K")
T = TypeVar("T")

DEADLINE_S = 60.0

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
"""The least that a progress topic needs."""

EAGERLY_COMPACTED: Mapping[str, str] = {
    **COMPACTED,
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
"""For topics on which `compact` is to be used."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int

    @property
    def text(self) -> str:
        """The value as text."""
        return (self.value or b"").decode()

    @property
    def document(self) -> Any:
        """The value as JSON; None for a tombstone."""
        return None if self.value is None else json.loads(self.value)


def unique(stem: str) -> str:
    """A name that no other test uses."""
    return f"{stem}-{uuid.uuid4().hex[:12]}"


def ask(servers: str, request: Callable[[AdminClient], Mapping[K, Future[T]]]) -> T:
    """The answer to an admin request about one thing."""
    # Kept until the answer is there: a client that is collected cancels its requests.
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    [answer] = request(client).values()
    return result_of(answer, DEADLINE_S)


def create_topic(
    servers: str, name: str, *, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Creates a topic, waits until it can be described, and returns its id."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    ask(servers, lambda client: client.create_topics([new]))
    return wait_until(lambda: topic_id(servers, name) or "", f"topic {name} is described after its creation")


def delete_topic(servers: str, name: str) -> None:
    """Deletes a topic and waits until nobody can describe it."""
    ask(servers, lambda client: client.delete_topics([name]))
    wait_until(lambda: topic_id(servers, name) is None, f"topic {name} is gone after its deletion")


def recreate_topic(servers: str, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    delete_topic(servers, name)
    return create_topic(servers, name, partitions=partitions, config=config)


def topic_id(servers: str, name: str) -> str | None:
    """The id of a topic, or None where it doesn't exist."""
    try:
        return str(_describe(servers, name).topic_id)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def partition_count(servers: str, name: str) -> int:
    return len(_describe(servers, name).partitions)


def _describe(servers: str, name: str) -> TopicDescription:
    description: TopicDescription = ask(servers, lambda client: client.describe_topics(TopicCollection([name])))
    return description


def add_partitions(servers: str, name: str, total: int) -> None:
    ask(servers, lambda client: client.create_partitions([NewPartitions(name, total)]))
    wait_until(lambda: partition_count(servers, name) == total, f"topic {name} has {total} partitions")


def alter_topic(servers: str, name: str, config: Mapping[str, str]) -> None:
    _alter(servers, ConfigResource(ResourceType.TOPIC, name), config)


def until_too_old(servers: str, name: str, timestamp: int) -> None:
    """Waits until its broker refuses rows of that time: what was altered acts a moment after the answer."""

    def is_refused() -> bool:
        told: list[KafkaError | None] = []
        with open_transaction(servers, unique("too-old")) as producer:
            producer.produce(name, b"aborted", timestamp=timestamp, on_delivery=lambda error, _: told.append(error))
            producer.flush(DEADLINE_S)
        [error] = told
        return error is not None and error.code() == KafkaError.INVALID_TIMESTAMP

    wait_until(is_refused, f"{name} takes no rows of {timestamp}")


def _alter(servers: str, resource: ConfigResource, config: Mapping[str, str]) -> None:
    for key, value in config.items():
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    ask(servers, lambda client: client.incremental_alter_configs([resource]))


def delete_records(servers: str, name: str, before: int, *, partition: int = 0) -> None:
    """Removes all offsets below `before`, as retention would."""
    ask(servers, lambda client: client.delete_records([At(name, partition, before)]))


def offsets(servers: str, name: str, partition: int = 0) -> tuple[int, int]:
    """The first offset and the high watermark."""
    at = At(name, partition)
    first = ask(servers, lambda client: client.list_offsets({at: OffsetSpec.earliest()}))
    last = ask(servers, lambda client: client.list_offsets({at: OffsetSpec.latest()}))
    return first.offset, last.offset


def has_open_transaction(servers: str, name: str) -> bool:
    """Whether the last stable offset of a partition is held back."""
    partitions = [At(name, number) for number in range(partition_count(servers, name))]

    def end(at: At, level: IsolationLevel) -> int:
        request = {at: OffsetSpec.latest()}
        return int(ask(servers, lambda client: client.list_offsets(request, isolation_level=level)).offset)

    return any(end(at, IsolationLevel.READ_COMMITTED) < end(at, IsolationLevel.READ_UNCOMMITTED) for at in partitions)


def produce(
    servers: str,
    topic: str,
    records: Iterable[bytes | tuple[bytes | None, bytes | None]],
    *,
    partition: int = 0,
    compression: str = "none",
) -> None:
    """Produces values, or (key, value) pairs, to one partition."""
    options = {"linger.ms": 5, "queue.buffering.max.messages": 2_000_000, "compression.type": compression}
    producer = _producer(servers, **options)
    producer.list_topics(topic, DEADLINE_S)  # else the first record waits half a second for the leader
    failed: list[KafkaError] = []
    for record in records:
        key, value = (None, record) if isinstance(record, bytes) else record
        producer.produce(
            topic, value, key, partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0, f"not everything reached {topic}"
    assert not failed, f"{topic} refused {len(failed)} records, the first with {failed[0]}"


def _producer(servers: str, **config: object) -> Producer:
    """Idempotent where a broker may be killed meanwhile: an id of its own costs a producer half a second.

    Without one, only a single request at a time keeps the order when a request is repeated.
    """
    order = {"enable.idempotence": True} if "," in servers else {"max.in.flight.requests.per.connection": 1}
    config = {**order, "acks": "all", "log_level": 0, **config}
    return Producer({"bootstrap.servers": servers, **config})


def produce_whole(servers: str, topic: str, records: Iterable[Whole], *, partition: int = 0) -> None:
    """Produces records with all that they have."""
    producer = _producer(servers)
    producer.list_topics(topic, DEADLINE_S)
    failed: list[KafkaError] = []
    for value, key, headers, timestamp in records:
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            timestamp=timestamp,
            headers=[*headers],
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0, f"not everything reached {topic}"
    assert not failed, f"{topic} refused {len(failed)} records, the first with {failed[0]}"


def _record(message: Any) -> Record:
    """The client's types leave open what of a message is there; of one without an error all is."""
    return Record(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
        timestamp=message.timestamp()[1],
    )


Whole = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Value, key, headers, timestamp in milliseconds."""


def produce_numbers(servers: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[str]:
    """Produces the numbers from `start` on as text; each is its own key."""
    numbers = [str(number) for number in range(start, start + count)]
    produce(servers, topic, [(number.encode(), number.encode()) for number in numbers], partition=partition)
    return numbers


def read(servers: str, topic: str, *, committed: bool = True) -> list[Record]:
    """Everything that a consumer of that isolation level sees now, partition by partition in offset order."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "a-test-that-never-commits",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    # Asked for first, as a client that has to look for the leader on its own takes half a second.
    partitions = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
    found: list[Record] = []
    unread = set(partitions)

    def at_the_end() -> bool:
        for message in consumer.consume(10_000, 0.05):
            error = message.error()
            if error is None:
                found.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(error)
        return not unread

    try:
        consumer.assign([At(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        wait_until(at_the_end, f"{topic} is read to its end", DEADLINE_S)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def read_committed(servers: str, topic: str, *, settled: bool = True) -> list[Record]:
    """What downstream consumers see: aborted and open transactions are invisible.

    A commit becomes visible a moment after its producer knows of it: so this waits until no transaction is open, unless
    `settled` is false, for a look in the middle of one.
    """
    if settled:
        wait_until_settled(servers, topic)
    return read(servers, topic, committed=True)


def wait_until_settled(servers: str, topic: str) -> None:
    """Waits until no transaction is open: all are committed, aborted, or timed out by the broker."""
    wait_until(lambda: not has_open_transaction(servers, topic), f"no transaction is open in {topic}", 70)


def read_uncommitted(servers: str, topic: str) -> list[Record]:
    """What stands in the log, aborted rows included."""
    return read(servers, topic, committed=False)


def texts(records: Iterable[Record]) -> list[str]:
    return [record.text for record in records]


def progress_records(servers: str, topic: str) -> list[tuple[str, Any]]:
    """Every committed record of a progress topic in log order, as (key, document); None for a tombstone."""
    return [((record.key or b"").decode(), record.document) for record in read_committed(servers, topic)]


def progress_truth(servers: str, topic: str) -> dict[str, Any]:
    """The last committed document of each key of a progress topic."""
    return dict(progress_records(servers, topic))


@contextlib.contextmanager
def open_transaction(
    servers: str,
    transactional_id: str,
    records: Iterable[tuple[str, bytes, bytes]] = (),
    *,
    timeout_ms: int = 60_000,
) -> Iterator[Producer]:
    """A foreign producer in the middle of a transaction of (topic, key, value) records, which stand in the log already.

    It is aborted at the end, unless the test committed or aborted it, or somebody fenced it.
    """
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for topic, key, value in records:
        producer.produce(topic, value, key, 0)
    assert producer.flush(DEADLINE_S) == 0, f"the rows of {transactional_id} reached the broker"
    try:
        yield producer
    finally:
        producer.purge()
        with contextlib.suppress(KafkaException):
            producer.abort_transaction(DEADLINE_S)


def aborted_transaction(servers: str, transactional_id: str, records: Iterable[tuple[str, bytes, bytes]]) -> None:
    """Leaves aborted records in the log, and holds the transactional id no longer."""
    with open_transaction(servers, transactional_id, records):
        pass


def compact(servers: str, topic: str, *, without: bytes) -> None:
    """Waits until the broker has compacted the record with this value away.

    The topic is EAGERLY_COMPACTED; newer records of the same key are already there. Writes fillers of its own key, as
    the segment that is written to is never compacted.
    """
    _alter(servers, ConfigResource(ResourceType.BROKER, "1"), {"log.cleaner.backoff.ms": "100"})

    def is_gone() -> bool:
        produce(servers, topic, [(b"filler", b"rolls the segment")])
        return all(record.value != without for record in read_uncommitted(servers, topic))

    wait_until(is_gone, f"{topic} is compacted")
