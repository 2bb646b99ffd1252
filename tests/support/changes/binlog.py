"""A database of a server with a binary log, what its own program says of that, and a stage that reads it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from pymysql.cursors import Cursor
from typing_extensions import override

from readers.binlog import printed, told
from readers.changes import Told, lsn_of
from servers import mariadb, mysql
from servers.binlog_server import SUPERUSER, BinlogServer
from servers.mariadb import LocalMariadb
from servers.mysql import LocalMysql
from sinkpipeline.changes.settings import BinlogConnection, BinlogSettings, StageSettings
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from support.changes.lab import StageLab
from support.changes.oracle import check, folded
from support.kafka.topics import unique

SERVERS: Final[Mapping[str, type[LocalMariadb | LocalMysql]]] = {"mariadb": LocalMariadb, "mysql": LocalMysql}
"""By the names of the kinds."""
ROOTS: Final = {"mariadb": mariadb.root_directory, "mysql": mysql.root_directory}
"""Below which the programs of each kind are; None where there are none."""
BOTH: Final = pytest.mark.parametrize("kind", [*SERVERS], indirect=True)
"""Of a test that shows something of each kind in make test: all others have MariaDB there."""
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(200))"
_COLUMNS: Mapping[str, Sequence[str]] = dict.fromkeys(("orders", "bare", "items"), ("id", "note"))
_KEYS: Mapping[str, Sequence[str]] = {"orders": ("id",), "items": ("id",)}
SERVER_ID = 900_001


_SEQUENCE = re.compile(r"\bseq_(\d+)_to_(\d+)\b")
_NUMBERS = (
    "CREATE TABLE IF NOT EXISTS test_numbers.numbers (seq int PRIMARY KEY)",
    "SET SESSION cte_max_recursion_depth = 20000",
    """INSERT IGNORE INTO test_numbers.numbers
    WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 20000) SELECT seq FROM n""",
)


class _Numbering(Cursor):
    """Makes the tables seq_1_to_N, which MariaDB has by itself, out of a table of numbers."""

    @override
    def execute(self, query: str | bytes | bytearray, args: object = None) -> int:
        if isinstance(query, (bytes, bytearray)):
            # Of many rows at once, of which the stubs know nothing.
            return int(super().execute(query, args))  # type: ignore[call-overload]
        made = r"(SELECT seq FROM test_numbers.numbers WHERE seq BETWEEN \1 AND \2 ORDER BY seq) AS seq_\1_to_\2"
        return int(super().execute(_SEQUENCE.sub(made, query), args))


@dataclass
class BinlogLab(StageLab):
    """One source of changes: a database of its own on a server, and topics."""

    server: BinlogServer
    servers: str
    directory: Path
    name: str = field(default_factory=lambda: unique("binlog").replace("-", "_"))
    tables: tuple[str, ...] = ("orders",)

    def __post_init__(self) -> None:
        super().__init__()
        self.kind, self.identity = self.server.kind, self.name
        with self.connected(None) as session, session.cursor() as cursor:
            if self.kind == "mysql" and not cursor.execute("SHOW DATABASES LIKE 'test\\_numbers'"):
                for each in ("CREATE DATABASE test_numbers", *_NUMBERS):
                    cursor.execute(each)
            self.begins_at = self.end_of_log()
            cursor.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")

    @contextmanager
    def connected(self, database: str | None = "", **how: Any) -> Iterator[pymysql.connections.Connection[Any]]:
        if self.kind == "mysql":
            how = {"cursorclass": _Numbering, **how}
        with self.server.connected(self.name if database == "" else database, **how) as session:
            yield session

    @override
    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the last of them answers; each is a transaction."""
        with self.connected() as session, session.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            return list(cursor.fetchall())

    def name_anew(self) -> None:
        """What follows are stages of another identity, which know nothing yet."""
        self.identity = unique("binlog").replace("-", "_")

    @property
    @override
    def topic(self) -> str:
        return f"{self.identity}-topic"

    @property
    @override
    def stage(self) -> str:
        return f"{self.identity}/changes"

    @property
    @override
    def progress_topic(self) -> str:
        return f"{self.identity}-progress"

    @override
    def settings(self, *, database: dict[str, Any] | None = None, **changes: Any) -> StageSettings:
        found = StageSettings(
            id=SinkId(self.identity, "changes"),
            owner=Owner(cluster="file", name=self.name),
            run=str(uuid.uuid4()),
            takes_over=True,
            kafka=Connection(bootstrap_servers=self.servers),
            topic=TopicRequest(name=self.topic, partitions=3),
            progress=progress_request(self.progress_topic, None),
            database=replace(
                BinlogSettings(
                    connection=BinlogConnection(server=self.server.address, user=SUPERUSER),
                    tables=tuple(f"{self.name}.{each}" for each in self.tables),
                    server_id=SERVER_ID,
                    idle_advance_s=0.5,
                    name="mysql" if self.kind == "mysql" else "mariadb",
                ),
                **(database or {}),
            ),
        )
        return replace(found, **changes)

    def as_source(self, **parts: Any) -> dict[str, Any]:
        """`source` of a manifest that reads this database from now on; `parts` are replaced."""
        return {
            self.kind: {
                "server": self.server.address,
                "auth": {"username": SUPERUSER},
                "tables": [f"{self.name}.{each}" for each in self.tables],
                "startingPosition": "Now",
                "limits": {"idleAdvance": "1s"},
                "changes": {
                    "bootstrapServers": self.servers,
                    "topic": {"name": self.topic, "partitions": 3, "replicationFactor": 1},
                    "progressTopic": {"name": self.progress_topic, "replicationFactor": 1},
                },
                **parts,
            }
        }

    @override
    def end_of_log(self) -> int:
        return lsn_of(self.end())

    @override
    def at_server(self, place: str) -> int:
        return lsn_of(re.sub(r"\+\d+:", ":", place))

    def end(self) -> str:
        """Where the log ends, as the server spells it."""
        file, offset = self.server.end()
        return f"{file}:{offset}"

    def expected(self, behind: int = 0) -> list[Told]:
        """What the server says of the tables; of transactions that are in its log behind a place."""
        ours = [each for each in self.tables if each in _COLUMNS]
        return told(
            printed(self.server, max(behind, self.begins_at)),
            {f"{self.name}.{each}": _COLUMNS[each] for each in ours},
            {f"{self.name}.{each}": _KEYS.get(each, ()) for each in ours},
            is_mysql=self.kind == "mysql",
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
