"""PostgreSQL in the suite of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.postgresql.kind import PostgresqlPorts
from sinkpipeline.sinks.contract import RowBatch
from support.cells import TOPIC
from support.conformance.kind import ENDS, STEP, Losing, Sink
from support.kafka import topics
from support.sink.cell_driver import Driver
from support.sink.sql_letters import COUNT, LetteredSql
from support.sink.sql_sink import SqlSink, batch


class PostgresqlSink(Sink):
    points = ("sql-after-cell", "sql-before-commit")

    def __init__(self, own: SqlSink) -> None:
        self.own, self.ends = own, own.ends

    @property
    @override
    def settings(self) -> Settings:
        return self.own.settings

    @property
    @override
    def arguments(self) -> list[str]:
        return [self.own.address, self.own.name]

    @classmethod
    @override
    def again(cls, *arguments: str) -> PostgresqlSink:
        address, name = arguments
        return cls(SqlSink(address, name=name))

    @override
    def ports(self) -> PostgresqlPorts:
        return self.own.ports()

    @override
    def batch(self, partition: SourcePartition, offsets: range) -> RowBatch:
        part = str(partition.partition)
        return batch(offsets, [(part, "no number" if each in self.bad else str(each), "row") for each in offsets])

    @override
    def delivered(self) -> Counter[tuple[int, int]]:
        return Counter(self.own.sql(f"SELECT part, off FROM {self.own.table}"))

    @override
    def letters(self) -> list[int]:
        assert isinstance(self.own, LetteredSql)
        return [each.record.offset for each in self.own.letters()]

    @override
    def delete(self) -> None:
        self.own.sql(f"DROP TABLE {self.own.table}")

    @override
    def recreate(self) -> None:
        self.delete()
        self.own.sql(self.ports().target._statements.create)

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

    @override
    def driver(self, step: int = STEP, remembered: Remembered | None = None) -> Driver:
        found = super().driver(step, remembered)
        self.own.workers.append(found.worker)
        return found

    @override
    def close(self) -> None:
        self.own.close()


@dataclass(frozen=True)
class PostgresqlWorld:
    """`kafka` has the dead letters; its proxy is before the server."""

    server: LocalPostgresql
    proxy: SqlProxy
    kafka: LocalKafka
    stack: ExitStack

    def sink(self, ends: dict[int, int] | None = None, *, lettered: bool = False) -> PostgresqlSink:
        own: SqlSink
        if lettered:
            own = LetteredSql(self.proxy.address, servers=self.kafka.bootstrap_servers, stem=topics.unique("sql"))
            own.produce()
            assert own.ends == {own.at: COUNT}
        else:
            found = ENDS if ends is None else ends
            own = SqlSink(self.proxy.address, ends={SourcePartition(TOPIC, each): end for each, end in found.items()})
        own.create_schema()
        self.stack.callback(own.close)
        return PostgresqlSink(own)

    def lose_commit(self, *, answer: bool) -> Losing:
        self.proxy.lose(b"COMMIT", Loss.ANSWER if answer else Loss.REQUEST, after=b"COPY")
        return self.proxy

    @contextmanager
    def full(self, sink: Sink) -> Iterator[None]:
        """The error of a server whose disk is full: a disk that really is would be so for all other tests too."""
        assert isinstance(sink, PostgresqlSink)
        with sink.full():
            yield

    def restart(self) -> None:
        self.server.kill()
        self.server.start()
