"""How soon a record is visible: appends at a steady rate, and takes each record's age when it is read.

`python -m visible SERVERS SOURCE TARGET PARTITIONS RATE SECONDS` prints the ages in milliseconds as JSON.

It is a process of its own: our driver is Python, and would share its interpreter with what measures it; Spark's sink
would not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

_TICK_S: Final = 0.01
_WARM_UP_S: Final = 5.0
_YOUNG_S: Final = 3.0
_CATCH_UP_S: Final = 60.0
_LATEST_S: Final = 30.0


def visible_after(servers: str, source: str, target: str, partitions: int, rate: int, seconds: float) -> list[float]:
    """The age in milliseconds, when it became visible, of each record that was appended in so many seconds.

    The stretch begins when the target has what was appended while its query started.
    """
    argv = [sys.executable, "-m", "visible", servers, source, target, str(partitions), str(rate), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return [float(each) for each in json.loads(told)]


def _ages(servers: str, target: str, partitions: int, seconds: float) -> list[float]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(target, number, 0) for number in range(partitions)])
    _catch_up(consumer)
    first = time.monotonic()
    last, end = first + seconds, first + seconds + _LATEST_S
    ages: list[float] = []
    while time.monotonic() < end:
        stamps = _stamps(consumer)
        now = time.monotonic()
        ages += [1000 * (now - stamp) for stamp in stamps if first <= stamp < last]
        if any(stamp >= last for stamp in stamps):
            # What was appended before is here too, but for what another partition is late with.
            end = min(end, now + _YOUNG_S)
    consumer.close()
    return ages


def _catch_up(consumer: Consumer) -> None:
    """Until all records have been young for a while, or it is clear that this query does not catch up."""
    began = time.monotonic()
    young_since: float | None = None
    while (now := time.monotonic()) < began + _CATCH_UP_S:
        stamps = _stamps(consumer)
        if any(now - stamp > _YOUNG_S for stamp in stamps):
            young_since = None
        elif stamps and young_since is None:
            young_since = now
        if young_since is not None and now >= young_since + _WARM_UP_S:
            return
    print(f"  not caught up within {_CATCH_UP_S:.0f} s: these ages are those of a backlog", file=sys.stderr, flush=True)


def _stamps(consumer: Consumer) -> list[float]:
    """When the records that are visible by now were appended."""
    return [float(message.value() or b"") for message in consumer.consume(10_000, 0.005) if message.error() is None]


@contextmanager
def _appending(servers: str, topic: str, rate: int) -> Iterator[None]:
    """Appends records that hold the moment of their making, `rate` a second in steps of 10 ms."""
    stop = threading.Event()

    def append() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True})
        began, sent = time.monotonic(), 0
        while not stop.wait(_TICK_S):
            due = int((time.monotonic() - began) * rate)
            for _ in range(due - sent):
                producer.produce(topic, b"%.6f" % time.monotonic())
            sent = due
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    servers, source, target, partitions, rate, seconds = sys.argv[1:]
    with _appending(servers, source, int(rate)):
        json.dump(_ages(servers, target, int(partitions), float(seconds)), sys.stdout)


if __name__ == "__main__":
    main()
