"""A stream of Redis or Valkey as a sink: `spec.sinks[].redis`."""

import enum
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.kafka import SERVERS_SCHEMA, SecretRef, Tls, checked_servers
from sinkpipeline.core.manifest.names import MasterName, RedisKey, UserName
from sinkpipeline.core.manifest.problems import Fault, fault_error

MAX_DATABASE = 65_535
MAX_REPLICAS = 16
_MAX_LENGTH = 2**53


def _servers(text: str) -> str:
    return checked_servers(text, "redis-0:6379")


Servers = Annotated[str, AfterValidator(_servers), SERVERS_SCHEMA]


class RedisMode(str, enum.Enum):
    """What `servers` names."""

    STANDALONE = "Standalone"
    SENTINEL = "Sentinel"
    CLUSTER = "Cluster"


class RedisAuth(Part):
    """As whom we connect; without `tls` the connection is not encrypted."""

    username: UserName | None = None
    """The user of the server's ACL; left out, the user default."""
    password_secret_ref: SecretRef | None = None
    """The key of a Secret that holds the password."""
    tls: Tls | None = None
    """Encrypts the connection, and checks the server's certificate and name; `{}` trusts the certificate authorities of
    the image."""

    @property
    def sends_in_clear(self) -> bool:
        """Whether whoever reads the network would have the password."""
        return self.tls is None and self.password_secret_ref is not None

    @model_validator(mode="after")
    def _has_a_password(self) -> Self:
        if self.username is not None and self.password_secret_ref is None:
            raise fault_error([Fault("give passwordSecretRef too", "stands without a password", ("username",))])
        return self


class RedisStream(Part):
    """The stream that rows are added to. A missing one is made."""

    key: RedisKey
    """The key; it never changes: another stream is another sink."""
    maxlen: Annotated[int, Field(ge=1, le=_MAX_LENGTH)] | None = None
    """About so many entries stay, the newest; left out, all of them."""


class RedisAcknowledge(Part):
    """What a commit waits for beside the memory of the server. If it does not come in time, the sink waits."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0
    """So many replicas have the commit in their memory (WAIT)."""
    fsync: bool = False
    """The commit is on the server's disk, and on those of the replicas (WAITAOF). It needs an append-only file, and
    Redis 7.2 or newer, or Valkey."""


class RedisSentinelAuth(Part):
    """As whom to ask the sentinels: their users are not those of the servers. `auth.tls` is used for both."""

    username: UserName | None = None
    """The user of the sentinels' ACL; left out, the user default."""
    password_secret_ref: SecretRef
    """The key of a Secret that holds the password."""


class RedisSentinel(Part):
    """What is asked of sentinels."""

    master_name: MasterName
    """The name by which the sentinels know the master."""
    auth: RedisSentinelAuth | None = None
    """As whom to ask the sentinels, if they want to know it."""


class RedisSink(Part):
    """A stream of Redis or Valkey. The progress is beside it, and written by the same script."""

    mode: RedisMode = RedisMode.STANDALONE
    """Standalone: `servers` is the server that takes writes. Sentinel: it names sentinels, which know the master.
    Cluster: it names nodes of a cluster, which know who has the stream."""
    servers: Servers
    """host:port; of sentinels, or of nodes of a cluster, several, separated by commas: all of the sentinels, at least
    two of the nodes."""
    sentinel: RedisSentinel | None = None
    """What is asked of the sentinels; needed with mode Sentinel."""
    auth: RedisAuth | None = None
    """As whom to connect."""
    database: Annotated[int, Field(ge=0, le=MAX_DATABASE)] = 0
    """The number of the database; it never changes. A cluster has only 0."""
    stream: RedisStream
    """The stream that rows are added to."""
    acknowledge: RedisAcknowledge = RedisAcknowledge()
    """What a commit waits for."""

    @property
    def asks_in_clear(self) -> bool:
        """Whether whoever reads the network would have the password for the sentinels."""
        encrypted = self.auth is not None and self.auth.tls is not None
        return self.sentinel is not None and self.sentinel.auth is not None and not encrypted

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        faults = list(_faults(self))
        if faults:
            raise fault_error(faults)
        return self

    def is_same_stream(self, other: "RedisSink") -> bool:
        """As far as the manifest tells: one server can have several names."""
        return _place(self) == _place(other)


def _faults(sink: RedisSink) -> Iterator[Fault]:
    if sink.mode is RedisMode.STANDALONE and "," in sink.servers:
        right = "name the one server that takes writes, or give mode: Sentinel, or mode: Cluster"
        yield Fault(right, "names several servers", ("servers",))
    if sink.mode is RedisMode.SENTINEL and sink.sentinel is None:
        yield Fault("give sentinel.masterName, which mode Sentinel needs", "is missing", ("sentinel",))
    if sink.mode is not RedisMode.SENTINEL and sink.sentinel is not None:
        yield Fault("give mode: Sentinel too, or remove it", "stands without mode: Sentinel", ("sentinel",))
    if sink.mode is RedisMode.CLUSTER and sink.database:
        yield Fault("remove it", f"is {sink.database}, and a cluster has only database 0", ("database",))


def _place(sink: RedisSink) -> tuple[str, str, int, str]:
    master = "" if sink.sentinel is None else sink.sentinel.master_name
    return sink.servers.lower(), master, sink.database, sink.stream.key
