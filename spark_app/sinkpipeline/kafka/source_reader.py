"""Reads single records of the source again: what a sink can't deliver is quoted as it stands there."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sinkpipeline.core.deadletter import SourceRecord
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.admin import Patience
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import headers_of, make_consumer, offset_of, passes, take
from sinkpipeline.kafka.errors import translate

_DEADLINE_S = 30.0
_POLL_S = 0.2
_NEAR = 1_000
"""So many offsets ahead it is sooner read on than looked for."""
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class HeadersUnreadable(Exception):
    """A record was read, but for its headers: the client can't take names that are not UTF-8, nor the others then."""

    def __init__(self, record: SourceRecord) -> None:
        super().__init__(record)
        self.record = record


class SourceReader:
    """One source partition, by offset; cheapest in ascending order. Connects when it is first asked."""

    def __init__(self, connection: Connection, group_id: str, partition: SourcePartition) -> None:
        self._connection = connection
        self._group_id = group_id
        self._partition = partition
        self._consumer: Consumer | None = None
        self._fetched: deque[Message] = deque()
        self._next = -1
        """Where the next record is that was not given out."""

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
        consumer = self._at(offset)
        deadline = time.monotonic() + _DEADLINE_S
        patience = Patience(self._connection)
        while time.monotonic() < deadline:
            while self._fetched and offset_of(self._fetched[0]) < offset:
                self._fetched.popleft()
            if self._fetched:
                self._next = offset
                return self._record(self._fetched[0]) if offset_of(self._fetched[0]) == offset else None
            for message in take(consumer, _POLL_S):
                error = message.error()
                if error is None:
                    self._fetched.append(message)
                elif self._is_gone(error, message, offset):
                    return None
            patience.check()
        self.close()
        raise SinkPipelineError(
            Reason.BROKER_UNREACHABLE,
            f"no answer from {self._connection.bootstrap_servers} while reading {self._partition} again",
            "check that the brokers run",
        )

    def _is_gone(self, error: KafkaError, event: Message, offset: int) -> bool:
        """Whether an event proves that the source has the record no more; an end before it may be an old one."""
        if error.code() == KafkaError._PARTITION_EOF:
            return not self._fetched and offset_of(event) > offset
        if error.code() in _OUT_OF_RANGE and self._consumer is not None:
            at = TopicPartition(self._partition.topic, self._partition.partition)
            low, _ = self._consumer.get_watermark_offsets(at, _DEADLINE_S)
            self.close()
            if low > offset:
                return True
        if passes(error):
            return False
        raise translate(
            error,
            f"reading {self._partition} again",
            self._connection.bootstrap_servers,
            needs=f"Read on topic {self._partition.topic}",
        )

    def close(self) -> None:
        """Gives up the connection, until it is asked again."""
        consumer, self._consumer = self._consumer, None
        self._fetched.clear()
        if consumer is not None:
            consumer.close()

    def _at(self, offset: int) -> Consumer:
        """A consumer that stands at the offset, or so near before it that it reads on."""
        if self._consumer is not None and self._next <= offset <= self._next + _NEAR:
            return self._consumer
        if self._consumer is None:
            self._consumer = make_consumer(self._connection, self._group_id, "read_uncommitted", fetch_kib=4096)
        self._fetched.clear()
        self._consumer.assign([TopicPartition(self._partition.topic, self._partition.partition, offset)])
        self._next = offset
        return self._consumer

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
