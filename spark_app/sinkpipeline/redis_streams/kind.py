"""Redis and Valkey Streams as a kind of sink: all of its ports."""

from __future__ import annotations

from collections.abc import Collection

from typing_extensions import override

from sinkpipeline.cells.kind import CellPorts, KindOfCells
from sinkpipeline.cells.ledger import CellLedger
from sinkpipeline.cells.sending import CellSender, RowIds
from sinkpipeline.cells.session import CellClaim
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.redis_streams.cells import RedisCells, changed
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.entries import Words
from sinkpipeline.redis_streams.publishing import RedisPublisher
from sinkpipeline.redis_streams.settings import SinkSettings
from sinkpipeline.redis_streams.target import STREAM_LIMITS, RedisPlace, RedisTarget
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.letters import SentLetters
from sinkpipeline.sinks.settings import settings_of
from sinkpipeline.sinks.worker import Worker


class RedisClaim(CellClaim):
    """A cell that is in the hash of the start, for rows of the stream of the start."""

    def __init__(
        self,
        plan: BatchPlan,
        partition: SourcePartition,
        client: Client,
        cells: RedisCells,
        letters: SentLetters | None,
    ) -> None:
        settings = settings_of(plan, SinkSettings)
        super().__init__(cells, settings.id, plan.run, partition, letters)
        self._stream = settings.stream
        self._ids = (
            (RedisTarget(settings, client).id, plan.data_topic_id),
            (RedisPlace(settings.stream, client).id, plan.progress_topic_id),
        )

    @override
    def _check(self) -> None:
        """Leaves it to the driver to decide about what is not that of the start any more."""
        if any(found() != expected for found, expected in self._ids):
            raise changed(self._stream)
        super()._check()


class RedisKind(KindOfCells):
    """A `SinkKind`."""

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> RedisClaim:
        settings = settings_of(plan, SinkSettings)
        client = self._client(settings, worker)
        cells = RedisCells(client, settings.stream, plan.data_topic_id if rows else None, plan.store)
        return RedisClaim(plan, partition, client, cells, self.letters_of(plan, partition, worker))

    @override
    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> CellSender[Words]:
        settings = settings_of(plan, SinkSettings)
        client, stream = self._client(settings, worker), settings.stream
        ids = RowIds(settings.id, partition, plan.frontier[partition].epoch)
        cells = RedisCells(client, stream, store=plan.store)
        publisher = RedisPublisher(client, stream, plan.data_topic_id, plan.store)
        return CellSender(lambda: publisher, ids, cells, self.letters_of(plan, partition, worker))

    def _client(self, settings: SinkSettings, worker: Worker) -> Client:
        return worker.shared(("redis", settings.connection), lambda: Client(settings.connection))

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:
        """Nobody configures what a stream takes."""
        return STREAM_LIMITS, self.limits_of_letters(plan, worker)

    def cuts(self) -> CutPolicy:
        """A script holds up everybody else of the server: for about 5 ms."""
        return CutPolicy(rows=1_000, bytes=1024 * 1024)

    def cure(self, why: str) -> str:  # noqa: ARG002 - it was said what of the row it is
        return "correct the expressions of transform.select"


REDIS = RedisKind()


class RedisPorts(CellPorts[SinkSettings, Client]):
    """One Redis sink; of one thread at a time."""

    @property
    @override
    def kind(self) -> RedisKind:
        return REDIS

    @override
    def row_cells(self, target: str) -> RedisCells:
        """Those of the ledger, which commit rows too; `target`: the id of the stream."""
        return RedisCells(self.client, self.settings.stream, target)

    @property
    @override
    def target(self) -> RedisTarget:
        return RedisTarget(self.settings, self.client, self.letters, gives_id=not self.looks)

    @property
    @override
    def ledger(self) -> CellLedger:
        stream = self.settings.stream
        return CellLedger(RedisCells(self.client, stream), self.settings.id, RedisPlace(stream, self.client))

    @override
    def ids(self, topics: Collection[str]) -> Ids:
        place = RedisPlace(self.settings.stream, self.client)
        return Ids(self.source_ids(topics), self.target.id(), place.id())
