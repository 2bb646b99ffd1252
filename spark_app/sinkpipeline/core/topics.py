"""The topic policy: what is created, what goes on, and what is refused, as one pure function.

The operator and the driver call it with what they observed, so they can't disagree about a lost topic. "No progress" in
its input must come from a deterministic read; an unreachable broker has no input here at all, and changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sinkpipeline.core import rolled_back
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.lost_topics import check_several, data_topic_lost
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark, Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.rolled_back import RolledBack
from sinkpipeline.core.topic_ids import ids_of


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic as the broker describes it."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Effective configuration; empty where nobody asked for it."""
    holds_data: bool = False
    """Whether an offset was ever written that is still there."""
    counted: int | None = None
    """What its store counts of all that was ever written into it, by anybody; None where it does not count."""
    parts: tuple[Topic, ...] = ()
    """Where a sink has several topics: those that are there. `id` has their ids then (`core/topic_ids.py`)."""


@dataclass(frozen=True, kw_only=True)
class TopicRequest:
    """A topic, or a table, as the manifest asks for it; None leaves it to the broker."""

    name: str
    called: str = "data topic"
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    wishes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Likewise; the topic is created without it where the brokers let nobody set it, as some services don't."""
    progress_beside: bool = False
    """Whether rows and progress are committed in one store: what has lost the progress may have lost rows with it."""
    stops_rolled_back: bool = False
    """`onRollback: Stop`."""
    parts: tuple[TopicRequest, ...] = ()
    """Each of the topics, where a sink has several; `name` names all of them then."""

    @property
    def each(self) -> tuple[TopicRequest, ...]:
        return self.parts or (self,)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a status remembers of a sink: the resource's, or an earlier `--status-file`."""

    epoch: int
    partitions: Mapping[SourcePartition, PartitionProgress]
    source: Mapping[str, str]
    data: str | None
    progress: str | None
    rows: int
    created: str | None = None
    """As in `meta`; a status doesn't tell."""
    restored: int | None = None
    rolled_back: int | None = None
    """Both as in `meta`."""
    counted: int | None = None
    """As in `Progress`."""
    marks: Mapping[SourcePartition, Mark] = field(default_factory=lambda: MappingProxyType({}))
    """Newer than those in `meta`, where a driver has noted them since; a status doesn't tell."""

    def marks_in(self, epoch: int) -> Mapping[SourcePartition, Mark]:
        """Those that count in an epoch: a reset since then says where to go on, whatever the source has lost."""
        return self.marks if self.epoch >= epoch else {}


def remember(progress: Progress) -> Memory | None:
    """What somebody who has read or written this progress remembers; None where there is none."""
    meta = progress.meta
    if meta is None or meta.partitions is None:
        return None
    return Memory(
        epoch=meta.epoch,
        partitions=progress.partitions,
        source=meta.source,
        data=meta.data,
        progress=meta.progress,
        rows=progress.rows,
        created=meta.created,
        restored=meta.restored,
        rolled_back=meta.rolled_back,
        counted=progress.counted,
        marks=meta.marks,
    )


def is_older(found: Memory, memory: Memory | None) -> bool:
    """Whether it is of an earlier time than what is remembered of the same place: that has lost what came since."""
    if memory is None or found.progress != memory.progress or found.epoch > memory.epoch:
        return False
    return found.epoch < memory.epoch or rolled_back.is_behind(found.partitions, memory.partitions)


def recall(memory: Memory, owner: Owner) -> Progress:
    """A memory as progress, to be shown until more is known; its `run` is nobody's."""
    counts: dict[str, int] = {}
    for partition in memory.partitions:
        counts[partition.topic] = counts.get(partition.topic, 0) + 1
    meta = Meta(
        epoch=memory.epoch,
        run="remembered",
        owner=owner,
        partitions=counts,
        source=memory.source,
        data=memory.data,
        progress=memory.progress,
        restored=memory.restored,
        rolled_back=memory.rolled_back,
    )
    return Progress(meta=meta, partitions=memory.partitions, counted=memory.counted)


class Beginning(enum.Enum):
    """How the driver begins."""

    FIRST_START = "FirstStart"
    RESUME = "Resume"
    SEED = "Seed"
    """From the remembered frontier, as the progress topic was deleted."""


@dataclass(frozen=True, kw_only=True)
class TopicDecision:
    beginning: Beginning
    create_progress: bool
    create_data: bool
    drift: tuple[str, ...] = ()
    """What differs between the manifest and the topics; reported, never altered."""
    rolled_back: RolledBack | None = None
    """What the target's store has lost of rows and progress together, and what is delivered again."""


def decide(
    *,
    progress: Progress,
    progress_topic: Topic | None,
    data_topic: Topic | None,
    data_request: TopicRequest,
    memory: Memory | None,
    source: Mapping[str, str],
    refuse_existing_data: bool,
) -> TopicDecision:
    """Decides by the table of the design.

    Args:
        progress: this sink's progress, from a deterministic read; empty where its topic is missing.
        progress_topic: None where the topic is missing.
        data_topic: None where the topic is missing.
        data_request: the data topic as the manifest asks for it.
        memory: what somebody remembers, or None.
        source: source topic to topic id, as of now.
        refuse_existing_data: `onExistingData: Refuse`.

    Raises:
        SinkPipelineError: DataTopicLost, DataTopicNotEmpty, ProgressTopicInvalid, ProgressLost, ProgressRegressed or
            SinkRolledBack.
    """
    back = None
    if progress_topic is not None:
        check_progress_topic(progress_topic)
    if not progress.exists:
        beginning = _without_progress(progress_topic, data_topic, data_request, memory, source, refuse_existing_data)
    else:
        back = _with_progress(progress, progress_topic, data_topic, data_request, memory)
        beginning = Beginning.RESUME
    return TopicDecision(
        beginning=beginning,
        create_progress=progress_topic is None,
        create_data=data_topic is None or len(data_topic.parts) < len(data_request.parts),
        drift=() if data_topic is None else _drift_of_data(data_request, data_topic),
        rolled_back=back,
    )


def check_progress_topic(topic: Topic) -> None:
    """Refuses a progress topic on which progress could not be read for certain, or could be deleted by the broker.

    Raises:
        SinkPipelineError: ProgressTopicInvalid.
    """
    remedy = "name another progress topic and let it be created, or give it 1 partition and cleanup.policy=compact"
    if topic.partitions != 1:
        raise SinkPipelineError(
            Reason.PROGRESS_TOPIC_INVALID,
            f"progress topic {topic.name} has {topic.partitions} partitions, not 1",
            remedy,
        )
    policy = topic.config.get("cleanup.policy")
    if policy is not None and policy != "compact":
        raise SinkPipelineError(
            Reason.PROGRESS_TOPIC_INVALID,
            f"progress topic {topic.name} has cleanup.policy={policy}, so the broker may delete progress",
            remedy,
        )


def drift(request: TopicRequest, topic: Topic) -> tuple[str, ...]:
    """What differs between a requested topic and the one that is there, a sentence each."""
    differences = []
    if request.partitions is not None and request.partitions != topic.partitions:
        differences.append(f"{topic.name} has {topic.partitions} partitions, the manifest says {request.partitions}")
    if request.replication_factor is not None and request.replication_factor != topic.replication_factor:
        differences.append(
            f"{topic.name} has replication factor {topic.replication_factor}, "
            f"the manifest says {request.replication_factor}"
        )
    differences += [
        f"{topic.name} has {name}={topic.config.get(name)}, the manifest says {value}"
        for name, value in sorted(request.config.items())
        if topic.config and topic.config.get(name) != value
    ]
    return tuple(differences)


def _drift_of_data(request: TopicRequest, topic: Topic) -> tuple[str, ...]:
    if not request.parts:
        return drift(request, topic)
    there = {each.name: each for each in topic.parts}
    return tuple(line for each in request.parts if each.name in there for line in drift(each, there[each.name]))


def _without_progress(
    progress_topic: Topic | None,
    data_topic: Topic | None,
    data_request: TopicRequest,
    memory: Memory | None,
    source: Mapping[str, str],
    refuse_existing_data: bool,  # noqa: FBT001 - passed on
) -> Beginning:
    if memory is not None and memory.rows > 0:
        if _is_of_several(data_request, memory.data):
            _several(memory.data, memory.rows, data_topic, data_request)
        elif data_topic is None:
            raise _lost(data_request, f"it is missing, and {memory.rows} rows were delivered into it")
    if memory is not None and memory.partitions:
        return _seed(progress_topic, data_topic, data_request, memory, source)
    if data_topic is not None and refuse_existing_data and data_topic.holds_data:
        raise SinkPipelineError(
            Reason.DATA_TOPIC_NOT_EMPTY,
            f"{data_request.called} {_holding(data_topic)} holds data already, and onExistingData is Refuse",
            "name an empty topic, or allow it with onExistingData: Append",
        )
    return Beginning.FIRST_START


def _seed(
    progress_topic: Topic | None,
    data_topic: Topic | None,
    data_request: TopicRequest,
    memory: Memory,
    source: Mapping[str, str],
) -> Beginning:
    lost = f"this sink's progress is gone ({'its topic is missing' if progress_topic is None else 'no record is left'})"
    remedy = "say where to go on with `sinkpipeline reset` and this status, or bring the progress topic back"
    several = _is_of_several(data_request, memory.data)
    if memory.rows > 0 and data_topic is not None and memory.data not in (None, data_topic.id) and not several:
        raise _lost(data_request, f"it was re-created: its id was {memory.data}, is {data_topic.id}")
    if memory.rows > 0 and data_request.progress_beside:
        raise SinkPipelineError(
            Reason.PROGRESS_LOST,
            f"this sink's progress is gone, and {memory.rows} rows were delivered into {data_request.called} "
            f"{data_request.name}, which is in the same store: if that was restored, or another server took over, rows "
            "are gone too",
            "look which rows are there; then say where to go on with `sinkpipeline reset --status-file`",
        )
    for topic, topic_id in sorted(memory.source.items()):
        if source.get(topic, topic_id) != topic_id:
            raise SinkPipelineError(
                Reason.PROGRESS_LOST,
                f"{lost}, and source topic {topic} is another one than the status remembers",
                remedy,
            )
    return Beginning.SEED


def _with_progress(
    progress: Progress,
    progress_topic: Topic | None,
    data_topic: Topic | None,
    data_request: TopicRequest,
    memory: Memory | None,
) -> RolledBack | None:
    meta = progress.meta
    if meta is None or progress_topic is None:
        raise ValueError("progress exists, so it was read from a topic that holds its meta record")
    check_not_copied(meta, progress_topic)
    check_data_topic(progress, data_topic, data_request)
    if memory is None:
        return None
    back = check_remembered(progress, memory, progress_topic, None if data_topic is None else data_topic.counted)
    if back is not None and data_request.stops_rolled_back:
        raise rolled_back.stopped(f"{data_request.called} {data_request.name}", back)
    return back


def check_remembered(
    progress: Progress, memory: Memory, progress_topic: Topic, counted: int | None = None
) -> RolledBack | None:
    """Refuses progress that is behind what is remembered of the same topic, unless the rows are gone with it.

    Raises:
        SinkPipelineError: ProgressRegressed.
    """
    epoch = 0 if progress.meta is None else progress.meta.epoch
    if memory.progress != progress_topic.id or memory.epoch < epoch:
        return None
    if memory.epoch > epoch:
        raise rolled_back.regressed(
            f"the status remembers epoch {memory.epoch}, the progress says {epoch}: it lost a reset"
        )
    return rolled_back.compared(
        progress.partitions, memory.partitions, counted=counted, remembered_count=memory.counted
    )


def check_data_topic(progress: Progress, data_topic: Topic | None, data_request: TopicRequest) -> None:
    """Refuses to go on without the topic into which rows were delivered.

    Raises:
        SinkPipelineError: DataTopicLost.
    """
    if progress.meta is None or progress.rows == 0:
        return
    if _is_of_several(data_request, progress.meta.data):
        _several(progress.meta.data, progress.rows, data_topic, data_request)
        return
    if data_topic is None:
        raise _lost(data_request, f"it is missing, and {progress.rows} rows were delivered into it")
    before = progress.meta.data
    if before is not None and before != data_topic.id:
        raise _lost(data_request, f"it was re-created: its id was {before}, is {data_topic.id}")


def _holding(topic: Topic) -> str:
    return next((each.name for each in topic.parts if each.holds_data), topic.name)


def _is_of_several(request: TopicRequest, before: str | None) -> bool:
    """Whether a sink has, or had, several topics."""
    return bool(request.parts) or ids_of(before) is not None


def _several(before: str | None, rows: int, found: Topic | None, request: TopicRequest) -> None:
    there = {} if found is None else {each.name: each.id for each in found.parts or (found,)}
    check_several(before, rows, there, [each.name for each in request.each], request.called)


def check_not_copied(meta: Meta, progress_topic: Topic) -> None:
    """Refuses progress that was written to another topic than the one that it stands in.

    Raises:
        SinkPipelineError: ProgressLost.
    """
    if meta.progress is not None and meta.progress != progress_topic.id:
        raise SinkPipelineError(
            Reason.PROGRESS_LOST,
            f"the records in {progress_topic.name} were written to another one with id {meta.progress}, this one has "
            f"{progress_topic.id}: a copy may be older than what was delivered",
            "bring the original one back, or say where to go on with `sinkpipeline reset`",
        )


def _lost(request: TopicRequest, fact: str) -> SinkPipelineError:
    return data_topic_lost(request.name, fact, request.called)
