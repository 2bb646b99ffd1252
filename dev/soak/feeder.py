"""A source that never stops: numbered records, some bad, each in the log once, whatever happens to the broker."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sinkpipeline.core.deadletter import parse
from support.kafka.streams import Verdict, judge
from support.kafka.topics import add_partitions, create_topic, read_committed
from support.waiting import wait_until

_PAUSE_S = 0.1
_MAX_ROWS = 80
_FLUSH_S = 120.0
_BAD = 0.02
BAD_VALUES: tuple[bytes | None, ...] = (None, b"zero", b"astray")
"""What can't be decoded, transformed, or sent; the last is read from the source again."""


class Feeder:
    """Appends `<partition>:<n>` to a topic of its own, in a thread, until `close`; of a bad one it is only the key."""

    def __init__(
        self, servers: str, topic: str, partitions: int, seed: int, *, replicas: int = 1, bad: float = _BAD
    ) -> None:
        create_topic(servers, topic, partitions=partitions, replicas=replicas)
        self.topic = topic
        self.partitions = partitions
        self._servers = servers
        self._counts: Counter[int] = Counter()
        self._bad_share = bad
        self._bad: set[str] = set()
        self._chance = random.Random(seed)  # noqa: S311 - it is to be repeated
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                # A dead broker comes back, and until then the records wait.
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._failed: KafkaError | KafkaException | None = None
        self._lock = threading.Lock()
        self._paused = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Until `resume`, nothing is appended; what was, has arrived."""
        with self._lock:
            self._paused = True
            self._flush()

    def resume(self) -> None:
        self._paused = False

    def grow(self) -> None:
        """Gives the source one more partition."""
        total = self.partitions + 1
        add_partitions(self._servers, self.topic, total)
        # The producer refuses a partition until it has heard of it.
        wait_until(lambda: self._known_partitions() == total, "the feeder knows the new partition")
        self.partitions = total

    def counts(self) -> dict[int, int]:
        """How many records each partition was given."""
        with self._lock:
            return dict(self._counts)

    @property
    def good(self) -> int:
        return self._counts.total() - len(self._bad)

    @property
    def bad(self) -> int:
        return len(self._bad)

    @property
    def handled(self) -> tuple[int, int]:
        """How many are to be delivered, and to be dead letters."""
        return self.good, self.bad

    @property
    def expected(self) -> set[str]:
        """The good ones."""
        return {f"{partition}:{n}" for partition, count in self._counts.items() for n in range(count)} - self._bad

    def judge(self, data_topic: str) -> Verdict:
        """Counts the good ones by an independent read_committed consumer."""
        return judge(read_committed(self._servers, data_topic), self.expected)

    def judge_letters(self, topic: str) -> Verdict:
        """Counts the bad ones likewise. Those of different partitions stand beside each other in any order."""
        found = Counter[str]()
        foreign = 0
        for record in read_committed(self._servers, topic):
            quoted = parse(record.value, record.key, list(record.headers)).record
            found[(quoted.key or b"").decode()] += 1
            foreign += quoted.value not in BAD_VALUES
        return Verdict(
            duplicates=found.total() - len(found),
            missing=len(self._bad - found.keys()),
            foreign=foreign + len(found.keys() - self._bad),
            disorder=0,
        )

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._flush()

    def _known_partitions(self) -> int:
        return len(self._producer.list_topics(self.topic, 5).topics[self.topic].partitions)

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        if left or self._failed is not None:
            raise RuntimeError(f"the source is not what it should be: {left} records left, {self._failed}")

    def _run(self) -> None:
        try:
            self._feed()
        except KafkaException as error:
            self._failed = error

    def _feed(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                partition = self._chance.randrange(self.partitions)
                for _ in range(0 if self._paused else self._chance.randrange(_MAX_ROWS)):
                    name = f"{partition}:{self._counts[partition]}"
                    value: bytes | None = name.encode()
                    if self._chance.random() < self._bad_share:
                        self._bad.add(name)
                        value = self._chance.choice(BAD_VALUES)
                    self._producer.produce(self.topic, value, name.encode(), partition, on_delivery=self._delivered)
                    self._counts[partition] += 1
                self._producer.poll(0)
            time.sleep(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = error or self._failed
