"""The database that `make demo SOURCE=...` reads, and what its server itself says of its changes."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import psycopg
import pymysql
from typing_extensions import override

from deployed.cluster import ROOT
from readers.binlog import printed, told
from readers.changes import CREATE, PEEK, Told, lsn_of, split
from servers.binlog_server import SUPERUSER as ROOT_USER
from servers.binlog_server import BinlogServer
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from soak.changes import COLUMNS, Change

SHOP: Final = "shop"
"""The database."""
Server = TypeVar("Server", LocalPostgresql, BinlogServer)


class Origin(ABC, Generic[Server]):
    """One server, which runs, and its table `orders`."""

    example: Path
    kind: str
    """As `spec.source` has it."""
    table: str
    left: str
    """What goes with the pipeline, for people."""
    errors: tuple[type[Exception], ...]
    """Of a session whose server has gone."""

    def __init__(self, server: Server) -> None:
        self.server: Server = server

    @property
    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What stands in place of the example's address and user."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes the table, which is empty."""

    @abstractmethod
    def watch(self) -> str:
        """From here on the server notes what it will say of its changes; how, for people."""

    @contextmanager
    @abstractmethod
    def session(self) -> Iterator[Any]:
        """Of a writer."""

    def statements(self, changes: Iterable[Change], *, rolls_back: bool) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Of one transaction, with their values; perhaps with a part that is rolled back."""
        for each in changes:
            yield each.sql.format(table=self.table), each.values
        if rolls_back:
            yield "SAVEPOINT s", ()
            yield f"INSERT INTO {self.table} (id, name) VALUES (-1, 'never')", ()  # noqa: S608 - the example's name
            yield "ROLLBACK TO s", ()

    @abstractmethod
    def commit(self, session: Any, statements: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """In one transaction."""

    @abstractmethod
    def rows(self) -> set[tuple[Any, ...]]:
        """All of the table, by `COLUMNS`."""

    @abstractmethod
    def told(self, begin: int) -> tuple[list[Told], list[Told]]:
        """What the server says of its changes since `watch`: up to a place in its log, and behind it."""

    def tellable(self, change: Told) -> Told:
        """As much of a change in the topic as the server says."""
        return change

    @abstractmethod
    def keeps_nothing(self) -> bool:
        """Of a pipeline that is deleted."""


class PostgresqlOrigin(Origin[LocalPostgresql]):
    example = ROOT / "examples" / "orders-changes.yaml"
    kind = "postgresql"
    table = "public.orders"
    left = "its slot, its publication and its topic are gone"
    errors = (psycopg.Error,)
    _WITNESS: Final = "demo_witness"
    """The slot of test_decoding."""

    @property
    @override
    def source(self) -> dict[str, Any]:
        # It trusts whoever comes from this machine.
        return {"servers": self.server.address, "auth": {"username": SUPERUSER}}

    @override
    def prepare(self) -> None:
        with session_of(self.server, DATABASE) as session:
            session.execute(f"CREATE DATABASE {SHOP}".encode())
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        with self.session() as session:
            session.execute(f"CREATE TABLE {self.table} ({columns})".encode())

    @override
    def watch(self) -> str:
        with self.session() as session:
            session.execute(CREATE, (self._WITNESS,))
        return f"a slot {self._WITNESS} with the plugin test_decoding notes what comes from here on"

    @contextmanager
    @override
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        with session_of(self.server, SHOP) as session:
            yield session

    @override
    def commit(self, session: psycopg.Connection[Any], statements: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        with session.transaction(), session.pipeline():
            for sql, values in statements:
                session.execute(sql.encode(), values)

    @override
    def rows(self) -> set[tuple[Any, ...]]:
        return rows_of(self.server, SHOP, self.table)

    @override
    def told(self, begin: int) -> tuple[list[Told], list[Told]]:
        with self.session() as session:
            return split(session.execute(PEEK, (self._WITNESS,)), begin)

    @override
    def keeps_nothing(self) -> bool:
        with self.session() as session:
            slots = [name for (name,) in session.execute("SELECT slot_name FROM pg_replication_slots")]
            return slots == [self._WITNESS] and not session.execute("SELECT pubname FROM pg_publication").fetchall()


class BinlogOrigin(Origin[BinlogServer]):
    """MySQL, or MariaDB."""

    example = ROOT / "examples" / "orders-changes-of-mysql.yaml"
    table = f"{SHOP}.orders"
    left = "it has the databases and tables that it had, and the topic is gone"
    errors = (pymysql.Error, OSError)
    _TYPES: Final = {
        "bigint PRIMARY KEY": "bigint PRIMARY KEY",
        "text NOT NULL": "text NOT NULL",
        "numeric(10,2)": "decimal(10,2)",
        "timestamp(3) with time zone": "timestamp(3) NULL DEFAULT NULL",
        "date": "date",
        "text": "text",
    }
    _PLAIN: Final = ("id", "name", "big")
    """Columns whose values are printed as they are in the topic. The others are compared in the copy."""

    def __init__(self, server: BinlogServer) -> None:
        super().__init__(server)
        self.kind = server.kind
        self._begin = 0
        self._tables: set[tuple[str, str]] = set()
        """Those that there were at first."""

    @property
    @override
    def source(self) -> dict[str, Any]:
        return {"server": self.server.address, "auth": {"username": ROOT_USER}}

    @override
    def prepare(self) -> None:
        columns = ", ".join(f"{name} {self._TYPES[kind]}" for name, kind in COLUMNS.items())
        with self.session() as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {SHOP} CHARACTER SET utf8mb4")
            cursor.execute(f"CREATE TABLE {self.table} ({columns})")
            session.commit()

    @override
    def watch(self) -> str:
        file, offset = self.server.end()
        self._begin = lsn_of(f"{file}:{offset}")
        self._tables = self._there()
        return f"what comes from here on, {file}:{offset}, {self.server.printer} will print in the end"

    @contextmanager
    @override
    def session(self) -> Iterator[pymysql.connections.Connection[Any]]:
        with self.server.connected(autocommit=False, init_command="SET time_zone = '+00:00'") as session:
            yield session

    @override
    def commit(
        self, session: pymysql.connections.Connection[Any], statements: Iterable[tuple[str, tuple[Any, ...]]]
    ) -> None:
        with session.cursor() as cursor:
            for sql, values in statements:
                cursor.execute(sql, values)
        session.commit()

    @override
    def rows(self) -> set[tuple[Any, ...]]:
        with self.session() as session, session.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM {self.table}")  # noqa: S608 - the example's name
            return {tuple(map(_in_utc, row)) for row in cursor.fetchall()}

    @override
    def told(self, begin: int) -> tuple[list[Told], list[Told]]:
        return self._printed(self._begin, begin), self._printed(begin, None)

    def _printed(self, begin: int, end: int | None) -> list[Told]:
        columns, keys = {self.table: [*COLUMNS]}, {self.table: ["id"]}
        found = told(printed(self.server, begin, end), columns, keys, is_mysql=self.kind == "mysql")
        return [self.tellable(each) for each in found]

    @override
    def tellable(self, change: Told) -> Told:
        return replace(change, row=tuple(each for each in change.row if each[0] in self._PLAIN))

    @override
    def keeps_nothing(self) -> bool:
        return self._there() == self._tables

    def _there(self) -> set[tuple[str, str]]:
        """Each table, with its database."""
        with self.session() as session, session.cursor() as cursor:
            cursor.execute("SELECT table_schema, table_name FROM information_schema.tables")
            return {*cursor.fetchall()}


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=dt.timezone.utc) if isinstance(value, dt.datetime) else value


def session_of(server: LocalPostgresql, database: str) -> psycopg.Connection[Any]:
    """In which each statement is a transaction."""
    return psycopg.connect(
        host=HOST,
        port=server.port,
        user=SUPERUSER,
        dbname=database,
        autocommit=True,
        options="-c timezone=UTC",
    )


def rows_of(server: LocalPostgresql, database: str, table: str) -> set[tuple[Any, ...]]:
    with session_of(server, database) as session:
        return set(session.execute(f"SELECT {', '.join(COLUMNS)} FROM {table}".encode()))  # noqa: S608 - the example's
