"""What one Redis sink is told: where its server is, its stream, what a commit waits for. Holds no secret."""

from __future__ import annotations

from dataclasses import dataclass

from sinkpipeline.cells.settings import CellSinkSettings
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest


@dataclass(frozen=True, kw_only=True)
class Acknowledge:
    """What a commit waits for beside the server's own memory."""

    replicas: int = 0
    """So many replicas have it in their memory."""
    fsync: bool = False
    """It is on the server's disk, and on those of the replicas."""


@dataclass(frozen=True, kw_only=True)
class Sentinels:
    """Those that know which server is the master, and who we are there."""

    master: str
    """The name that they know it by."""
    user: str | None = None
    password_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One database, and as whom."""

    server: str
    """host:port of the server; of the sentinels, or of nodes of a cluster, several with commas between them."""
    sentinels: Sentinels | None = None
    """None where `server` names no sentinels."""
    slot: int | None = None
    """Of a cluster, the one whose owner is connected to; None where `server` names no nodes of a cluster."""
    database: int = 0
    user: str | None = None
    password_file: str | None = None
    tls: Tls | None = None
    acknowledge: Acknowledge = Acknowledge()

    @property
    def called(self) -> str:
        """In messages."""
        if self.sentinels is not None:
            return f"Redis, the master {self.sentinels.master} of the sentinels {self.server},"
        if self.slot is not None:
            return f"Redis, the owner of slot {self.slot} of the cluster {self.server},"
        return f"Redis at {self.server}"

    @property
    def fails_over(self) -> bool:
        """Whether another server may take its place by itself."""
        return self.sentinels is not None or self.slot is not None


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A stream, and the keys of ours that stand beside it, in its slot."""

    key: str
    maxlen: int | None = None
    """About so many entries stay."""

    @property
    def _beside(self) -> str:
        """As a cluster does: what stands in braces says the slot, the whole key where nothing does."""
        tag = self.key[self.key.find("{") + 1 : self.key.find("}")] if "{" in self.key else self.key
        return "{" + tag + "}:sinkpipeline"

    @property
    def progress(self) -> str:
        """The hash of cells, of all sinks of this slot's streams."""
        return f"{self._beside}:progress"

    @property
    def known(self) -> str:
        """The hash that tells of each stream which one it is."""
        return f"{self._beside}:streams"


@dataclass(frozen=True, kw_only=True)
class SinkSettings(CellSinkSettings):
    """One Redis sink."""

    connection: Connection
    stream: Stream

    @property
    def data(self) -> TopicRequest:
        """A stream has nothing that could differ from the manifest."""
        return TopicRequest(
            name=self.stream.key,
            called="stream",
            progress_beside=True,
            stops_rolled_back=self.stops_rolled_back,
        )
