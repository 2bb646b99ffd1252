"""Redis' and Valkey's streams among the kinds of sinks. Only who has one loads its client."""

from __future__ import annotations

from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.kind import topic_ids
from sinkpipeline.kafka.source.source import KafkaSource
from sinkpipeline.kinds.resolve import letters_of
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.kind import RedisPorts
from sinkpipeline.redis_streams.settings import SinkSettings


def ports(
    settings: SinkSettings, source_admin: Admin, claims: Claims | None = None, *, looks: bool = False
) -> RedisPorts:
    """With a connection of its own, as one is of one thread at a time; `claims`: of the driver that it is for."""
    letters = letters_of(settings)
    return RedisPorts(
        settings,
        KafkaSource(settings.source, settings.group_id, source_admin),
        lambda topics: topic_ids(source_admin.topics(tuple(topics))),
        Client(settings.connection),
        None if letters is None else letters.target(source_admin, claims),
        looks,
    )
