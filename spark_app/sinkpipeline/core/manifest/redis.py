"""A stream of Redis or Valkey as a sink: `spec.sinks[].redis`."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.kafka import SERVERS_SCHEMA, SecretRef, Tls, checked_servers
from sinkpipeline.core.manifest.names import RedisKey, UserName
from sinkpipeline.core.manifest.problems import Fault, fault_error

MAX_DATABASE = 65_535
MAX_REPLICAS = 16
_MAX_LENGTH = 2**53


def _servers(text: str) -> str:
    found = checked_servers(text, "redis-0:6379")
    if "," in found:
        raise fault_error([Fault("name the one server that takes writes", "names several servers")])
    return found


Servers = Annotated[str, AfterValidator(_servers), SERVERS_SCHEMA]


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


class RedisSink(Part):
    """A stream of Redis or Valkey. The progress is beside it, and written by the same script."""

    servers: Servers
    """host:port of the server that takes writes."""
    auth: RedisAuth | None = None
    """As whom to connect."""
    database: Annotated[int, Field(ge=0, le=MAX_DATABASE)] = 0
    """The number of the database; it never changes."""
    stream: RedisStream
    """The stream that rows are added to."""
    acknowledge: RedisAcknowledge = RedisAcknowledge()
    """What a commit waits for."""

    def is_same_stream(self, other: "RedisSink") -> bool:
        """As far as the manifest tells: one server can have several names."""
        return _place(self) == _place(other)


def _place(sink: RedisSink) -> tuple[str, int, str]:
    return sink.servers.lower(), sink.database, sink.stream.key
