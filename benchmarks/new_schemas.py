"""What a schema that is met for the first time costs: from its record until the row is there, beside known ones.

`make bench-new-schemas`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m new_schemas [--rounds N]`

A real broker and a real registry, one driver on `local[2]`. A round produces nine Avro records three times, and after
each waits until a `read_committed` consumer sees all nine rows: of schemas that are known, of one that is new, and of
nine that are. Whatever is above the first is the new query: the batch that ends, the question to the registry, the new
plan, its first batch. All have the writer's schemas of earlier rounds in their plan.

What of that is the restart alone, from the line of the log that tells the schema until `Running` is told, is measured
too; and the CPU seconds of driver, JVM and workers.

`--beside DIR`: a driver of another commit takes each step in turn with ours
(`git archive COMMIT spark_app | tar -x -C /tmp/before`, and `--beside /tmp/before/spark_app`).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition
from typing_extensions import override

from lab import cpu_of
from record import recording
from servers.local_kafka import LocalKafka
from servers.schema_registry import LocalRegistry
from sinkpipeline.core.schemas import MAX_WRITERS
from support import avro
from support.app.command import App, Run, manifest, sink
from support.kafka.topics import create_topic, produce, unique

RECORDS = 9
NEW = {"known": 0, "1 new": 1, "9 new": 9}
"""How many of the records name a schema of their own."""
OURS, BESIDE = "this", "beside"
_DEADLINE_S = 60.0
_TOLD = re.compile(r"^(\S+ \S+) INFO sinkpipeline\.sink: .* records name schemas", re.MULTILINE)
_RUNS = re.compile(r"^(\S+ \S+) INFO sinkpipeline\.run: .*: Running, ", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """From records to rows."""

    seconds: float
    restart: float
    """Of these, from the schema that was told until the query ran again; of several restarts all of them."""
    cpu: float


class Beside(App):
    """The command of another commit."""

    package: Path | None = None

    @property
    @override
    def environment(self) -> dict[str, str]:
        more = {} if self.package is None else {"PYTHONPATH": str(self.package)}
        return {**super().environment, **more}


@contextmanager
def rows_of(servers: str, topic: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": servers, "group.id": "bench", "isolation.level": "read_committed"}
    with closing(Consumer({**settings, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        yield consumer


class World:
    """A pipeline from one topic to another, and the schemas that its records name."""

    def __init__(self, servers: str, registry: LocalRegistry) -> None:
        self.name, self.servers, self._registry = unique("schemas"), servers, registry
        self.known = [self._new()]
        create_topic(servers, f"{self.name}-in")

    @property
    def document(self) -> dict[str, Any]:
        # One partition: the consumer needs no more.
        of_one = sink(self.name)
        of_one["kafka"]["topic"]["partitions"] = 1
        return manifest(
            self.servers,
            self.name,
            [f"{self.name}-in"],
            decode={"format": "avro", "schemaRegistry": {"url": self._registry.url}},
            transform={"select": {"value": "CAST(id AS STRING)"}},
            sinks=[of_one],
        )

    def _new(self) -> tuple[int, Any]:
        number = next(_NUMBERS)
        more = {"name": f"more{number}", "type": "int", "default": 0}
        schema = avro.record(("id", "long"), more, name=self.name.replace("-", "_"))
        return self._registry.register(f"{self.name}-in-value", schema), schema

    def cost(self, run: Run, consumer: Consumer, new: int) -> Cost:
        """From the record to its row."""
        named = [*(self._new() for _ in range(new)), *self.known[:1] * (RECORDS - new)]
        values = [avro.framed(number, schema, {"id": number}) for number, schema in named]
        read, spent = run.app.log_file.stat().st_size, cpu_of_all(run)
        began = time.monotonic()
        produce(self.servers, f"{self.name}-in", values)
        missing = RECORDS
        while missing:
            record = consumer.poll(0.05)
            missing -= record is not None and record.error() is None
            if time.monotonic() - began > _DEADLINE_S or run.exit_code is not None:
                raise RuntimeError(f"{missing} rows are missing\n{run.stderr}\n{run.app.log_tail()}")
        seconds = time.monotonic() - began
        with run.app.log_file.open() as log:
            log.seek(read)
            return Cost(seconds, restart_of(log.read()), cpu_of_all(run) - spent)


_NUMBERS = count(1)


def restart_of(log: str) -> float:
    """Seconds from each schema that was told until the query ran."""
    found = 0.0
    for told in _TOLD.finditer(log):
        runs = _RUNS.search(log, told.end())
        if runs is not None:
            found += (_time(runs[1]) - _time(told[1])).total_seconds()
    return found


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f")  # noqa: DTZ007 - only differences are of use


def cpu_of_all(run: Run) -> float:
    """CPU seconds of all its processes that live."""
    found = 0.0
    driver = psutil.Process(run.pid)
    for each in (driver, *driver.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += cpu_of(each)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="new_schemas", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help=f"a plan takes {MAX_WRITERS} schemas")
    parser.add_argument("--beside", type=Path, help="the spark_app of another commit")
    given = parser.parse_args()
    rounds: int = given.rounds
    if 1 + (rounds + 1) * sum(NEW.values()) > MAX_WRITERS:
        parser.error(f"--rounds {rounds} needs more than {MAX_WRITERS} schemas")
    packages: dict[str, Path | None] = {OURS: None}
    if given.beside is not None:
        packages[BESIDE] = given.beside.absolute()
    found: dict[tuple[str, str], list[Cost]] = {(variant, who): [] for variant in NEW for who in packages}
    with (
        recording("new_schemas", given) as record,
        LocalKafka() as kafka,
        LocalRegistry() as registry,
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        ExitStack() as ends,
    ):
        sides: dict[str, tuple[World, Run, Consumer]] = {}
        for who, package in packages.items():
            world = World(kafka.bootstrap_servers, registry)
            record.ran(who, manifest=world.document)
            app = Beside(Path(directory) / who, world.document)
            app.package = package
            run = ends.enter_context(app.start())
            run.until_state("Running")
            sides[who] = world, run, ends.enter_context(rows_of(world.servers, f"{world.name}-out"))
        # The first round warms up.
        for number in range(rounds + 1):
            for variant, new in NEW.items():
                for who in [*packages][:: 1 if number % 2 else -1]:
                    world, run, consumer = sides[who]
                    cost = world.cost(run, consumer, new)
                    print("  ", number, variant, who, cost, f"load {os.getloadavg()[0]:.1f}", flush=True)
                    if number:
                        found[variant, who].append(cost)
        record.table(
            f"from records to rows, {rounds} rounds: medians, least and most",
            ("schemas", "driver", "seconds", "of these the restart", "CPU s"),
            [(*key, *_cells(costs)) for key, costs in found.items()],
            texts=2,
        )
        for (variant, who), costs in found.items():
            record.bar("from record to row", "s", who, variant, [each.seconds for each in costs])


def _cells(costs: list[Cost]) -> Iterator[str]:
    parts: Mapping[str, list[float]] = {
        "seconds": [each.seconds for each in costs],
        "restart": [each.restart for each in costs],
        "cpu": [each.cpu for each in costs],
    }
    for each in parts.values():
        yield f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


if __name__ == "__main__":
    main()
