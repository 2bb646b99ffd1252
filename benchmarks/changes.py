"""Changes of a PostgreSQL database into a topic: by a stage, exactly once, and by Debezium's engine, at least once.

`make bench-changes`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m changes [--rows N] [--rounds N]`

Both read the same backlog from a slot of their own, and write JSON into a topic with the same client settings, taking
turns. The seconds are from the first record to the last, by the broker's clock, so without the start of a process; so
are the CPU seconds of the reader, of the database's processes and of the broker.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka import Consumer, TopicPartition

import debezium
from lab import cpu_of
from record import recording
from servers.local_kafka import LocalKafka
from servers.local_process import HOST, cache_directory
from servers.postgresql import SUPERUSER, LocalPostgresql
from sinkpipeline.core.topics import TopicRequest
from snapshot import broker_s, database_s, servers
from support.changes.lab import Lab
from support.kafka.topics import create_topic
from support.waiting import wait_until

_PATIENCE_S = 900
_PARTITIONS: Final = 3
_STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
_PROPERTIES: Final = {
    "name": "bench",
    "topic.prefix": "bench",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",
    "snapshot.mode": "no_data",
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "converter.schemas.enable": "false",
    "database.hostname": HOST,
    "database.user": SUPERUSER,
    "database.password": "any",
}


class Spent(NamedTuple):
    """What one reading of the backlog has cost."""

    seconds: float
    reader: float
    database: float
    broker: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="changes", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--at-once", type=int, default=100, help="rows of a transaction of the database")
    parser.add_argument("--rounds", type=int, default=5, help="one more is left out")
    arguments = parser.parse_args()
    if not list(cache_directory().glob("debezium-*")):
        parser.error("no Debezium: make debezium")
    told: dict[str, list[Spent]] = {"stage, exactly once": [], "Debezium, at least once": []}
    with recording("changes", arguments) as record, servers() as (kafka, postgresql):
        for number in range(arguments.rounds + 1):
            for variant, read in zip(told, (_by_stage, _by_debezium), strict=True):
                with tempfile.TemporaryDirectory() as directory:
                    found = _round(kafka, postgresql, Path(directory), arguments, read)
                micros = ", ".join(f"{each / arguments.rows * 1e6:.1f}" for each in found[1:])
                print(f"  round {number}: {variant}: {arguments.rows / found.seconds:,.0f}/s; {micros} us", flush=True)
                if number:
                    told[variant].append(found)
        rows = []
        for variant, spent in told.items():
            rates = [arguments.rows / each.seconds for each in spent]
            micros = [statistics.median(each) / arguments.rows * 1e6 for each in zip(*spent, strict=True)]
            spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            rows.append((variant, spread, *(f"{each:.1f}" for each in micros[1:])))
        columns = ("reader", "changes/s", "us of CPU a change: reader", "database", "broker")
        record.table("changes of a database", columns, rows)


Start = Callable[[Lab, str, Path], "tuple[psutil.Process, Callable[[], None]]"]


def _round(
    kafka: LocalKafka, postgresql: LocalPostgresql, directory: Path, arguments: argparse.Namespace, start: Start
) -> Spent:
    lab = Lab(postgresql, kafka.bootstrap_servers, directory)
    try:
        lab.sql(
            "CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric, at timestamptz)",
            f"CREATE PUBLICATION {lab.name} FOR ALL TABLES",
            f"SELECT pg_create_logical_replication_slot('{lab.slot}', 'pgoutput')",
        )
        with lab.connected() as session:
            for first in range(1, arguments.rows + 1, arguments.at_once):
                session.execute(
                    "INSERT INTO orders SELECT g, lpad(g::text, 60, 'x'), (g %% 1000000)::numeric / 100, now()"
                    " FROM generate_series(%s::int, %s::int) AS g",
                    (first, min(first + arguments.at_once - 1, arguments.rows)),
                )
        create_topic(kafka.bootstrap_servers, lab.topic, partitions=_PARTITIONS, config=_STAMPED)
        with _watching(kafka, lab.topic) as count:
            process, end = start(lab, kafka.bootstrap_servers, directory)
            try:
                wait_until(lambda: count() > 0, "the first change", _PATIENCE_S, poll_s=0.02)
                before = cpu_of(process), database_s(postgresql), broker_s(kafka)
                wait_until(lambda: count() >= arguments.rows, "the last change", _PATIENCE_S, poll_s=0.05)
                after = cpu_of(process), database_s(postgresql), broker_s(kafka)
                seconds = _seconds(kafka, lab.topic, arguments.rows)
            finally:
                end()
        return Spent(seconds, *(two - one for one, two in zip(before, after, strict=True)))
    finally:
        lab.close()


def _by_stage(lab: Lab, _servers: str, _directory: Path) -> tuple[psutil.Process, Callable[[], None]]:
    slot = {"slot": type(lab.settings().database.slot)(name=lab.slot, create=False)}
    topic = TopicRequest(name=lab.topic, partitions=_PARTITIONS)
    stage = lab.start(database=slot, topic=topic)

    def end() -> None:
        assert stage.end() == 0, stage.log

    return psutil.Process(stage.pid), end


def _by_debezium(lab: Lab, servers: str, directory: Path) -> tuple[psutil.Process, Callable[[], None]]:
    [jars] = cache_directory().glob("debezium-*")
    own: Mapping[str, str] = {
        "publication.name": lab.name,
        "slot.name": lab.slot,
        "database.port": str(lab.server.port),
        "database.dbname": lab.name,
    }
    file = directory / "connector.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**_PROPERTIES, **own}.items()))
    program = Path(debezium.__file__).with_name("Copier.java")
    argv = ["java", "-Xmx512m", "-cp", f"{jars}/*", str(program), str(file), servers, lab.topic]
    log = (directory / "log").open("w")
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def end() -> None:
        process.communicate(timeout=60)
        log.close()
        assert process.returncode == 0, (directory / "log").read_text()[-3000:]

    return psutil.Process(process.pid), end


@contextmanager
def _watching(kafka: LocalKafka, topic: str) -> Iterator[Callable[[], int]]:
    """How many offsets a topic has; a transaction adds one to each of its partitions."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "bench"})
    places = [TopicPartition(topic, partition) for partition in range(_PARTITIONS)]
    try:
        yield lambda: sum(consumer.get_watermark_offsets(each, timeout=30)[1] for each in places)
    finally:
        consumer.close()


def _seconds(kafka: LocalKafka, topic: str, rows: int) -> float:
    """From the first record to the last, by the broker's clock. Raises RuntimeError if they are not `rows`."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    stamps: list[int] = []
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(_PARTITIONS)])
    try:
        while len(stamps) < rows:
            batch = consumer.consume(10_000, 30)
            if not batch:
                raise RuntimeError(f"{len(stamps)} records of {rows}")
            stamps += [each.timestamp()[1] for each in batch if each.error() is None]
    finally:
        consumer.close()
    return (max(stamps) - min(stamps)) / 1000


if __name__ == "__main__":
    main()
