"""The source as core types, partition by partition. Describes only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta
from sinkpipeline.core.starting import SourceView
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import INTERNAL, Admin
from sinkpipeline.kafka.settings import SourceSettings


def source_topics(source: SourceSettings, admin: Admin) -> dict[str, Topic]:
    """The source's topics.

    Raises:
        SinkPipelineError: SourceTopicMissing; ManifestInvalid for a topic of Kafka's own.
    """
    names: Iterable[str] = source.topics
    internal = sorted(INTERNAL & set(names))
    if internal:
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID,
            f"source topic {internal[0]} is one of Kafka's own, which Spark does not read",
            "name another topic in source.kafka.topics",
        )
    if source.pattern is not None:
        names = sorted(filter(source.reads, admin.topic_names()))
        if not names:
            raise SinkPipelineError(
                Reason.SOURCE_TOPIC_MISSING,
                f"no topic of {source.connection.bootstrap_servers} matches topicPattern {source.pattern}",
                "create the topic, or correct topicPattern; a topic without the right to Describe it is not seen",
            )
    found = {}
    for name, topic in admin.topics(list(names)).items():
        if topic is None:
            raise SinkPipelineError(
                Reason.SOURCE_TOPIC_MISSING,
                f"source topic {name} does not exist on {source.connection.bootstrap_servers}",
                "create the topic, or correct source.kafka.topics",
            )
        found[name] = topic
    return found


def check_visible(source: SourceSettings, admin: Admin, meta: Meta | None, found: Collection[str]) -> None:
    """Of a topicPattern: a topic that it found once and finds no more was deleted, or it is hidden from us.

    Kafka lists no topic that the principal may not Describe; left out, such a one would stand still in silence.

    Raises:
        SinkPipelineError: AuthorizationFailed.
    """
    known = set() if meta is None or meta.partitions is None else set(meta.partitions)
    if source.pattern is not None:
        admin.topics(sorted(known - set(found)))


def view_source(source: SourceSettings, admin: Admin) -> SourceView:
    topics = source_topics(source, admin)
    partitions = [
        SourcePartition(name, number) for name, topic in sorted(topics.items()) for number in range(topic.partitions)
    ]
    high_watermarks = admin.end_offsets(partitions, read_committed=False)
    return SourceView(
        topics=MappingProxyType({name: topic.id for name, topic in topics.items()}),
        beginnings=MappingProxyType(admin.beginning_offsets(partitions)),
        ends=MappingProxyType(
            admin.end_offsets(partitions, read_committed=True) if source.read_committed else high_watermarks
        ),
        high_watermarks=MappingProxyType(high_watermarks),
    )
