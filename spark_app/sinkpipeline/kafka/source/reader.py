"""Reads single records of the source again: what a sink can't deliver is quoted as it stands there."""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sinkpipeline.core.deadletter import SourceRecord
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import HeadersUnreadable
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import extent, headers_of, make_consumer, offset_of
from sinkpipeline.kafka.errors import error_of, repeated, translate
from sinkpipeline.kafka.reading import Answers, Reading
from sinkpipeline.kafka.refused import Patience
from sinkpipeline.kafka.waiting import Waiting

_DEADLINE_S = 30.0
_NEAR = 1_000
"""So many offsets ahead it is sooner read on than looked for."""


class SourceReader:
    """One source partition, by offset; cheapest in ascending order. Connects when it is first asked."""

    def __init__(self, connection: Connection, group_id: str, partition: SourcePartition) -> None:
        self._connection = connection
        self._group_id = group_id
        self._partition = partition
        self._consumer: Consumer | None = None
        self._reading: Reading | None = None
        self._last: Message | None = None
        """The last record that was read: where the one that was asked for is gone, the next one."""

    def read(self, offset: int) -> SourceRecord | None:
        """The record at an offset; None where the source doesn't have it any more.

        Raises:
            HeadersUnreadable: it is there, and holds all but its headers.
            SinkPipelineError: BrokerUnreachable, AuthorizationFailed, ...
        """
        fresh = self._consumer is None
        record = self._find(offset)
        if record is None and not fresh:
            # What an earlier question left on its way proves nothing.
            self.close()
            record = self._find(offset)
        return record

    def _find(self, offset: int) -> SourceRecord | None:
        reading = self._at(offset)
        if self._last is None or offset_of(self._last) < offset:
            reading.bound = offset + 1
            self._last = next((each for each in reading if offset_of(each) >= offset), None)
        if self._last is None or offset_of(self._last) > offset:
            return None
        return self._record(self._last)

    def close(self) -> None:
        """Gives up the connection, until it is asked again."""
        consumer, self._consumer = self._consumer, None
        self._reading = self._last = None
        if consumer is not None:
            consumer.close()

    def _at(self, offset: int) -> Reading:
        """A reading that stands at the offset, or so near before it that it reads on."""
        if self._reading is not None:
            begin = self._reading.position if self._last is None else offset_of(self._last)
            if begin <= offset <= begin + _NEAR:
                return self._reading
        if self._consumer is None:
            self._consumer = make_consumer(self._connection, self._group_id, "read_uncommitted", fetch_kib=4096)
        patience = Patience(self._connection)

        def held_back(_: int, waiting: Waiting) -> None:
            patience.check()
            if waiting.is_over():
                self.close()
                raise SinkPipelineError(
                    Reason.BROKER_UNREACHABLE,
                    f"no answer from {self._connection.bootstrap_servers} while reading {self._partition} again",
                    "check that the brokers run",
                )

        at = TopicPartition(self._partition.topic, self._partition.partition, offset)
        answers = Answers(failed=self._failed, held_back=held_back, moved=self._beginning)
        self._last = None
        self._reading = Reading(self._consumer, at, answers, patience_s=_DEADLINE_S)
        return self._reading

    def _beginning(self, error: KafkaError) -> int:
        """Where the source begins that has no such offset."""
        if self._consumer is None or self._reading is None:
            raise self._failed(error)
        low = self._low(self._consumer)
        if low <= self._reading.position:
            # Not before its beginning, so behind its end.
            raise self._failed(error)
        return low

    @repeated
    def _low(self, consumer: Consumer) -> int:
        try:
            low, _ = extent(consumer, self._partition.topic, self._partition.partition)
        except KafkaException as exception:
            raise self._failed(error_of(exception)) from exception
        return low

    def _failed(self, error: KafkaError) -> SinkPipelineError:
        return translate(
            error,
            f"reading {self._partition} again",
            self._connection.bootstrap_servers,
            needs=f"Read on topic {self._partition.topic}",
        )

    def _record(self, message: Message) -> SourceRecord:
        record = SourceRecord(
            partition=self._partition,
            offset=offset_of(message),
            key=message.key(),
            value=message.value(),
            headers=None,
            timestamp=message.timestamp()[1],
        )
        try:
            return replace(record, headers=headers_of(message))
        except ValueError as error:
            raise HeadersUnreadable(record) from error
