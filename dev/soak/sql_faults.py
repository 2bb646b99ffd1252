"""What happens to a PostgreSQL server, beside what happens to the command and to the source."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from typing_extensions import override

from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.sql_proxy import Loss, SqlProxy
from soak.faults import POINTS_OF_A_WORKER, TRAP_S, Driver, Fault, Faults, Fed
from soak.feeder import Feeder
from support.waiting import wait_until
from support.worlds.faults import FaultyKafka

POINTS_OF_A_COMMIT: Final = ("sql-after-cell", "sql-before-commit")
REQUESTS: Final = (b"BEGIN", b"COPY", b"UPDATE", b"COMMIT")


@dataclass(frozen=True)
class FaultySql:
    """One server, whose clients come through a proxy."""

    server: LocalPostgresql
    proxy: SqlProxy

    @property
    def servers(self) -> str:
        """For the product."""
        return self.proxy.address

    def session(self) -> psycopg.Connection[Any]:
        """For us: not through the proxy. Each statement is a transaction."""
        return psycopg.connect(
            host=HOST, port=self.server.port, user=SUPERUSER, dbname=DATABASE, autocommit=True, connect_timeout=10
        )

    def heal(self) -> None:
        """The proxy forwards everything, and the server runs."""
        self.proxy.heal()
        self.server.resume()
        if self.server.pid is None:
            self.server.start()


class SqlFaults(Faults):
    """Of sinks that are tables."""

    points_of_a_worker = (*POINTS_OF_A_WORKER, *POINTS_OF_A_COMMIT)

    def __init__(self, seed: int, faulty: FaultyKafka, driver: Driver, sql: FaultySql, tables: Sequence[str]) -> None:
        super().__init__(seed, faulty, driver)
        self._sql = sql
        self._tables = tables

    def server_killed(self) -> None:
        away_s = self._chance.uniform(0, 3)
        self._kill_server()
        time.sleep(away_s)
        self._sql.server.start()

    def server_killed_at_a_commit(self) -> None:
        """Before it has heard of it, or before anybody hears that it was done."""
        self._lose(b"COMMIT", self._chance.choice(list(Loss)), self.point_s)
        self._kill_server()
        self._sql.server.start()

    def server_killed_within_a_commit(self) -> None:
        """Rows and cell are written, and not committed; whoever wrote them goes on without it."""
        held = self._held_at("sql-before-commit")
        self._kill_server()
        self._sql.server.start()
        if held is not None:
            self.driver.app.release("sql-before-commit")
        self.driver.app.disarm()

    def everything_killed(self) -> None:
        self.driver.run.kill()
        self.kills["driver"] += 1
        self._kill_server()
        self._sql.server.start()
        self.driver.start()

    def _kill_server(self) -> None:
        self._sql.server.kill()
        self.kills["server"] += 1

    def server_paused(self) -> None:
        self._sql.server.pause()
        time.sleep(self._chance.uniform(0.5, 4))
        self._sql.server.resume()

    def sessions_terminated(self) -> None:
        """As an administrator does, some times in a row."""
        for _ in range(self._chance.randint(1, 4)):
            with self._sql.session() as session:
                session.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            time.sleep(self._chance.uniform(0, 1))

    def table_locked(self) -> None:
        for_s = self._chance.uniform(0.5, 4)
        table = self._chance.choice(self._tables)
        with self._sql.session() as session, session.transaction():
            session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            time.sleep(for_s)

    def sql_connections_cut(self) -> None:
        for _ in range(self._chance.randint(1, 4)):
            self._sql.proxy.cut()
            time.sleep(self._chance.uniform(0, 1))

    def sql_network_silent(self) -> None:
        self._sql.proxy.hold()
        time.sleep(self._chance.uniform(0.5, 4))
        self._sql.proxy.heal()

    def sql_request_lost(self) -> None:
        self._lose(self._chance.choice(REQUESTS), self._chance.choice(list(Loss)), TRAP_S)

    def _lose(self, request: bytes, loss: Loss, for_s: float) -> None:
        proxy = self._sql.proxy
        before = proxy.caught
        proxy.lose(request, loss)
        with suppress(AssertionError):
            wait_until(lambda: proxy.caught > before, "it is lost", for_s, poll_s=0.005)
        proxy.heal()


class TableFaults(Fed, SqlFaults):
    """Of sinks that are tables, with a source that never stops."""

    def __init__(
        self,
        seed: int,
        faulty: FaultyKafka,
        driver: Driver,
        sql: FaultySql,
        tables: Sequence[str],
        feeder: Feeder,
    ) -> None:
        super().__init__(seed, faulty, driver, sql, tables)
        self._feeder = feeder

    @override
    def deck(self) -> Sequence[Fault]:
        seldom = [
            self.driver_killed,
            self.spark_killed,
            self.everything_killed,
            self.broker_killed,
            self.server_killed,
            self.server_killed_at_a_commit,
            self.server_killed_within_a_commit,
            self.driver_stopped_and_started,
            self.driver_killed_at_a_point,
            self.worker_outlives_its_driver,
            self.source_grown,
        ]
        often = [
            self.worker_killed,
            self.worker_paused,
            *[self.worker_killed_at_a_point] * 2,
            self.server_paused,
            self.sessions_terminated,
            self.table_locked,
            self.sql_connections_cut,
            self.sql_network_silent,
            *[self.sql_request_lost] * 3,
            self.connections_cut,
            self.network_silent,
        ]
        return [*seldom, *often, *often]
