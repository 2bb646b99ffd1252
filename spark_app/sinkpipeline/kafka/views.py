"""Topics of a sink as core types, with their configuration. Describes only."""

from __future__ import annotations

from dataclasses import replace

from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import Admin


def describe(admin: Admin, name: str) -> Topic | None:
    """A topic with its configuration, or None where it is missing."""
    topic = admin.topics([name])[name]
    return None if topic is None else replace(topic, config=admin.topic_config(name))


def limits_of(topic: Topic) -> TopicLimits:
    """What a topic takes that was described with its configuration."""
    return TopicLimits.of(topic.partitions, topic.config)


def read_limits(admin: Admin, name: str) -> TopicLimits | None:
    """What a topic takes now; None where it is missing."""
    topic = describe(admin, name)
    return None if topic is None else limits_of(topic)


def holds_data(admin: Admin, topic: Topic) -> bool:
    partitions = [SourcePartition(topic.name, number) for number in range(topic.partitions)]
    beginnings = admin.beginning_offsets(partitions)
    ends = admin.end_offsets(partitions, read_committed=False)
    return any(ends[partition] > beginnings[partition] for partition in partitions)
