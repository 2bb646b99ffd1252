"""How fast a backlog is drained: Spark's own Kafka sink, ours AtLeastOnce, and ours ExactlyOnce, in turns.

`make bench-throughput`, or
`PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m throughput --rows N --rounds N --batch N --master MASTER`

A round lets each variant deliver the whole source topic, in another order each time. The first two rounds are not
counted: Spark's own producer is Java, which takes so long to be compiled. Start-up is not counted either (see
resume.py). The last line is ExactlyOnce over Spark.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence

from lab import AT_LEAST_ONCE, CPU_HEADS, CPU_TOLD, EXACTLY_ONCE, SPARK, VARIANTS, Stretch, cpu_per_million, lab
from record import Record, recording

DEFAULTS = 0
"""As `--batch`: the pipeline's own defaults."""


def measure(
    record: Record, master: str, rows: int, rounds: int, batch: int, partitions: int, warm_up: int
) -> dict[str, list[Stretch]]:
    trigger = {"interval": "0s"} | ({"maxOffsetsPerTrigger": batch} if batch else {})
    found: dict[str, list[Stretch]] = {variant: [] for variant in VARIANTS}
    order = random.Random(1)  # noqa: S311 - no secret
    with lab(master, record, trigger=trigger) as bench:
        bench.fill(rows, partitions)
        for number in range(1 - warm_up, rounds + 1):
            for variant in order.sample(VARIANTS, len(VARIANTS)):
                stretch = bench.drain(variant)
                told = f"round {number}" if number > 0 else "warm-up"
                print(f"  {told}: {variant} {stretch.rate:,.0f} rows/s", flush=True)
                if number > 0:
                    found[variant].append(stretch)
    return found


def show(record: Record, title: str, group: str, found: dict[str, list[Stretch]]) -> None:
    rows = []
    for variant, stretches in found.items():
        rates = [each.rate for each in stretches]
        record.bar("rows drained in a second", "rows/s", group, variant, rates)
        shown = (f"{rate:,.0f}" for rate in (statistics.median(rates), min(rates), max(rates)))
        rows.append((variant, *shown, *cpu_per_million(stretches)))
    record.table(title, ("variant", "median rows/s", "least", "most", *CPU_HEADS), rows)
    record.line(CPU_TOLD)
    record.line(f"ExactlyOnce / AtLeastOnce: {_paired(found[EXACTLY_ONCE], found[AT_LEAST_ONCE])}")


def _paired(above: Sequence[Stretch], below: Sequence[Stretch]) -> str:
    """The ratios of the rounds: their median, and the range that they span."""
    ratios = [a.rate / b.rate for a, b in zip(above, below, strict=True)]
    return f"paired ratios {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, n={len(ratios)})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="throughput", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[200_000, 1_000_000, DEFAULTS], help="rows; 0: our defaults"
    )
    parser.add_argument("--master", nargs="+", default=["local-cluster[2,1,1024]", "local[2]"])
    parser.add_argument("--partitions", type=int, default=4)
    arguments = parser.parse_args()
    last = 0.0
    with recording("throughput", arguments) as record:
        for master in arguments.master:
            for batch in arguments.batch:
                size = f"batches of {batch:,}" if batch else "our defaults"
                what = f"{arguments.rows:,} rows, {size}, {master}"
                print(what, flush=True)
                sizes = (arguments.rows, arguments.rounds, batch, arguments.partitions, arguments.warm_up)
                found = measure(record, master, *sizes)
                show(record, what, f"{master}, {size}", found)
                medians = {variant: statistics.median(each.rate for each in found[variant]) for variant in VARIANTS}
                last = medians[EXACTLY_ONCE] / medians[SPARK]
    print(f"ExactlyOnce / Spark: ratio {last:.2f}")


if __name__ == "__main__":
    main()
