"""What can be seen of a NATS sink before it starts, leaving nothing behind; and what a start tries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from sinkpipeline.core.progress import Progress
from sinkpipeline.core.topics import Topic
from sinkpipeline.nats.client import Client
from sinkpipeline.nats.kind import NatsPorts
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.nats.stream import StreamInfo, check_server, check_stream, check_writes, reading, would_expire


def check_reached(sink: SinkSettings) -> None:
    """Connects, within seconds.

    Raises:
        SinkPipelineError: SinkUnreachable, AuthenticationFailed, SinkRefused.
    """
    with closing(Client(sink.connection)) as client, reading(client):
        client.connect()


def check_names(ports: NatsPorts) -> None:
    """Raises SinkPipelineError: ManifestInvalid."""
    ports.target.check_names()


def look(ports: NatsPorts) -> tuple[Topic | None, Topic | None, Progress]:
    """The stream, which is the place of the progress too, and what is in it.

    Raises:
        SinkPipelineError: SinkUnreachable, SinkRefused, ...
    """
    found = ports.target.describe({})
    return found, found, Progress() if found is None else ports.ledger.decide(found)


def check_rights(ports: NatsPorts, _data: Topic | None = None, _place: Topic | None = None) -> None:
    """That a start and its commits may do all that they do, and would be stored as they should be.

    Raises:
        SinkPipelineError: SinkRefused, and as `look`.
    """
    if ports.settings.exactly_once:
        check_server(ports.client)
    found = ports.target.info()
    if found is not None:
        check_stream(found, ports.settings)
        check_writes(ports.client, ports.settings)


def fears(ports: NatsPorts) -> tuple[str, ...]:
    """What is to be feared for rows that the servers have acknowledged."""
    found = ports.target.info()
    return () if found is None else (*_of_limits(ports, found), *_of_replicas(found))


def _of_limits(ports: NatsPorts, found: StreamInfo) -> Iterator[str]:
    if would_expire(ports.client, found, ports.settings):
        fact = f"the progress in stream {found.name} was written before its messages could be kept from expiring"
        hours = int(found.config["max_age"]) / 3.6e12
        yield f"{fact}: it goes {hours:g} hours after it was written; run the pipeline before: it is written anew then"


def _of_replicas(found: StreamInfo) -> Iterator[str]:
    if int(found.config.get("num_replicas", 1)) > 1:
        return
    fear = "where its machine fails, rows that were acknowledged within the server's sync_interval are lost"
    remedy = "use 3 replicas, or sync_interval: always"
    yield f"stream {found.name} has 1 replica: {fear}, with their progress; {remedy}"
