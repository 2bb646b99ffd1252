"""Records of a topic that whoever wrote them reads again, up to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import extent, make_consumer, read_failed, uncommitted
from sinkpipeline.kafka.errors import translate
from sinkpipeline.kafka.reading import READ_DEADLINE_S, Answers, Reading, wait_or_give_up
from sinkpipeline.kafka.waiting import Waiting

_LOG = logging.getLogger("sinkpipeline.kafka")
_AT_ONCE = 500


class Written:
    """What a topic has from given offsets on: up to its end of now, as whoever could write is fenced."""

    def __init__(
        self,
        connection: Connection,
        group_id: str,
        topic: Topic,
        since: Sequence[int],
        is_wanted: Callable[[bytes], bool],
    ) -> None:
        """Opens a reader.

        Args:
            connection: to the topic's cluster.
            group_id: whom the broker's log names.
            topic: as it was described.
            since: by partition, the first offset; 0 of a partition that is not listed.
            is_wanted: whether a record with this value is returned.
        """
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._since = since
        self._is_wanted = is_wanted
        self._consumer = make_consumer(connection, group_id)
        self._at: dict[int, int] = {}

    @property
    def at(self) -> tuple[int, ...]:
        """By partition, up to where it was read."""
        return tuple(self._at[number] for number in range(len(self._at)))

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """Keys and values of what is wanted and has a key; `at` follows.

        Raises:
            SinkPipelineError: DataTopicLost where the topic has removed some; ProgressUnreadable, BrokerUnreachable,
                AuthorizationFailed.
        """
        bounds = _bounds(self._connection, self._group_id, self._topic)
        self._at = {number: self._begins(number, low) for number, (low, _) in enumerate(bounds)}
        for number, (_, high) in enumerate(bounds):
            yield from self._partition(number, high)

    def _partition(self, number: int, high: int) -> Iterator[list[tuple[bytes, bytes]]]:
        start = self._at[number]
        if start < high:
            reading = self._reading(number, start, high)
            rows: list[tuple[bytes, bytes]] = []
            for seen, message in enumerate(reading, 1):
                key, value = message.key(), message.value()
                if key is not None and value is not None and self._is_wanted(value):
                    rows.append((key, value))
                if len(rows) >= _AT_ONCE or seen % (10 * _AT_ONCE) == 0:
                    self._at[number] = reading.position
                    yield rows
                    rows = []
            self._at[number] = high
            yield rows

    def _reading(self, number: int, start: int, high: int) -> Reading:
        def held_back(position: int, waiting: Waiting) -> None:
            fact = f"offset {position} of {self._topic.name}-{number} could not be read"
            error = SinkPipelineError(Reason.PROGRESS_UNREADABLE, fact, "check that the partition has a leader")
            wait_or_give_up(waiting, fact, _LOG, writer=lambda: None, held=lambda _: error, silent=lambda: error)

        answers = Answers(failed=self._failed, held_back=held_back)
        at = TopicPartition(self._topic.name, number, start)
        return Reading(self._consumer, at, answers, bound=high, patience_s=READ_DEADLINE_S)

    def _begins(self, number: int, low: int) -> int:
        since = self._since[number] if number < len(self._since) else 0
        if low > since:
            raise SinkPipelineError(
                Reason.DATA_TOPIC_LOST,
                f"topic {self._topic.name} begins at offset {low} of partition {number}, and its records from {since} "
                "on are needed, as they are of a snapshot that was given up: its retention has removed some of them",
                "begin anew under another spec.identity and another changes.topic.name, and give that topic a longer "
                "retention.ms",
            )
        return since

    def _failed(self, error: KafkaError) -> SinkPipelineError:
        name = self._topic.name
        return read_failed(error, f"reading change topic {name}", name, self._connection.bootstrap_servers)


def ends(connection: Connection, group_id: str, topic: Topic) -> tuple[int, ...]:
    """By partition, the offset that the next record of a topic gets.

    Raises:
        SinkPipelineError: BrokerUnreachable, AuthorizationFailed.
    """
    return tuple(high for _, high in _bounds(connection, group_id, topic))


def _bounds(connection: Connection, group_id: str, topic: Topic) -> list[tuple[int, int]]:
    doing, servers = f"reading the offsets of {topic.name}", connection.bootstrap_servers
    with uncommitted(connection, group_id) as consumer:
        try:
            return [extent(consumer, topic.name, number) for number in range(topic.partitions)]
        except KafkaException as exception:
            raise translate(exception, doing, servers, needs=f"Describe on topic {topic.name}") from exception
