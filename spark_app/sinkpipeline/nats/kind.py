"""NATS as a kind of sink: all of its ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from typing_extensions import override

from sinkpipeline.cells.kind import CellPorts, KindOfCells
from sinkpipeline.cells.sending import CellSender, RowIds
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.nats.cells import NatsCells
from sinkpipeline.nats.client import Client, Message
from sinkpipeline.nats.ledger import NatsLedger
from sinkpipeline.nats.publishing import NatsPublisher
from sinkpipeline.nats.reader import MOST_MESSAGES
from sinkpipeline.nats.session import NatsClaim, cells_of_sink, read_row_place
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.nats.stream import check_atomic, check_stream, would_expire
from sinkpipeline.nats.target import STREAM_LIMITS, NatsStream
from sinkpipeline.sinks.contract import BatchPlan, Restart
from sinkpipeline.sinks.settings import settings_of
from sinkpipeline.sinks.worker import Worker

_MOST_BYTES = 16 * 1024 * 1024
"""A server holds an open batch in its memory."""


class NatsKind(KindOfCells):
    """A `SinkKind`."""

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> NatsClaim:  # noqa: ARG002
        settings = settings_of(plan, SinkSettings)
        client = self._client(settings, worker)
        letters = self.letters_of(plan, partition, worker)
        return NatsClaim(settings, plan.data_topic_id, plan.run, partition, client, letters)

    @override
    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> CellSender[Message]:
        settings = settings_of(plan, SinkSettings)
        client = self._client(settings, worker)

        def made() -> NatsPublisher:
            return NatsPublisher(client, read_row_place(client, settings, plan.data_topic_id))

        ids = RowIds(settings.id, partition, plan.frontier[partition].epoch)
        return CellSender(made, ids, cells_of_sink(client, settings), self.letters_of(plan, partition, worker))

    def _client(self, settings: SinkSettings, worker: Worker) -> Client:
        return worker.shared(("nats", settings.connection), lambda: Client(settings.connection))

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:
        return STREAM_LIMITS, self.limits_of_letters(plan, worker)

    def cuts(self) -> CutPolicy:
        """One message of a batch is the cell, and a dead letter is one too."""
        # A server may take smaller batches (limits.batch.max_msgs): then they are halved until it takes them.
        return CutPolicy(rows=MOST_MESSAGES - 1, bytes=_MOST_BYTES, least_rows=10)

    def cure(self, why: str) -> str:  # noqa: ARG002 - the verdict has said what it is
        return "correct transform.select (value, headers, subject) of the sink, or alter the stream"


NATS = NatsKind()


class NatsPorts(CellPorts[SinkSettings, Client]):
    """One NATS sink; of one thread at a time."""

    _stays_with: Mapping[str, Any] | None = None
    """The configuration of the stream under which the progress was seen to stay."""

    @property
    @override
    def kind(self) -> NatsKind:
        return NATS

    @override
    def row_cells(self, target: str) -> NatsCells:
        """Those of the ledger, which commit rows too; `target`: the id of the stream.

        Raises:
            SinkPipelineError: TopicsChanged, SinkUnreachable, ...
        """
        settings = self.settings
        place = read_row_place(self.client, settings, target)
        return NatsCells(self.client, settings.stream.name, settings.progress_subject, place)

    @property
    @override
    def most_letters(self) -> int:
        """All of it is one batch, also where no letter gives a row: of what has none nothing could be halved."""
        return (MOST_MESSAGES - 1) // 2

    @override
    def check_redrive(self) -> None:
        """Rows of letters and what is settled are one batch, whatever the sink's own guarantee.

        Raises:
            SinkPipelineError: SinkRefused, SinkUnreachable.
        """
        check_atomic(self.client, self.target.info())

    @property
    @override
    def target(self) -> NatsStream:
        return NatsStream(self.settings, self.client, self.letters)

    @property
    @override
    def ledger(self) -> NatsLedger:
        settings = self.settings
        cells = cells_of_sink(self.client, settings)
        return NatsLedger(cells, settings.id, self.target)

    @override
    def ids(self, topics: Collection[str]) -> Ids:
        """A limit that takes progress away, and that somebody has set since, is refused before it does.

        Raises:
            Restart: the progress would expire; a start writes all of it anew, so that it does not.
        """
        found = self.target.info()
        if found is not None:
            check_stream(found, self.settings)
            if found.config != self._stays_with and would_expire(self.client, found, self.settings):
                raise Restart(f"messages of stream {found.name} expire by now, and the progress is not marked to stay")
            self._stays_with = found.config
        there = None if found is None else found.id
        return Ids(self.source_ids(topics), there, there)
