"""An hour at the top rate: whether the memory of driver, executors and Python workers stays flat.

`make bench-top-rate`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m top_rate [--seconds N]`

One ExactlyOnce sink delivers rows of 100 bytes as fast as it can: a process of its own appends to the source so fast
that there is always a backlog of some millions, and the brokers forget what is older. Memory is the resident set, taken
every ten seconds. The table has it by sixths of the time, with the rows delivered in each; the first sixth warms up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from lab import EXACTLY_ONCE, Lab, lab
from record import Record, recording
from sinkpipeline.spark.runner import SinkRunner
from support.kafka.topics import ask, create_topic, unique

PARTITIONS = 4
BACKLOG = 3_000_000
_QUEUED = 500_000
_STEP_S = 10.0
_PARTS = 6
_MB = 1024 * 1024
_KEPT = {
    "retention.bytes": "1073741824",
    "segment.bytes": "134217728",
    "retention.ms": "-1",
    "file.delete.delay.ms": "1000",
}
"""Of each partition: more than the backlog has."""
_FORGETS = {"log.retention.check.interval.ms": "10000", "log.initial.task.delay.ms": "10000"}
"""Of the broker: it looks for what is too old. Those of the tests never do, and would fill a disk within minutes."""
_OUT = {**_KEPT, "retention.bytes": "268435456"}


@dataclass(frozen=True, kw_only=True)
class Sample:
    at_s: float
    rows: int
    """Delivered so far."""
    memory: Mapping[str, int]
    """Resident bytes of driver, executors and workers."""


def append(servers: str, topic: str, delivered: multiprocessing.sharedctypes.Synchronized[int]) -> None:
    """Keeps the backlog at `BACKLOG` rows, until it is ended, or whoever started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000, "linger.ms": 20})
    sent, value = 0, b"x" * 92
    while parent.is_alive():
        if sent - delivered.value > BACKLOG:
            producer.poll(0.05)
            continue
        for number in range(10_000):
            producer.produce(topic, value, b"%08d" % (sent + number), number % PARTITIONS)
        sent += 10_000
        while len(producer) > _QUEUED and parent.is_alive():
            producer.poll(0.01)


@contextmanager
def appending(servers: str, topic: str) -> Iterator[multiprocessing.sharedctypes.Synchronized[int]]:
    context = multiprocessing.get_context("spawn")
    delivered = context.Value("q", 0)
    process = context.Process(target=append, args=(servers, topic, delivered), daemon=True)
    process.start()
    try:
        yield delivered
    finally:
        process.kill()
        process.join()


def resident(bench: Lab) -> dict[str, int]:
    """Of the processes of Spark; what the broker and the appending process have is not ours."""
    found = {"driver": psutil.Process().memory_info().rss, "executors": 0, "workers": 0}
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            if process.pid in bench.kafka.pids.values() or "multiprocessing" in words:
                continue
            name = "executors" if "CoarseGrained" in words else "driver" if "java" in process.name() else "workers"
            found[name] += process.memory_info().rss
        except psutil.Error:
            continue
    return found


def rows_of(runner: SinkRunner) -> int:
    progress = runner.report.progress
    return 0 if progress is None else sum(each.rows for each in progress.partitions.values())


def measure(bench: Lab, seconds: float, samples: list[Sample]) -> None:
    """Adds to the samples, which stay where it ends with an error."""
    bench.source = unique("endless")
    servers = bench.kafka.bootstrap_servers
    create_topic(servers, bench.source, partitions=PARTITIONS, config=_KEPT)
    with appending(servers, bench.source) as delivered, bench.our_query(EXACTLY_ONCE) as (runner, _):
        ask(servers, lambda client: _keep_little(client, f"{runner.id.sink}-out"))
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if runner.report.error is not None:
                raise runner.report.error
            delivered.value = rows_of(runner)
            if not samples or now - began >= samples[-1].at_s + min(_STEP_S, seconds / _PARTS / 2):
                samples.append(Sample(at_s=now - began, rows=delivered.value, memory=resident(bench)))
            time.sleep(0.2)


def _keep_little(client: AdminClient, topic: str) -> dict[object, object]:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in _OUT.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    return dict(client.incremental_alter_configs([resource]))


def show(record: Record, seconds: float, samples: list[Sample]) -> None:
    rows = []
    for part in range(_PARTS):
        begin, end = part * seconds / _PARTS, (part + 1) * seconds / _PARTS
        own = [each for each in samples if begin <= each.at_s < end]
        if own[:-1] == []:
            continue
        rate = (own[-1].rows - own[0].rows) / (own[-1].at_s - own[0].at_s)
        memory = (
            f"{statistics.median(each.memory[name] for each in own) / _MB:,.0f}"
            for name in ("driver", "executors", "workers")
        )
        rows.append((f"{begin / 60:.0f} to {end / 60:.0f}", f"{rate:,.0f}", *memory))
    columns = ("minutes", "rows/s", "driver, MB", "executors", "workers")
    record.table("resident memory at the top rate, medians", columns, rows)
    record.line(f"{samples[-1].rows:,} rows in {samples[-1].at_s:,.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="top_rate", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    arguments = parser.parse_args()
    samples: list[Sample] = []
    with recording("top-rate", arguments) as record:
        try:
            with lab(arguments.master, record, broker=_FORGETS, trigger={"interval": "0s"}) as bench:
                measure(bench, arguments.seconds, samples)
        finally:
            if samples:
                show(record, arguments.seconds, samples)


if __name__ == "__main__":
    main()
