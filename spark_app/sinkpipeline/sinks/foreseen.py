"""What a start would decide, and where it would begin: asked for without one. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from sinkpipeline.core import starting
from sinkpipeline.core.ports import Settings, Source
from sinkpipeline.core.positions import describe
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.topics import Beginning, Topic, TopicDecision, decide


def foreseen(
    settings: Settings,
    source: Source,
    topics: Mapping[str, str],
    *,
    data: Topic | None,
    place: Topic | None,
    progress: Progress,
) -> TopicDecision:
    """By what is there of the sink, and the ids of the source's topics.

    Raises:
        SinkPipelineError: as a start would be refused.
    """
    starting.check_owner(settings.id, progress.meta, settings.owner)
    starting.check_source(progress.meta if progress.exists else None, topics)
    source.check_visible(progress.meta, topics)
    return decide(
        progress=progress,
        progress_topic=place,
        data_topic=data,
        data_request=settings.data,
        memory=None,
        source=topics,
        refuse_existing_data=settings.refuse_existing_data,
    )


def begins(source: Source, decision: TopicDecision) -> tuple[str, ...]:
    """Of a first start that goes on for somebody else: where, and what is delivered again.

    Raises:
        SinkPipelineError: as a start would be, for offsets that the source does not have.
    """
    if not source.tells_positions or decision.beginning is not Beginning.FIRST_START:
        return ()
    view = source.view()
    positions = source.positions(view)
    source.planned({}, view, epoch=0, imported=positions.next)
    return tuple(describe(positions))
