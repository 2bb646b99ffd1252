"""What a start of the command costs, with and without the archive of Spark's classes.

`make bench-start`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m start [--rounds N] [--short-lived]`

`sinkpipeline run --until-idle` on 400 rows, JSON decode and transform, `local[2]`: seconds from its call until its sink
is Running (Spark runs, and the sink has started), until the first rows are committed, and until it has ended; and the
CPU seconds of all its processes, which say more on a machine that does other things. The variants take turns, after a
round that is left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from record import Record, recording
from servers.local_kafka import LocalKafka
from sinkpipeline.spark.java import JAVA_OPTIONS, SHORT_LIVED
from sinkpipeline.spark.session import session_conf
from support.app.command import App, manifest
from support.kafka.topics import create_topic, produce, unique

PARTITIONS = 4
ROWS = 400
# A driver that is told anything of sharing leaves out what is ours.
VARIANTS = {"without": "-Xshare:auto", "with the archive": ""}

_JSON = {
    "decode": {"format": "json", "schema": "id BIGINT NOT NULL, amount DOUBLE, country STRING"},
    "transform": {
        "where": "amount > 0",
        "select": {"key": "CAST(id AS STRING)", "value": "to_json(struct(id, amount, country))"},
    },
}


@dataclass(frozen=True)
class Start:
    """Seconds of one run."""

    running: float
    rows: float
    end: float
    cpu: float


def document(servers: str, name: str, java_options: str) -> dict[str, Any]:
    spec: dict[str, Any] = {**_JSON, "spark": {"conf": {JAVA_OPTIONS: java_options} if java_options else {}}}
    return manifest(servers, name, [name], **spec)


def start(kafka: LocalKafka, directory: Path, java_options: str) -> Start:
    name = unique("start")
    create_topic(kafka.bootstrap_servers, name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = (json.dumps({"id": number, "amount": 1.5}).encode() for number in range(ROWS // PARTITIONS))
        produce(kafka.bootstrap_servers, name, ((b"key", value) for value in values), partition=partition)
    app = App(directory / name, document(kafka.bootstrap_servers, name, java_options))
    cpu, began = _cpu_of_ended(), time.monotonic()
    with app.start("--until-idle") as run:
        run.until_state("Running")
        running = time.monotonic() - began
        run.until_rows(ROWS)
        rows = time.monotonic() - began
        code = run.wait()
        end = time.monotonic() - began
    if code != 0:
        raise RuntimeError(f"exit code {code}\n{run.stderr}\n{app.log_tail()}")
    return Start(running, rows, end, _cpu_of_ended() - cpu)


def _cpu_of_ended() -> float:
    """Of all processes below this one that have ended; the broker has not."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def options(variant: str, java_options: str) -> str:
    return f"{VARIANTS[variant]} {java_options}".strip()


def measure(record: Record, rounds: int, java_options: str) -> dict[str, list[Start]]:
    found: dict[str, list[Start]] = {variant: [] for variant in VARIANTS}
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="bench-") as directory:
        for variant in VARIANTS:
            ran = document(kafka.bootstrap_servers, "any", options(variant, java_options))
            record.ran(variant, spark=session_conf("local[2]", ran["spec"]["spark"].get("conf", {})), manifest=ran)
        for number in range(rounds + 1):
            for variant in list(VARIANTS) if number % 2 else reversed(VARIANTS):
                one = start(kafka, Path(directory), options(variant, java_options))
                print("  ", number, variant, *(f"{each:.1f}" for each in astuple(one)), flush=True)
                if number:
                    found[variant].append(one)
    return found


def show(record: Record, rounds: int, found: dict[str, list[Start]]) -> None:
    names = ("Running", "first rows", "end", "CPU")
    rows = []
    for variant, starts in found.items():
        columns = list(zip(*map(astuple, starts), strict=True))
        for name, each in zip(names, columns, strict=True):
            record.bar("a start", "s", name, variant, each)
        rows.append(
            (variant, *(f"{statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})" for each in columns))
        )
    record.table(f"seconds of a start on local[2], {rounds} rounds", ("archive", *names), rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="start", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short-lived", action="store_true", help="with the Java options of the tests")
    arguments = parser.parse_args()
    with recording("start", arguments) as record:
        found = measure(record, arguments.rounds, SHORT_LIVED if arguments.short_lived else "")
        show(record, arguments.rounds, found)


if __name__ == "__main__":
    main()
