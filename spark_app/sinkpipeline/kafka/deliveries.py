"""What becomes of the records that a client of ours was given: queued, acknowledged, refused, or not heard of."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat, starmap
from operator import length_hint

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sinkpipeline.core.causes import of_kafka
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Columns, Row, columns
from sinkpipeline.kafka.errors import error_of, is_record_error, verdict_of

_ROOM_STEP_S = 0.01


class Unacknowledged(SinkPipelineError):
    """Nothing was acknowledged for as long as a producer waits; `share` tells how much of the records was before."""

    def __init__(self, reason: Reason, message: str, remedy: str, share: float = 0.0) -> None:
        super().__init__(reason, message, remedy)
        self.share = share


class Deliveries:
    """Remembers why deliveries fail: the first failure that is a cause, and not a consequence of another one.

    An object of its own, so that client and callback make no cycle and a dropped producer is destroyed at once.
    """

    def __init__(self) -> None:
        self._told: tuple[KafkaError, Message] | None = None
        self.produced = 0
        """Records since the last `begin`."""
        self.topics: set[str] = set()
        """Where records went."""
        self._failed = 0

    def begin(self) -> None:
        """All that was produced before is settled."""
        self.produced = self._failed = 0

    def forget(self) -> None:
        """What failed was aborted, and says nothing of what comes next."""
        self._told = None
        self.begin()

    def share(self, waiting: int) -> float:
        """How much of what was produced is acknowledged: neither failed nor, of so many that wait, unknown."""
        acknowledged = max(0, self.produced - self._failed - waiting)
        return acknowledged / self.produced if self.produced else 1.0

    def report(self, error: KafkaError | None, message: Message) -> None:
        self._failed += error is not None
        if error is not None and (self._told is None or _rank(error) > _rank(self._told[0])):
            self._told = (error, message)

    @property
    def error(self) -> KafkaError | None:
        """None too where all were purged: they fell with a transaction whose own error tells why."""
        return None if self._told is None or _rank(self._told[0]) == _PURGED else self._told[0]

    @property
    def failed(self) -> bool:
        return self._told is not None

    @property
    def topic(self) -> str | None:
        """Of the record whose error it is."""
        return None if self._told is None or self.error is None else self._told[1].topic()


_PURGED = 0


def _rank(error: KafkaError) -> int:
    """How much of a cause it is: a record is also purged with others, or refused with an invalid one of its batch."""
    if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        return _PURGED
    return 1 if error.code() == KafkaError._INVALID_DIFFERENT_RECORD else 2


class QueueStayedFull(Exception):
    """Nothing left a full queue for as long as a producer waits."""


class Queue:
    """What a client has not been told of yet: whether it still grows shorter."""

    def __init__(self, producer: Producer, patience_s: float) -> None:
        self._producer = producer
        self._patience_s = patience_s
        self._waiting = len(producer)
        self._moved_at = time.monotonic()

    def stands_still(self) -> bool:
        """Whether nothing has left it for too long."""
        waiting, now = len(self._producer), time.monotonic()
        if waiting < self._waiting:
            self._moved_at = now
        self._waiting = waiting
        return now - self._moved_at > self._patience_s


def unacknowledged(producer: Producer, deliveries: Deliveries, servers: str, fact: str) -> Unacknowledged:
    """The error for what waits in a client for too long."""
    cause = of_kafka("_MSG_TIMED_OUT")
    return Unacknowledged(cause.reason, f"{servers}: {fact}", cause.remedy, deliveries.share(len(producer)))


def produce_rows(
    producer: Producer, topic: str, rows: Iterable[Row], deliveries: Deliveries, patience_s: float
) -> None:
    """Hands rows to a client, waiting while its queue is full. Rows that name their topics go there.

    Raises:
        RecordRefused: by the client, with the row's index.
        QueueStayedFull: nothing left the queue for `patience_s`.
    """
    given = columns(rows)
    deliveries.topics.update((topic,) if given.topics is None else given.topics)
    values = iter(given.values)
    no_callback = repeat(None)
    # By position, and without a line of Python for each row: that costs a third and a sixth of the call.
    topics = repeat(topic) if given.topics is None else given.topics
    calls = starmap(
        producer.produce,
        zip(
            topics,
            values,
            given.keys,
            given.partitions,
            no_callback,
            no_callback,
            given.timestamps,
            given.headers,
            strict=False,
        ),
    )
    try:
        while len(given) > _taken(given, values):
            try:
                deque(calls, maxlen=0)
            except BufferError:
                last = _taken(given, values) - 1
                _produce_when_there_is_room(producer, _topic(topic, given, last), given.row(last), patience_s)
    except KafkaException as exception:
        error = error_of(exception)
        if is_record_error(error):
            last = _taken(given, values) - 1
            raise RecordRefused(verdict_of(error), _topic(topic, given, last), last) from exception
        raise
    finally:
        deliveries.produced += _taken(given, values)
    producer.poll(0)


def _topic(topic: str, given: Columns, index: int) -> str:
    return topic if given.topics is None else given.topics[index]


def _taken(given: Columns, values: Iterator[bytes | None]) -> int:
    """How many rows were taken, the one that is refused included."""
    return len(given) - length_hint(values)


def _produce_when_there_is_room(producer: Producer, topic: str, row: Row, patience_s: float) -> None:
    value, key, partition, timestamp, headers = row
    queue = Queue(producer, patience_s)
    while True:
        producer.poll(_ROOM_STEP_S)
        try:
            producer.produce(topic, value, key, partition, None, None, timestamp, headers)
        except BufferError as error:
            if queue.stands_still():
                raise QueueStayedFull(f"the producer's queue stayed full for {patience_s:.0f} s") from error
        else:
            return
