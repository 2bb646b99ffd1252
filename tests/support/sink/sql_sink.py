"""One sink on a real PostgreSQL server, without Spark: its tables, its settings, and what stands in them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from servers.postgresql import DATABASE, SUPERUSER
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.kind import PostgresqlPorts
from sinkpipeline.postgresql.lines import line
from sinkpipeline.postgresql.settings import Column, Connection, SinkSettings, Table, Upsert
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.worker import Worker
from support.cells import TOPIC, MemorySource
from support.sink.cell_driver import Driver, MakeBatch

P0, P1 = (SourcePartition(TOPIC, number) for number in range(2))
ENDS = {P0: 12, P1: 5}
COLUMNS = (Column(name="part", type="integer"), Column(name="off", type="bigint"), Column(name="value", type="text"))
_numbers = itertools.count()


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
class SqlSink:
    """The names of one sink; every instance has its own schemas. `address` may be a proxy's."""

    address: str
    database: str = field(default=DATABASE, kw_only=True)
    upsert: Upsert | None = None
    columns: tuple[Column, ...] = COLUMNS
    ends: dict[SourcePartition, int] = field(default_factory=lambda: dict(ENDS))
    name: str = field(default_factory=lambda: f"s{os.getpid()}_{next(_numbers)}")
    changes: Mapping[str, Any] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

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

    def ports(self) -> PostgresqlPorts:
        client = Client(self.settings.connection)
        self.clients.append(client)
        source = MemorySource(self.ends)
        return PostgresqlPorts(self.settings, source, lambda topics: dict.fromkeys(topics, f"{TOPIC}-id"), client)

    def driver(self, step: int = 4, make: MakeBatch = of_offsets, remembered: Remembered | None = None) -> Driver:
        found = Driver(self.ports(), self.ends, step, make, remembered)
        self.workers.append(found.worker)
        return found

    def close(self) -> None:
        """Ends its sessions."""
        shared = [each for worker in self.workers for each in worker._shared.values() if isinstance(each, Client)]
        for client in [*self.clients, *shared]:
            client.close()

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
