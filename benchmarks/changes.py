"""Changes of a database into a topic: by a stage, exactly once, and by Debezium's engine, at least once.

`make bench-changes`, or `PYTHONPATH=dev:tests:benchmarks .venv/bin/python -m changes [--rows N] [--rounds N]`

Of PostgreSQL, MariaDB and MySQL. Both read the same backlog, from a slot of their own or from the binary log, and write
JSON into a topic with the same client settings, taking turns. The seconds are from the first record to the last, by the
broker's clock, so without the start of a process; so are the CPU seconds of the reader, of the database's processes and
of the broker.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from typing_extensions import override

import debezium
from lab import cpu_of
from record import recording
from servers.binlog_server import BinlogServer
from servers.local_kafka import LocalKafka
from servers.local_process import HOST, cache_directory
from servers.postgresql import SUPERUSER, LocalPostgresql
from sinkpipeline.changes.settings import Slot
from sinkpipeline.core.changes.checkpoints import Checkpoint
from sinkpipeline.core.changes.positions import parse_binlog
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.consumers import extent
from snapshot import broker_s, database_s, servers
from support.changes.binlog import SERVERS, BinlogLab
from support.changes.lab import Lab, StageLab, StageProcess
from support.kafka.topics import create_topic
from support.waiting import wait_until

_PATIENCE_S = 900
_PARTITIONS: Final = 3
_STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
_PROPERTIES: Final = {
    "name": "bench",
    "topic.prefix": "bench",
    "snapshot.mode": "no_data",
    "converter.schemas.enable": "false",
    "database.hostname": HOST,
    "database.password": "any",
}


class Spent(NamedTuple):
    """What one reading of the backlog has cost."""

    seconds: float
    reader: float
    database: float
    broker: float


class Database(ABC):
    """A kind of them: one of its databases, with a backlog, for one reading."""

    lab: StageLab

    @abstractmethod
    def fill(self, rows: int, at_once: int) -> None:
        """The backlog, in transactions of so many rows."""

    @abstractmethod
    def stage(self) -> StageProcess: ...

    @abstractmethod
    def engine(self, servers: str, directory: Path) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def cpu_s(self) -> float: ...

    @abstractmethod
    def close(self) -> None: ...


class Postgresql(Database):
    def __init__(self, server: LocalPostgresql, servers: str, directory: Path) -> None:
        self._server = server
        self.lab = self._own = Lab(server, servers, directory)

    @override
    def fill(self, rows: int, at_once: int) -> None:
        self._own.sql(
            "CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric, at timestamptz)",
            f"CREATE PUBLICATION {self.lab.name} FOR ALL TABLES",
            f"SELECT pg_create_logical_replication_slot('{self._own.slot}', 'pgoutput')",
        )
        with self._own.connected() as session:
            for first in range(1, rows + 1, at_once):
                session.execute(
                    "INSERT INTO orders SELECT g, lpad(g::text, 60, 'x'), (g %% 1000000)::numeric / 100, now()"
                    " FROM generate_series(%s::int, %s::int) AS g",
                    (first, min(first + at_once - 1, rows)),
                )

    @override
    def stage(self) -> StageProcess:
        slot = Slot(name=self._own.slot, create=False)
        return self.lab.start(database={"slot": slot}, topic=TopicRequest(name=self.lab.topic, partitions=_PARTITIONS))

    @override
    def engine(self, servers: str, directory: Path) -> subprocess.Popen[bytes]:
        own = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "disabled",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "database.user": SUPERUSER,
            "publication.name": self.lab.name,
            "slot.name": self._own.slot,
            "database.port": str(self._server.port),
            "database.dbname": self.lab.name,
        }
        return _engine(own, servers, self.lab.topic, directory)

    @override
    def cpu_s(self) -> float:
        return database_s(self._server)

    @override
    def close(self) -> None:
        self._own.close()


CONNECTORS: Final = {
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
}


class Binlog(Database):
    def __init__(self, server: BinlogServer, servers: str, directory: Path) -> None:
        self._server = server
        self._servers = servers
        self._directory = directory
        self.lab = self._own = BinlogLab(server, servers, directory)
        self._own.sql(
            "CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(200), price decimal(12,2), at timestamp(6))"
        )
        self._begins = self._own.end()
        # Debezium has no other way to begin anywhere than where it has stopped itself.
        create_topic(servers, f"{self.lab.name}-before", partitions=1)
        engine = self.engine(servers, directory, f"{self.lab.name}-before")
        with _watching(servers, f"{self.lab.name}-before", 1) as count:

            def has_begun() -> bool:
                self._own.sql("REPLACE INTO orders VALUES (0, 'x', 0, now())")
                return count() > 0

            wait_until(has_begun, "the engine reads", _PATIENCE_S, poll_s=0.5)
        _end(engine, directory)
        self._own.sql("DELETE FROM orders")
        self._begins = self._own.end()

    @override
    def fill(self, rows: int, at_once: int) -> None:
        with self._own.connected() as session, session.cursor() as cursor:
            for first in range(1, rows + 1, at_once):
                count = min(at_once, rows - first + 1)
                cursor.execute(
                    f"INSERT INTO orders SELECT {first} + seq - 1, lpad({first} + seq, 60, 'x'),"  # noqa: S608 - ours
                    f" (({first} + seq) % 1000000) / 100, now(6) FROM seq_1_to_{count}"
                )

    @override
    def stage(self) -> StageProcess:
        begins = Checkpoint(at=parse_binlog(self._begins))
        topic = TopicRequest(name=self.lab.topic, partitions=_PARTITIONS)
        return self.lab.start(database={"start_from": begins}, topic=topic)

    @override
    def engine(self, servers: str, directory: Path, topic: str = "") -> subprocess.Popen[bytes]:
        with self._server.connected() as session, session.cursor() as cursor:
            cursor.execute("CREATE USER IF NOT EXISTS 'bench'@'%' IDENTIFIED BY 'any'")
            cursor.execute("GRANT ALL ON *.* TO 'bench'@'%'")
        own = {
            "connector.class": CONNECTORS[self._server.kind],
            "driver.allowPublicKeyRetrieval": "true",
            "database.user": "bench",
            "database.port": str(self._server.port),
            "database.server.id": "7",
            "table.include.list": f"{self.lab.name}.orders",
            "include.schema.changes": "false",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": f"{directory}/offsets",
            "offset.flush.interval.ms": "0",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": f"{directory}/history",
        }
        return _engine(own, servers, topic or self.lab.topic, directory)

    @override
    def cpu_s(self) -> float:
        return cpu_of(psutil.Process(self._server.pid))

    @override
    def close(self) -> None:
        self._own.close()


VARIANTS: Final = ("stage, exactly once", "Debezium, at least once")


def main() -> None:
    parser = argparse.ArgumentParser(prog="changes", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--at-once", type=int, default=100, help="rows of a transaction of the database")
    parser.add_argument("--rounds", type=int, default=5, help="one more is left out")
    arguments = parser.parse_args()
    if not list(cache_directory().glob("debezium-*")):
        parser.error("no Debezium: make debezium")
    with (
        recording("changes", arguments) as record,
        servers() as (kafka, postgresql),
        SERVERS["mariadb"]() as mariadb,
        SERVERS["mysql"]() as mysql,
    ):
        makes: Mapping[str, Callable[[Path], Database]] = {
            "PostgreSQL": lambda directory: Postgresql(postgresql, kafka.bootstrap_servers, directory),
            "MariaDB": lambda directory: Binlog(mariadb, kafka.bootstrap_servers, directory),
            "MySQL": lambda directory: Binlog(mysql, kafka.bootstrap_servers, directory),
        }
        rows = [row for name, make in makes.items() for row in _rows(name, make, kafka, arguments)]
        columns = ("database", "reader", "changes/s", "us of CPU a change: reader", "database", "broker")
        record.table("changes of a database", columns, rows)


def _rows(
    name: str, make: Callable[[Path], Database], kafka: LocalKafka, arguments: argparse.Namespace
) -> Iterator[tuple[str, ...]]:
    told: dict[str, list[Spent]] = {variant: [] for variant in VARIANTS}
    for number in range(arguments.rounds + 1):
        for variant in VARIANTS:
            with tempfile.TemporaryDirectory() as directory:
                database = make(Path(directory))
                try:
                    found = _round(database, kafka, Path(directory), arguments, is_ours=variant == VARIANTS[0])
                finally:
                    database.close()
            micros = ", ".join(f"{each / arguments.rows * 1e6:.1f}" for each in found[1:])
            rate = arguments.rows / found.seconds
            print(f"  {name}, round {number}: {variant}: {rate:,.0f}/s; {micros} us", flush=True)
            if number:
                told[variant].append(found)
    for variant, spent in told.items():
        rates = [arguments.rows / each.seconds for each in spent]
        micros = [statistics.median(each) / arguments.rows * 1e6 for each in zip(*spent, strict=True)]
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        yield (name, variant, spread, *(f"{each:.1f}" for each in micros[1:]))


def _round(
    database: Database, kafka: LocalKafka, directory: Path, arguments: argparse.Namespace, *, is_ours: bool
) -> Spent:
    lab = database.lab
    database.fill(arguments.rows, arguments.at_once)
    create_topic(kafka.bootstrap_servers, lab.topic, partitions=_PARTITIONS, config=_STAMPED)
    with _watching(kafka.bootstrap_servers, lab.topic, _PARTITIONS) as count:
        reader = database.stage() if is_ours else database.engine(kafka.bootstrap_servers, directory)
        try:
            process = psutil.Process(reader.pid)
            wait_until(lambda: count() > 0, "the first change", _PATIENCE_S, poll_s=0.02)
            before = cpu_of(process), database.cpu_s(), broker_s(kafka)
            wait_until(lambda: count() >= arguments.rows, "the last change", _PATIENCE_S, poll_s=0.05)
            after = cpu_of(process), database.cpu_s(), broker_s(kafka)
            seconds = _seconds(kafka, lab.topic, arguments.rows)
        finally:
            if isinstance(reader, StageProcess):
                assert reader.end() == 0, reader.log
            else:
                _end(reader, directory)
    return Spent(seconds, *(two - one for one, two in zip(before, after, strict=True)))


def _engine(own: Mapping[str, str], servers: str, topic: str, directory: Path) -> subprocess.Popen[bytes]:
    [jars] = cache_directory().glob("debezium-*")
    file = directory / "connector.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**_PROPERTIES, **own}.items()))
    program = Path(debezium.__file__).with_name("Copier.java")
    argv = ["java", "-Xmx512m", "-cp", f"{jars}/*", str(program), str(file), servers, topic]
    with (directory / "log").open("a") as log:
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _end(engine: subprocess.Popen[bytes], directory: Path) -> None:
    engine.communicate(timeout=60)
    assert engine.returncode == 0, (directory / "log").read_text()[-20000:]


@contextmanager
def _watching(servers: str, topic: str, partitions: int) -> Iterator[Callable[[], int]]:
    """How many offsets a topic has; a transaction adds one to each of its partitions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})

    def ends() -> int:
        return sum(extent(consumer, topic, partition)[1] for partition in range(partitions))

    def is_led() -> bool:
        """A topic that is new can be described before its partitions answer."""
        try:
            ends()
        except KafkaException:
            return False
        return True

    try:
        wait_until(is_led, "each partition has a leader that answers")
        yield ends
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
