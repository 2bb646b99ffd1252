"""What a small batch costs, and how soon a record is visible, beside Spark's own Kafka sink.

`make bench-latency`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m latency [--rounds N] [--seconds N]`

1. The fixed cost: a backlog is delivered in batches of 100 rows, or of `--batch-rows`, back to back; milliseconds per
   batch, and CPU milliseconds of broker, JVMs, driver and Python workers. Spark's sink runs as shipped, and once more
   with the checkpoint file manager that our sessions set. The variants take turns, in another order in each round. The
   last line is the worst ratio.
2. Append to visible: records are appended at a steady rate, and each one's age is taken when a `read_committed`
   consumer sees it (`visible.py`). Trigger interval 0. Broker, Spark, producer and consumer share the machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lab import AT_LEAST_ONCE, CPU_HEADS, EXACTLY_ONCE, PARTS, SPARK, SPARK_PLAIN, Lab, Stretch, lab
from record import Record, recording
from support.kafka.topics import unique
from visible import visible_after

COMPARED = (SPARK, SPARK_PLAIN, AT_LEAST_ONCE, EXACTLY_ONCE)


def fixed_cost(
    record: Record, master: str, partitions: int, size: int, batches: int, rounds: int
) -> dict[str, list[Stretch]]:
    """Batches of `size` rows, by variant; a round that warms the JVM is left out."""
    trigger = {"interval": "0s", "maxOffsetsPerTrigger": size}
    found: dict[str, list[Stretch]] = {variant: [] for variant in COMPARED}
    order = random.Random(1)  # noqa: S311 - no secret
    with lab(master, record, trigger=trigger) as bench:
        bench.fill(size * batches, partitions)
        for number in range(rounds + 1):
            for variant in order.sample(COMPARED, len(COMPARED)):
                stretch = bench.drain(variant)
                if number:
                    found[variant].append(stretch)
    return found


@contextmanager
def _query(bench: Lab, variant: str) -> Iterator[str]:
    """A running query; the name of the topic that it writes."""
    if variant in (SPARK, SPARK_PLAIN):
        with bench.spark_query(variant) as (query, _):
            yield f"{query.name}-out"
    else:
        with bench.our_query(variant) as (runner, _):
            yield f"{runner.id.sink}-out"


def main() -> None:
    parser = argparse.ArgumentParser(prog="latency", description=__doc__.splitlines()[0])
    parser.add_argument("--master", nargs="+", default=["local[2]", "local-cluster[2,1,1024]"])
    parser.add_argument("--partitions", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--batch-rows", type=int, nargs="+", default=[100])
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000], help="rows a second")
    parser.add_argument("--variants", nargs="+", choices=COMPARED, default=COMPARED, help="whose rows are visible")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=["cost", "visible"])
    arguments = parser.parse_args()
    ratio = 0.0
    with recording("latency", arguments) as record:
        if arguments.only != "cost":
            for master in arguments.master:
                for rate in arguments.rates:
                    measure_visible(record, master, rate, arguments.variants, arguments.rounds, arguments.seconds)
        if arguments.only != "visible":
            ratio = max(
                measure_cost(record, master, partitions, size, arguments.batches, arguments.rounds)
                for master in arguments.master
                for partitions in arguments.partitions
                for size in arguments.batch_rows
            )
    if ratio:
        print(f"ExactlyOnce / Spark: small batch ratio {ratio:.2f}")


def measure_cost(record: Record, master: str, partitions: int, size: int, batches: int, rounds: int) -> float:
    """Prints the table of one master and number of partitions; the ratio of our wall clock to that of Spark's sink."""
    title = f"a batch of {size:,} rows, {partitions} partitions, {master}, {batches} batches, {rounds} rounds"
    found = fixed_cost(record, master, partitions, size, batches, rounds)
    wall = {each: [1000 * stretch.seconds / batches for stretch in stretches] for each, stretches in found.items()}
    cpu = {
        each: [1000 * sum(stretch.cpu_s.values()) / batches for stretch in stretches]
        for each, stretches in found.items()
    }
    spent = {each: statistics.median(values) for each, values in cpu.items()}
    median = {each: statistics.median(values) for each, values in wall.items()}
    rows = []
    group = f"{master}, {partitions} partitions"
    for each, values in wall.items():
        record.bar(f"a batch of {size:,} rows", "ms", group, each, values)
        record.bar(f"CPU of a batch of {size:,} rows", "ms", group, each, cpu[each])
        parts = (statistics.median(1000 * stretch.cpu_s[part] / batches for stretch in found[each]) for part in PARTS)
        times = (f"{value:.0f}" for value in (median[each], min(values), max(values), spent[each], *parts))
        rows.append((each, *times, f"{median[each] / median[SPARK]:.2f}", f"{spent[each] / spent[SPARK]:.2f}"))
    heads = ("ms", "least", "most", "CPU ms", *CPU_HEADS, "ms / Spark", "CPU / Spark")
    record.table(title, ("variant", *heads), rows)
    return median[EXACTLY_ONCE] / median[SPARK]


def measure_visible(
    record: Record, master: str, rate: int, variants: Sequence[str], rounds: int, seconds: float
) -> None:
    """The variants take turns, after a round that warms the JVM and is left out."""
    found: dict[str, list[list[float]]] = {variant: [] for variant in variants}
    with lab(master, record) as bench:
        for number in range(rounds + 1):
            for variant in variants if number % 2 else variants[::-1]:
                # Each query reads from the beginning. A topic that all share would give the last ones a backlog of
                # millions, and their stretch would begin before they have caught up.
                bench.source = unique("source")
                bench.fill(0, 4)
                with _query(bench, variant) as out:
                    servers = bench.kafka.bootstrap_servers
                    ages = visible_after(servers, bench.source, out, bench.sink_partitions, rate, seconds)
                if number:
                    found[variant].append(ages)
                print(f"   {rate:,} {variant} {_quantile(ages, 50):.0f} {_quantile(ages, 99):.0f}", flush=True)
    rows = []
    for variant, stretches in found.items():
        shown = []
        for percent in (50, 99):
            each = [_quantile(stretch, percent) for stretch in stretches]
            record.bar(f"append to visible, p{percent}", "ms", f"{rate:,} rows/s, {master}", variant, each)
            shown.append(f"{statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})")
        count = sum(len(stretch) for stretch in stretches)
        rows.append((f"{rate:,}", variant, *shown, f"{count:,}"))
    title = f"milliseconds from append to visible, 4 partitions, {master}: medians of {rounds} stretches"
    record.table(title, ("rows/s", "variant", "p50", "p99", "records"), rows, texts=2)
    if {SPARK, EXACTLY_ONCE} <= found.keys():
        pairs = zip(found[EXACTLY_ONCE], found[SPARK], strict=True)
        ratios = [_quantile(ours, 99) / _quantile(theirs, 99) for ours, theirs in pairs]
        told = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, n={len(ratios)})"
        record.line(f"ExactlyOnce / Spark, p99 at {rate:,} rows/s, paired: {told}")


def _quantile(ages: Sequence[float], percent: int) -> float:
    return statistics.quantiles(ages, n=100)[percent - 1]


if __name__ == "__main__":
    main()
