"""The data topic of a sink, or all of them, as one target. Describes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.topic_ids import joined
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.views import holds_data, limits_of


def gathered(request: TopicRequest, found: Mapping[str, Topic | None]) -> Topic | None:
    """What is there of it; None where nothing is."""
    parts = tuple(topic for each in request.each if (topic := found.get(each.name)) is not None)
    if not parts or not request.parts:
        return parts[0] if parts else None
    return Topic(
        name=request.name,
        id=joined({each.name: each.id for each in parts}) or "",
        partitions=min(each.partitions for each in parts),
        replication_factor=min(each.replication_factor for each in parts),
        holds_data=any(each.holds_data for each in parts),
        parts=parts,
    )


def target_id(admin: Admin, request: TopicRequest) -> str | None:
    topic = gathered(request, admin.topics([each.name for each in request.each]))
    return None if topic is None else topic.id


def describe_data(admin: Admin, request: TopicRequest) -> Topic | None:
    """With configurations, and whether they hold data."""
    found = admin.topics([each.name for each in request.each])
    told = {
        name: None
        if topic is None
        else replace(topic, config=admin.topic_config(name), holds_data=holds_data(admin, topic))
        for name, topic in found.items()
    }
    return gathered(request, told)


def data_limits_of(topic: Topic) -> TopicLimits:
    """What was described with its configuration."""
    if not topic.parts:
        return limits_of(topic)
    return TopicLimits.of_several({each.name: limits_of(each) for each in topic.parts})


def read_data_limits(admin: Admin, request: TopicRequest) -> TopicLimits | None:
    """What it takes now; None where a topic is missing."""
    found = admin.topics([each.name for each in request.each])
    if any(topic is None for topic in found.values()):
        return None
    topic = gathered(
        request,
        {
            name: None if each is None else replace(each, config=admin.topic_config(name))
            for name, each in found.items()
        },
    )
    return None if topic is None else data_limits_of(topic)
