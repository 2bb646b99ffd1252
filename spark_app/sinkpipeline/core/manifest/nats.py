"""A stream of NATS JetStream as a sink: `spec.sinks[].nats`."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.durations import PositiveDuration
from sinkpipeline.core.manifest.kafka import SERVERS_SCHEMA, SecretRef, Tls, checked_servers
from sinkpipeline.core.manifest.names import NatsPattern, NatsSubject, StreamName, UserName
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse_repeated

DEFAULT_PROGRESS_SUBJECT = "_sinkpipeline"
MAX_SUBJECTS = 64
MAX_REPLICAS = 5
_MAX_BYTES = 2**50


def _servers(text: str) -> str:
    return checked_servers(text, "nats-0:4222,nats-1:4222")


Servers = Annotated[str, AfterValidator(_servers), SERVERS_SCHEMA]


class NatsAuth(Part):
    """As whom we connect: by at most one of a user, a token, an nkey and credentials.

    Without `tls` the connection is not encrypted.
    """

    username: UserName | None = None
    """The user; needs passwordSecretRef."""
    password_secret_ref: SecretRef | None = None
    """The key of a Secret that holds the user's password."""
    token_secret_ref: SecretRef | None = None
    """The key of a Secret that holds a token."""
    nkey_secret_ref: SecretRef | None = None
    """The key of a Secret that holds the seed of an nkey."""
    creds_secret_ref: SecretRef | None = None
    """The key of a Secret that holds a credentials file: a JWT and its seed, as nsc writes them."""
    tls: Tls | None = None
    """Encrypts the connection, and checks the server's certificate and name; `{}` trusts the certificate authorities of
    the image."""

    @property
    def sends_in_clear(self) -> str | None:
        """What whoever reads the network would have; an nkey and a JWT only sign."""
        if self.tls is not None:
            return None
        if self.password_secret_ref is not None:
            return "the password"
        return None if self.token_secret_ref is None else "the token"

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [
            name
            for name, value in {
                "username": self.username,
                "tokenSecretRef": self.token_secret_ref,
                "nkeySecretRef": self.nkey_secret_ref,
                "credsSecretRef": self.creds_secret_ref,
            }.items()
            if value is not None
        ]
        faults = [Fault("give one of them", f"stands beside {given[0]}", (name,)) for name in given[1:]]
        if (self.username is None) != (self.password_secret_ref is None):
            faults.append(Fault("give username and passwordSecretRef together", "is missing", ("username",)))
        if faults:
            raise fault_error(faults)
        return self


def _distinct(subjects: tuple[str, ...]) -> tuple[str, ...]:
    refuse_repeated(list(subjects), "name each subject once")
    return subjects


class Stream(Part):
    """The stream that rows are written to, and how it is created where it is missing."""

    name: StreamName
    """The stream; it never changes: another stream is another sink."""
    subjects: Annotated[tuple[NatsPattern, ...], Field(max_length=MAX_SUBJECTS), AfterValidator(_distinct)] = ()
    """The subjects that it is created with, such as orders.>; left out, `subject`. The one of the progress is added."""
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """How many replicas it is created with; left out, 1."""
    max_age: PositiveDuration | None = None
    """How long it keeps rows, if it is created; left out, for ever. The progress does not expire."""
    max_bytes: Annotated[int, Field(ge=1, le=_MAX_BYTES)] | None = None
    """How large it may become, if it is created; left out, any size. If it is full, the sink waits."""
    duplicate_window: PositiveDuration | None = None
    """For how long it knows a message again by its id, if it is created; left out, the server's 2 minutes. Of
    AtLeastOnce: a record that is sent again within it is not stored twice."""

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if self.max_age is not None and self.duplicate_window is not None and self.duplicate_window > self.max_age:
            raise fault_error([Fault("use at most maxAge", "is longer than messages are kept", ("duplicateWindow",))])
        return self


class NatsSink(Part):
    """A stream of NATS JetStream. The progress is in the same stream, and written in the same atomic batch."""

    servers: Servers
    """host:port of the servers, separated by commas: all, or at least two."""
    auth: NatsAuth | None = None
    """As whom to connect."""
    stream: Stream
    """The stream that rows are written to."""
    subject: NatsSubject | None = None
    """The subject of rows for which transform.select.subject gives none."""
    progress_subject: NatsSubject = DEFAULT_PROGRESS_SUBJECT
    """The subject below which the progress is kept; it never changes, and several sinks may share it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults = list(_faults(self))
        if faults:
            raise fault_error(faults)
        return self

    @property
    def row_subjects(self) -> tuple[str, ...]:
        """The subjects that its stream is created with."""
        return self.stream.subjects or (() if self.subject is None else (self.subject,))

    def is_same_stream(self, other: "NatsSink") -> bool:
        """As far as the manifest tells: one cluster can have several names."""
        return (self.servers.lower(), self.stream.name) == (other.servers.lower(), other.stream.name)


def _faults(sink: NatsSink) -> Iterator[Fault]:
    if not sink.row_subjects:
        yield Fault("give subject, or stream.subjects", "is missing", ("subject",))
    below = f"{sink.progress_subject}."
    if sink.subject is not None and (sink.subject == sink.progress_subject or sink.subject.startswith(below)):
        yield Fault("use another subject, or another progressSubject", "is one of the progress", ("subject",))
