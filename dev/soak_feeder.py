"""A source that never stops: numbered records, each in the log once, whatever happens to the broker."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from support.streams import Verdict, judge
from support.topics import add_partitions, create_topic, read_committed
from support.waiting import wait_until

_PAUSE_S = 0.1
_MAX_ROWS = 80
_FLUSH_S = 120.0


class Feeder:
    """Appends `<partition>:<n>` to a topic of its own, in a thread, until `close`."""

    def __init__(self, servers: str, topic: str, partitions: int, seed: int) -> None:
        create_topic(servers, topic, partitions=partitions)
        self.topic = topic
        self.partitions = partitions
        self._servers = servers
        self._counts: Counter[int] = Counter()
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

    @property
    def total(self) -> int:
        return self._counts.total()

    def judge(self, data_topic: str) -> Verdict:
        """Counts by an independent read_committed consumer."""
        expected = {f"{partition}:{n}" for partition, count in self._counts.items() for n in range(count)}
        return judge(read_committed(self._servers, data_topic), expected)

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
                    record = f"{partition}:{self._counts[partition]}".encode()
                    self._producer.produce(self.topic, record, record, partition, on_delivery=self._delivered)
                    self._counts[partition] += 1
                self._producer.poll(0)
            time.sleep(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = error or self._failed
