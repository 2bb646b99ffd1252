"""How long a start takes, and what of it depends on the length of the progress topic.

`make bench-resume`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m resume [--records N ...] [--rounds N]`

1. A sink's start (no Spark) on a progress topic with N uncompacted records of another sink *before* our last ones, and
   with N *after* them: fencing is what taking transactional ids costs, reading what reads of the progress topic cost.
2. The whole command, from its call to `Running`: JVM and Spark, then the sink's start, then the first row.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from record import Record, recording
from servers.local_kafka import LocalKafka
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline.kafka.producers import TransactionalProducer, transactional_config
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.spark.session import session_conf
from support.app.command import App, manifest
from support.kafka.topics import create_topic, produce_numbers, unique
from support.sink.one_sink import OneSink

PARTITIONS = 4
UNCOMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "min.compaction.lag.ms": "86400000"}


@dataclass
class Parts:
    """Seconds spent in calls, by part; nested calls count for the outer one."""

    seconds: dict[str, float] = field(default_factory=dict)
    _inside: bool = False

    def watch(self, kind: type, method: str, part: str) -> None:
        original: Callable[..., Any] = getattr(kind, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return original(*arguments, **named)
            self._inside, began = True, time.monotonic()
            try:
                return original(*arguments, **named)
            finally:
                self._inside = False
                self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - began

        setattr(kind, method, timed)


def append_foreign(servers: str, topic: str, records: int) -> None:
    """Progress records of another sink, as a transactional writer leaves them, in transactions of 10,000."""
    other = SinkId("another.pipeline", "out")
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": unique("foreign"),
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 20,
        }
    )
    producer.init_transactions(30)
    for begin in range(0, records, 10_000):
        producer.begin_transaction()
        for number in range(begin, min(begin + 10_000, records)):
            at = SourcePartition("elsewhere", number % 16)
            value = encode_partition(PartitionProgress(epoch=0, next=number, at=0))
            producer.produce(topic, value, other.partition_key(at), 0)
        producer.commit_transaction(60)


def starts(sink: OneSink, rounds: int, parts: Parts) -> tuple[list[float], list[dict[str, float]]]:
    seconds, split = [], []
    for number in range(rounds):
        parts.seconds = {}
        began = time.monotonic()
        sink.start(f"run-{number}-{unique('r')}")
        seconds.append(time.monotonic() - began)
        split.append(parts.seconds)
    return seconds, split


@contextmanager
def _sink(kafka: LocalKafka) -> Iterator[OneSink]:
    sink = OneSink(kafka.bootstrap_servers, partitions=PARTITIONS)
    create_topic(kafka.bootstrap_servers, sink.progress, partitions=1, config=UNCOMPACTED)
    yield sink


def measure_starts(record: Record, kafka: LocalKafka, counts: list[int], rounds: int) -> None:
    rows = []
    parts = Parts()
    for method in ("decide", "resume", "resume_since"):
        parts.watch(ProgressLog, method, "reading")
    parts.watch(TransactionalProducer, "__init__", "fencing")
    for count in counts:
        for where in ("before", "after"):
            with _sink(kafka) as sink:
                if where == "before":
                    append_foreign(kafka.bootstrap_servers, sink.progress, count)
                sink.start("run-first")
                if where == "before":
                    seconds, split = starts(sink, rounds, parts)
                else:
                    # Every start writes again behind them: only the first one after them meets them.
                    append_foreign(kafka.bootstrap_servers, sink.progress, count)
                    seconds, split = starts(sink, 1, parts)
                print(f"  {count:,} {where}: {statistics.median(seconds):.2f} s", file=sys.stderr, flush=True)
                middle = [statistics.median(each.get(part, 0.0) for each in split) for part in ("fencing", "reading")]
                cells = (statistics.median(seconds), min(seconds), max(seconds), *middle)
                rows.append((f"{count:,}", where, *(f"{cell:.2f}" for cell in cells)))
                record.bar("a sink's start", "s", f"{count:,} records of others", where, seconds)
    columns = ("records of others", "where", "median s", "least", "most", "fencing s", "reading s")
    record.table(f"a sink's start, {PARTITIONS} partitions, without Spark", columns, rows, texts=2)


def measure_command(record: Record, kafka: LocalKafka, rounds: int) -> None:
    rows = []
    name = unique("resume")
    create_topic(kafka.bootstrap_servers, name, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as directory:
        document = manifest(kafka.bootstrap_servers, name, [name], spark={})
        connection = OneSink(kafka.bootstrap_servers).connection
        producer = transactional_config(connection, "that of a partition")
        record.ran("the command", spark=session_conf("local[2]", {}), producer=producer, manifest=document)
        app = App(Path(directory), document)
        for number in range(rounds):
            for partition in range(PARTITIONS):
                produce_numbers(kafka.bootstrap_servers, name, 100, partition=partition, start=100 * number)
            before, began = 0 if number == 0 else app.rows_delivered(), time.monotonic()
            with app.start() as run:
                run.eventually(lambda: run.app.sink_status().get("state") == "Starting", "Spark has started")
                starting = time.monotonic() - began
                run.until_state("Running")
                running = time.monotonic() - began
                run.until_rows(before + 100 * PARTITIONS)
                delivered = time.monotonic() - began
                run.terminate()
            which = "first" if number == 0 else "again"
            rows.append((which, *(f"{each:.1f}" for each in (starting, running, delivered))))
    columns = ("start", "a sink starts", "Running", "first rows")
    record.table("the whole command on local[2], seconds since its call", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="resume", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[0, 10_000, 1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with recording("resume", arguments) as record, LocalKafka(jvm_options=()) as kafka:
        measure_starts(record, kafka, arguments.records, arguments.rounds)
        measure_command(record, kafka, arguments.rounds)


if __name__ == "__main__":
    main()
