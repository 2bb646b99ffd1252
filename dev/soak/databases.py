"""`make soak SOURCE=postgresql`, `SOURCE=mariadb`, `SOURCE=mysql`: the changes of a database.

A server and a broker, each behind a proxy, the real command with its stage and a sink behind the change topic, two
writers that never stop. What the topic should have is told by the server: of PostgreSQL through a second slot with
test_decoding, of MariaDB and MySQL by the program that prints the log.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pymysql
from rich.console import Console
from typing_extensions import override

from readers.changes import Told, Written, compared, lsn_of, place_of, told_by
from servers.postgresql import LocalPostgresql
from servers.sql_proxy import SqlProxy
from soak.faults import Driver, Fault
from soak.outcome import Judged, Outcome
from soak.server_faults import FaultyServer, ServerFaults
from soak.sql_faults import FaultySql, sessions_terminated
from soak.storm import START_S, storm
from soak.topics import PATIENT
from support.app.command import BY_TASKS, App, manifest, sink
from support.changes.binlog import ORDERS, SERVERS, BinlogLab
from support.changes.binlog_load import Load as LoadOfBinlog
from support.changes.lab import LOGICAL, Lab
from support.changes.load import Load
from support.kafka.streams import Verdict
from support.kafka.topics import Record, read_committed
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka, faulty_kafka

SINK: Final = "copied"
MOST_ROWS: Final = 10**9
"""Of a writer: it stops because it is told to."""
PAUSE_S: Final = 0.5
"""Between the transactions of a writer, of which one in six has 1,500 rows."""
POINTS_OF_A_START: Final = ("stage-after-claim", "stage-after-meta", "stage-after-slot")
POINTS_OF_A_COMMIT: Final = ("after-rows-before-progress", "after-commit")
"""Those of a stage are those of a worker too: whoever comes first is held."""


class Database(ABC):
    """A kind of them: a server for a run, and a table that is read."""

    lab: Lab | BinlogLab
    place: FaultyServer
    requests: Sequence[bytes]
    """What stands in requests, of which one at a time is lost."""
    program: str
    """Who tells what the server has."""

    @abstractmethod
    def load(self, seed: int) -> Load | LoadOfBinlog:
        """Two writers, not started."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Of a manifest, through the proxy."""

    @abstractmethod
    def end_sessions(self) -> None:
        """As an administrator does."""

    def problem(self, position: str) -> str | None:
        """What is wrong with what the server was told; `position`: of the stage."""
        _ = position
        return None


class Postgresql(Database):
    requests = (b"pg_replication_slots", b"pg_current_wal_flush_lsn", b"START_REPLICATION", b"IDENTIFY_SYSTEM")
    program = "test_decoding"

    def __init__(self, stack: ExitStack, faulty: FaultyKafka, directory: Path) -> None:
        # Short buffers: a large transaction is spilled.
        settings = {**LOGICAL, "logical_decoding_work_mem": "64kB"}
        server = stack.enter_context(LocalPostgresql(settings=settings))
        self.place = self._sql = FaultySql(server, stack.enter_context(SqlProxy(server.port)))
        self.lab = self._own = Lab(server, faulty.direct, directory)
        stack.callback(self.lab.close)
        self.lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        self._own.watch()

    @override
    def load(self, seed: int) -> Load:
        return Load(self._own, rows=MOST_ROWS, seed=seed, pause_s=PAUSE_S)

    @override
    def source(self) -> dict[str, Any]:
        return self._own.as_source(servers=self.place.servers)

    @override
    def end_sessions(self) -> None:
        sessions_terminated(self._sql)

    @override
    def problem(self, position: str) -> str | None:
        confirmed = self._own.slot_lsn()
        if confirmed <= lsn_of(position):
            return None
        return f"the slot is confirmed up to {confirmed:X}, beyond the progress, {position}"


class Binlog(Database):
    """A server with a binary log."""

    kind: str

    def __init__(self, stack: ExitStack, faulty: FaultyKafka, directory: Path) -> None:
        server = stack.enter_context(SERVERS[self.kind](settings={"max-binlog-size": str(1 << 20)}))
        self.program = server.printer
        self.place = FaultyServer(server, stack.enter_context(SqlProxy(server.port)))
        self.lab = self._own = BinlogLab(server, faulty.direct, directory)
        stack.callback(self.lab.end_stages)
        self.lab.sql(ORDERS)

    @override
    def load(self, seed: int) -> LoadOfBinlog:
        return LoadOfBinlog(self._own, rows=MOST_ROWS, seed=seed, pause_s=PAUSE_S)

    @override
    def source(self) -> dict[str, Any]:
        return self._own.as_source(server=self.place.servers)

    @override
    def end_sessions(self) -> None:
        with self._own.connected() as session, session.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE id <> connection_id()")
            for (number,) in cursor.fetchall():
                with suppress(pymysql.Error):
                    cursor.execute(f"KILL {number}")


class Mariadb(Binlog):
    kind = "mariadb"
    requests = (b"SHOW BINARY LOGS", b"binlog_gtid_pos", b"mariadb_slave_capability", b"unix_timestamp")


class Mysql(Binlog):
    kind = "mysql"
    requests = (b"SHOW BINARY LOGS", b"SHOW BINARY LOG STATUS", b"source_heartbeat_period", b"unix_timestamp")


KINDS: Final[Mapping[str, type[Postgresql | Binlog]]] = {
    "postgresql": Postgresql,
    "mariadb": Mariadb,
    "mysql": Mysql,
}


class Source:
    """A database that two writers change, until it is closed."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database = database
        self.end: int | None = None
        """Of what they have written, once they have stopped."""
        self._load = database.load(seed)
        self._load.__enter__()

    def close(self) -> None:
        self._load.close()
        self.end = self.database.lab.end_of_log()


class SourceFaults(ServerFaults):
    """Of a database that is read, of its stage, and of all around."""

    def __init__(self, seed: int, faulty: FaultyKafka, driver: Driver, source: Source) -> None:
        super().__init__(seed, faulty, driver, source.database.place)
        self.requests = source.database.requests
        self._source = source

    @override
    def deck(self) -> Sequence[Fault]:
        seldom = [
            self.driver_killed,
            self.spark_killed,
            self.everything_killed,
            self.broker_killed,
            *[self.server_killed] * 2,
            self.driver_stopped_and_started,
            self.stage_outlives_its_driver,
            self.worker_killed,
        ]
        often = [
            self.stage_killed,
            self.stage_killed_at_a_commit,
            self.stage_killed_as_it_starts,
            self.stage_paused,
            self.server_paused,
            self.sessions_terminated,
            self.server_connections_cut,
            self.server_network_silent,
            self.server_request_lost,
            self.connections_cut,
            self.network_silent,
            self.request_lost,
        ]
        return [*seldom, *often]

    @property
    @override
    def handled(self) -> tuple[int, int]:
        """All that the stage has written."""
        return int(self._told().get("changes", 0)), 0

    @override
    def is_quiet(self) -> bool:
        """The stage has everything that the writers have committed, and the sink everything that the stage has."""
        told, end = self._told(), self._source.end
        has_all = end is not None and lsn_of(told.get("position", "0/0")) >= end
        return super().is_quiet() and has_all and told["state"] == "Running"

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = self.driver.app.status().get("source", {})
        return found

    def stage_killed(self) -> None:
        for stage in self.driver.run.stage():
            with suppress(psutil.NoSuchProcess):
                stage.kill()
                self.kills["stage"] += 1

    def stage_paused(self) -> None:
        for_s = self._chance.uniform(0.5, 4)
        stages = self.driver.run.stage()
        with suppress(psutil.NoSuchProcess):
            for stage in stages:
                stage.suspend()
            time.sleep(for_s)
            for stage in stages:
                stage.resume()

    def stage_killed_at_a_commit(self) -> None:
        self._kill_held(self._chance.choice(POINTS_OF_A_COMMIT))

    def stage_killed_as_it_starts(self) -> None:
        point = self._chance.choice(POINTS_OF_A_START)
        self.driver.app.arm(point)
        self.stage_killed()
        self._kill_held(point)

    def stage_outlives_its_driver(self) -> None:
        """A zombie, which wakes up once a newer driver's stage has taken over, or is about to."""
        for_s = self._chance.uniform(2, 15)
        stages = self.driver.run.stage()
        with suppress(psutil.NoSuchProcess):
            for stage in stages:
                stage.suspend()
        self.driver_killed()
        time.sleep(for_s)
        with suppress(psutil.NoSuchProcess):
            for stage in stages:
                stage.resume()

    def sessions_terminated(self) -> None:
        """Some times in a row; those that read for a stage too."""
        for _ in range(self._chance.randint(1, 4)):
            self._source.database.end_sessions()
            time.sleep(self._chance.uniform(0, 1))

    def _kill_held(self, point: str) -> None:
        held = self._held_at(point)
        if held is not None:
            is_stage = held in [each.pid for each in self.driver.run.stage()]
            os.kill(held, signal.SIGKILL)
            self.kills["stage" if is_stage else "worker"] += 1
        self.driver.app.disarm()


def soak(kind: str, seconds: float, seed: int, directory: Path, console: Console) -> Outcome:
    outcome = Outcome(seed)
    with ExitStack() as stack:
        faulty = stack.enter_context(faulty_kafka())
        database = KINDS[kind](stack, faulty, directory)
        driver = Driver(App(directory, manifest_of(database, faulty)))
        stack.callback(driver.close)

        def reads() -> bool:
            driver.look()
            return bool(driver.app.status().get("source", {}).get("state") == "Running")

        # Before that, what is written is not read by the stage.
        wait_until(reads, "the stage reads", START_S)
        source = Source(database, seed)
        stack.callback(source.close)

        def heal() -> None:
            faulty.heal()
            database.place.heal()

        faults = SourceFaults(seed, faulty, driver, source)
        storm(outcome, seconds, faults, source, heal, outcome.sayer(console))
        judge(outcome, database, driver.app)
    outcome.judge()
    return outcome


def manifest_of(database: Database, faulty: FaultyKafka) -> dict[str, Any]:
    """Changes pass as they are, into another topic."""
    source = database.source()
    [of] = source.values()
    of["changes"]["bootstrapServers"] = faulty.servers
    return manifest(
        faulty.servers,
        "soak",
        [],
        source=source,
        decode={"format": "raw"},
        trigger={"interval": "0s", "maxOffsetsPerTrigger": 10_000},
        failurePolicy=PATIENT,
        spark=BY_TASKS,
        sinks=[sink(SINK)],
    )


def judge(outcome: Outcome, database: Database, app: App) -> None:
    """The change topic beside what the server tells, and the sink's topic beside the change topic."""
    lab = database.lab
    try:
        expected = lab.expected()
        problem = database.problem(app.status()["source"]["position"])
    except (psycopg.Error, pymysql.Error) as error:
        outcome.problems.append(f"the server does not tell its changes: {error}")
        return
    found = by_partitions(read_committed(lab.servers, lab.topic))
    handed_on = [each.told for each in sorted(found, key=lambda each: each.place)]
    copied = by_keys(read_committed(lab.servers, f"{SINK}-out"))
    outcome.judged = [
        Judged("change topic", len(expected), verdict(expected, found), exact=True),
        Judged("topic of the sink", len(found), verdict(handed_on, copied), exact=True),
    ]
    transactions = len({each.xid for each in expected})
    by_op = ", ".join(f"{sum(each.op == op for each in expected):,} {op}" for op in "cud")
    outcome.notes.append(f"by {database.program}: {transactions:,} transactions, with {by_op}")
    if problem is not None:
        outcome.problems.append(problem)


def verdict(expected: Sequence[Told], found: Sequence[Written]) -> Verdict:
    return Verdict(**compared(expected, found)._asdict())


def by_partitions(records: Iterable[Record]) -> list[Written]:
    """In the change topic, each partition is in the order of commits."""
    return [written(each, each.partition) for each in records]


def by_keys(records: Iterable[Record]) -> list[Written]:
    """In the topic of a sink, only the changes of one row are in an order."""
    keys: dict[bytes | None, int] = {}
    return [written(each, keys.setdefault(each.key, len(keys))) for each in records]


def written(record: Record, partition: int) -> Written:
    document = record.document
    return Written(told_by(document), place_of(document), partition, record.offset)
