"""A reset: the plan that a person is shown, and the progress that it writes.

Offsets are resolved to numbers once, for the plan. Under the fence the plan is made again, with these numbers; only if
it comes out the same is it carried out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.order import between, is_within
from sinkpipeline.core.progress import Meta, PartitionProgress, Progress, check
from sinkpipeline.core.progress_records import encode
from sinkpipeline.core.starting import SourceView, partition_counts
from sinkpipeline.core.targets import Targets, usage_invalid
from sinkpipeline.core.topic_ids import each_id
from sinkpipeline.core.topics import Memory, Topic, check_not_copied, check_remembered


class Note(str, enum.Enum):
    """What is special about a partition."""

    NONE = ""
    STAYS = "stays"
    NEW = "new"
    RECREATED = "re-created"
    DOUBTED = "not believed"
    NOT_IN_SOURCE = "not in the source"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, kw_only=True)
class Move:
    """One partition's way from the old frontier to the new one."""

    partition: SourcePartition
    handled: int | None
    """What is there below it was handled; None where nobody knows."""
    new: int | None
    """None where the partition is no more."""
    note: Note = Note.NONE

    @property
    def old(self) -> int | None:
        """The old frontier; None where there is none, or where it says nothing about the records that are there now."""
        return None if self.note in (Note.NEW, Note.RECREATED) else self.handled

    @property
    def again(self) -> int | None:
        """At most so many records are delivered again; None where nobody knows."""
        return _distance(self.new, self.handled)

    @property
    def skipped(self) -> int | None:
        """At most so many records that were not handled never will be; None where nobody knows."""
        return _distance(self.handled, self.new)


@dataclass(frozen=True, kw_only=True)
class ResetPlan:
    """What a reset would do; all of its offsets are numbers."""

    sink: SinkId
    old_epoch: int
    epoch: int
    moves: tuple[Move, ...]
    source: Mapping[str, str]
    """The source's topics, with the ids of those whose offsets these are."""
    doubt: SinkPipelineError | None
    """Why the old frontier is not believed."""
    imported: frozenset[SourcePartition] = frozenset()
    """Those that go where somebody else stands."""
    told: tuple[str, ...] = ()
    """Of those, for a person."""

    @property
    def frontier(self) -> dict[SourcePartition, int]:
        return {move.partition: move.new for move in self.moves if move.new is not None}

    @property
    def targets(self) -> Targets:
        """What the plan's own targets, and the beginnings of what was new, were resolved to."""
        kept = (Note.STAYS, Note.NOT_IN_SOURCE)
        named = {move.partition: move.new for move in self.moves if move.new is not None and move.note not in kept}
        imported = {partition: named.pop(partition) for partition in self.imported & named.keys()}
        return Targets(partitions=MappingProxyType(named), imported=MappingProxyType(imported))


def find_doubt(
    sink: SinkId, progress: Progress, progress_topic: Topic, memory: Memory | None
) -> SinkPipelineError | None:
    """Why progress is not believed, where a reset can replace it.

    Raises:
        SinkPipelineError: ProgressCorrupt where it can't: nothing tells whose the sink is (a meta record does, or what
            a status remembers), or nobody knows who else writes its keys.
    """
    for key, fault in progress.faults.items():
        if sink.parse_partition_key(key) is None:
            raise fault
    try:
        check(progress)
        if progress.meta is not None:
            check_not_copied(progress.meta, progress_topic)
        if memory is not None:
            check_remembered(progress, memory, progress_topic)
    except SinkPipelineError as doubt:
        if progress.meta is None and memory is None:
            raise
        return doubt
    return None


def plan_reset(
    sink: SinkId,
    found: Progress,
    view: SourceView,
    targets: Targets,
    *,
    doubt: SinkPipelineError | None,
    remembered_epoch: int,
    begin_new: Callable[[SourcePartition], int],
) -> ResetPlan:
    """What a reset would do.

    Args:
        sink: the sink.
        found: its progress, which has a meta record.
        view: the source as it is now.
        targets: where to go on; a partition that they don't name stays where it is.
        doubt: why the progress is not believed, or None.
        remembered_epoch: what a status remembers; the new epoch is above it.
        begin_new: where a partition begins that is new and not named.

    Raises:
        SinkPipelineError: UsageInvalid, for a target that the source doesn't have, and for a partition that is not
            named although it can't stay where it is.
    """
    if found.meta is None:
        raise ValueError("a sink without a meta record has nothing to reset")
    targets.check_named(view)
    old = found.partitions.keys() | found.meta.source_partitions()
    moves = []
    for partition in sorted(old | view.beginnings.keys()):
        move = _move(partition, found, found.meta, view, doubt)
        if partition in view.beginnings:
            new = targets.of(partition, view)
            if new is None and move.note is Note.NEW:
                new = begin_new(partition)
            move = _stay(move, view, doubt) if new is None else replace(move, new=new)
        moves.append(move)
    return ResetPlan(
        sink=sink,
        old_epoch=found.meta.epoch,
        epoch=1 + max(remembered_epoch, found.meta.epoch, *(state.epoch for state in found.partitions.values())),
        moves=tuple(moves),
        source=view.topics,
        doubt=doubt,
        imported=frozenset(targets.imported.keys() - targets.partitions.keys()),
    )


def check_unmoved(
    shown: ResetPlan, found: Progress, view: SourceView, *, doubt: SinkPipelineError | None, remembered_epoch: int
) -> None:
    """Refuses to do anything but what was shown.

    Raises:
        SinkPipelineError: FrontierMoved.
    """
    moved = _other_source(shown, view)
    if moved is None:
        try:
            now = plan_reset(
                shown.sink,
                found,
                view,
                shown.targets,
                doubt=doubt,
                remembered_epoch=remembered_epoch,
                begin_new=view.beginnings.__getitem__,
            )
        except SinkPipelineError as error:
            moved = error.message
        else:
            moved = _first_difference(shown, now)
    if moved is not None:
        raise SinkPipelineError(
            Reason.FRONTIER_MOVED,
            f"{shown.sink} is not where it was when its reset was shown: {moved}; nothing was reset",
            "if a driver ran, this has stopped it (it ends with exit code 4): run the reset again",
        )


def is_done(plan: ResetPlan, found: Progress) -> bool:
    """Whether the plan is carried out already: the answer to an earlier attempt's commit was lost."""
    return (
        found.meta is not None
        and found.meta.epoch == plan.epoch
        and not found.faults
        and {partition: state.next for partition, state in found.partitions.items()} == plan.frontier
    )


_MOST_FORMER = 100
"""A record of more would be large, and a sink that was reset so often into other topics is none that exists."""


def reset_progress(plan: ResetPlan, meta: Meta, progress_topic_id: str, at: int) -> Progress:
    """The sink's progress after the reset: the new frontier in a new epoch, counts of zero, no data topic.

    Args:
        plan: what is carried out.
        meta: as it was announced, with the run of the reset.
        progress_topic_id: of the topic that it is written to.
        at: now, Unix milliseconds.
    """
    partitions = {
        partition: PartitionProgress(epoch=plan.epoch, next=offset, at=at)
        for partition, offset in plan.frontier.items()
    }
    counts = partition_counts(partitions)
    source = {topic: topic_id for topic, topic_id in meta.source.items() if topic in counts}
    return Progress(
        meta=replace(
            meta,
            epoch=plan.epoch,
            partitions=MappingProxyType(counts),
            source=MappingProxyType({**source, **plan.source}),
            data=None,
            former=tuple(dict.fromkeys((*meta.former, *each_id(meta.data))))[-_MOST_FORMER:],
            progress=progress_topic_id,
            restored=None,
            rolled_back=None,
            marks=MappingProxyType({}),
        ),
        partitions=MappingProxyType(partitions),
    )


def encode_reset(sink: SinkId, found: Progress, new: Progress) -> list[tuple[str, bytes | None]]:
    """The records of a reset. Tombstones take away what is forgotten, and what is wrong with a key before its value."""
    forgotten = [sink.partition_key(each) for each in found.partitions.keys() - new.partitions.keys()]
    tombstones = sorted({*forgotten, *found.faults})
    return [*((key, None) for key in tombstones), *encode(sink, new)]


def _move(
    partition: SourcePartition, found: Progress, meta: Meta, view: SourceView, doubt: SinkPipelineError | None
) -> Move:
    """Where a partition comes from, and where it goes if the source doesn't have it."""
    topic, state = partition.topic, found.partitions.get(partition)
    if partition not in view.beginnings:
        if doubt is None and state is not None and topic not in view.topics:
            # Its topic may be listed again one day.
            return Move(partition=partition, handled=state.next, new=state.next, note=Note.NOT_IN_SOURCE)
        return Move(partition=partition, handled=None, new=None, note=Note.FORGOTTEN)
    beginning = view.beginnings[partition]
    if doubt is not None:
        return Move(partition=partition, handled=None, new=None, note=Note.DOUBTED)
    if meta.source.get(topic, view.topics[topic]) != view.topics[topic]:
        return Move(partition=partition, handled=beginning, new=None, note=Note.RECREATED)
    if state is None:
        return Move(partition=partition, handled=beginning, new=None, note=Note.NEW)
    return Move(partition=partition, handled=state.next, new=None)


def _stay(move: Move, view: SourceView, doubt: SinkPipelineError | None) -> Move:
    partition, old = move.partition, move.old
    beginning, end = view.beginnings[partition], view.high_watermarks[partition]
    if doubt is not None:
        why = f"the progress is not believed ({doubt.reason.value}: {doubt.message})"
    elif old is None:
        why = f"topic {partition.topic} was re-created"
    elif not is_within(old, beginning, end):
        why = f"the source has offsets {beginning} to {end}, and the frontier is {old}"
    else:
        return replace(move, new=old, note=Note.STAYS)
    raise usage_invalid(
        f"no target names {partition}, which can't stay where it is: {why}",
        f"say where it goes on ({partition.topic}:{partition.partition}=OFFSET), or earliest for all",
    )


def _distance(low: int | None, high: int | None) -> int | None:
    return None if high is None or low is None else between(low, high)


def _other_source(shown: ResetPlan, view: SourceView) -> str | None:
    for topic, topic_id in shown.source.items():
        if view.topics.get(topic) != topic_id:
            return f"source topic {topic} was deleted or re-created"
    return None


def _first_difference(shown: ResetPlan, now: ResetPlan) -> str | None:
    if shown.epoch != now.epoch:
        return f"it was reset, and is in epoch {now.old_epoch}"
    before, after = ({move.partition: move for move in plan.moves} for plan in (shown, now))
    for partition in sorted(before.keys() | after.keys()):
        old, new = before.get(partition), after.get(partition)
        if old is None or new is None:
            return f"{partition} {'is new' if old is None else 'is gone'}"
        if (old.old, old.note) != (new.old, new.note):
            return f"{partition} was at {old.old}, is at {new.old}{f' ({new.note.value})' if new.note.value else ''}"
    return None
