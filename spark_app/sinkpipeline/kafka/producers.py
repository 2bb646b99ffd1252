"""Producers: the transactional one that owns an id, and the plain ones.

A transactional producer is good until the first trouble. After any error its outcome may be in doubt, and librdkafka
tells a newer instance and a transaction that the broker timed out by the same `_FENCED`; so it is never used again:
the caller makes a new one, which fences, and reads the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.deliveries import (
    Deliveries,
    Queue,
    QueueStayedFull,
    produce_rows,
    unacknowledged,
)
from sinkpipeline.kafka.errors import error_of, is_record_error, made, translate, verdict_of
from sinkpipeline.kafka.leaving import leave
from sinkpipeline.kafka.refused import Patience, barred

TRANSACTION_TIMEOUT_MS = 60_000
INIT_DEADLINE_S = 60.0
COMMIT_DEADLINE_S = 60.0
_ABORT_DEADLINE_S = 5.0
_DELIVERY_TIMEOUT_MS = 45_000
"""Shorter than a commit may take: records that can't be delivered then fail it, and its outcome is known."""

_INIT_STEP_S = 0.03
"""One long init_transactions() takes half a second whenever it loses a race inside librdkafka; short ones don't."""

CLIENT_BATCH_BYTES = 1_000_000
"""The client's own `batch.size`."""

_FLUSH_STEP_S = 1.0
_DELIVERED_STEP_S = 0.1
_PROOF_STEP_S = 0.01
_CAUSE_S = 0.5

_QUEUE_KBYTES = "8192"
"""Of a plain producer: what it holds is what an AtLeastOnce sink still has to wait for when a cut is due."""


def transactional_config(
    connection: Connection, transactional_id: str, properties: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The configuration of librdkafka under a transactional id; `properties` are the manifest's."""
    base = {"queue.buffering.max.messages": "500000", "queue.buffering.max.kbytes": "262144"}
    return {
        **connection.client_config({**base, **(properties or {})}),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "message.timeout.ms": min(_DELIVERY_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS),
        "partitioner": "murmur2_random",
        # Topics are described before they are written to: one that is missing here was deleted.
        "topic.metadata.propagation.max.ms": 10_000,
        "delivery.report.only.error": True,
    }


def plain_config(
    connection: Connection, properties: Mapping[str, str] | None = None, *, idempotent: bool = True
) -> dict[str, Any]:
    """The same without one."""
    return {
        **connection.client_config({"queue.buffering.max.kbytes": _QUEUE_KBYTES, **(properties or {})}),
        "enable.idempotence": idempotent,
        # Else a record would be given up for the time that those before it took.
        "message.timeout.ms": 0,
        "partitioner": "murmur2_random",
        "delivery.report.only.error": True,
    }


class TransactionalProducer:
    """One transactional id, held from `__init__` on: whoever held it before is fenced.

    Raises (all methods):
        Fenced: somebody else holds the id, or the broker timed the transaction out.
        InDoubt: anything else that went wrong; the transaction may be committed or not.
        RecordRefused: a retry would be refused again.
        SinkPipelineError: AuthorizationFailed; from `__init__` also AuthenticationFailed, BrokerUnreachable, ...
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
        self._connection = connection
        self._servers = connection.bootstrap_servers
        self._deliveries = Deliveries()
        self._open = False
        self._unsettled = False
        """Whether records were produced of which nothing is known yet."""
        config = transactional_config(connection, transactional_id, properties)
        self._producer = made(Producer, {**config, "on_delivery": self._deliveries.report})
        try:
            self._init(deadline_s)
        except BaseException:
            self.close()
            raise

    def _init(self, deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        patience = Patience(self._connection)
        while True:
            try:
                self._producer.init_transactions(_INIT_STEP_S)
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() == KafkaError._FENCED:
                    raise Fenced(self.transactional_id) from exception
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._translate(error, f"taking the transactional id {self.transactional_id}") from exception
                patience.check()
                self._producer.poll(0)
            else:
                return

    @property
    def in_transaction(self) -> bool:
        return self._open

    def begin(self) -> None:
        self._deliveries.begin()
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise self._failed(exception) from exception
        self._open = True

    def produce_rows(self, topic: str, rows: Iterable[Row]) -> None:
        """Produces rows into the open transaction, waiting while the queue is full."""
        try:
            produce_rows(self._producer, topic, rows, self._deliveries, COMMIT_DEADLINE_S)
        except KafkaException as exception:
            raise self._failed(exception) from exception
        except QueueStayedFull as error:
            told = unacknowledged(self._producer, self._deliveries, self._servers, str(error))
            raise InDoubt(f"{self.transactional_id}: {error}", told=told, share=told.share) from error
        finally:
            self._unsettled = True

    def produce_record(self, topic: str, key: str, value: bytes | None) -> None:
        """Produces one record, or a tombstone, to partition 0 of a topic into the open transaction."""
        self.produce_rows(topic, [(value, key.encode(), 0, 0, None)])

    def commit(self, deadline_s: float = COMMIT_DEADLINE_S) -> None:
        """Commits the open transaction; returns only if it is committed."""
        self._open = False
        deadline = time.monotonic() + deadline_s
        self._deliver(deadline)
        while True:
            try:
                self._producer.commit_transaction(max(0.1, deadline - time.monotonic()))
            except KafkaException as exception:
                if error_of(exception).retriable() and time.monotonic() < deadline:
                    continue
                raise self._failed(exception) from exception
            else:
                self._unsettled = False
                return

    def _deliver(self, deadline: float) -> None:
        """Until everything is delivered, or one record is not: then a commit is refused at once.

        A commit that has begun would wait for those behind it. If their request was on its way, it is out of sequence,
        and librdkafka keeps them until the transaction is aborted or `message.timeout.ms` is over.
        """
        try:
            while self._producer.flush(_DELIVERED_STEP_S) and not self._deliveries.failed:
                if time.monotonic() > deadline:
                    return
        except KafkaException as exception:
            raise self._failed(exception) from exception

    def write(self, topic: str, records: Iterable[tuple[str, bytes | None]]) -> None:
        """One transaction of records for partition 0 of a topic."""
        self.begin()
        for key, value in records:
            self.produce_record(topic, key, value)
        self.commit()

    def would_refuse(self, topic: str, timestamp: int) -> Verdict | None:
        """What a topic says of a record with this timestamp; the record is aborted, and the producer is used up."""
        if not self._open:
            self.begin()
        try:
            self.produce_rows(topic, [(b"", b"", -1, timestamp, None)])
            waiting = self._producer.flush(_DELIVERY_TIMEOUT_MS / 1000)
        except KafkaException as exception:
            raise self._failed(exception) from exception
        except RecordRefused as refusal:
            return refusal.verdict
        finally:
            self.abort()
        error = self._deliveries.error
        if error is not None and is_record_error(error):
            return verdict_of(error)
        if error is not None or waiting:
            fact = "a record was not acknowledged" if error is None else error.str()
            told = unacknowledged(self._producer, self._deliveries, self._servers, fact)
            raise InDoubt(f"{self.transactional_id}: {fact}", aborted=True, told=told)
        return None

    def abort(self) -> bool:
        """Ends the open transaction if that can be done soon: whether it was. The producer is used up.

        What the client had sent and not heard of is purged with it, and its sequence numbers are given again. A broker
        that has appended it, and keeps these numbers, takes the next records for the same ones: it acknowledges them,
        and appends nothing. An init gives another epoch.

        Source: rd_kafka_toppar_purge_queues in librdkafka, ProducerStateEntry.findDuplicateBatch in Kafka.
        """
        self._open = False
        try:
            self._producer.abort_transaction(_ABORT_DEADLINE_S)
        except KafkaException:
            return False
        self._unsettled = False
        return True

    def close(self) -> None:
        """Gives up the connection, and aborts an open transaction if that can be done soon.

        Else it is left to the next init of the id, or to its time-out.
        """
        leave(self._producer, in_transaction=self._unsettled)
        del self._producer

    def _failed(self, exception: KafkaException) -> Exception:
        error = self._fatal(error_of(exception))
        if error.code() == KafkaError._FENCED:
            return Fenced(self.transactional_id)
        self._await_cause(error)
        cause = self._deliveries.error or error
        if is_record_error(cause):
            return RecordRefused(verdict_of(cause), self._deliveries.topic)
        told = self._translate(cause, f"writing to {' and '.join(sorted(self._deliveries.topics))}")
        if not told.reason.retry:
            return told
        # A commit is asked for only after every record was delivered.
        aborted = self._deliveries.failed and error.txn_requires_abort()
        share = self._deliveries.share(len(self._producer))
        return InDoubt(f"{self.transactional_id}: {cause.str()}", aborted=aborted, told=told, share=share)

    def _fatal(self, error: KafkaError) -> KafkaError:
        """Why a client has ended: to who gives it a record it says only that it has; to who ends a transaction, why."""
        if error.code() != KafkaError._FATAL:
            return error
        try:
            self._producer.abort_transaction(_ABORT_DEADLINE_S)
        except KafkaException as exception:
            return error_of(exception)
        return error

    def _await_cause(self, error: KafkaError) -> None:
        """Of a transaction that failed while rows were produced only that is told; why, a moment later, to who asks."""
        deadline = time.monotonic() + _CAUSE_S
        failed = error.code() == KafkaError._STATE or error.txn_requires_abort()
        while failed and self._deliveries.error is None and time.monotonic() < deadline:
            self._producer.poll(_PROOF_STEP_S)

    def _translate(self, error: KafkaError, doing: str) -> SinkPipelineError:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topics = (self._deliveries.error and self._deliveries.topic) or self._barred()
            return translate(error, f"writing to {topics}", self._servers, needs=f"Write on topic {topics}")
        return translate(error, doing, self._servers, needs=f"Write on transactional id {self.transactional_id}")

    def _barred(self) -> str:
        """Of a transaction with rows for several topics the broker doesn't say which one has refused it."""
        return " or ".join(
            sorted(barred(self._connection, self._deliveries.topics, "WRITE") or self._deliveries.topics)
        )


class PlainProducer:
    """A producer without a transactional id: sentinels of unfenced reads, and rows of AtLeastOnce.

    Records wait for as long as others are acknowledged: a slow way is no outage.

    Raises (all methods):
        RecordRefused: a retry would be refused again.
        Unacknowledged: nothing was acknowledged for too long; it may stand in the log all the same.
        SinkPipelineError: BrokerUnreachable, AuthorizationFailed and the like.
    """

    def __init__(
        self, connection: Connection, properties: Mapping[str, str] | None = None, *, idempotent: bool = True
    ) -> None:
        """`idempotent`: whether a repeated request must not repeat its records.

        Such a producer asks for an id of its own first, and the client asks before it is connected, and again half a
        second later. A sentinel that is there twice does no harm, and should not wait for that.
        """
        self._connection = connection
        self._servers = connection.bootstrap_servers
        self._deliveries = Deliveries()
        self._proved = not idempotent
        config = plain_config(connection, properties, idempotent=idempotent)
        # Without a delivery callback a refused row is invisible: flush() returns 0 for it too.
        self._producer = made(Producer, {**config, "on_delivery": self._deliveries.report})

    def produce_rows(self, topic: str, rows: Iterable[Row]) -> None:
        try:
            produce_rows(self._producer, topic, rows, self._deliveries, COMMIT_DEADLINE_S)
        except KafkaException as exception:
            raise self._failed(error_of(exception)) from exception
        except QueueStayedFull as error:
            raise unacknowledged(self._producer, self._deliveries, self._servers, str(error)) from error

    def flush(self, patience_s: float = COMMIT_DEADLINE_S) -> None:
        """Returns only if every record produced so far was acknowledged; waits while one after the other is."""
        queue = Queue(self._producer, patience_s)
        patience = Patience(self._connection)
        try:
            self._prove(patience, time.monotonic() + patience_s)
            while (remaining := self._producer.flush(min(_FLUSH_STEP_S, patience_s))) and not queue.stands_still():
                patience.check()
        except KafkaException as exception:
            raise self._failed(error_of(exception)) from exception
        except SystemError as error:
            raise self._ended(error) from error
        if self._deliveries.error is not None:
            raise self._failed(self._deliveries.error)
        if remaining:
            fact = f"none of {remaining} records was acknowledged within {patience_s:.0f} s"
            raise unacknowledged(self._producer, self._deliveries, self._servers, fact)
        self._deliveries.begin()

    def _prove(self, patience: Patience, deadline: float) -> None:
        """Waits for the first acknowledgement, without which the producer may have been refused an id of its own.

        That is fatal, and then a flush calls back with the exception pending, which may lose it. poll() stops instead.
        """
        waiting = len(self._producer)
        while not self._proved and waiting and len(self._producer) == waiting and time.monotonic() < deadline:
            self._producer.poll(_PROOF_STEP_S)
            patience.check()
        self._proved = self._proved or len(self._producer) < waiting

    def close(self) -> None:
        leave(self._producer, in_transaction=False)
        del self._producer

    def _ended(self, error: SystemError) -> Exception:
        """The client has failed for good in the middle of a flush, and called back with that exception pending."""
        cause = error.__cause__
        if isinstance(cause, KafkaException):
            return self._failed(error_of(cause))
        return SinkPipelineError(
            Reason.KAFKA_ERROR, f"{self._servers}: the client has failed for good: {cause}", "look at the log file"
        )

    def _failed(self, error: KafkaError) -> Exception:
        if is_record_error(error):
            return RecordRefused(verdict_of(error), self._deliveries.topic)
        topics = self._deliveries.topic or " or ".join(sorted(self._deliveries.topics))
        return translate(error, f"writing to {topics}", self._servers, needs=f"Write on topic {topics}")
