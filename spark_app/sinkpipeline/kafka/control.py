"""The producer of everything that a driver writes of its own: announcements, frontiers, tombstones, small batches.

A record of it is as large as the pipeline: `meta` lists every source topic. So the client lets it pass whatever its
size, and compressed where there are many; the progress topic alone has a limit. What that refuses is told with the way
to raise it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from typing_extensions import override

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SENTINEL_KEY
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.progress_records import encode_sentinel, writer_header
from sinkpipeline.core.records import Row
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import CLIENT_BATCH_BYTES, TransactionalProducer
from sinkpipeline.sinks.failpoints import failpoint

_LOG = logging.getLogger("sinkpipeline.sink")

_LARGEST = {"message.max.bytes": "100000000"}
_OF_ROWS = (
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "linger.ms",
    "queue.buffering.max.ms",
)
"""What a manifest may set that shows in the rows of a small batch."""
_COMPRESSION = ("compression.codec", "compression.type")
_MANY_TOPICS = 1_000
"""With more of them `meta` may be too large for a topic's default limit, unless it is compressed."""
_ROOM = 8 * 1024 * 1024
"""As much as each service takes."""


class ControlProducer(TransactionalProducer):
    """A control id, held.

    Raises (all methods):
        SinkPipelineError: as TransactionalProducer; ProgressTopicInvalid instead of RecordRefused.
    """

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        properties: Mapping[str, str] | None = None,
        *,
        source_topics: int = 0,
    ) -> None:
        """`properties`: those of the sink. `source_topics`: how many its source has, all of which `meta` lists."""
        self._topic = ""
        of_rows = {name: value for name, value in (properties or {}).items() if name in _OF_ROWS}
        compresses = any(of_rows.get(name, "none") != "none" for name in _COMPRESSION)
        self.writes_like_tasks = source_topics <= _MANY_TOPICS or compresses
        """Whether rows stand in their topic as a task would write them: not every consumer reads every compression."""
        if not self.writes_like_tasks:
            of_rows = {name: value for name, value in of_rows.items() if name not in _COMPRESSION}
            of_rows["compression.type"] = "zstd"
        # The progress topic takes no more at once.
        at_once = min(CLIENT_BATCH_BYTES, int(of_rows.get("batch.size", CLIENT_BATCH_BYTES)))
        super().__init__(connection, transactional_id, {**_LARGEST, **of_rows, "batch.size": str(at_once)})

    def deliver(
        self,
        rows: Iterable[tuple[str, Iterable[Row]]],
        progress_topic: str,
        records: Iterable[tuple[str, bytes | None]],
    ) -> None:
        """One transaction of rows for their topics, and of the progress with which they count.

        Raises:
            RecordRefused, SinkPipelineError: nothing of it counts, and the producer is used up.
            Fenced, InDoubt: as TransactionalProducer.
        """
        self.begin()
        try:
            for topic, each in rows:
                super().produce_rows(topic, each)
            failpoint("delivered-rows-before-progress")
            ours = writer_header(self.transactional_id)
            super().produce_rows(progress_topic, [(value, key.encode(), 0, 0, ours) for key, value in records])
            failpoint("delivered-progress-before-commit")
            super().commit()
        except (RecordRefused, SinkPipelineError) as refusal:
            if not self.abort():
                raise InDoubt(f"{self.transactional_id}: {refusal}; and the abort was not confirmed") from refusal
            self._deliveries.forget()
            raise
        failpoint("delivered-after-commit")

    def still_holds(self, progress_topic: str) -> bool:
        """Whether nobody has taken the id since: a sentinel counts."""
        if self._unsettled and not self.abort():
            return False
        try:
            self.write(progress_topic, [(SENTINEL_KEY, encode_sentinel(str(uuid.uuid4())))])
        except (Fenced, InDoubt) as trouble:
            _LOG.info("%s: what this driver remembers is not certain any more: %s", self.transactional_id, trouble)
            return False
        return True

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
        elif refused.verdict.error_class is ErrorClass.INVALID_TIMESTAMP:
            remedy = (
                f"set the clock of the machine right; or let the brokers' clock count: kafka-configs.sh "
                f"--bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} "
                "--add-config message.timestamp.type=LogAppendTime"
            )
        else:
            remedy = "look at its configuration, and at the brokers' log"
        raise SinkPipelineError(
            Reason.PROGRESS_TOPIC_INVALID, f"progress topic {topic} refuses a record of ours: {refused.text}", remedy
        ) from refused
