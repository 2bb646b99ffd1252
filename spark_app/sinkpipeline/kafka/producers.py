"""Producers: the transactional one that owns an id, and the plain ones.

A transactional producer is good until the first trouble. After any error its outcome may be in doubt, and librdkafka
tells a newer instance and a transaction that the broker timed out by the same `_FENCED`; so it is never used again:
the caller makes a new one, which fences, and reads the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.errors import error_of, is_record_error, translate

TRANSACTION_TIMEOUT_MS = 60_000
INIT_DEADLINE_S = 60.0
COMMIT_DEADLINE_S = 60.0
_INIT_STEP_S = 0.03
"""One long init_transactions() takes half a second whenever it loses a race inside librdkafka; short ones don't."""

Headers = list[tuple[str, str | bytes | None]] | None
Row = tuple[bytes | None, bytes | None, int, int, Headers]
"""Value, key, target partition (-1: the partitioner's), timestamp in ms (0: now), headers."""


class Fenced(Exception):
    """Another producer took the transactional id over, or the broker timed our transaction out: read `meta` to know."""


class InDoubt(Exception):
    """A transaction may or may not have been committed, and the producer can't be used again."""


class RecordRefused(Exception):
    """The client or the broker refuses a record for what it is; nothing of its transaction is committed.

    `index` counts the rows of the call that raised it; None where only the broker knows which one it was.
    """

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text, index)
        self.text = text
        self.index = index


class _Deliveries:
    """Remembers the first failed delivery; what fails after it was purged because of it.

    An object of its own, so that client and callback make no cycle and a dropped producer is destroyed at once.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def report(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self.error is None:
            self.error = error


class TransactionalProducer:
    """One transactional id, held from `__init__` on: whoever held it before is fenced.

    Raises (all methods):
        Fenced: somebody else holds the id, or the broker timed the transaction out.
        InDoubt: anything else that went wrong; the transaction may be committed or not.
        RecordRefused: a retry would be refused again.
        SinkPipelineError: from `__init__` only: BrokerUnreachable, AuthorizationFailed and the like.
    """

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        properties: Mapping[str, str] | None = None,
        *,
        deadline_s: float = INIT_DEADLINE_S,
    ) -> None:
        self.transactional_id = transactional_id
        self._servers = connection.bootstrap_servers
        self._deliveries = _Deliveries()
        self._open = False
        base = {"queue.buffering.max.messages": "500000", "queue.buffering.max.kbytes": "262144"}
        self._producer = Producer(
            {
                **connection.client_config({**base, **(properties or {})}),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "partitioner": "murmur2_random",
                # Topics are described before they are written to: one that is missing here was deleted.
                "topic.metadata.propagation.max.ms": 10_000,
                "on_delivery": self._deliveries.report,
                "delivery.report.only.error": True,
            }
        )
        try:
            self._init(deadline_s)
        except BaseException:
            self.close()
            raise

    def _init(self, deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                self._producer.init_transactions(_INIT_STEP_S)
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() == KafkaError._FENCED:
                    raise Fenced(self.transactional_id) from exception
                if not error.retriable() or time.monotonic() > deadline:
                    doing = f"taking the transactional id {self.transactional_id}"
                    raise translate(exception, doing, self._servers) from exception
                self._producer.poll(0)
            else:
                return

    @property
    def in_transaction(self) -> bool:
        return self._open

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise self._failed(exception) from exception
        self._open = True

    def produce_rows(self, topic: str, rows: Iterable[Row]) -> None:
        """Produces rows into the open transaction, waiting while the queue is full."""
        try:
            _produce_rows(self._producer, topic, rows)
        except KafkaException as exception:
            raise self._failed(exception) from exception

    def produce_record(self, topic: str, key: str, value: bytes) -> None:
        """Produces one record to partition 0 of a topic into the open transaction."""
        self.produce_rows(topic, [(value, key.encode(), 0, 0, None)])

    def commit(self, deadline_s: float = COMMIT_DEADLINE_S) -> None:
        """Commits the open transaction; returns only if it is committed."""
        self._open = False
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                self._producer.commit_transaction(max(0.1, deadline - time.monotonic()))
            except KafkaException as exception:
                if error_of(exception).retriable() and time.monotonic() < deadline:
                    continue
                raise self._failed(exception) from exception
            else:
                return

    def write(self, topic: str, records: Iterable[tuple[str, bytes]]) -> None:
        """One transaction of records for partition 0 of a topic."""
        self.begin()
        for key, value in records:
            self.produce_record(topic, key, value)
        self.commit()

    def close(self) -> None:
        """Gives up the connection; an open transaction is left to the next init of the id, or to its time-out."""
        # The client's own close() would flush without a deadline; destroying it purged doesn't wait.
        self._producer.purge()
        del self._producer

    def _failed(self, exception: KafkaException) -> Exception:
        error = error_of(exception)
        if error.code() == KafkaError._FENCED:
            return Fenced(self.transactional_id)
        cause = self._deliveries.error or error
        if is_record_error(cause):
            return RecordRefused(cause.str())
        return InDoubt(f"{self.transactional_id}: {cause.str()}")


class PlainProducer:
    """An idempotent producer without an id of its own: sentinels of unfenced reads, and rows of AtLeastOnce.

    Raises (all methods):
        RecordRefused: a retry would be refused again.
        SinkPipelineError: BrokerUnreachable, AuthorizationFailed and the like.
    """

    def __init__(self, connection: Connection, properties: Mapping[str, str] | None = None) -> None:
        self._servers = connection.bootstrap_servers
        self._deliveries = _Deliveries()
        self._producer = Producer(
            {
                **connection.client_config(properties),
                "enable.idempotence": True,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "partitioner": "murmur2_random",
                # Without a delivery callback a refused row is invisible: flush() returns 0 for it too.
                "on_delivery": self._deliveries.report,
                "delivery.report.only.error": True,
            }
        )

    def produce_rows(self, topic: str, rows: Iterable[Row]) -> None:
        try:
            _produce_rows(self._producer, topic, rows)
        except KafkaException as exception:
            raise self._failed(error_of(exception)) from exception
        except InDoubt as error:
            raise SinkPipelineError(
                Reason.BROKER_UNREACHABLE, f"{self._servers}: {error}", "check that the brokers run"
            ) from error

    def flush(self, timeout_s: float = COMMIT_DEADLINE_S) -> None:
        """Returns only if every record produced so far was acknowledged."""
        try:
            remaining = self._producer.flush(timeout_s)
        except KafkaException as exception:
            raise self._failed(error_of(exception)) from exception
        if self._deliveries.error is not None:
            raise self._failed(self._deliveries.error)
        if remaining:
            raise SinkPipelineError(
                Reason.BROKER_UNREACHABLE,
                f"{self._servers} did not acknowledge {remaining} records within {timeout_s:.0f} s",
                "check that the brokers run",
            )

    def close(self) -> None:
        self._producer.purge()
        del self._producer

    def _failed(self, error: KafkaError) -> Exception:
        if is_record_error(error):
            return RecordRefused(error.str())
        return translate(error, "producing", self._servers)


def _produce_rows(producer: Producer, topic: str, rows: Iterable[Row]) -> None:
    # By position: with keywords the call costs a third more.
    produce = producer.produce
    index = 0
    for index, (value, key, partition, timestamp, headers) in enumerate(rows):
        try:
            produce(topic, value, key, partition, None, None, timestamp, headers)
        except BufferError:
            _produce_when_there_is_room(producer, topic, (value, key, partition, timestamp, headers))
        except KafkaException as exception:
            error = error_of(exception)
            if is_record_error(error):
                raise RecordRefused(error.str(), index) from exception
            raise
    producer.poll(0)


def _produce_when_there_is_room(producer: Producer, topic: str, row: Row) -> None:
    value, key, partition, timestamp, headers = row
    deadline = time.monotonic() + COMMIT_DEADLINE_S
    while True:
        producer.poll(0.05)
        try:
            producer.produce(topic, value, key, partition, None, None, timestamp, headers)
        except BufferError as error:
            if time.monotonic() > deadline:
                raise InDoubt(f"the producer's queue stayed full for {COMMIT_DEADLINE_S:.0f} s") from error
        else:
            return
