"""From the manifest to the settings of a Redis sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.tls import Tls
from sinkpipeline.redis_streams.settings import Acknowledge, Connection, SinkSettings, Stream

SecretFile = Callable[[manifest.SecretRef], str]
"""The path of a key of a Secret, which is there and can be read."""


def resolve_sink(  # noqa: PLR0913 - from several places, as they are
    sink: manifest.Sink,
    of: manifest.RedisSink,
    *,
    id: SinkId,  # noqa: A002 - as the settings call it
    owner: Owner,
    source: Any,
    group_id: str,
    tls: Tls | None,
    secret_file: SecretFile,
    dead_letter: Any,
) -> SinkSettings:
    """The settings of one sink; the arguments are those of the other kinds.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    auth = of.auth or manifest.RedisAuth()
    password = auth.password_secret_ref
    return SinkSettings(
        id=id,
        owner=owner,
        source=source,
        group_id=group_id,
        connection=Connection(
            server=of.servers,
            database=of.database,
            user=auth.username,
            password_file=None if password is None else secret_file(password),
            tls=tls,
            acknowledge=Acknowledge(replicas=of.acknowledge.replicas, fsync=of.acknowledge.fsync),
        ),
        stream=Stream(key=of.stream.key, maxlen=of.stream.maxlen),
        refuse_existing_data=sink.on_existing_data is manifest.OnExistingData.REFUSE,
        dead_letter=dead_letter,
    )
