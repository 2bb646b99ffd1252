"""Redriving letters back into their source: the records as they were, in their partitions, to be read again.

Only where that is what it seems: one sink, as every sink of the pipeline would read them; one cluster, so that a record
and what settles its letter are one transaction; and a source that is read committed. The letters of a topic that the
pipeline does not read any more stay pending: nobody would read what is written there, and it would count as settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import Settings
from sinkpipeline.core.redrive import Letter, Outcome, Wanted
from sinkpipeline.core.targets import usage_invalid
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.redrive import Redrive
from sinkpipeline.kafka.redrive_writer import Destination
from sinkpipeline.kafka.settings import SinkSettings
from sinkpipeline.kafka.survey import Survey
from sinkpipeline.sinks.contract import RowBatch


def check_returnable(sinks: Sequence[Settings]) -> None:
    """Of all sinks of a pipeline.

    Raises:
        SinkPipelineError: UsageInvalid.
    """
    remedy = "redrive without --to source"
    if len(sinks) > 1:
        raise usage_invalid("the pipeline has several sinks, and each would read the records again", remedy)
    sink = sinks[0]
    if not isinstance(sink, SinkSettings) or sink.connection != sink.source.connection:
        raise usage_invalid("source and sink have not the same cluster and credentials", remedy)
    if not sink.source.read_committed:
        raise usage_invalid("the source is read uncommitted: a record could be read whose return was aborted", remedy)


def returning(settings: SinkSettings, topic: str, wanted: Wanted) -> Redrive:
    """A redrive of the letters of one source topic back into it."""
    return Redrive(
        settings=replace(settings, data=TopicRequest(name=topic)),
        wanted=replace(wanted, source_topic=topic),
        transform=originals,
        destination=Destination(Outcome.RETURNED, lambda meta: meta.source.get(topic), _not_the_source),
    )


def staying(settings: SinkSettings, survey: Survey) -> Iterator[str]:
    """The letters that are not returned, as nobody would read their records: one sentence a topic."""
    for topic, letters in sorted(survey.by_source.items()):
        if not settings.source.reads(topic):
            yield (
                f"{letters} letters of {topic} stay pending: the pipeline does not read that topic any more, and so "
                f"would not read their records there. To deliver them into {settings.data.name}, redrive without "
                "--to source, or by an action with to: Data"
            )


def originals(letters: Sequence[Letter]) -> RowBatch:
    """The records of letters, as rows for the topic that they are of."""
    records = [each.letter.record for each in letters]
    return RowBatch(
        offsets=[each.id.offset for each in letters],
        keys=[record.key for record in records],
        values=[record.value for record in records],
        target_partitions=[record.partition.partition for record in records],
        # The client takes 0 for now.
        timestamps=[record.timestamp or 1 for record in records],
        headers=[record.headers for record in records],
        errors=None,
        size=sum(len(record.key or b"") + len(record.value or b"") for record in records),
    )


def _not_the_source(topic: str, fact: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SOURCE_RECREATED,
        f"source topic {topic} is not the one that the letters are of: {fact}",
        "redrive without --to source: into the data topic",
    )
