"""What one NATS sink is told: where its servers are, its stream, how rows get there. Holds no secret."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from sinkpipeline.cells.settings import CellSinkSettings
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.nats.subjects import cells_of


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The servers of one cluster, and as whom. At most one of the credentials is given."""

    servers: str
    """host:port, several separated by commas."""
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    nkey_file: str | None = None
    """The seed of an nkey."""
    creds_file: str | None = None
    """A JWT and its seed, as `nsc` writes them."""
    tls: Tls | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.servers.split(","))


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A stream, and how it is created; None leaves it to the server."""

    name: str
    subjects: tuple[str, ...]
    """Those of rows."""
    replicas: int | None = None
    max_age_ns: int | None = None
    max_bytes: int | None = None
    duplicate_window_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class SinkSettings(CellSinkSettings):
    """One NATS sink."""

    connection: Connection
    stream: Stream
    subject: str | None = None
    """Of rows that name none themselves."""
    progress_subject: str = "_sinkpipeline"

    @property
    def own_subjects(self) -> str:
        """Those of its cells."""
        return f"{cells_of(self.progress_subject, self.id.prefix)}.>"

    @property
    def data(self) -> TopicRequest:
        stream = self.stream
        config = {"subjects": ", ".join((*stream.subjects, self.own_subjects))}
        if stream.max_age_ns is not None:
            config["max_age"] = f"{stream.max_age_ns} ns"
        if stream.max_bytes is not None:
            config["max_bytes"] = str(stream.max_bytes)
        if stream.duplicate_window_ns is not None:
            config["duplicate_window"] = f"{stream.duplicate_window_ns} ns"
        return TopicRequest(
            name=stream.name,
            called="stream",
            progress_beside=True,
            replication_factor=stream.replicas,
            config=MappingProxyType(config),
            stops_rolled_back=self.stops_rolled_back,
        )
