"""What users of a pipeline see while it runs: rows as they become visible, and what its status says."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import Final

import urllib3
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from chaos.faults import Subject
from chaos.seen import Told
from servers.kube_api import ApiError

_POLL_S: Final = 0.5
_READ_S: Final = 0.2
_AT_ONCE: Final = 5_000


class Rows:
    """An independent read_committed consumer of the data topic, which counts every row, until `close`."""

    def __init__(self, servers: str, topic: str, partitions: int, began: float) -> None:
        self._began = began
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "chaos",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        self._seen = Counter[str]()
        self._last: dict[tuple[int, str], int] = defaultdict(lambda: -1)
        self._disorder = 0
        self._foreign = 0
        self.arrivals: list[tuple[float, int]] = []
        """When how many rows came."""
        self._mark: dict[int, int] = {}
        self._fresh: float | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rows", daemon=True)
        self._thread.start()

    def mark(self, counts: dict[int, int]) -> None:
        """Rows count as fresh that are fed from now on."""
        with self._lock:
            self._mark, self._fresh = counts, None

    @property
    def fresh(self) -> float | None:
        """When the first fresh row came."""
        return self._fresh

    @property
    def distinct(self) -> int:
        return len(self._seen)

    def judge(self, counts: dict[int, int]) -> str:
        """`exact`, or what is wrong with what has come."""
        with self._lock:
            expected = sum(counts.values())
            foreign = self._foreign + sum(
                int(number) >= counts.get(int(source), 0)
                for source, _, number in (each.partition(":") for each in self._seen)
            )
            found = {
                "duplicates": self._seen.total() - len(self._seen),
                "missing": expected - len(self._seen) + foreign,
                "foreign": foreign,
                "out of order": self._disorder,
            }
        return ", ".join(f"{number} {what}" for what, number in found.items() if number) or "exact"

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = [each for each in self._consumer.consume(_AT_ONCE, _READ_S) if each.error() is None]
            if messages:
                now = time.monotonic() - self._began
                with self._lock:
                    self.arrivals.append((now, len(messages)))
                    for message in messages:
                        self._count(message, now)

    def _count(self, message: Message, now: float) -> None:
        text = (message.value() or b"").decode(errors="replace")
        source, _, number = text.partition(":")
        if not (source.isdecimal() and number.isdecimal()):
            self._foreign += 1
            return
        self._seen[text] += 1
        key = (message.partition() or 0, source)
        self._disorder += int(number) <= self._last[key]
        self._last[key] = int(number)
        if self._fresh is None and self._mark and int(number) >= self._mark.get(int(source), 0):
            self._fresh = now


class Status:
    """What `kubectl get` would say of Ready, whenever it changes, until `close`."""

    def __init__(self, pipeline: Subject, began: float) -> None:
        self._pipeline = pipeline
        self._began = began
        self.told: list[Told] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        return bool(self.told) and self.told[-1].ready

    def ready_since(self, at: float) -> float | None:
        """The first moment from then on at which it was Ready."""
        for told, after in zip(self.told, [*self.told[1:], None], strict=True):
            if told.ready and (after is None or after.at > at):
                return max(told.at, at)
        return None

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            try:
                text = self._pipeline.told("Ready")
            except (ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
                text = "the API server does not answer"
            if not self.told or self.told[-1].text != text:
                self.told.append(Told(time.monotonic() - self._began, text))
