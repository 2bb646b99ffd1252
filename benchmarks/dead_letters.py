"""What dead letters cost: a pipeline without them, with them and no bad row, and with ever more bad rows, in turns.

`make bench-dead-letters`, or
`PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m dead_letters --rows N --rounds N --pipeline raw json`

A round lets each variant deliver its whole source topic, in another order each time; the first round warms the JVM up
and is not counted. Pipeline `raw` lets rows pass as they are, and its bad ones are tombstones, quoted from the row;
`json` decodes, filters and selects, and a quarter of its bad ones are read from the source again. Its variant without
TryEval evaluates the same expressions unguarded. The last lines are the ratios to the variant that counts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from lab import CPU_HEADS, CPU_TOLD, EXACTLY_ONCE, Lab, Stretch, cpu_per_million, lab
from record import Record, recording
from sinkpipeline.spark import transform
from support.kafka.topics import create_topic, produce

PIPELINES: Mapping[str, Mapping[str, Any]] = {
    "raw": {"decode": {"format": "raw", "onNull": "DeadLetter"}},
    "json": {
        "decode": {"format": "json", "schema": "id BIGINT NOT NULL, amount BIGINT, p INT, text STRING"},
        "transform": {
            "where": "amount >= 0",
            "select": {
                "key": "CAST(id AS STRING)",
                "value": "to_json(struct(id, 1000 DIV amount AS share, text))",
                "partition": "p",
            },
        },
    },
}
BAD_JSON = (b"no json", b'{"amount":1}', b'{"id":1,"amount":0}', b'{"id":1,"amount":1,"p":99}')
"""Of four stages' ways; only the last is read again."""


@dataclass(frozen=True)
class Variant:
    name: str
    share: float = 0.0
    dead_letters: bool = True
    guarded: bool = True

    @property
    def topic(self) -> str:
        return f"source-{self.share:g}"


PLAIN = Variant("no deadLetter", dead_letters=False)
NONE_BAD = Variant("0 % bad")
UNGUARDED = Variant("0 % bad, without TryEval", guarded=False)
BAD = tuple(Variant(f"{share:g} % bad", share / 100) for share in (0.01, 1, 10))
VARIANTS = {"raw": (PLAIN, NONE_BAD, *BAD), "json": (PLAIN, NONE_BAD, UNGUARDED, *BAD)}
RATIOS = ((NONE_BAD, PLAIN), *((each, NONE_BAD) for each in BAD), (NONE_BAD, UNGUARDED))


def records(pipeline: str, count: int, share: float) -> Iterator[tuple[bytes, bytes | None]]:
    """Of about 100 bytes, the bad ones at random places."""
    chance = random.Random(1)  # noqa: S311 - no secret
    for number in range(count):
        key = b"%08d" % number
        if chance.random() < share:
            yield key, None if pipeline == "raw" else chance.choice(BAD_JSON)
        elif pipeline == "raw":
            yield key, b"x" * 92
        else:
            yield key, json.dumps({"id": number, "amount": number % 999 + 1, "text": "x" * 60}).encode()


def fill(bench: Lab, pipeline: str, rows: int, partitions: int) -> None:
    servers = bench.kafka.bootstrap_servers
    for topic, share in {each.topic: each.share for each in VARIANTS[pipeline]}.items():
        create_topic(servers, topic, partitions=partitions)
        for partition in range(partitions):
            produce(servers, topic, records(pipeline, rows // partitions, share), partition=partition)


@contextmanager
def unguarded() -> Iterator[None]:
    """Expressions as they were before each was tried: one that raises fails its task."""

    def not_tried(_spark: SparkSession, expression: Column) -> Column:
        return F.struct(expression.alias("result"))

    with mock.patch.object(transform, "attempt", not_tried):
        yield


def drain(bench: Lab, variant: Variant) -> Stretch:
    bench.source, bench.dead_letters, bench.label = variant.topic, variant.dead_letters, variant.name
    if variant.guarded:
        return bench.drain(EXACTLY_ONCE)
    with unguarded():
        return bench.drain(EXACTLY_ONCE)


def measure(
    record: Record, pipeline: str, master: str, rows: int, rounds: int, partitions: int
) -> dict[Variant, list[Stretch]]:
    variants = VARIANTS[pipeline]
    found: dict[Variant, list[Stretch]] = {variant: [] for variant in variants}
    order = random.Random(1)  # noqa: S311 - no secret
    with lab(master, record, spec=PIPELINES[pipeline]) as bench:
        fill(bench, pipeline, rows, partitions)
        for number in range(rounds + 1):
            for variant in order.sample(variants, len(variants)):
                stretch = drain(bench, variant)
                print(f"  round {number or 'warm-up'}: {variant.name}: {stretch.rate:,.0f} rows/s", flush=True)
                if number:
                    found[variant].append(stretch)
    return found


def show(record: Record, title: str, group: str, found: Mapping[Variant, Sequence[Stretch]]) -> None:
    rows = []
    for variant, stretches in found.items():
        rates = [each.rate for each in stretches]
        record.bar("rows drained in a second, with dead letters", "rows/s", group, variant.name, rates)
        shown = (f"{rate:,.0f}" for rate in (statistics.median(rates), min(rates), max(rates)))
        rows.append((variant.name, *shown, *cpu_per_million(stretches), f"{stretches[-1].dead:,}"))
    columns = ("variant", "median rows/s", "least", "most", *CPU_HEADS, "dead letters")
    record.table(title, columns, rows)
    record.line(CPU_TOLD)
    for above, below in RATIOS:
        if above in found and below in found:
            record.line(f"{above.name} / {below.name}: {ratio(found[above], found[below])}")


def ratio(above: Sequence[Stretch], below: Sequence[Stretch]) -> str:
    """Of the medians; and the paired ratios of the rounds, of rates and of CPU seconds, as their spread."""
    rates = [a.rate / b.rate for a, b in zip(above, below, strict=True)]
    spent = [sum(a.cpu_s.values()) / sum(b.cpu_s.values()) for a, b in zip(above, below, strict=True)]
    medians = statistics.median(a.rate for a in above) / statistics.median(b.rate for b in below)
    return (
        f"ratio of medians {medians:.3f}; paired {statistics.median(rates):.3f} ({min(rates):.3f} to {max(rates):.3f}, "
        f"n={len(rates)}); CPU {statistics.median(spent):.3f} ({min(spent):.3f} to {max(spent):.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="dead_letters", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pipeline", nargs="+", choices=list(PIPELINES), default=list(PIPELINES))
    parser.add_argument("--master", nargs="+", default=["local-cluster[2,1,1024]"])
    parser.add_argument("--partitions", type=int, default=4)
    arguments = parser.parse_args()
    with recording("dead-letters", arguments) as record:
        for master in arguments.master:
            for pipeline in arguments.pipeline:
                what = f"{pipeline}, {arguments.rows:,} rows, {master}"
                print(what, flush=True)
                found = measure(record, pipeline, master, arguments.rows, arguments.rounds, arguments.partitions)
                show(record, what, f"{pipeline}, {master}", found)


if __name__ == "__main__":
    main()
