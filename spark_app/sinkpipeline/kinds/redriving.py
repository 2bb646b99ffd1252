"""Redriving dead letters of a sink of cells: rows into its store, from letters in a topic of the source's cluster.

    rows of letters that count ─┐
    cells of these letters ─────┼─► one commit of the store ─► redrive record in the dead-letter topic
    cell of the redrive ────────┘

A kill in between leaves the redrive's cell, and whoever redrives next writes the record of it first. Letters that fail
again are acknowledged before the commit, as those of a batch are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from typing_extensions import override

from sinkpipeline.cells.kind import CellPorts
from sinkpipeline.cells.lettered import Counting, Fates, LetteredRecords
from sinkpipeline.cells.letters import Count
from sinkpipeline.cells.redriving import RedriveSession, Settled, take
from sinkpipeline.cells.sending import RowIds, numbered
from sinkpipeline.cells.session import passing_outages
from sinkpipeline.cells.store import Cells, Puts, Version
from sinkpipeline.core.limits import UNKNOWN
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.ports import Letters
from sinkpipeline.core.progress import Meta
from sinkpipeline.core.redrive import (
    MOST_LETTERS,
    Foreign,
    Letter,
    LetterId,
    Outcome,
    RedriveRecord,
    Span,
    Wanted,
    spans,
    spans_of,
)
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.redrive import Redrive
from sinkpipeline.kafka.redrive_writer import UNCOUNTED, Destination, Doubt, RedriveWriter
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kafka.survey import PartitionView, Survey
from sinkpipeline.kafka.views import limits_of
from sinkpipeline.kinds.cells import cell_ports
from sinkpipeline.kinds.resolve import CellSettings
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.letters import LettersElsewhere


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
        pending = [LetterId(view.number, at) for view in survey.partitions for at in view.pending(self.settings.id)]
        cells = self.ports.ledger.cells
        found = Counter[str]()
        first: set[str] = set()
        for begin in range(0, len(pending), MOST_LETTERS):
            fates = self.fates(cells, pending[begin : begin + MOST_LETTERS])
            own = {self.key(each) for each in fates.counting} - first
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

    def fates(self, cells: Cells, letters: Sequence[LetterId]) -> Fates:
        return self._records.fates(cells, letters)

    def key(self, letter: LetterId) -> str:
        return self._records.key(letter)

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

    @override
    def _writer(self, plan: BatchPlan, topic: Topic, view: PartitionView) -> RedriveWriter:
        cells = self.ports.row_cells(plan.data_topic_id)
        return _Writer(self, cells, plan, topic, view, partial(self._note, view))


class _Writer(RedriveWriter):
    """Its own session is one of the store; a producer beside it holds the partition of the letters."""

    def __init__(
        self,
        redrive: CellRedrive,
        cells: Cells,
        plan: BatchPlan,
        topic: Topic,
        view: PartitionView,
        note: Callable[[Letter | Foreign], None],
    ) -> None:
        self._redrive = redrive
        self._cells = cells
        self._producer: TransactionalProducer | None = None
        self._counting: dict[int, Counting] = {}
        """Of each letter of the chunk that counts, the cell that says so."""
        self._repeated: frozenset[int] = frozenset()
        super().__init__(
            plan,
            redrive.settings,
            topic,
            view.number,
            view.ledger,
            note,
            redrive.admin,
            destination=redrive.destination,
        )

    @override
    def sift(self, chunk: Sequence[Letter]) -> tuple[Sequence[Letter], Sequence[Letter]]:
        found: list[Fates] = []

        def look() -> None:
            with passing_outages():
                found.append(self._redrive.fates(self._cells, [each.id for each in chunk]))

        self._guard(look)
        fates = found[-1]
        self._counting = {each.offset: cell for each, cell in fates.counting.items()}
        self._repeated = frozenset(each.offset for each in fates.repeated)
        self.tally[UNCOUNTED] += len(fates.uncounted)
        return (
            [each for each in chunk if each.id not in fates.uncounted],
            [each for each in chunk if each.id in fates.counting],
        )

    @override
    def _outcomes(self, offsets: Sequence[int]) -> dict[int, Outcome]:
        found = super()._outcomes(offsets)
        return {at: Outcome.REPEATED if at in self._repeated else outcome for at, outcome in found.items()}

    @override
    def _commit(self, doubt: Doubt) -> None:
        self._begin()
        session = self._owned()
        if not isinstance(session, RedriveSession):
            raise TypeError("a redrive into a store of cells holds a cell of it")
        settled = spans_of(doubt.outcomes)
        failpoint("redrive-before-commit")
        self._doubt = doubt
        session.settle(self._mine(settled), self._cells_of(doubt.outcomes))
        failpoint("redrive-before-record")
        self._record(settled)
        failpoint("redrive-after-commit")

    def _cells_of(self, outcomes: Mapping[int, Outcome]) -> Puts:
        """What becomes of the cells of letters: of one that failed again the newer letter counts."""
        found: dict[str, tuple[bytes | None, Version]] = {}
        for offset in outcomes.keys() & self._counting.keys():
            cell = self._counting[offset]
            again = outcomes[offset] is Outcome.DEAD_LETTERED
            redrives = self.letter_at(offset).letter.redrives + 1
            found[cell.key] = (Count(redrives, cell.epoch).encode() if again else None), cell.version
        return found

    def _ids_of(self, offsets: Sequence[int]) -> Iterator[str | None]:
        """Those that the rows would have had if their records had been no letters.

        Of a letter that an earlier release has counted nobody knows the epoch: another record may have that id.
        """
        for offset, number in numbered(offsets):
            record, epoch = self.letter_at(offset).letter.record, self._counting[offset].epoch
            yield None if epoch is None else RowIds(self._sink, record.partition, epoch).one(record.offset, number)

    def _record(self, outcomes: Mapping[str, Iterable[Span]]) -> None:
        """Says in the topic what the store has committed."""
        if self._producer is None:
            raise ValueError("a writer is not used after it was closed")
        self._producer.begin()
        self._producer.produce_rows(self._topic.name, self._saying(outcomes))
        self._producer.commit()
        settled = {outcome: tuple(each) for outcome, each in outcomes.items()}
        self._ledger.apply(RedriveRecord(sink=self._sink, topic_id=self._topic.id, run=self._plan.run, settled=settled))

    def _mine(self, outcomes: Mapping[str, tuple[Span, ...]]) -> Settled:
        return Settled(run=self._plan.run, topic=self._topic.id, outcomes=outcomes)

    @override
    def _properties(self) -> dict[str, str]:
        return {"message.max.bytes": str(self._plan.letter_limits.message_bytes)}

    @override
    def _hold_id(self, producer: TransactionalProducer) -> None:
        self._producer = producer

    @override
    def _claim_target(self) -> None:
        """What was committed, and is not in the topic yet, is written there first: our own commits replace it."""
        elsewhere = self._plan.kind
        if not isinstance(elsewhere, LettersElsewhere):
            raise TypeError("a store of cells holds no dead letters")
        letters = elsewhere.letters_of(self._plan, self._partition, self._worker)
        session = take(self._cells, self._sink, self._partition, self._mine({}), letters)
        if not self._plan.settings.exactly_once:
            # Its readers, or the server, tell rows that come twice by their ids: so also one that a run delivers too.
            session.ids_of = self._ids_of
        self._session = session
        found = session.found
        if found is None or found.topic != self._topic.id:
            return
        left = {outcome: tuple(spans(self._unsettled(each))) for outcome, each in found.outcomes.items()}
        left = {outcome: each for outcome, each in left.items() if each}
        if left:
            self._record(left)

    def _unsettled(self, found: Iterable[Span]) -> Iterator[int]:
        for first, last in found:
            yield from (at for at in range(first, last + 1) if self._ledger.outcome(self._sink, at) is None)

    @override
    def _target_id(self, data: TopicRequest) -> str | None:
        return self._redrive.ports.target.id()

    @override
    def _go_on(self) -> None:
        """Nothing was committed, and both claims are ours still."""
        self._doubt = None
        self._start_over()

    @override
    def _give_up(self) -> None:
        super()._give_up()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
