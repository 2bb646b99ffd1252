"""Redis and Valkey Streams as a kind of sink: all of its ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from typing_extensions import override

from sinkpipeline.cells.ledger import CellLedger
from sinkpipeline.cells.session import CellClaim
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import LetterTarget, Source
from sinkpipeline.core.task_ports import Sender
from sinkpipeline.redis_streams.cells import RedisCells, changed
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.settings import SinkSettings
from sinkpipeline.redis_streams.target import STREAM_LIMITS, RedisPlace, RedisTarget
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.letters import LettersElsewhere, SentLetters
from sinkpipeline.sinks.worker import Worker


def settings_of(plan: BatchPlan) -> SinkSettings:
    """A plan of this kind has this kind's settings."""
    if not isinstance(plan.settings, SinkSettings):
        raise TypeError(f"settings of another kind: {type(plan.settings).__name__}")
    return plan.settings


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
        settings = settings_of(plan)
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


class RedisKind(LettersElsewhere):
    """A `SinkKind`."""

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> RedisClaim:
        settings = settings_of(plan)
        client = worker.shared(("redis", settings.connection), lambda: Client(settings.connection))
        cells = RedisCells(client, settings.stream, plan.data_topic_id if rows else None, plan.store)
        return RedisClaim(plan, partition, client, cells, self.letters_of(plan, partition, worker))

    def sender(self, plan: BatchPlan, worker: Worker) -> Sender:
        raise NotImplementedError("AtLeastOnce is not served for this kind")

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:
        """Nobody configures what a stream takes."""
        return STREAM_LIMITS, self.limits_of_letters(plan, worker)

    def fits_at_once(self, plan: BatchPlan) -> bool:  # noqa: ARG002 - a driver delivers nothing itself
        return False

    def cuts(self) -> CutPolicy:
        """A script holds up everybody else of the server: for about 5 ms."""
        return CutPolicy(rows=1_000, bytes=1024 * 1024)

    def cure(self, why: str) -> str:  # noqa: ARG002 - it was said what of the row it is
        return "correct the expressions of transform.select"


REDIS = RedisKind()


@dataclass
class RedisPorts:
    """One Redis sink; of one thread at a time."""

    settings: SinkSettings
    source: Source
    source_ids: Callable[[Collection[str]], Mapping[str, str | None]]
    """Of topics of the source, as they are now."""
    client: Client
    letters: LetterTarget | None = None
    """Where dead letters go."""
    looks: bool = False
    """Whether nothing may be left behind, not even the id of a stream."""

    @property
    def kind(self) -> RedisKind:
        return REDIS

    def row_cells(self, target: str) -> RedisCells:
        """Those of the ledger, which commit rows too; `target`: the id of the stream."""
        return RedisCells(self.client, self.settings.stream, target)

    def check_redrive(self) -> None:
        """A redrive does nothing that a run does not."""

    @property
    def target(self) -> RedisTarget:
        return RedisTarget(self.settings, self.client, self.letters, gives_id=not self.looks)

    @property
    def ledger(self) -> CellLedger:
        stream = self.settings.stream
        return CellLedger(RedisCells(self.client, stream), self.settings.id, RedisPlace(stream, self.client))

    def ids(self, topics: Collection[str]) -> Ids:
        place = RedisPlace(self.settings.stream, self.client)
        return Ids(self.source_ids(topics), self.target.id(), place.id())

    def renew_clients(self) -> None:
        self.client.close()
