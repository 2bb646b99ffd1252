"""A sink in memory whose progress stands in cells: what a backend does, and what it may do wrong."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from sinkpipeline.cells.ledger import CellLedger
from sinkpipeline.cells.session import CellClaim
from sinkpipeline.cells.store import NOTHING, Cell, Moved, Puts, Version
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.ledger_ports import Ids
from sinkpipeline.core.limits import UNKNOWN, TopicLimits
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import Creation, InDoubt, Letters
from sinkpipeline.core.positions import Positions
from sinkpipeline.core.progress import Mark, Meta, Owner, PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.core.starting import SourceView, plan_partitions
from sinkpipeline.core.task_ports import LetterBox, RecordReader, Sender
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.worker import Worker

T = TypeVar("T")

TOPIC = "orders"
TABLE = Topic(name="table", id="t1", partitions=1, replication_factor=1)


Fate = str | int
"""Of a write: `done`; or, told as in doubt, `refused` before anything was done, `torn` after half of it, or `lost`
after all. A number: it is on its way for so many requests."""


@dataclass
class Store:
    """Cells and rows. Every write asks for its fate."""

    fate: Callable[[str], Fate] = lambda _: "done"
    tears: bool = False
    """Whether cells are put one after the other."""
    cells: dict[str, Cell] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    commits: int = 0
    connections: int = 0
    store: str = ""
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _late: list[tuple[int, Callable[[], Any]]] = field(default_factory=list)

    def read(self, keys: Collection[str]) -> Mapping[str, Cell]:
        self._settle()
        return {key: self.cells.get(key, Cell(None, None)) for key in keys}

    def metas(self) -> Mapping[str, Cell]:
        self._settle()
        return dict(self.cells)

    def put(self, cells: Puts) -> Mapping[str, Version]:
        def effect() -> Mapping[str, Version]:
            for key, (_, version) in () if self.tears else cells.items():
                self._check(key, version)
            return {key: self._write(key, *each) for key, each in cells.items()}

        def torn() -> None:
            for key, each in list(cells.items())[: len(cells) // 2] if self.tears else ():
                self._write(key, *each)

        return self._do("put", effect, torn)

    def find(self, prefix: str, most: int) -> Mapping[str, Version]:
        self._settle()
        alike = ((key, cell.version) for key, cell in self.cells.items() if key.startswith(prefix))
        return dict(itertools.islice(alike, most))

    def commit(
        self,
        key: str,
        value: bytes,
        version: Version,
        rows: Sequence[Row],
        beside: Puts = NOTHING,
        ids: Sequence[str | None] = (),  # noqa: ARG002 - a redrive's
    ) -> Version:
        rows = list(rows)

        def effect() -> Version:
            for each, (_, expected) in beside.items():
                self._check(each, expected)
            new = self._write(key, value, version)
            for each, put in beside.items():
                self._write(each, *put)
            self.rows += rows
            self.commits += 1
            return new

        return self._do("commit", effect)

    def _write(self, key: str, value: bytes | None, version: Version) -> Version:
        self._check(key, version)
        if value is None:
            self.cells.pop(key, None)
            return None
        self.cells[key] = Cell(value, next(self._versions))
        return self.cells[key].version

    def _check(self, key: str, version: Version) -> None:
        if self.cells.get(key, Cell(None, None)).version != version:
            raise Moved(key)

    def _do(self, what: str, effect: Callable[[], T], torn: Callable[[], None] = lambda: None) -> T:
        self._settle()
        fate = self.fate(what)
        if fate == "done":
            return effect()
        if fate == "lost":
            effect()
        elif fate == "torn":
            with contextlib.suppress(Moved):
                torn()
        elif isinstance(fate, int):
            self._late.append((fate, effect))
        raise InDoubt(f"no answer to a {what}")

    def _settle(self) -> None:
        """What has been on its way for long enough comes through, if it still may."""
        waiting, self._late = self._late, []
        for left, effect in waiting:
            if left > 1:
                self._late.append((left - 1, effect))
            else:
                with contextlib.suppress(Moved):
                    effect()


@dataclass
class MemorySource:
    """Topics of one name, whose partitions have so many records."""

    ends_at: dict[SourcePartition, int]
    tells_positions: bool = False

    def topics(self) -> Mapping[str, str]:
        return {partition.topic: f"{partition.topic}-id" for partition in self.ends_at}

    def view(self) -> SourceView:
        ends = MappingProxyType(dict(self.ends_at))
        return SourceView(
            topics=self.topics(), beginnings=dict.fromkeys(self.ends_at, 0), ends=ends, high_watermarks=ends
        )

    def check_visible(self, meta: Meta | None, found: Collection[str]) -> None:
        pass

    def has_others(self, known: Collection[str]) -> bool:
        return not self.topics().keys() <= set(known)

    def beginnings(self, partitions: Collection[SourcePartition]) -> Mapping[SourcePartition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Collection[SourcePartition], *, readable: bool) -> Mapping[SourcePartition, int]:  # noqa: ARG002
        return {each: self.ends_at[each] for each in partitions}

    def positions_at(
        self, moments: Mapping[SourcePartition, int], ends: Mapping[SourcePartition, int]
    ) -> Mapping[SourcePartition, int]:
        raise NotImplementedError

    def positions(self, view: SourceView) -> Positions:
        raise NotImplementedError

    def planned(
        self,
        known: Mapping[SourcePartition, PartitionProgress],
        view: SourceView,
        *,
        epoch: int,
        imported: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, PartitionProgress]:
        return plan_partitions(
            known,
            view,
            epoch=epoch,
            starting_offsets=StartingOffsets.EARLIEST,
            discovered=False,
            skip_lost=False,
            at=0,
            imported=imported,
        )

    def begin_new(self, partition: SourcePartition, known_topics: Collection[str], view: SourceView) -> int:  # noqa: ARG002
        return view.beginnings[partition]

    def marks(
        self,
        known: Mapping[SourcePartition, Mark],
        frontier: Mapping[SourcePartition, PartitionProgress],  # noqa: ARG002
        beginnings: Mapping[SourcePartition, int],  # noqa: ARG002
        ends: Mapping[SourcePartition, int],  # noqa: ARG002
    ) -> dict[SourcePartition, Mark]:
        return dict(known)


@dataclass
class MemoryTarget:
    """A table that is there, or is made."""

    store: Store
    table: Topic | None = None

    def check_names(self) -> None:
        pass

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002
        return self.table

    def id(self) -> str | None:
        return None if self.table is None else self.table.id

    def create(self) -> Creation:
        self.table = self.table or TABLE
        return Creation(topic=self.table, is_ours=True)

    def prepare_letters(self, source: Mapping[str, str]) -> Letters:  # noqa: ARG002
        return Letters(topic=None, limits=UNKNOWN, drift=())

    def take(self, target: Topic, place: Topic, letters: Letters) -> None:
        pass

    def limits_of(self, target: Topic) -> TopicLimits:
        return TopicLimits(partitions=target.partitions)

    def limits(self) -> TopicLimits | None:
        return TopicLimits(partitions=1)

    def durability(self) -> Durability | None:
        return Durability.COMMITTED

    def duplicate_window_ms(self) -> int | None:
        return None

    def letter_limits(self) -> TopicLimits | None:
        return None

    def counted(self) -> int | None:
        return len(self.store.rows)

    def lost(self, what: str) -> SinkPipelineError:
        return data_topic_lost(TABLE.name, what)

    def delete(self, target: str) -> None:  # noqa: ARG002 - there is one
        self.table = None
        self.store.rows.clear()


@dataclass(frozen=True)
class MemorySettings:
    """Those of a sink of this kind."""

    id: SinkId = field(default_factory=lambda: SinkId("i", "s"))
    owner: Owner = field(default_factory=lambda: Owner(cluster="file", name="n"))
    adopt: Owner | None = None
    source: Any = None
    group_id: str = "g"
    exactly_once: bool = True
    refuse_existing_data: bool = False
    dead_letter: None = None
    data: TopicRequest = field(default_factory=lambda: TopicRequest(name=TABLE.name))


@dataclass(frozen=True)
class MemoryKind:
    """A `SinkKind`."""

    store: Store

    def claim(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, rows: bool = True) -> CellClaim:  # noqa: ARG002
        return CellClaim(self.store, plan.settings.id, plan.run, partition)

    def sender(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> Sender:
        raise NotImplementedError

    def letter_box(self, plan: BatchPlan, worker: Worker) -> LetterBox:
        raise NotImplementedError

    def reader(self, plan: BatchPlan, partition: SourcePartition) -> RecordReader:
        raise NotImplementedError

    def read_limits(self, plan: BatchPlan, worker: Worker) -> tuple[TopicLimits | None, TopicLimits | None]:  # noqa: ARG002
        return plan.data_limits, None

    def fits_at_once(self, plan: BatchPlan) -> bool:  # noqa: ARG002
        return False

    def cuts(self) -> CutPolicy:
        return CutPolicy()

    def cure(self, why: str) -> str:  # noqa: ARG002
        return "correct it"


@dataclass
class MemoryPorts:
    """One sink of this kind."""

    store: Store
    source: MemorySource
    target: MemoryTarget
    settings: MemorySettings = field(default_factory=MemorySettings)

    @property
    def kind(self) -> MemoryKind:
        return MemoryKind(self.store)

    @property
    def ledger(self) -> CellLedger:
        return CellLedger(self.store, self.settings.id, self.target)

    def ids(self, topics: Collection[str]) -> Ids:
        found = self.source.topics()
        return Ids({name: found.get(name) for name in topics}, self.target.id(), self.target.id())

    def renew_clients(self) -> None:
        pass
