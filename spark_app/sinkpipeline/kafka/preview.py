"""What a preview has to know of the world before it reads a record. Describes and observes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sinkpipeline.core import starting
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.limits import UNKNOWN, TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import is_before
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.starting import SourceView
from sinkpipeline.core.targets import Targets
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.data_topics import read_data_limits
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.source.positions import read_positions
from sinkpipeline.kafka.source.source import KafkaSource
from sinkpipeline.kafka.source.views import view_source


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Where a sink would go on, and what its data topic takes."""

    ranges: Mapping[SourcePartition, OffsetRange]
    """From the frontier to the source's end; without partitions of which nothing is left."""
    resumes: bool
    """Whether the sink has progress."""
    data_limits: TopicLimits
    data_partitions: int | None
    """None where that is left to the brokers, which will create the topic."""


def look(settings: SinkSettings, targets: Targets | None) -> Outlook:
    """`targets`: where to begin instead; what they don't name is left out.

    Raises:
        SinkPipelineError: UsageInvalid, SourceDataLost, PositionsRefused, and as the reads.
    """
    admin = Admin(settings.connection)
    limits = read_data_limits(admin, settings.data)
    return outlook(
        settings,
        targets,
        _observe(settings, admin),
        data_limits=limits or _as_requested(settings.data),
        data_partitions=settings.data.partitions if limits is None else limits.partitions,
    )


def _as_requested(data: TopicRequest) -> TopicLimits:
    if data.parts:
        return TopicLimits.of_several({each.name: _as_requested(each) for each in data.parts})
    return TopicLimits.of(data.partitions or UNKNOWN.partitions, data.config)


def outlook(
    settings: Settings,
    targets: Targets | None,
    progress: Progress,
    *,
    data_limits: TopicLimits,
    data_partitions: int | None,
) -> Outlook:
    """Likewise, of a sink of any kind, whose progress was observed."""
    source_admin = Admin(settings.source.connection)
    view = view_source(settings.source, source_admin)
    starting.check_source(progress.meta if progress.exists else None, view.topics)
    begin = (
        _frontier(settings, source_admin, view, progress)
        if targets is None
        else _chosen(settings, source_admin, view, targets)
    )
    return Outlook(
        ranges={
            partition: OffsetRange(offset, view.ends[partition])
            for partition, offset in begin.items()
            if partition in view.ends and is_before(offset, view.ends[partition])
        },
        resumes=progress.exists,
        data_limits=data_limits,
        data_partitions=data_partitions,
    )


def _observe(settings: SinkSettings, admin: Admin) -> Progress:
    if admin.topics([settings.progress.name])[settings.progress.name] is None:
        return Progress()
    with ProgressLog(settings.connection, settings.progress.name, settings.group_id) as log:
        return log.observe(settings.id)


def _frontier(settings: Settings, admin: Admin, view: SourceView, progress: Progress) -> dict[SourcePartition, int]:
    """As a start would have it."""
    source = settings.source
    known: Mapping[SourcePartition, PartitionProgress] = progress.partitions if progress.exists else {}
    imported: Mapping[SourcePartition, int] = {}
    if source.start_from is not None and not progress.exists:
        imported = read_positions(source.start_from, source, admin, view).next
    begins = KafkaSource(source, settings.group_id, admin).planned(known, view, epoch=0, imported=imported)
    return {partition: state.next for partition, state in begins.items()}


def _chosen(settings: Settings, admin: Admin, view: SourceView, targets: Targets) -> dict[SourcePartition, int]:
    targets.check_named(view)
    level = settings.source.read_committed
    targets = targets.resolved(admin.offsets_at(targets.moments(view), view.ends, read_committed=level))
    found = {partition: targets.of(partition, view) for partition in view.beginnings}
    return {partition: offset for partition, offset in found.items() if offset is not None}
