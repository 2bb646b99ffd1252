"""Redriving dead letters of a sink of cells: what is pending, by its topic and by the cells, and what to know before.

`redriving_writer` has what is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from typing_extensions import override

from sinkpipeline.cells.kind import CellPorts
from sinkpipeline.cells.lettered import LetteredRecords
from sinkpipeline.cells.redriving import last_settled
from sinkpipeline.core.limits import UNKNOWN
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Letters
from sinkpipeline.core.progress import Meta
from sinkpipeline.core.redrive import (
    MOST_LETTERS,
    Foreign,
    Letter,
    LetterId,
    Outcome,
    Wanted,
)
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.redrive import Redrive
from sinkpipeline.kafka.redrive_writer import Destination, RedriveWriter
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kafka.survey import PartitionView, Survey
from sinkpipeline.kafka.views import limits_of
from sinkpipeline.kinds.cells import cell_ports
from sinkpipeline.kinds.redriving_writer import CellRedriveWriter
from sinkpipeline.kinds.resolve import CellSettings
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings
from sinkpipeline.sinks.contract import BatchPlan


def of_cells(settings: CellSettings, seen: KafkaSettings, wanted: Wanted, rate: float | None) -> Redrive:
    """`seen`: the sink as its dead letters are read."""
    ports = cell_ports(settings, Admin(seen.connection))
    return CellRedrive(
        settings=seen,
        wanted=wanted,
        rate=rate,
        destination=Destination(
            Outcome.DELIVERED,
            lambda meta: meta.data,
            lambda name, what: data_topic_lost(name, what, settings.data.called),
        ),
        ports=ports,
        warnings=_warnings(settings),
        release=ports.client.close,
    )


def _warnings(settings: CellSettings) -> tuple[str, ...]:
    """What a person should know before."""
    upsert = settings.table.upsert if isinstance(settings, PostgresqlSettings) else None
    if upsert is None or upsert.order_type is not None:
        return ()
    overwrites = (
        f"{settings.data.name} is merged without orderBy: a letter's row replaces the row with its key, or deletes "
        "it, even if the row in the table is newer"
    )
    return (overwrites,)


@dataclass(kw_only=True)
class CellRedrive(Redrive):
    """One redrive of one such sink's letters."""

    ports: CellPorts[Any, Any]
    warnings: tuple[str, ...] = ()
    """What a person should know before."""
    release: Callable[[], None] = lambda: None
    _records: LetteredRecords = field(init=False)
    _reopened: list[LetterId] = field(default_factory=list, init=False)

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._records = LetteredRecords(self.settings.id)

    @override
    def close(self) -> None:
        self.release()

    @property
    @override
    def goes_into(self) -> str:
        data = self.ports.settings.data
        return f"{data.called} {data.name}"

    @override
    def survey(self, ends: Sequence[int] | None = None) -> Survey | None:
        """The topic alone does not say what is pending: a store that went back has lost what was settled since.

        It is read behind the topic, and a letter's cell is gone before the topic says that it is settled.
        """
        found = super().survey(ends)
        if found is not None:
            # Else cells that nobody has would be told as letters that do not count.
            self.meta()
            self._reopened = self._records.reopen(self.ports.ledger.cells)
        return found

    @override
    def forecast(self, survey: Survey) -> Iterator[str]:
        cells = self.ports.ledger.cells
        all_pending = {LetterId(view.number, at) for view in survey.partitions for at in view.pending(self.settings.id)}
        not_told = self._not_told(survey) & all_pending
        pending = sorted(all_pending - not_told)
        found = Counter[str]()
        first: set[str] = set()
        for begin in range(0, len(pending), MOST_LETTERS):
            fates = self._records.fates(cells, pending[begin : begin + MOST_LETTERS])
            own = {self._records.key(each) for each in fates.counting} - first
            first |= own
            found["counting"] += len(own)
            found["repeated"] += len(fates.repeated) + len(fates.counting) - len(own)
            found["uncounted"] += len(fates.uncounted)
        called = self.ports.settings.data.called
        if self._reopened:
            store = "database" if called == "table" else called
            yield (
                f"{len(self._reopened)} letters were redriven before, and their rows are lost: the {store} went back, "
                "as by a restore; they are pending again"
            )
        if not_told:
            yield (
                f"{len(not_told)} of them were redriven before, and their redrive was killed before it "
                "wrote that into the dead-letter topic: the next one does so first"
            )
        if found["repeated"]:
            yield f"{found['repeated']} of them repeat another letter of the same record: nothing is written for these"
        if found["uncounted"]:
            yield (
                f"{found['uncounted']} of them don't count, and stay pending: the progress does not say that their "
                f"records were handled as dead letters; their rows may be in the {called} already, or a run may "
                "deliver them"
            )
        if found["counting"]:
            yield from self.warnings

    def _not_told(self, survey: Survey) -> frozenset[LetterId]:
        """What a redrive has committed that was killed before the topic said so."""
        views = {SourcePartition(survey.topic.name, view.number): view for view in survey.partitions}
        cells = self.ports.ledger.cells
        return frozenset(
            LetterId(view.number, offset)
            for at, settled in last_settled(cells, self.settings.id, views).items()
            if settled is not None and settled.topic == survey.topic.id
            for view in (views[at],)
            for spans in self._records.not_told(cells, view.number, view.ledger, settled.outcomes).values()
            for first, last in spans
            for offset in range(first, last + 1)
        )

    @override
    def _note(self, view: PartitionView, found: Letter | Foreign) -> None:
        super()._note(view, found)
        if isinstance(found, Letter) and found.letter.sink == self.settings.id:
            self._records.note(found, view.ledger)

    @override
    def meta(self) -> Meta:
        ledger = self.ports.ledger
        meta = None if ledger.place() is None else ledger.observe().meta
        return self._known_meta(meta, "the progress", self.ports.settings.data.called)

    @override
    def _plan_of_target(self, topic: Topic, meta: Meta) -> BatchPlan:
        """After the checks of a start: a manifest may have changed since the last one."""
        settings, target = self.ports.settings, self.ports.target
        data, place = target.describe({}), self.ports.ledger.place()
        if data is None or place is None or data.id != self.destination.own_id(meta):
            what = "it does not exist" if data is None else "it is not the one that the sink knows"
            raise self.destination.lost(settings.data.name, what)
        target.take(data, place, Letters(topic=None, limits=UNKNOWN, drift=()))
        self.ports.check_redrive()
        return BatchPlan(
            kind=self.ports.kind,
            settings=settings,
            run=self._run,
            data_limits=target.limits_of(data),
            letter_limits=limits_of(topic),
            data_topic_id=data.id,
            progress_topic_id=place.id,
            verified=0,
            ranges={},
            frontier={},
            owners={},
        )

    @property
    @override
    def _most_letters(self) -> int:
        return self.ports.most_letters

    @override
    def _writer(self, plan: BatchPlan, topic: Topic, view: PartitionView) -> RedriveWriter:
        return CellRedriveWriter(
            plan,
            self.settings,
            topic,
            view.number,
            view.ledger,
            partial(self._note, view),
            self.admin,
            destination=self.destination,
            cells=self.ports.row_cells(plan.data_topic_id),
            records=self._records,
            target_id=self.ports.target.id,
        )
