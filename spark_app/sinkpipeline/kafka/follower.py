"""Following a sink's progress without writing: the driver's way of seeing that a newer one has taken over."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.progress_records import ProgressFold
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import NO_COORDINATOR, make_consumer, offset_of, read_failed, take


class ProgressFollower:
    """*Observe*: follows one sink's progress without writing, from an offset before which everything is known.

    It never waits: `poll` takes what has been committed since. Not for several threads at a time.
    """

    def __init__(
        self, connection: Connection, topic: str, group_id: str, sink: SinkId, start: int | None = None
    ) -> None:
        self._topic = topic
        self._servers = connection.bootstrap_servers
        self._fold = ProgressFold(sink)
        self._consumer = make_consumer(connection, group_id)
        self.position = start or 0
        """Every record below it was seen."""
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING if start is None else start)])

    def poll(self, timeout_s: float = 0.0) -> Progress:
        """What the records seen so far say (those from `start` on only); reads on while there is something to read.

        Raises:
            SinkPipelineError: as ProgressLog.
        """
        while messages := take(self._consumer, timeout_s):
            # All of them: records can stand behind an end-of-partition event that was not the last one.
            for message in messages:
                error = message.error()
                if error is None:
                    self.position = offset_of(message) + 1
                    self._fold.apply(message.key(), message.value(), self.position - 1)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.position = max(self.position, offset_of(message))
                elif not error.retriable() and error.code() != NO_COORDINATOR:
                    raise read_failed(error, f"following progress topic {self._topic}", self._topic, self._servers)
        return self._fold.result(self.position)

    def close(self) -> None:
        self._consumer.close()
