"""PostgreSQL as a kind of sink: all of its ports."""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from sinkpipeline.cells.kind import CellPorts, KindOfCells
from sinkpipeline.cells.ledger import CellLedger
from sinkpipeline.cells.session import CellClaim
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.client import NO_PARTITION, Client
from sinkpipeline.postgresql.settings import SinkSettings
from sinkpipeline.postgresql.statements import CellStatements, TableStatements
from sinkpipeline.postgresql.target import TABLE_LIMITS, PostgresqlPlace, PostgresqlTarget, oid_of
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.letters import SentLetters
from sinkpipeline.sinks.settings import settings_of
from sinkpipeline.sinks.worker import Worker


class PostgresqlClaim(CellClaim):
    """A cell that is in the table of the start, for rows of the table of the start."""

    def __init__(
        self,
        plan: BatchPlan,
        partition: SourcePartition,
        client: Client,
        cells: PostgresqlCells,
        letters: SentLetters | None,
    ) -> None:
        settings = settings_of(plan, SinkSettings)
        super().__init__(cells, settings.id, plan.run, partition, letters)
        self._ids = {
            settings.table.label: (PostgresqlTarget(settings, client).id, plan.data_topic_id),
            f"{settings.progress_schema}.progress": (
                PostgresqlPlace(settings.progress_schema, client).id,
                plan.progress_topic_id,
            ),
        }

    @override
    def _check(self) -> None:
        """Leaves it to the driver to decide about tables that are not the ones of the start any more."""
        for name, (found, expected) in self._ids.items():
            if found() != expected:
                raise SinkPipelineError(
                    Reason.TOPICS_CHANGED, f"table {name} was dropped or re-created", "the sink starts again"
                )
        super()._check()


class PostgresqlKind(KindOfCells):
    """A `SinkKind`."""

    def claim(
        self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True
    ) -> PostgresqlClaim:
        settings = settings_of(plan, SinkSettings)
        client = worker.shared(("postgresql", settings.connection), lambda: Client(settings.connection))
        statements = TableStatements(settings.table, settings.progress_schema, oid_of(plan.data_topic_id))
        places = CellStatements(settings.progress_schema)
        cells = PostgresqlCells(client, places, statements if rows else None, plan.store)
        return PostgresqlClaim(plan, partition, client, cells, self.letters_of(plan, partition, worker))

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:
        """Nobody configures what a table takes."""
        return TABLE_LIMITS, self.limits_of_letters(plan, worker)

    def cuts(self) -> CutPolicy:
        """Rows of an `Upsert` stay locked until the commit, and others wait for them no longer than LOCK_TIMEOUT_MS."""
        return CutPolicy(rows=10_000)

    def cure(self, why: str) -> str:
        """The server has said which column or constraint it is."""
        if NO_PARTITION in why:
            return "create the partition, or a DEFAULT one"
        return "correct the expressions of transform.select.columns, or alter the table"


POSTGRESQL = PostgresqlKind()


class PostgresqlPorts(CellPorts[SinkSettings, Client]):
    """One PostgreSQL sink; of one thread at a time."""

    @property
    @override
    def kind(self) -> PostgresqlKind:
        return POSTGRESQL

    @override
    def row_cells(self, target: str) -> PostgresqlCells:
        """Those of the ledger, which commit rows too; `target`: the id of the table."""
        settings = self.settings
        statements = TableStatements(settings.table, settings.progress_schema, oid_of(target))
        return PostgresqlCells(self.client, CellStatements(settings.progress_schema), statements)

    @override
    def check_redrive(self) -> None:
        """That a redrive may do what a run does not: remove the cells of letters.

        Raises:
            SinkPipelineError: SinkRefused, SinkUnreachable.
        """
        with self.client.reading() as work:
            work.rows(CellStatements(self.settings.progress_schema).redrive_check)

    @property
    @override
    def target(self) -> PostgresqlTarget:
        return PostgresqlTarget(self.settings, self.client, self.letters)

    @property
    @override
    def ledger(self) -> CellLedger:
        schema = self.settings.progress_schema
        cells = PostgresqlCells(self.client, CellStatements(schema))
        return CellLedger(cells, self.settings.id, PostgresqlPlace(schema, self.client))

    @override
    def ids(self, topics: Collection[str]) -> Ids:
        place = PostgresqlPlace(self.settings.progress_schema, self.client)
        return Ids(self.source_ids(topics), self.target.kept_id(), place.kept_id())
