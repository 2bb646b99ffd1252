"""What Kafka says of a sink while no driver runs: its frontier, its lag, and what a start would find. Only observes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from sinkpipeline.core import starting
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.held_back import HeldBack, look
from sinkpipeline.core.order import between
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.status import SinkReport, SinkState
from sinkpipeline.core.topics import Memory, Topic, check_progress_topic, decide, is_older, remember
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.data_topics import describe_data
from sinkpipeline.kafka.diagnosis import connect
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.source.views import check_visible, source_topics
from sinkpipeline.kafka.views import describe

_CONNECT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is there of a sink."""

    data: Topic | None
    place: Topic | None
    progress: Progress


def inspect(sink: SinkSettings, memory: Memory | None, admin_of: Callable[[Connection], Admin] = Admin) -> SinkReport:
    """Reads, and writes nothing; an error is part of the report.

    Args:
        sink: its settings.
        memory: what the status remembers of it.
        admin_of: a client of a cluster, which somebody else may use too.
    """

    def look() -> Seen:
        admin = admin_of(sink.connection)
        connect(admin, _CONNECT_S)
        data = describe_data(admin, sink.data)
        place, progress = observed(sink, admin)
        return Seen(data=data, place=place, progress=progress)

    return inspected(sink, memory, look, admin_of(sink.source.connection))


def inspected(sink: Settings, memory: Memory | None, look: Callable[[], Seen], source_admin: Admin) -> SinkReport:
    """Likewise, of a sink of any kind, with what a look at it finds."""
    report = SinkReport(name=sink.id.sink, exactly_once=sink.exactly_once, state=SinkState.SUSPENDED)
    try:
        return _inspect(sink, memory, report, look, source_admin)
    except SinkPipelineError as error:
        return replace(report, error=error)


def _inspect(
    sink: Settings, memory: Memory | None, report: SinkReport, look: Callable[[], Seen], source_admin: Admin
) -> SinkReport:
    connect(source_admin, _CONNECT_S)
    seen = look()
    progress = seen.progress
    # Another owner's is not what this sink would go on from, and nothing for its status to remember.
    starting.check_owner(sink.id, progress.meta, sink.owner)
    found = remember(progress)
    # What has lost what came since is no news: by what is remembered the next start knows it.
    if found is not None and not is_older(found, memory):
        report = replace(report, progress=progress)
    try:
        topics = source_topics(sink.source, source_admin)
        lag, held_back = _lag(sink, source_admin, progress, topics)
        report = replace(report, lag=lag, held_back=held_back)
        starting.check_source(progress.meta if progress.exists else None, _ids(topics.values()))
        check_visible(sink.source, source_admin, progress.meta, topics)
        decision = decide(
            progress=progress,
            progress_topic=seen.place,
            data_topic=seen.data,
            data_request=sink.data,
            memory=memory,
            source=_ids(topics.values()),
            refuse_existing_data=sink.refuse_existing_data,
        )
    except SinkPipelineError as error:
        return replace(report, error=error)
    return replace(report, drift=decision.drift)


def observed(sink: SinkSettings, admin: Admin) -> tuple[Topic | None, Progress]:
    """The progress topic, and what can be seen there of a sink; None and nothing where there is none.

    Raises:
        SinkPipelineError: ProgressTopicInvalid, and as the read.
    """
    topic = describe(admin, sink.progress.name)
    if topic is None:
        return None, Progress()
    check_progress_topic(topic)
    with ProgressLog(sink.connection, sink.progress.name, sink.group_id) as log:
        return topic, log.observe(sink.id)


def _lag(
    sink: Settings, admin: Admin, progress: Progress, topics: Collection[str]
) -> tuple[int | None, HeldBack | None]:
    """Of the partitions that are known: up to where a driver would read, and what is held back beyond.

    None where no partition is known; nothing can be held back from who reads up to the high watermarks.
    """
    known = {each: state for each, state in progress.partitions.items() if each.topic in topics}
    if not known:
        return None, None
    high = admin.end_offsets(known, read_committed=False) if sink.source.read_committed else None
    ends = admin.end_offsets(known, read_committed=sink.source.read_committed)
    lag = sum(between(state.next, ends[each]) for each, state in known.items())
    # One look doesn't know for how long.
    return lag, None if high is None else HeldBack(sum(each.offsets for each in look({}, ends, high, 0.0).values()))


def _ids(topics: Iterable[Topic]) -> dict[str, str]:
    return {topic.name: topic.id for topic in topics}
