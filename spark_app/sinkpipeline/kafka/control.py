"""The producer of everything that a driver writes of its own: announcements, frontiers, tombstones.

A record of it is as large as the pipeline: `meta` lists every source topic. So the client lets it pass whatever its
size, and compressed; the progress topic alone has a limit. What that refuses is told with the way to raise it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from typing_extensions import override

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.records import Row
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.deliveries import RecordRefused
from sinkpipeline.kafka.producers import TransactionalProducer

_PROPERTIES = {"message.max.bytes": "100000000", "compression.type": "zstd"}
_ROOM = 10 * 1024 * 1024


class ControlProducer(TransactionalProducer):
    """A control id, held.

    Raises (all methods):
        SinkPipelineError: as TransactionalProducer; ProgressTopicInvalid instead of RecordRefused.
    """

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self._topic = ""
        super().__init__(connection, transactional_id, _PROPERTIES)

    @override
    def produce_rows(self, topic: str, rows: Iterable[Row]) -> None:
        self._topic = topic
        with explained(topic, self._servers):
            super().produce_rows(topic, rows)

    @override
    def commit(self, deadline_s: float | None = None) -> None:
        with explained(self._topic, self._servers):
            super().commit(*(() if deadline_s is None else (deadline_s,)))


@contextmanager
def explained(topic: str, servers: str) -> Iterator[None]:
    """Of records of ours in a progress topic: no sink can go on where they are refused, and it is no bug.

    Raises:
        SinkPipelineError: ProgressTopicInvalid.
    """
    try:
        yield
    except RecordRefused as refused:
        if refused.verdict.error_class is ErrorClass.RECORD_TOO_LARGE:
            remedy = (
                f"give it more room: kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
                f"--entity-name {topic} --add-config max.message.bytes={_ROOM}; or let a pipeline read fewer topics"
            )
        else:
            remedy = "look at its configuration, and at the brokers' log"
        raise SinkPipelineError(
            Reason.PROGRESS_TOPIC_INVALID, f"progress topic {topic} refuses a record of ours: {refused.text}", remedy
        ) from refused
