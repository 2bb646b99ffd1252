"""The progress of one sink: how far it got, who may write it, and what must hold for it.

One rule: a source record at offset `o` of partition `p` has been handled if and only if `progress[p].next > o`.
What contradicts itself is refused with its reason and never read as "start at the beginning".

The idea of a progress topic that is written in the same transaction as the rows is Materialize's (2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from typing_extensions import override

from sinkpipeline.core.changes.incremental import IncrementalMark, Listed
from sinkpipeline.core.changes.positions import Position, is_earlier
from sinkpipeline.core.changes.snapshots import SnapshotMark
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between, is_before
from sinkpipeline.core.tally import Tally

_INSPECT = "find out who wrote it; then say where to go on with `sinkpipeline reset`, or use another identity"


@dataclass(frozen=True, kw_only=True)
class PartitionProgress:
    """How far one source partition has been handled, with cumulative counts."""

    epoch: int
    next: int
    """The next source offset that has not been handled."""
    rows: int = 0
    """Rows delivered."""
    dead: int = 0
    """Records dead-lettered."""
    dropped: int = 0
    """Records dropped under `onFailure: DropAndContinue`."""
    lost: int = 0
    """Source offsets that the source no longer had, under `onDataLoss: Skip`."""
    at: int = 0
    """When the record was written, Unix milliseconds; for people, never for decisions."""
    by_class: Tally = ()
    """`dead` and `dropped` by error class; less than them where a release has written that knew of no classes."""
    pos: Position | None = None
    """Where a source of changes goes on, which have no offsets: `pos` decides then, and `next` only counts."""
    snapshot: SnapshotMark | None = None
    """Of a source of changes whose tables are being read; None where that is complete, or was never asked for."""
    incremental: IncrementalMark | None = None
    """Likewise, of tables that are read while the stream goes on."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The resource that owns an identity: `cluster` is the uid of kube-system, or "file" for a run from a file."""

    cluster: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.name} of {'a manifest file' if self.cluster == 'file' else f'cluster {self.cluster}'}"


class Mark(NamedTuple):
    """A record of the source that was handled, as `core/source_marks.py` compares it."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What a sink's driver says about itself."""

    epoch: int
    run: str
    """The uuid of the start that may write; every start of a sink has its own."""
    owner: Owner
    partitions: Mapping[str, int] | None
    """Source topic to number of partitions that have progress; None until the first start is complete."""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Source topic to topic id."""
    data: str | None = None
    """The id of the data topic; of several, as `core/topic_ids.py` has it."""
    progress: str | None = None
    former: tuple[str, ...] = ()
    """The ids of topics that it delivered into before a reset: its rows are in them still."""
    created: str | None = None
    """The id of the data topic that a start of this sink has created, if one has; what nobody created isn't deleted.

    Of several topics, those that were created."""
    restored: int | None = None
    """The rows of at most so many records were delivered twice, as progress was restored from what a status remembered.
    Until a reset.

    None: it never was, as far as is known; a release that didn't write this may have restored it."""
    rolled_back: int | None = None
    """So many rows were delivered again, as the store had lost them with their progress; until a reset. None: none."""
    marks: Mapping[SourcePartition, Mark] = field(default_factory=lambda: MappingProxyType({}))
    """Of partitions of which one is known: a record shortly before the frontier of that time."""
    tables: Mapping[str, Listed] | None = None
    """Of a source of changes, which tables it is about: what comes by another entry later was added. None: a release
    has written it that noted none."""

    def source_partitions(self) -> frozenset[SourcePartition]:
        return frozenset(
            SourcePartition(topic, number)
            for topic, count in (self.partitions or {}).items()
            for number in range(count)
        )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a read of the progress topic found of one sink."""

    meta: Meta | None = None
    partitions: Mapping[SourcePartition, PartitionProgress] = field(default_factory=lambda: MappingProxyType({}))
    end: int = 0
    """Every record of the progress topic below this offset has been seen (from where the read began)."""
    counted: int | None = field(default=None, compare=False)
    """What the store of the target counted of all that was ever written into it, at this progress or earlier; None
    where it does not count, or nobody has asked."""
    removed: frozenset[SourcePartition] = field(default=frozenset(), compare=False)
    """Partitions whose newest record is a tombstone: somebody took their progress away, which is not "no news"."""
    faults: Mapping[str, SinkPipelineError] = field(default_factory=lambda: MappingProxyType({}))
    """By key, what can't be believed: only a reset, which replaces it, is given progress that has any."""

    @property
    def complete(self) -> bool:
        """Whether this sink has progress: `meta`, and the keys of all of its partitions."""
        return (
            self.meta is not None
            and self.meta.partitions is not None
            and self.meta.source_partitions() <= self.partitions.keys()
        )

    @property
    def exists(self) -> bool:
        """Whether the sink's first start was completed; where it wasn't, the next start is a first start."""
        return self.meta is not None and self.meta.partitions is not None

    @property
    def rows(self) -> int:
        return sum(progress.rows for progress in self.partitions.values())


def check_forward(
    partition: SourcePartition, old: PartitionProgress | None, new: PartitionProgress, where: str = "a newer record"
) -> None:
    """Refuses progress that moves back within an epoch: by its offset, and by its position among changes.

    Raises:
        SinkPipelineError: ProgressRegressed.
    """
    if old is None or old.epoch != new.epoch:
        return
    if is_before(new.next, old.next):
        raise _moves_back(f"{where} moves {partition} back from {old.next} to {new.next} within epoch {new.epoch}")
    if old.pos is None:
        return
    if new.pos is None:
        raise _moves_back(f"{where} has no position of {partition}, which was at {old.pos}")
    if type(new.pos) is not type(old.pos):
        raise _moves_back(f"{where} has a position of {partition} of another kind than {old.pos}")
    if is_earlier(new.pos, old.pos):
        raise _moves_back(f"{where} moves {partition} back from {old.pos} to {new.pos} within epoch {new.epoch}")
    if new.pos == old.pos and is_before(old.next, new.next) and not _is_of_rows(old, new):
        raise _moves_back(f"{where} counts changes of {partition} up to {new.next}, and stays at {new.pos}")


def _is_of_rows(old: PartitionProgress, new: PartitionProgress) -> bool:
    """Whether what was counted are rows of an incremental snapshot, which stand at no place of the stream."""
    if old.incremental is None or new.incremental is None:
        # With the last of its rows it is complete, and gone.
        return old.incremental is not None
    return between(old.next, new.next) <= new.incremental.rows - old.incremental.rows


def _moves_back(fact: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.PROGRESS_REGRESSED, fact, f"somebody else writes this sink's keys; {_INSPECT}")


def check_not_removed(progress: Progress, partitions: Iterable[SourcePartition]) -> None:
    """Refuses to read the removal of a known partition's progress as if nothing had been written.

    Raises:
        SinkPipelineError: ProgressCorrupt.
    """
    for partition in sorted(progress.removed.intersection(partitions)):
        raise corrupt(f"the progress of {partition} was removed by a tombstone")


def is_behind(state: PartitionProgress, known: PartitionProgress | None) -> bool:
    """Whether it is of an earlier time than what is known, and no reset's."""
    return known is not None and state.epoch <= known.epoch and is_before(state.next, known.next)


def lost_since(
    found: Mapping[SourcePartition, PartitionProgress], known: Mapping[SourcePartition, PartitionProgress]
) -> str:
    """For a person: how much of what is known to be handled is not in this progress of the same epoch."""
    lost = {each: between(found[each].next, state.next) for each, state in known.items() if each in found}
    behind = [offsets for offsets in lost.values() if offsets > 0]
    return f"{sum(behind)} offsets in {len(behind)} of {len(known)} partitions"


def check(progress: Progress) -> None:
    """Refuses progress that contradicts itself.

    Raises:
        SinkPipelineError: ProgressCorrupt, or the first fault.
    """
    for fault in progress.faults.values():
        raise fault
    meta, partitions = progress.meta, progress.partitions
    if meta is None:
        if partitions:
            raise corrupt(f"there is progress of {_first(partitions)} but no meta record")
        return
    expected = meta.source_partitions()
    if missing := sorted(expected - partitions.keys()):
        raise corrupt(f"meta lists {len(expected)} partitions, but {_first(missing)} has no progress record")
    if foreign := sorted(partitions.keys() - expected):
        raise corrupt(f"there is progress of {_first(foreign)}, which meta does not list")
    for partition, state in sorted(partitions.items()):
        if state.epoch != meta.epoch:
            raise corrupt(f"progress of {partition} is of epoch {state.epoch}, meta of epoch {meta.epoch}")


def advance(state: PartitionProgress, *, to: int, at: int, lost: int = 0) -> PartitionProgress:
    """The progress after a range in which nothing was delivered: filtered out, or lost by the source."""
    if is_before(to, state.next):
        raise ValueError(f"progress can't move back from {state.next} to {to}")
    return replace(state, next=to, at=at, lost=state.lost + lost)


def _first(partitions: Iterable[SourcePartition]) -> SourcePartition:
    return min(partitions)


def corrupt(message: str) -> SinkPipelineError:
    """What contradicts itself, or is no record of ours."""
    return SinkPipelineError(Reason.PROGRESS_CORRUPT, message, f"nothing is guessed from it; {_INSPECT}")
