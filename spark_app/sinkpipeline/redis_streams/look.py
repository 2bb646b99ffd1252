"""What can be seen of a Redis sink before it starts, leaving nothing behind."""

from __future__ import annotations

from contextlib import closing

from sinkpipeline.core.progress import Progress
from sinkpipeline.core.topics import Topic
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.kind import RedisPorts
from sinkpipeline.redis_streams.settings import SinkSettings
from sinkpipeline.redis_streams.soundness import check_server


def check_reached(sink: SinkSettings) -> None:
    """Connects, within seconds.

    Raises:
        SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused.
    """
    with closing(Client(sink.connection)) as client:
        client.read("PING")


def check_names(ports: RedisPorts) -> None:
    """Raises SinkPipelineError: ManifestInvalid."""
    ports.target.check_names()


def look(ports: RedisPorts) -> tuple[Topic | None, Topic | None, Progress]:
    """The stream, the hash of the progress, and what is in it.

    Raises:
        SinkPipelineError: SinkUnreachable, SinkRefused, ...
    """
    data, ledger = ports.target.describe({}), ports.ledger
    place = ledger.place()
    return data, place, Progress() if place is None else ledger.decide(place)


def check_rights(ports: RedisPorts, _data: Topic | None = None, _place: Topic | None = None) -> None:
    """That a start may do what it does, and that the server keeps what it takes.

    Raises:
        SinkPipelineError: SinkRefused, and as `look`.
    """
    check_server(ports.client, ports.settings)


def fears(ports: RedisPorts) -> tuple[str, ...]:
    """What is to be feared for rows that the server has acknowledged."""
    connection = ports.settings.connection
    wanted = connection.acknowledge
    if wanted.replicas if connection.fails_over else wanted.fsync:
        return ()
    info = ports.client.info()
    if connection.fails_over and not wanted.replicas:
        how, remedy = "in the memory of its replicas a moment later", "set acknowledge.replicas"
    elif info.get("aof_enabled") == "1":
        how, remedy = "written to its disk about once a second", "set acknowledge.fsync"
    elif int(info.get("connected_slaves", "0")):
        how, remedy = "in the memory of its replicas a moment later", "set acknowledge.replicas"
    else:
        how, remedy = "in its snapshots alone", "set appendonly yes, and acknowledge.fsync"
    fear = "a crash, or a failover, takes the last rows, and their progress with them"
    return (f"what {connection.called} acknowledges is {how}: {fear}; {remedy}",)
