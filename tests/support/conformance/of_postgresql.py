"""PostgreSQL in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from servers.sql_proxy import Loss
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import RowBatch
from support.conformance.kind import Losing, Sink
from support.conformance.of_cells import CellSink, CellWorld, of_topic
from support.kafka import topics
from support.sink.sql_letters import LetteredSql
from support.sink.sql_sink import SqlSink, batch


class PostgresqlSink(CellSink):
    own: SqlSink
    points = ("sql-after-cell", "sql-before-commit")

    @classmethod
    @override
    def again(cls, *arguments: str) -> PostgresqlSink:
        address, name = arguments
        return cls(SqlSink(address, name=name))

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        part = str(partition.partition)
        return batch(offsets, [(part, "no number" if each in self.bad else str(each), "row") for each in offsets])

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        return Counter(self.own.sql(f"SELECT part, off FROM {self.own.table}"))

    @override
    def delete(self) -> None:
        self.own.sql(f"DROP TABLE {self.own.table}")

    @override
    def recreate(self) -> None:
        self.delete()
        self.own.sql(self.own.ports().target._statements.create)

    @override
    def empty(self) -> None:
        self.own.sql(f"TRUNCATE {self.own.table}")

    @contextmanager
    def full(self) -> Iterator[None]:
        name = f"{self.own.name}_full"
        self.own.sql(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'could not extend file: "
            "No space left on device' USING ERRCODE = '53100'; END $$"
        )
        self.own.sql(f"CREATE TRIGGER is_full BEFORE INSERT ON {self.own.table} EXECUTE FUNCTION {name}()")
        yield
        self.own.sql(f"DROP FUNCTION {name} CASCADE")

    @override
    def limit(self) -> None:
        """A text that is no number is refused anyway."""


class PostgresqlWorld(CellWorld):
    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> PostgresqlSink:
        own: SqlSink
        if lettered:
            servers, stem = self.kafka().bootstrap_servers, topics.unique("sql")
            own = LetteredSql(self.proxy.address, servers=servers, stem=stem)
        else:
            own = SqlSink(self.proxy.address, of_topic(ends))
        own.create_schema()
        return PostgresqlSink(self.kept(own))

    def lose_commit(self, *, answer: bool) -> Losing:
        self.proxy.lose(b"COMMIT", Loss.ANSWER if answer else Loss.REQUEST, after=b"COPY")
        return self.proxy

    @contextmanager
    def full(self, sink: Sink) -> Iterator[None]:
        """The error of a server whose disk is full: a disk that really is would be so for all other tests too."""
        assert isinstance(sink, PostgresqlSink)
        with sink.full():
            yield
