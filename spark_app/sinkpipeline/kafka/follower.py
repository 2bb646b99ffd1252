"""Following a sink's progress without writing: the driver's way of seeing that a newer one has taken over."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.progress_records import ProgressFold
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import make_consumer, offset_of, read_failed
from sinkpipeline.kafka.reading import Answers, Reading


class ProgressFollower:
    """*Observe*: follows one sink's progress without writing, from an offset before which everything is known.

    It never waits: `poll` takes what has been committed since. Not for several threads at a time.
    """

    tells_all = False
    store = ""

    def __init__(
        self, connection: Connection, topic: str, group_id: str, sink: SinkId, start: int | None = None
    ) -> None:
        self._fold = ProgressFold(sink)
        self._consumer = make_consumer(connection, group_id)

        def failed(error: KafkaError) -> SinkPipelineError:
            return read_failed(error, f"following progress topic {topic}", topic, connection.bootstrap_servers)

        at = TopicPartition(topic, 0, OFFSET_BEGINNING if start is None else start)
        self._reading = Reading(self._consumer, at, Answers(failed=failed))

    @property
    def position(self) -> int:
        """Every record below it was seen."""
        return self._reading.position

    def poll(self, timeout_s: float = 0.0) -> Progress:
        """What the records seen so far say (those from `start` on only); reads on while there is something to read.

        Raises:
            SinkPipelineError: as ProgressLog.
        """
        for message in self._reading.arrived(timeout_s):
            self._fold.apply(message.key(), message.value(), offset_of(message))
        return self._fold.result(self.position)

    def close(self) -> None:
        self._consumer.close()
