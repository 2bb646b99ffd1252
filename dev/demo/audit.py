"""What the demo believes: a plain read_committed consumer, and the broker's own offsets; no code of the product."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from demo.data import Row

REQUEST_TIMEOUT_S: Final = 10.0
READ_DEADLINE_S: Final = 60.0


@dataclass(frozen=True)
class Audit:
    expected: int
    delivered: int
    duplicates: int
    missing: int
    wrong: int
    """Rows that nobody expected, whose key or value is not the expected one, or that are not in their order."""

    @property
    def exactly_once(self) -> bool:
        return self.delivered == self.expected and not (self.duplicates or self.missing or self.wrong)


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Broker:
    """The cluster, as any client sees it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def create(self, topic: str, partitions: int) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        self._admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[topic].result(REQUEST_TIMEOUT_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[topic].result(REQUEST_TIMEOUT_S)

    def topic_id(self, topic: str) -> str | None:
        """None where there is no such topic."""
        future = self._admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)[topic]
        try:
            return str(future.result(REQUEST_TIMEOUT_S).topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def records(self, topic: str) -> int:
        """Offsets that were ever given out, committed or not."""
        return sum(self._ends(topic, IsolationLevel.READ_UNCOMMITTED))

    def open_records(self, topic: str) -> int:
        """Records that no read_committed consumer gets yet, as a transaction is open."""
        # In this order: what is written or committed in between makes the answer too small, never too large.
        return max(0, self.records(topic) - sum(self._ends(topic, IsolationLevel.READ_COMMITTED)))

    def audit(self, topic: str, expected: Mapping[int, Row]) -> Audit:
        """Reads the whole topic and compares it with what should be in it, row by row."""
        seen: Counter[int] = Counter()
        wrong = 0
        for record in self.committed(topic):
            row = json.loads(record.value or b"{}")
            seen[row["id"]] += 1
            wrong += expected.get(row["id"]) != ((record.key or b"").decode(), row)
        return Audit(
            expected=len(expected),
            delivered=seen.total(),
            duplicates=seen.total() - len(seen),
            missing=len(expected.keys() - seen.keys()),
            wrong=wrong,
        )

    def values(self, topic: str) -> list[bytes | None]:
        """All that is committed."""
        return [record.value for record in self.committed(topic)]

    def committed(self, topic: str) -> Iterator[Record]:
        """All that is committed, in each partition in its order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": 0,
                "group.id": "demo-audit",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            }
        )
        deadline = time.monotonic() + READ_DEADLINE_S
        try:
            unread = set(self._partitions(topic))
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unread])
            while unread:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{topic} could not be read to its end within {READ_DEADLINE_S:.0f} s")
                for message in consumer.consume(10_000, 0.05):
                    error = message.error()
                    if error is None:
                        partition, offset = message.partition() or 0, message.offset() or 0
                        yield Record(partition, offset, message.key(), message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                        unread.discard(message.partition())
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()

    def _partitions(self, topic: str) -> list[int]:
        return list(self._admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions)

    def _ends(self, topic: str, isolation_level: IsolationLevel) -> list[int]:
        futures = self._admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.latest() for partition in self._partitions(topic)},
            isolation_level=isolation_level,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return [future.result(REQUEST_TIMEOUT_S).offset for future in futures.values()]
