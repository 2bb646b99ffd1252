"""What each sink costs where one driver has several: batches of 100 rows by 1, 4 and 16 sinks at once.

`make bench-sinks`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m many_sinks [--sinks N ...] [--rounds N]`

All sinks of a round deliver the same backlog side by side, each with a query and a topic of its own, as in a pipeline.
Spark's own sink does the same with as many queries. All have started before the backlog is appended, so no start is
counted; the time ends when the last one is through.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from lab import EXACTLY_ONCE, SPARK, SPARK_PLAIN, Lab, Stretch, lab
from record import Record, recording
from support.kafka.topics import unique

BATCH = 100
COMPARED = (SPARK, SPARK_PLAIN, EXACTLY_ONCE)


def together(bench: Lab, variant: str, sinks: int, partitions: int, rows: int) -> Stretch:
    """So many rows by each of so many sinks at once, all of which have started before the first row is there."""
    bench.source = unique("source")
    bench.fill(0, partitions)
    with ExitStack() as running:
        if variant == EXACTLY_ONCE:
            runners = [running.enter_context(bench.our_query(variant))[0] for _ in range(sinks)]
            before, began = bench.cpu(), time.monotonic()
            bench.append(rows, partitions)
            ends = bench.ends()
            for runner in runners:
                bench.until(runner, partial(runner.reached, ends))
        else:
            queries = [running.enter_context(bench.spark_query(variant))[0] for _ in range(sinks)]
            for query in queries:
                query.processAllAvailable()
            before, began = bench.cpu(), time.monotonic()
            bench.append(rows, partitions)
            for query in queries:
                query.processAllAvailable()
        seconds = time.monotonic() - began
        spent = {name: value - before[name] for name, value in bench.cpu().items()}
    return Stretch(seconds, rows * sinks, spent)


def measure(
    record: Record, master: str, sinks: int, partitions: int, batches: int, rounds: int
) -> dict[str, list[Stretch]]:
    found: dict[str, list[Stretch]] = {variant: [] for variant in COMPARED}
    with lab(master, record, trigger={"interval": "0s", "maxOffsetsPerTrigger": BATCH}) as bench:
        for number in range(rounds + 1):
            for variant in COMPARED if number % 2 else COMPARED[::-1]:
                stretch = together(bench, variant, sinks, partitions, BATCH * batches)
                print(f"  round {number or 'warm-up'}: {sinks} x {variant} {stretch.seconds:.1f} s", flush=True)
                if number:
                    found[variant].append(stretch)
    return found


def rows_of(sinks: int, batches: int, found: dict[str, Sequence[Stretch]]) -> list[tuple[str, ...]]:
    wall = {each: statistics.median(one.seconds for one in found[each]) for each in COMPARED}
    cpu = {each: statistics.median(sum(one.cpu_s.values()) for one in found[each]) for each in COMPARED}
    return [
        (
            f"{sinks}",
            each,
            f"{1000 * wall[each] / batches:.0f}",
            f"{1000 * cpu[each] / batches / sinks:.0f}",
            f"{wall[each] / wall[SPARK]:.2f}",
            f"{cpu[each] / cpu[SPARK]:.2f}",
        )
        for each in COMPARED
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="many_sinks", description=__doc__.splitlines()[0])
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--sinks", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with recording("many-sinks", arguments) as record:
        rows: list[tuple[str, ...]] = []
        for sinks in arguments.sinks:
            found = measure(record, arguments.master, sinks, arguments.partitions, arguments.batches, arguments.rounds)
            rows += rows_of(sinks, arguments.batches, dict(found))
            for variant, stretches in found.items():
                values = [1000 * sum(each.cpu_s.values()) / arguments.batches / sinks for each in stretches]
                record.bar("CPU of a batch of a sink", "ms", f"{sinks} sinks", variant, values)
        title = f"a batch of {BATCH} rows by each sink, {arguments.partitions} partitions, {arguments.master}"
        columns = ("sinks", "variant", "ms", "CPU ms a sink", "ms / Spark", "CPU / Spark")
        record.table(f"{title}, {arguments.rounds} rounds", columns, rows, texts=2)


if __name__ == "__main__":
    main()
