"""Consumers that are only ever assigned: no group is joined, no offset is committed, nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import methodcaller

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.records import Headers
from sinkpipeline.kafka.connection import REQUEST_TIMEOUT_S, Connection
from sinkpipeline.kafka.errors import is_refused_log_in, is_refused_token, made, translate


def make_consumer(
    connection: Connection, group_id: str, isolation_level: str = "read_committed", *, fetch_kib: int = 65_536
) -> Consumer:
    """`fetch_kib`: how much is fetched ahead; by default as much as the client's own."""
    return made(
        Consumer,
        {
            **connection.client_config(),
            # The client insists on one; for those who look at the broker's connections, and its denials.
            "group.id": group_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            # The default jumps to the end, and would read as "no progress".
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": fetch_kib,
            "fetch.error.backoff.ms": 50,
        },
    )


@contextmanager
def uncommitted(connection: Connection, group_id: str) -> Iterator[Consumer]:
    """A consumer that sees what is not committed: for end offsets, and for naming who holds them back."""
    consumer = make_consumer(connection, group_id, "read_uncommitted")
    try:
        yield consumer
    finally:
        consumer.close()


def extent(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition and its end, as its leader tells them now.

    The client keeps "it has no leader" for an answer that holds, and asks no broker again until its next refresh, which
    is five minutes away (librdkafka's `rd_kafka_topic_partition_list_get_leaders`). So it is made to look.

    Raises:
        KafkaException: asked again, it may pass.
    """
    at = TopicPartition(topic, partition)
    try:
        low, high = consumer.get_watermark_offsets(at, timeout=REQUEST_TIMEOUT_S, cached=False)
    except KafkaException:
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S)
        raise
    return low, high


def passes(error: KafkaError) -> bool:
    """Whether an event of a consumer is no reason to stop reading."""
    if error.code() == KafkaError._AUTHENTICATION:
        return is_refused_token(error) or not is_refused_log_in(error)
    return error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, NO_COORDINATOR)


NO_COORDINATOR = KafkaError.GROUP_AUTHORIZATION_FAILED
"""The client looks for the coordinator of its group, whom nobody here needs, and may not."""


def read_failed(error: KafkaError, doing: str, topic: str, bootstrap_servers: str) -> SinkPipelineError:
    return translate(error, doing, bootstrap_servers, Reason.PROGRESS_UNREADABLE, needs=f"Read on topic {topic}")


_FETCH = 2000
"""Messages that are taken from the client at once."""


def take(consumer: Consumer, timeout_s: float) -> list[Message]:
    """What has been fetched already, or the next message as soon as it comes: consume() alone would wait for all."""
    messages = consumer.consume(_FETCH, 0)
    if messages or timeout_s <= 0:
        return list(messages)
    message = consumer.poll(timeout_s)
    return [] if message is None else [message]


def offset_of(message: Message) -> int:
    offset = message.offset()
    if offset is None:
        raise ValueError("a consumed message has an offset")
    return int(offset)


_ASK_FOR_HEADERS = methodcaller("headers")
"""Called so, the interpreter sees that the client gave a result and an error at once. An ordinary call of it may go on
with half a list, and fail anywhere behind it, or crash."""


def headers_of(message: Message) -> Headers:
    """A record's headers.

    Raises:
        ValueError: the client can't take a name that is not UTF-8, and gives none of the others either.
    """
    try:
        headers = _ASK_FOR_HEADERS(message)
    except (SystemError, UnicodeDecodeError) as error:
        raise ValueError("the name of a header is not UTF-8") from error
    return list(headers) if isinstance(headers, list) else None
