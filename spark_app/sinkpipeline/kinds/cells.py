"""The kinds whose progress stands in cells, each loaded by who has one alone: a client takes a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.apart import Claims
from sinkpipeline.kafka.kind import topic_ids
from sinkpipeline.kafka.source.source import KafkaSource
from sinkpipeline.kinds.resolve import CellSettings, letters_of
from sinkpipeline.nats.settings import SinkSettings as NatsSettings
from sinkpipeline.redis_streams.settings import SinkSettings as RedisSettings
from sinkpipeline.sinks.contract import SinkKind

if TYPE_CHECKING:
    from sinkpipeline.cells.kind import CellPorts, Look


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a kind consists of."""

    kind: SinkKind
    client: Callable[[Any], Any]
    ports: Callable[..., CellPorts[Any, Any]]
    look: Look
    place_is_apart: bool = False
    """Whether what keeps the progress is created by itself, and not with the target."""


def loaded(settings: CellSettings) -> Loaded:
    """The one place that tells them apart."""
    if isinstance(settings, NatsSettings):
        from sinkpipeline.nats import client, kind, look  # noqa: PLC0415 - as it says

        return Loaded(kind=kind.NATS, client=client.Client, ports=kind.NatsPorts, look=look)
    if isinstance(settings, RedisSettings):
        from sinkpipeline.redis_streams import client as redis  # noqa: PLC0415
        from sinkpipeline.redis_streams import kind as of_redis  # noqa: PLC0415
        from sinkpipeline.redis_streams import look as at_redis  # noqa: PLC0415

        return Loaded(kind=of_redis.REDIS, client=redis.Client, ports=of_redis.RedisPorts, look=at_redis)
    from sinkpipeline.postgresql import client as sql  # noqa: PLC0415
    from sinkpipeline.postgresql import kind as of_sql  # noqa: PLC0415
    from sinkpipeline.postgresql import look as at_sql  # noqa: PLC0415

    return Loaded(
        kind=of_sql.POSTGRESQL, client=sql.Client, ports=of_sql.PostgresqlPorts, look=at_sql, place_is_apart=True
    )


def cell_ports(
    settings: CellSettings, source_admin: Admin, claims: Claims | None = None, *, looks: bool = False
) -> CellPorts[Any, Any]:
    """With a connection of its own, as one is of one thread at a time.

    Args:
        settings: of the sink.
        source_admin: of the source's cluster, where dead letters go too.
        claims: of the driver that it is for.
        looks: whether nothing may be left behind.
    """
    found, letters = loaded(settings), letters_of(settings)
    return found.ports(
        settings,
        KafkaSource(settings.source, settings.group_id, source_admin),
        lambda topics: topic_ids(source_admin.topics(tuple(topics))),
        found.client(settings.connection),
        None if letters is None else letters.target(source_admin, claims),
        looks,
    )
