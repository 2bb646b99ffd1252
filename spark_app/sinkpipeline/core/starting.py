"""What a starting driver decides: whether it may start at all, and from which frontier."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.order import between, is_before, reaches
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress, advance, check_forward
from sinkpipeline.core.topics import Beginning, Memory, Topic, TopicDecision


@dataclass(frozen=True, kw_only=True)
class SourceView:
    """The source as the broker describes it, partition by partition."""

    topics: Mapping[str, str]
    """Topic to topic id."""
    beginnings: Mapping[SourcePartition, int]
    ends: Mapping[SourcePartition, int]
    """End offsets as a reader of the configured isolation level sees them."""
    high_watermarks: Mapping[SourcePartition, int]


def check_owner(sink: SinkId, meta: Meta | None, owner: Owner) -> None:
    """Refuses an identity that belongs to somebody else.

    Raises:
        SinkPipelineError: IdentityInUse.
    """
    if meta is not None and meta.owner != owner:
        raise SinkPipelineError(
            Reason.IDENTITY_IN_USE,
            f"identity {sink.identity} belongs to {meta.owner}, this is {owner}",
            "give this pipeline an identity of its own (spec.identity); or, if it is to take over, annotate it with "
            f"sinkpipeline.io/adopt-owner: {meta.owner.cluster}/{meta.owner.name}, and change restartNonce",
        )


def check_run(sink: SinkId, meta: Meta | None, run: str) -> None:
    """Refuses to go on where a newer driver has taken the sink over.

    Raises:
        SinkPipelineError: Superseded.
    """
    if meta is not None and meta.run != run:
        raise superseded(sink, meta.run)


def superseded(sink: SinkId, run: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SUPERSEDED,
        # Both fence alike: which of them it was, only its person knows.
        f"a newer driver, or a reset (run {run}), has taken over {sink}",
        "after a reset start the pipeline again; if no newer driver was intended, stop one of the two",
    )


def check_vanished(sink: SinkId, decision: TopicDecision, data_topic: Topic | None) -> None:
    """Refuses a first start on whose way a progress topic was deleted, where somebody may have delivered.

    Raises:
        SinkPipelineError: ProgressLost.
    """
    if decision.beginning is Beginning.FIRST_START and data_topic is not None and data_topic.holds_data:
        raise SinkPipelineError(
            Reason.PROGRESS_LOST,
            f"the progress topic of {sink} was deleted while the sink started for the first time, and data topic "
            f"{data_topic.name} holds data: another driver may have delivered it, and nobody knows how far it got",
            "start the pipeline again with the status file of that driver; or as it is (with another spec.restartNonce "
            "where the operator runs it), to begin at source.kafka.startingOffsets and perhaps deliver rows twice",
        )


def check_source(meta: Meta | None, source: Mapping[str, str]) -> None:
    """Refuses a source topic that was deleted and created again: its offsets mean other records now.

    Raises:
        SinkPipelineError: SourceRecreated.
    """
    for topic, topic_id in sorted((meta.source if meta is not None else {}).items()):
        if topic in source and source[topic] != topic_id:
            raise SinkPipelineError(
                Reason.SOURCE_RECREATED,
                f"source topic {topic} was re-created: its id was {topic_id}, is {source[topic]}",
                "its offsets mean other records now; say where to go on with `sinkpipeline reset`",
            )


def overlay(known: Progress, newer: Progress) -> Progress:
    """What is known, after the records that were read since.

    Raises:
        SinkPipelineError: ProgressRegressed.
    """
    for partition, state in newer.partitions.items():
        check_forward(partition, known.partitions.get(partition), state)
    kept = {each: state for each, state in known.partitions.items() if each not in newer.removed}
    partitions = {**kept, **newer.partitions}
    return Progress(
        meta=newer.meta or known.meta,
        partitions=MappingProxyType(partitions),
        end=max(known.end, newer.end),
        removed=known.removed - newer.partitions.keys() | newer.removed,
        faults=MappingProxyType({**known.faults, **newer.faults}),
    )


def without_leftovers(progress: Progress, memory: Memory, topic_id: str) -> Progress:
    """Of a progress topic that was re-created: without what we and our tasks wrote into it before anybody noticed.

    `memory` is exact, so it holds all of that. What goes beyond it is somebody else's, and stays to be refused.
    """
    meta = progress.meta
    written_back = meta is not None and meta.partitions is not None and meta.progress != memory.progress
    if memory.progress == topic_id or written_back:
        return progress
    for partition, state in progress.partitions.items():
        known = memory.partitions.get(partition)
        if known is None or state.epoch != known.epoch or is_before(known.next, state.next):
            return progress
    return Progress(end=progress.end)


def plan_partitions(
    known: Mapping[SourcePartition, PartitionProgress],
    view: SourceView,
    *,
    epoch: int,
    starting_offsets: StartingOffsets,
    discovered: bool,
    skip_lost: bool,
    at: int,
    imported: Mapping[SourcePartition, int] = MappingProxyType({}),
) -> dict[SourcePartition, PartitionProgress]:
    """The progress of every partition at the start; `new_offset` tells where those begin that are not known.

    A new partition of a topic that has progress was empty once the sink had begun: what it has lost at its beginning is
    lost, as with any other.

    Args:
        known: what the progress topic (or the memory) says.
        view: the source as it is now.
        epoch: of this sink.
        starting_offsets: the manifest's.
        discovered: whether new topics come from a pattern after a first start.
        skip_lost: `onDataLoss: Skip`.
        at: now, Unix milliseconds.
        imported: where somebody else stands; those partitions of the same topics that they don't name are new ones.

    Raises:
        SinkPipelineError: SourceDataLost.
    """
    imports = {each: PartitionProgress(epoch=epoch, next=offset, at=at) for each, offset in imported.items()}
    begun = {partition.topic for partition in known}
    known = {**imports, **known}
    known_topics = {partition.topic for partition in known}
    planned = dict(known)
    for partition in view.beginnings:
        state = known.get(partition)
        if state is None and partition.topic in begun:
            state = PartitionProgress(epoch=epoch, next=0, at=at)
        if state is None:
            offset = new_offset(partition, known_topics, view, starting_offsets=starting_offsets, discovered=discovered)
            planned[partition] = PartitionProgress(epoch=epoch, next=offset, at=at)
        else:
            planned[partition] = check_retained(
                partition,
                state,
                view.beginnings[partition],
                view.high_watermarks[partition],
                skip_lost=skip_lost,
                at=at,
            )
    return planned


def new_offset(
    partition: SourcePartition,
    known_topics: Collection[str],
    view: SourceView,
    *,
    starting_offsets: StartingOffsets,
    discovered: bool,
) -> int:
    """Where a partition begins that the sink does not know.

    One that is new in a known topic begins at its beginning, as nothing of it was ever seen; a new topic begins at
    `starting_offsets`, unless it was `discovered` by a pattern, which is to miss nothing.
    """
    from_beginning = partition.topic in known_topics or discovered or starting_offsets is StartingOffsets.EARLIEST
    return view.beginnings[partition] if from_beginning else view.ends[partition]


def check_retained(
    partition: SourcePartition, state: PartitionProgress, beginning: int, end: int, *, skip_lost: bool, at: int
) -> PartitionProgress:
    """The progress of a partition whose source may have lost offsets.

    Raises:
        SinkPipelineError: SourceDataLost.
    """
    if is_before(end, state.next):
        raise SinkPipelineError(
            Reason.SOURCE_DATA_LOST,
            f"{partition} ends at offset {end}, before the frontier {state.next}: the source lost records at its end",
            "such records can't be skipped; find out what happened to the source (unclean leader election?), then say "
            "where to go on with `sinkpipeline reset`",
        )
    if reaches(state.next, beginning):
        return state
    lost = between(state.next, beginning)
    if not skip_lost:
        raise SinkPipelineError(
            Reason.SOURCE_DATA_LOST,
            f"{partition} begins at offset {beginning}, after the frontier {state.next}: {lost} offsets are lost",
            "set source.kafka.onDataLoss: Skip to go on and count them, or use a longer retention",
        )
    return advance(state, to=beginning, at=at, lost=lost)


def partition_counts(partitions: Mapping[SourcePartition, PartitionProgress]) -> dict[str, int]:
    """Topic to number of partitions, as `meta.partitions` has it.

    Raises:
        ValueError: the partitions of a topic aren't 0 to n - 1.
    """
    counts: dict[str, int] = {}
    for partition in sorted(partitions):
        expected = counts.get(partition.topic, 0)
        if partition.partition != expected:
            raise ValueError(f"partition {expected} of {partition.topic} is missing below {partition}")
        counts[partition.topic] = expected + 1
    return counts


def take_over(previous: Meta | None, *, run: str, owner: Owner, epoch: int, source: Mapping[str, str]) -> Meta:
    """The `meta` by which a driver announces itself before it fences anything but the control id."""
    if previous is None:
        return Meta(epoch=epoch, run=run, owner=owner, partitions=None, source=MappingProxyType(dict(source)))
    return replace(previous, run=run, owner=owner)
