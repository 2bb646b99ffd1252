"""The schema registry, by Confluent's own client: the only place that asks with it (`kafka.bounded` limits it).

It speaks the REST interface that Confluent documents; Apicurio and others speak it too. Nothing here caches: a client
lives for one round of questions, so that a Secret that was changed is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError

from sinkpipeline.authorities import system_authorities
from sinkpipeline.core.avro_shape import writes_alike
from sinkpipeline.core.deadletter import reason_of
from sinkpipeline.core.encoding import LAST_NUMBER
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.schemas import guid_of, name_of, number_of
from sinkpipeline.kafka.bounded import bounded
from sinkpipeline.kafka.connection import read_password, read_token
from sinkpipeline.kafka.registry_faults import refusal, words
from sinkpipeline.kafka.settings import RegistrySettings

_TIMEOUT_S = 3.0
_ROUND_S = 30.0
"""After so long no further question is asked: what was answered is of use already."""
_QUESTION_S = 20.0
"""After so long a question ends, whatever still drips in: the client's own limit is one for each read."""
_SCHEMA_NOT_FOUND = 40403
_NOT_FOUND = {40401, 40402, _SCHEMA_NOT_FOUND}
"""The registry's own words for what it doesn't have; any other 404 is of somebody else, such as a proxy."""
_NO_SUCH_PAGE = 404
_REFUSALS = {400, 409, 413, 422}
"""The statuses of a registry that will not have a schema: it is not compatible, not right, or too large."""
_LAST_LONG = 2**63 - 1
_SHORT_FRAME = 5
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What the client raises for an answer that is no JSON, or another one than a registry's."""
_RIGHTS = {"tell": "read subjects and schemas", "take": "register schemas, or set autoRegister: false"}


@dataclass(frozen=True)
class Found:
    """A schema as the registry has it."""

    text: str
    kind: str
    """AVRO, JSON or PROTOBUF."""
    references: tuple[str, ...] = ()
    """The schemas that it refers to, each behind those that it refers to itself."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The same, by the names by which they are referred to."""


@dataclass(frozen=True)
class FoundReader:
    """The schema of a version of a subject."""

    schema: Found
    subject: str
    version: int
    id: int


@dataclass(frozen=True)
class Answers:
    """What came of a round of questions."""

    found: Mapping[bytes, Found | None] = field(default_factory=dict)
    """By frame, in the order of the questions; None where the registry has no schema."""
    error: SinkPipelineError | None = None
    """Why others have no answer; None where they have, or are to be asked for in another round."""


class Registry:
    """Questions to the registry of a pipeline.

    Raises (all methods):
        SinkPipelineError: SchemaRegistryUnreachable, AuthenticationFailed, AuthorizationFailed, SecretNotFound.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self._has_answered = False
        """Whether it is a registry that speaks there, and no proxy that knows no page."""
        self._is_late = False
        """Whether the time for what is asked is over."""

    def reader(self, subject: str, version: str) -> FoundReader:
        """A version of a subject, or `latest`.

        Raises:
            SinkPipelineError: SchemaNotFound too.
        """
        what = f"subject {subject}, version {version}"
        with self._client() as client, self._asking(what):
            try:
                found = client.get_version(subject, "latest" if version == "latest" else int(version))
                schema = _whole(client, _checked(found.schema))
            except SchemaRegistryError as error:
                if error.error_code in _NOT_FOUND:
                    raise SinkPipelineError(
                        Reason.SCHEMA_NOT_FOUND,
                        f"the registry has no {what}: {reason_of(str(error.error_message))}",
                        f"register it, or correct {self.settings.path}",
                    ) from error
                raise
            number, at = _id(found.schema_id), int(found.version or 0)
            if version != "latest" and at != int(version):
                raise ValueError("another version")
        self._has_answered = True
        return FoundReader(schema=schema, subject=subject, version=at, id=number)

    def id_of(self, subject: str, kind: str, text: str) -> int | None:
        """The id of a schema that the subject has; None where it doesn't have it.

        Raises:
            SinkPipelineError: SchemaRefused too.
        """
        with self._client() as client, self._asking(f"a schema of subject {subject}"), self._refusing(subject):
            try:
                found = client.lookup_schema(subject, Schema(text, kind))
            except SchemaRegistryError as error:
                if error.error_code in _NOT_FOUND:
                    return None
                raise
            number = _id(found.schema_id)
        # The client takes its own word for what was found. Rows will name it, and be read by it.
        with self._client() as client, self._asking(f"the schema with id {number}"):
            answered = client.get_schema(number, subject_name=subject)
            if not _is_that(answered, kind, text):
                fact = f"the schema registry has another schema with id {number} than the one of subject {subject}"
                raise _unreachable(fact, f"check {self.settings.path}.url, and what answers there")
        return number

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of the schema, a version of the subject from now on.

        Raises:
            SinkPipelineError: SchemaRefused too.
        """
        with (
            self._client() as client,
            self._asking(f"a new version of subject {subject}", "take"),
            self._refusing(subject),
        ):
            return _id(client.register_schema(subject, Schema(text, kind)))

    def check_fits(self, subject: str, kind: str, text: str) -> None:
        """Raises what `register` would, as far as that can be known, and registers nothing."""
        with (
            self._client() as client,
            self._asking(f"whether a schema fits subject {subject}"),
            self._refusing(subject),
        ):
            self._check_fits(client, subject, Schema(text, kind))

    def _check_fits(self, client: SchemaRegistryClient, subject: str, schema: Schema) -> None:
        try:
            latest = _checked(client.get_version(subject, "latest").schema).schema_type or "AVRO"
        except SchemaRegistryError as error:
            if error.error_code in _NOT_FOUND:
                return
            raise
        if latest != schema.schema_type:
            raise self._schema_refused(subject, f"its latest version is {latest}, and not {schema.schema_type}")
        if client.test_compatibility(subject, schema) is not True:
            raise self._schema_refused(subject, "it is not compatible with the latest version")
        # As many of them as the subject's compatibility names.
        if client.test_compatibility_all_versions(subject, schema) is not True:
            raise self._schema_refused(subject, "it is not compatible with an earlier version")

    @contextmanager
    def _refusing(self, subject: str) -> Iterator[None]:
        try:
            yield
        except SchemaRegistryError as error:
            if error.http_status_code in _REFUSALS:
                raise self._schema_refused(subject, str(error.error_message)) from error
            raise

    def _schema_refused(self, subject: str, told: str) -> SinkPipelineError:
        return SinkPipelineError(
            Reason.SCHEMA_REFUSED,
            f"{self.settings.path}: the registry refuses the schema for subject {subject}: {reason_of(told)}",
            "change what select gives so that it fits the subject's versions, name another subject, or change the "
            "subject's compatibility in the registry",
        )

    def writers(self, frames: Sequence[bytes]) -> Answers:
        """The schemas that frames name, asked for in this order for as long as a round may take.

        Where nothing was found there is an error.
        """
        found: dict[bytes, Found | None] = {}
        first: SinkPipelineError | None = None
        until = monotonic() + _ROUND_S
        with self._client(_ROUND_S + _QUESTION_S) as client:
            for frame in frames:
                try:
                    found[frame] = self._writer(client, frame)
                except SinkPipelineError as error:
                    # A question that has no answer must not keep the others from theirs.
                    first = first or error
                    if _is_of_all(error):
                        break
                if monotonic() > until:
                    break
        return Answers(found, first)

    def _writer(self, client: SchemaRegistryClient, frame: bytes) -> Found | None:
        number = number_of(frame)
        if number is not None and number > (LAST_NUMBER if len(frame) == _SHORT_FRAME else _LAST_LONG):
            return None
        with self._asking(f"the schema with {name_of(frame)}"):
            try:
                schema = _checked(_of_frame(client, frame))
            except SchemaRegistryError as error:
                own_word = error.error_code == _SCHEMA_NOT_FOUND
                # A registry without this page has none of the schemas that it would show.
                beyond = error.http_status_code == _NO_SUCH_PAGE and (number is None or number > LAST_NUMBER)
                if not own_word and not (beyond and self._is_a_registry(client)):
                    raise
                self._has_answered = True
                return None
            self._has_answered = True
            try:
                return _whole(client, schema)
            except SchemaRegistryError as error:
                if error.error_code not in _NOT_FOUND:
                    raise
                # What it refers to is gone: nothing can be decoded with it, which its parser finds and tells.
                return _found(schema)

    def _is_a_registry(self, client: SchemaRegistryClient) -> bool:
        """Whether it has answered any question as a registry does; asks it one where there was none."""
        if not self._has_answered:
            try:
                _checked(client.get_schema(LAST_NUMBER))
                self._has_answered = True
            except SchemaRegistryError as error:
                self._has_answered = error.error_code == _SCHEMA_NOT_FOUND
        return self._has_answered

    @contextmanager
    def _asking(self, what: str, to_do: str = "tell") -> Iterator[None]:
        check = f"check {self.settings.path}.url, and that the registry runs"
        try:
            yield
        except SchemaRegistryError as error:
            raise self._refused(what, to_do, error) from error
        except httpx.LocalProtocolError:
            # Its text quotes a header, and headers hold credentials.
            raise _unreachable(f"the schema registry can't be asked for {what}: LocalProtocolError", check) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            if self._is_late:
                raise _unreachable(f"the schema registry takes too long to answer for {what}", check) from error
            if (told := refusal(error, what, self.settings.path, self.settings.tls)) is not None:
                raise told from error
            text = type(error).__name__ + (f": {error}" if str(error) else "")
            fact = f"the schema registry does not answer when asked for {what}: {reason_of(text)}"
            raise _unreachable(fact, check) from error
        except _UNREADABLE as error:
            raise _unreachable(f"the schema registry gave no answer that can be read for {what}", check) from error
        except RuntimeError as error:
            # The client was closed, and tries again.
            raise _unreachable(f"the schema registry takes too long to answer for {what}", check) from error

    def _refused(self, what: str, to_do: str, error: SchemaRegistryError) -> SinkPipelineError:
        path = self.settings.path
        fact = f"the schema registry refused to {to_do} {what}: {words(error)} (HTTP {error.http_status_code})"
        match error.http_status_code:
            case 401:
                remedy = f"check {path}.auth, and the Secrets it names"
                return SinkPipelineError(Reason.AUTHENTICATION_FAILED, fact, remedy)
            case 403:
                remedy = f"grant the user of {path}.auth to {_RIGHTS[to_do]}"
                return SinkPipelineError(Reason.AUTHORIZATION_FAILED, fact, remedy)
            case _:
                return _unreachable(fact, f"check {path}.url, and that the registry runs")

    @contextmanager
    def _client(self, seconds: float | None = None) -> Iterator[SchemaRegistryClient]:
        """`seconds`: after so long whatever is asked ends with an error."""
        try:
            client = SchemaRegistryClient(self._configuration())
        except (OSError, ValueError) as error:
            fact = f"the schema registry can't be asked: {type(error).__name__}"
            raise _unreachable(fact, f"check {self.settings.path}.url and auth") from error

        def late() -> None:
            self._is_late = True

        self._is_late = False
        with client, bounded(client, _QUESTION_S if seconds is None else seconds, late):
            yield client

    def _configuration(self) -> dict[str, Any]:
        settings, tls = self.settings, self.settings.tls
        files = {
            # Else the client trusts the authorities that came with it, and not those of the image.
            "ssl.ca.location": (None if tls is None else tls.ca_file) or system_authorities(),
            "ssl.certificate.location": None if tls is None else tls.certificate_file,
            "ssl.key.location": None if tls is None else tls.key_file,
        }
        configuration: dict[str, Any] = {
            "url": settings.url,
            "timeout": _TIMEOUT_S,
            "max.retries": 1,
            "retries.wait.ms": 200,
            **{name: path for name, path in files.items() if path is not None},
        }
        if settings.password_file is not None:
            password = read_password(Path(settings.password_file))
            configuration["basic.auth.user.info"] = f"{settings.username}:{password}"
        if settings.token_file is not None:
            configuration |= {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": read_token(Path(settings.token_file)),
                # Of Confluent Cloud; the client asks for it wherever there is a token.
                "bearer.auth.logical.cluster": "",
                "bearer.auth.identity.pool.id": "",
            }
        return configuration


def _of_frame(client: SchemaRegistryClient, frame: bytes) -> Schema:
    number = number_of(frame)
    return client.get_schema_by_guid(guid_of(frame)) if number is None else client.get_schema(number)


def _checked(schema: Schema) -> Schema:
    """Raises ValueError where what the client made of an answer is no schema."""
    text, kind = schema.schema_str, schema.schema_type
    if not isinstance(text, str) or not text or not (kind is None or isinstance(kind, str)):
        raise ValueError("no schema")
    for each in schema.references or ():
        if not isinstance(each.subject, str) or not each.subject or not isinstance(each.version, int):
            raise TypeError("no reference")
    return schema


def _is_that(found: Schema, kind: str, text: str) -> bool:
    """Whether it is what was asked for. Raises ValueError where it is no schema."""
    if (_checked(found).schema_type or "AVRO") != kind:
        return False
    there = found.schema_str or ""
    return kind != "AVRO" or there == text or writes_alike(there, text)


def _id(number: object) -> int:
    """Raises ValueError where it is none: rows would name another schema."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= LAST_NUMBER:
        raise ValueError("no id")
    return number


def _found(schema: Schema, references: tuple[str, ...] = (), files: Mapping[str, str] | None = None) -> Found:
    return Found(str(schema.schema_str), schema.schema_type or "AVRO", references, files or {})


def _whole(client: SchemaRegistryClient, schema: Schema) -> Found:
    found: dict[tuple[str, int], str] = {}
    files: dict[str, str] = {}
    _add_references(client, schema, found, files)
    return _found(schema, tuple(found.values()), files)


def _add_references(
    client: SchemaRegistryClient, schema: Schema, found: dict[tuple[str, int], str], files: dict[str, str]
) -> None:
    own: dict[str, str] = {}
    for each in schema.references or ():
        key = (str(each.subject), int(each.version or 0))
        if key not in found:
            referred = _checked(client.get_version(*key).schema)
            _add_references(client, referred, found, files)
            found[key] = str(referred.schema_str)
        own[str(each.name)] = found[key]
    # Of two versions by one name that of the outer schema is meant.
    files.update(own)


def _is_of_all(error: SinkPipelineError) -> bool:
    """Whether the next question would fare no better: nobody answers, or not us."""
    cause = error.__cause__
    return error.reason is Reason.AUTHENTICATION_FAILED or isinstance(
        cause, (httpx.TransportError, OSError, RuntimeError)
    )


def _unreachable(fact: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.SCHEMA_REGISTRY_UNREACHABLE, fact, remedy)
