"""Drains of other rows than those of `throughput`, and how near a drain comes to what its parts can do alone.

`make bench-drains`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m drains [--rounds N] [--only WORD ...]`

Each row of the table is a drain by Spark's own Kafka sink and by ours, in turns: rows of 100 bytes to 10 KB, two
codecs, 1 to 16 partitions, rows as they came, and JSON that is decoded, filtered (half of it passes) and encoded. The
ratios are those of the rounds; the first round warms the JVM up and is not counted. `--only` takes the rows in whose
names one of the words stands.

Then the same backlog with Spark's source alone, whose rows are dropped, and with librdkafka alone: two processes that
produce rows from memory into transactions. The share is our rate by the smaller of these two.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from lab import EXACTLY_ONCE, SOURCE_ALONE, SPARK, Lab, Stretch, as_it_came, half_as_long, lab
from record import Record, recording
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import transactional_config
from support.kafka.topics import create_topic, produce, unique

SCHEMA = "id BIGINT NOT NULL, amount BIGINT, text STRING"
FILTER = "amount >= 500"
VALUE = "to_json(struct(id, amount, text))"
JSON: Mapping[str, Any] = {
    "decode": {"format": "json", "schema": SCHEMA},
    "transform": {"where": FILTER, "select": {"key": "CAST(id AS STRING)", "value": VALUE}},
}
LIBRDKAFKA_ALONE = "librdkafka alone"
PROCESSES = 2
_PER_TRANSACTION = 100_000


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a backlog and of what is done with it."""

    name: str
    rows: int = 2_000_000
    size: int = 100
    partitions: int = 4
    compression: str = "none"
    spec: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def topic(self) -> str:
        return f"source-{self.size}-{self.partitions}-{'json' if self.spec else 'raw'}"


SHAPES = (
    Shape(name="100 bytes"),
    Shape(name="1 KB", size=1_000, rows=500_000),
    Shape(name="10 KB", size=10_000, rows=60_000),
    Shape(name="1 KB, lz4", size=1_000, rows=500_000, compression="lz4"),
    Shape(name="1 KB, zstd", size=1_000, rows=500_000, compression="zstd"),
    Shape(name="100 bytes, lz4", compression="lz4"),
    Shape(name="100 bytes, zstd", compression="zstd"),
    Shape(name="100 bytes, 1 partition", partitions=1),
    Shape(name="100 bytes, 16 partitions", partitions=16),
    Shape(name="JSON of 100 bytes, filtered", spec=JSON),
)


def json_as_spark_does(rows: DataFrame) -> DataFrame:
    decoded = rows.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA.replace(' NOT NULL', '')}') AS record")
    return decoded.selectExpr("record.*").where(FILTER).selectExpr("CAST(id AS STRING) AS key", f"{VALUE} AS value")


def fill(bench: Lab, shape: Shape) -> None:
    bench.source = shape.topic
    if not shape.spec:
        bench.fill(shape.rows, shape.partitions, shape.size)
        return
    servers, text = bench.kafka.bootstrap_servers, half_as_long(60).decode()
    create_topic(servers, shape.topic, partitions=shape.partitions)
    for partition in range(shape.partitions):
        records = (
            b'{"id":%d,"amount":%d,"text":"%s"}' % (number, number % 999, text[number % 4096 :][:60].encode())
            for number in range(shape.rows // shape.partitions)
        )
        produce(servers, shape.topic, records, partition=partition)


def measure(bench: Lab, shape: Shape, rounds: int) -> dict[str, list[Stretch]]:
    bench.source, bench.sink_partitions, bench.compression = shape.topic, shape.partitions, shape.compression
    bench.spec, bench.as_spark_does = shape.spec, json_as_spark_does if shape.spec else as_it_came
    variants = (SPARK, EXACTLY_ONCE)
    found: dict[str, list[Stretch]] = {variant: [] for variant in variants}
    order = random.Random(1)  # noqa: S311 - no secret
    for number in range(rounds + 1):
        for variant in order.sample(variants, len(variants)):
            bench.label = f"{variant}, {shape.name}"
            stretch = bench.drain(variant)
            print(f"  round {number or 'warm-up'}: {bench.label} {stretch.rate:,.0f} rows/s", flush=True)
            if number:
                found[variant].append(stretch)
    bench.label = ""
    return found


def shown(shape: Shape, found: Mapping[str, Sequence[Stretch]]) -> tuple[str, ...]:
    ours, theirs = found[EXACTLY_ONCE], found[SPARK]
    rates = [statistics.median(each.rate for each in stretches) for stretches in (theirs, ours)]
    ratios = [a.rate / b.rate for a, b in zip(ours, theirs, strict=True)]
    spent = [statistics.median(_spent(each) for each in stretches) for stretches in (theirs, ours)]
    return (
        shape.name,
        *(f"{rate:,.0f}" for rate in rates),
        f"{rates[1] / rates[0]:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        *(f"{seconds:.2f}" for seconds in spent),
        f"{spent[1] / spent[0]:.2f}",
    )


def _spent(stretch: Stretch) -> float:
    """CPU seconds of all processes for a million rows."""
    return sum(stretch.cpu_s.values()) / stretch.rows * 1e6


def produce_alone(servers: str, topic: str, partitions: Sequence[int], rows: int, size: int) -> None:
    """Rows into the partitions of a topic, by the client and with the configuration of a sink's tasks."""
    producer = Producer(transactional_config(Connection(bootstrap_servers=servers), unique("alone")))
    producer.init_transactions(60)
    text = half_as_long(size)
    values = [text[number % 4096 :][: size - 8] for number in range(_PER_TRANSACTION)]
    keys = [b"%08d" % number for number in range(_PER_TRANSACTION)]
    nothing = itertools.repeat(None)
    for partition in itertools.islice(itertools.cycle(partitions), rows // _PER_TRANSACTION):
        producer.begin_transaction()
        given = zip(itertools.repeat(topic), values, keys, itertools.repeat(partition), nothing, nothing, strict=False)
        collections.deque(itertools.starmap(producer.produce, given), maxlen=0)
        producer.commit_transaction(60)


def alone(bench: Lab, shape: Shape) -> float:
    """The rows a second that librdkafka takes, in two processes."""
    topic = unique("alone")
    create_topic(bench.kafka.bootstrap_servers, topic, partitions=shape.partitions)
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as processes:
        list(processes.map(abs, range(PROCESSES)))
        began = time.monotonic()
        each = [range(number, shape.partitions, PROCESSES) for number in range(PROCESSES)]
        work = [
            processes.submit(
                produce_alone, bench.kafka.bootstrap_servers, topic, part, shape.rows // PROCESSES, shape.size
            )
            for part in each
        ]
        for done in work:
            done.result()
        return shape.rows / (time.monotonic() - began)


def limits(record: Record, bench: Lab, shape: Shape, rounds: int) -> None:
    found: dict[str, list[float]] = {SOURCE_ALONE: [], LIBRDKAFKA_ALONE: [], EXACTLY_ONCE: []}
    bench.source, bench.sink_partitions, bench.compression = shape.topic, shape.partitions, shape.compression
    bench.spec, bench.as_spark_does = {}, as_it_came
    for number in range(rounds + 1):
        rates = {
            SOURCE_ALONE: bench.drain(SOURCE_ALONE).rate,
            LIBRDKAFKA_ALONE: alone(bench, shape),
            EXACTLY_ONCE: bench.drain(EXACTLY_ONCE).rate,
        }
        for name, rate in rates.items() if number else ():
            found[name].append(rate)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    rows = [
        (name, f"{medians[name]:,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}") for name, rates in found.items()
    ]
    record.table(f"limits, {shape.name}", ("what", "median rows/s", "least", "most"), rows)
    smaller = min(medians[SOURCE_ALONE], medians[LIBRDKAFKA_ALONE])
    record.line(f"ExactlyOnce / the smaller limit: share {medians[EXACTLY_ONCE] / smaller:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="drains", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    arguments = parser.parse_args()
    shapes = [each for each in SHAPES if any(word in each.name for word in arguments.only)]
    with recording("drains", arguments) as record, lab(arguments.master, record, trigger={"interval": "0s"}) as bench:
        rows = []
        filled = set()
        for shape in (_less(each, arguments.share) for each in shapes):
            if shape.topic not in filled:
                fill(bench, shape)
                filled.add(shape.topic)
            found = measure(bench, shape, arguments.rounds)
            for variant, stretches in found.items():
                rates = [each.rate * shape.size / 1e6 for each in stretches]
                record.bar("drained in a second", "MB/s", shape.name, variant, rates)
            rows.append(shown(shape, found))
        columns = ("rows", "Spark, rows/s", "ExactlyOnce", "ratio (rounds)", "CPU s: Spark", "ExactlyOnce", "ratio")
        record.table(f"drains, {arguments.master}, {arguments.rounds} rounds", columns, rows)
        record.line("CPU s: seconds of broker, JVM and workers for a million rows, medians")
        if SHAPES[0] in shapes:
            limits(record, bench, _less(SHAPES[0], arguments.share), arguments.rounds)


def _less(shape: Shape, share: float) -> Shape:
    return Shape(**{**vars(shape), "rows": int(shape.rows * share)})


if __name__ == "__main__":
    main()
