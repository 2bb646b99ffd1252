"""What happens to a PostgreSQL server, beside what happens to any server of a sink."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from typing_extensions import override

from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER
from soak.faults import POINTS_OF_A_WORKER, Driver, Fault
from soak.feeder import Feeder
from soak.server_faults import FaultyServer, FedServerFaults, ServerFaults
from support.worlds.faults import FaultyKafka

POINTS_OF_A_COMMIT: Final = ("sql-after-cell", "sql-before-commit")


class FaultySql(FaultyServer):
    """A PostgreSQL server."""

    def session(self) -> psycopg.Connection[Any]:
        """For us: not through the proxy. Each statement is a transaction."""
        return psycopg.connect(
            host=HOST, port=self.server.port, user=SUPERUSER, dbname=DATABASE, autocommit=True, connect_timeout=10
        )


class SqlFaults(ServerFaults):
    """Of sinks that are tables."""

    points_of_a_worker = (*POINTS_OF_A_WORKER, *POINTS_OF_A_COMMIT)
    requests = (b"BEGIN", b"COPY", b"UPDATE", b"COMMIT")
    commit = b"COMMIT"
    within_a_commit = "sql-before-commit"


class TableFaults(SqlFaults, FedServerFaults):
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
        super().__init__(seed, faulty, driver, sql, feeder)
        self._sql = sql
        self._tables = tables

    @override
    def of_the_kind(self) -> Sequence[Fault]:
        return [self.sessions_terminated, self.table_locked]

    def sessions_terminated(self) -> None:
        """Some times in a row."""
        for _ in range(self._chance.randint(1, 4)):
            sessions_terminated(self._sql)
            time.sleep(self._chance.uniform(0, 1))

    def table_locked(self) -> None:
        for_s = self._chance.uniform(0.5, 4)
        table = self._chance.choice(self._tables)
        with self._sql.session() as session, session.transaction():
            session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            time.sleep(for_s)


def sessions_terminated(sql: FaultySql) -> None:
    """As an administrator does; those that read a slot too."""
    with sql.session() as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid()"
        )
