"""One sink on a real PostgreSQL server, without Spark: its tables, its settings, and what stands in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from typing_extensions import override

from servers.postgresql import DATABASE, SUPERUSER
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.kind import PostgresqlPorts
from sinkpipeline.postgresql.lines import line
from sinkpipeline.postgresql.settings import Column, Connection, SinkSettings, Table, Upsert
from sinkpipeline.sinks.contract import RowBatch
from support.cells import TOPIC
from support.sink.cell_sink import CellSink

COLUMNS = (Column(name="part", type="integer"), Column(name="off", type="bigint"), Column(name="value", type="text"))


def of_offsets(partition: SourcePartition, offsets: range) -> RowBatch:
    """Rows of `COLUMNS`."""
    return batch(offsets, [(str(partition.partition), str(each), f"v{each}") for each in offsets])


def batch(offsets: Collection[int], values: Collection[Collection[str | None]]) -> RowBatch:
    lines: list[bytes | None] = [line(list(each)) for each in values]
    return RowBatch(
        offsets=list(offsets),
        keys=[None] * len(lines),
        values=lines,
        target_partitions=None,
        timestamps=[0] * len(lines),
        headers=None,
        errors=None,
        size=sum(map(len, filter(None, lines))),
    )


@dataclass
class SqlSink(CellSink):
    """The names of one sink; every instance has its own schemas. `address` may be a proxy's."""

    database: str = field(default=DATABASE, kw_only=True)
    upsert: Upsert | None = None
    columns: tuple[Column, ...] = COLUMNS

    client_of = Client
    ports_of = PostgresqlPorts
    make = staticmethod(of_offsets)

    @property
    def schema(self) -> str:
        # What has to be quoted is quoted everywhere.
        return f'{self.name} "100%"'

    @property
    def table(self) -> str:
        return '"' + self.schema.replace('"', '""') + '".orders'

    @property
    def progress(self) -> str:
        return f"{self.name}_progress.progress"

    @property
    @override
    def settings(self) -> SinkSettings:
        found = SinkSettings(
            id=SinkId("i", self.name),
            owner=Owner(cluster="file", name="n"),
            source=None,
            group_id="g",
            connection=Connection(servers=self.address, database=self.database, user=SUPERUSER),
            table=Table(schema=self.schema, name="orders", columns=self.columns, upsert=self.upsert),
            progress_schema=f"{self.name}_progress",
        )
        return replace(found, **self.changes)

    def create_schema(self) -> None:
        self.sql('CREATE SCHEMA IF NOT EXISTS "' + self.schema.replace('"', '""') + '"')

    def sql(self, statement: str, *, address: str | None = None) -> list[tuple[Any, ...]]:
        host, _, port = (address or self.address).partition(":")
        with psycopg.connect(host=host, port=port, user=SUPERUSER, dbname=self.database, autocommit=True) as session:
            cursor = session.execute(statement.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def delivered(self) -> dict[SourcePartition, list[int]]:
        """By source partition, the offsets of the rows, sorted."""
        found: dict[SourcePartition, list[int]] = {each: [] for each in self.ends}
        for part, offset in self.sql(f"SELECT part, off FROM {self.table} ORDER BY part, off"):
            found[SourcePartition(TOPIC, part)].append(offset)
        return found

    @property
    def once(self) -> dict[SourcePartition, list[int]]:
        return {each: list(range(end)) for each, end in self.ends.items()}
