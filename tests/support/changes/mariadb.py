"""A database of a MariaDB server, what its own program says of its log, and a stage that reads it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pymysql
from typing_extensions import override

from readers.binlog import ARGUMENTS, told
from readers.changes import Told, lsn_of
from servers.local_process import HOST
from servers.mariadb import SUPERUSER, LocalMariadb
from sinkpipeline.changes.settings import MariadbConnection, MariadbSettings, StageSettings
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.topics import TopicRequest, progress_request
from sinkpipeline.kafka.connection import Connection
from support.changes.lab import StageLab
from support.changes.oracle import check, folded
from support.kafka.topics import unique

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(200))"
_COLUMNS: Mapping[str, Sequence[str]] = {"orders": ("id", "note"), "bare": ("id", "note")}
_KEYS: Mapping[str, Sequence[str]] = {"orders": ("id",)}
SERVER_ID = 900_001


@dataclass
class MariadbLab(StageLab):
    """One source of changes: a database of its own on a server, and topics."""

    server: LocalMariadb
    servers: str
    directory: Path
    name: str = field(default_factory=lambda: unique("binlog").replace("-", "_"))
    kind: str = "mariadb"
    tables: tuple[str, ...] = ("orders",)

    def __post_init__(self) -> None:
        super().__init__()
        self.begins_at = self.end_of_log()
        with self.connected(None) as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")

    @contextmanager
    def connected(self, database: str | None = "", **how: Any) -> Iterator[pymysql.connections.Connection[Any]]:
        with self.server.connected(self.name if database == "" else database, **how) as session:
            yield session

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the last of them answers; each is a transaction."""
        with self.connected() as session, session.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            return list(cursor.fetchall())

    @override
    def settings(self, *, database: dict[str, Any] | None = None, **changes: Any) -> StageSettings:
        found = StageSettings(
            id=SinkId(self.name, "changes"),
            owner=Owner(cluster="file", name=self.name),
            run=str(uuid.uuid4()),
            takes_over=True,
            kafka=Connection(bootstrap_servers=self.servers),
            topic=TopicRequest(name=self.topic, partitions=3),
            progress=progress_request(f"{self.name}-progress", None),
            database=replace(
                MariadbSettings(
                    connection=MariadbConnection(server=self.server.address, user=SUPERUSER),
                    tables=tuple(f"{self.name}.{each}" for each in self.tables),
                    server_id=SERVER_ID,
                    idle_advance_s=0.5,
                ),
                **(database or {}),
            ),
        )
        return replace(found, **changes)

    def as_source(self, **mariadb: Any) -> dict[str, Any]:
        """`source` of a manifest that reads this database from now on; `mariadb` replaces parts."""
        return {
            "mariadb": {
                "server": self.server.address,
                "auth": {"username": SUPERUSER},
                "tables": [f"{self.name}.{each}" for each in self.tables],
                "startingPosition": "Now",
                "limits": {"idleAdvance": "1s"},
                "changes": {
                    "bootstrapServers": self.servers,
                    "topic": {"name": self.topic, "partitions": 3, "replicationFactor": 1},
                    "progressTopic": {"name": f"{self.name}-progress", "replicationFactor": 1},
                },
                **mariadb,
            }
        }

    @override
    def end_of_log(self) -> int:
        return lsn_of(self.end())

    def end(self) -> str:
        """Where the log ends, as the server spells it."""
        with self.connected(None) as session, session.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, offset, *_ = cursor.fetchone() or ("", 0)
            return f"{file}:{offset}"

    def expected(self, behind: int = 0) -> list[Told]:
        """What the server says of the tables; of transactions that are in its log behind a place."""
        with self.connected(None) as session, session.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            files = [row[0] for row in cursor.fetchall()]
        begin = max(behind, self.begins_at)
        files = [each for each in files if lsn_of(f"{each}:0") >> 32 >= begin >> 32]
        where = ["--read-from-remote-server", f"--host={HOST}", f"--port={self.server.port}", f"--user={SUPERUSER}"]
        start = f"--start-position={max(4, begin & 0xFFFFFFFF)}"
        text = self.server.run("mariadb-binlog", *ARGUMENTS, *where, start, *files)
        ours = [each for each in self.tables if each in _COLUMNS]
        return told(
            text,
            {f"{self.name}.{each}": _COLUMNS[each] for each in ours},
            {f"{self.name}.{each}": _KEYS.get(each, ()) for each in ours},
        )

    def check(self, behind: int = 0) -> int:
        """That the topic has exactly what the server says; how many changes that are."""
        expected = self.expected(behind)
        check(expected, [each for each in self.found() if each.place[0] >= behind])
        return len(expected)

    def check_copy(self, *tables: str) -> int:
        """That what the topic says of the tables is what they are, and that the stream is what the server says.

        How many changes the stream has.
        """
        start, found = self.stream_start(), self.found()
        assert {each.told.op for each in found if each.place[0] < start} <= {"r", "d"}
        count = self.check(start)
        self.check_tables(*tables)
        return count

    def check_tables(self, *tables: str) -> None:
        """That whoever applies each change has what the tables are."""
        copy = folded(self.found())
        for table in tables:
            with self.connected() as session, session.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {table}")
                names = [each[0] for each in cursor.description or ()]
                rows = sorted(json.dumps(dict(zip(names, row, strict=True)), sort_keys=True) for row in cursor)
            assert copy.get(f"{self.name}.{table}", []) == rows, table

    def close(self) -> None:
        self.end_stages()
        with self.connected(None) as session, session.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {self.name}")
