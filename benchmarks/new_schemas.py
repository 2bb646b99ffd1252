"""What a schema that is met for the first time costs: from its record until the row is there, beside known ones.

`make bench-new-schemas`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m new_schemas [--rounds N]`

One driver on `local[2]`, a real broker and a real registry. A round produces nine Avro records three times, and after
each waits until a `read_committed` consumer sees all nine rows: of schemas that are known, of one that is new, and of
nine that are. Whatever is above the first is the restart of the query: the task that stops, the question to the
registry, the new plan. All have the writer's schemas of earlier rounds in their plan.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

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
_DEADLINE_S = 60.0


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

    def seconds(self, run: Run, consumer: Consumer, new: int) -> float:
        """From the record to its row."""
        named = [*(self._new() for _ in range(new)), *self.known[:1] * (RECORDS - new)]
        values = [avro.framed(number, schema, {"id": number}) for number, schema in named]
        began = time.monotonic()
        produce(self.servers, f"{self.name}-in", values)
        missing = RECORDS
        while missing:
            record = consumer.poll(0.05)
            missing -= record is not None and record.error() is None
            if time.monotonic() - began > _DEADLINE_S or run.exit_code is not None:
                raise RuntimeError(f"{missing} rows are missing\n{run.stderr}\n{run.app.log_tail()}")
        return time.monotonic() - began


_NUMBERS = count(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="new_schemas", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help=f"a plan takes {MAX_WRITERS} schemas")
    rounds = parser.parse_args().rounds
    if 1 + (rounds + 1) * sum(NEW.values()) > MAX_WRITERS:
        parser.error(f"--rounds {rounds} needs more than {MAX_WRITERS} schemas")
    found: dict[str, list[float]] = {variant: [] for variant in NEW}
    with (
        recording("new_schemas", parser.parse_args()) as record,
        LocalKafka() as kafka,
        LocalRegistry() as registry,
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
    ):
        world = World(kafka.bootstrap_servers, registry)
        record.ran("all", manifest=world.document)
        app = App(Path(directory), world.document)
        with app.start() as run:
            run.until_state("Running")
            with rows_of(world.servers, f"{world.name}-out") as consumer:
                # The first round warms up.
                for number in range(rounds + 1):
                    for variant, new in NEW.items():
                        one = world.seconds(run, consumer, new)
                        print("  ", number, variant, f"{one:.2f}", flush=True)
                        if number:
                            found[variant].append(one)
        cells = [
            (variant, *(f"{pick(each):.2f}" for pick in (statistics.median, min, max)))
            for variant, each in found.items()
        ]
        record.table(f"seconds from record to row, {rounds} rounds", ("schemas", "median", "least", "most"), cells)
        for variant, each in found.items():
            record.bar("from record to row", "s", "local[2]", variant, each)


if __name__ == "__main__":
    main()
