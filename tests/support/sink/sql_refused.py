"""Rows that the server refuses, and the dead letters of them, in memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.deadletter import DeadLetter, SourceRecord, parse
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import NoDeadLetter
from sinkpipeline.core.records import Row
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.kind import PostgresqlClaim, PostgresqlKind
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.postgresql.statements import CellStatements, TableStatements
from sinkpipeline.postgresql.target import oid_of
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.letters import SentLetters
from sinkpipeline.sinks.worker import Worker
from support.sink.cell_sink import P0
from support.sink.sql_sink import SqlSink, batch


@dataclass(frozen=True)
class Wanted:
    drop: bool = False


class _Box:
    name = "letters"

    def failure(self) -> NoDeadLetter | None:
        return None


@dataclass
class _Outbox:
    sent: list[Row]
    open: list[Row] = field(default_factory=list)

    def send(self, rows: Iterable[Row]) -> None:
        self.open.extend(rows)

    def flush(self) -> None:
        self.sent += self.open
        self.open = []

    def keep(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Records:
    def __init__(self, partition: SourcePartition) -> None:
        self._partition = partition

    def read(self, offset: int) -> SourceRecord | None:
        return SourceRecord(
            partition=self._partition, offset=offset, key=None, value=b"raw", headers=None, timestamp=-1
        )

    def close(self) -> None:
        pass


@dataclass
class WithLetters(PostgresqlKind):
    """The kind, with a dead-letter topic in memory."""

    sent: list[Row] = field(default_factory=list)
    acknowledged: set[Hashable] = field(default_factory=set)

    @override
    def claim(
        self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True
    ) -> PostgresqlClaim:
        settings = plan.settings
        assert rows
        assert isinstance(settings, SinkSettings)
        client = worker.shared(("postgresql", settings.connection), lambda: Client(settings.connection))
        statements = TableStatements(settings.table, settings.progress_schema, oid_of(plan.data_topic_id))
        cells = PostgresqlCells(client, CellStatements(settings.progress_schema), statements)
        return PostgresqlClaim(
            plan, partition, client, cells, SentLetters(lambda: _Outbox(self.sent), self.acknowledged)
        )

    @override
    def letter_box(self, plan: BatchPlan, worker: Worker) -> _Box:
        return _Box()

    @override
    def reader(self, plan: BatchPlan, partition: SourcePartition) -> _Records:
        return _Records(partition)

    @property
    def parsed(self) -> list[DeadLetter]:
        return [parse(value, key, headers) for value, key, _, _, headers in self.sent]

    @property
    def letters(self) -> list[tuple[int, str]]:
        """Offset and code of each."""
        return [(letter.record.offset, letter.verdict.code) for letter in self.parsed]


def write(sink: SqlSink, kind: WithLetters | None, offsets: range, bad: dict[int, str | None]) -> Receipt:
    """One batch, in which some rows have other texts in their column `off`."""
    driver = sink.driver()
    plan = driver.delivery.begin({P0: OffsetRange(offsets.start, offsets.stop)})
    if kind is not None:
        wanted: Any = Wanted()
        settings = replace(sink.settings, dead_letter=wanted)
        plan = replace(plan, kind=kind, settings=settings)
    writer = ExactlyOnceWriter(plan, P0, driver.worker)
    writer.write(batch(offsets, [("0", bad.get(each, str(each)), "secret") for each in offsets]))
    writer.finish()
    return writer.receipt()
