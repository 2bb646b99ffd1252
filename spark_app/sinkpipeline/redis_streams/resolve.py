"""From the manifest to the settings of a Redis sink."""

from __future__ import annotations

from sinkpipeline.cells.given import Given
from sinkpipeline.core import manifest
from sinkpipeline.redis_streams.addresses import slot_of
from sinkpipeline.redis_streams.settings import Acknowledge, Connection, Sentinels, SinkSettings, Stream


def resolve_sink(of: manifest.RedisSink, given: Given) -> SinkSettings:
    """The settings of one sink.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    auth = of.auth or manifest.RedisAuth()
    return SinkSettings(
        **given.of_every_kind,
        connection=Connection(
            server=of.servers,
            sentinels=_sentinels(of.sentinel, given),
            slot=slot_of(of.stream.key) if of.mode is manifest.RedisMode.CLUSTER else None,
            database=of.database,
            user=auth.username,
            password_file=given.secret(auth.password_secret_ref),
            tls=given.tls,
            acknowledge=Acknowledge(replicas=of.acknowledge.replicas, fsync=of.acknowledge.fsync),
        ),
        stream=Stream(key=of.stream.key, maxlen=of.stream.maxlen),
    )


def _sentinels(of: manifest.RedisSentinel | None, given: Given) -> Sentinels | None:
    if of is None:
        return None
    auth = of.auth
    if auth is None:
        return Sentinels(master=of.master_name)
    return Sentinels(master=of.master_name, user=auth.username, password_file=given.secret(auth.password_secret_ref))
