"""The schema registry, by Confluent's own client: the only place that imports it.

It speaks the REST interface that Confluent documents; Apicurio and others speak it too. Nothing here caches: a client
lives for one round of questions, so that a Secret that was changed is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.schemas import guid_of, name_of, number_of
from sinkpipeline.kafka.connection import read_secret
from sinkpipeline.kafka.settings import RegistrySettings

_TIMEOUT_S = 3.0
_SCHEMA_NOT_FOUND = 40403
_NOT_FOUND = {40401, 40402, _SCHEMA_NOT_FOUND}
"""The registry's own words for what it doesn't have; any other 404 is of somebody else, such as a proxy."""
_CHECK = "check decode.schemaRegistry.url, and that the registry runs"


@dataclass(frozen=True)
class Found:
    """A schema as the registry has it."""

    text: str
    kind: str
    """AVRO, JSON or PROTOBUF."""
    references: tuple[str, ...] = ()
    """The schemas that it refers to, each behind those that it refers to itself."""


@dataclass(frozen=True)
class FoundReader:
    """The schema of a version of a subject."""

    schema: Found
    subject: str
    version: int
    id: int


class Registry:
    """Questions to the registry of a pipeline.

    Raises (all methods):
        SinkPipelineError: SchemaRegistryUnreachable, AuthenticationFailed, AuthorizationFailed, SecretNotFound.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings

    def reader(self, subject: str, version: str) -> FoundReader:
        """A version of a subject, or `latest`.

        Raises:
            SinkPipelineError: SchemaNotFound too.
        """
        what = f"subject {subject}, version {version}"
        with self._client(what) as client:
            try:
                found = client.get_version(subject, "latest" if version == "latest" else int(version))
                schema = _whole(client, found.schema)
            except SchemaRegistryError as error:
                if error.error_code in _NOT_FOUND:
                    raise SinkPipelineError(
                        Reason.SCHEMA_NOT_FOUND,
                        f"the registry has no {what}: {error.error_message}",
                        "register it, or correct decode.schemaRegistry",
                    ) from error
                raise
        return FoundReader(schema=schema, subject=subject, version=found.version or 0, id=found.schema_id or 0)

    def writers(self, frames: Iterable[bytes]) -> Mapping[bytes, Found | None]:
        """The schemas that frames name; None where the registry has none."""
        found: dict[bytes, Found | None] = {}
        for frame in sorted(set(frames)):
            with self._client(f"the schema with {name_of(frame)}") as client:
                try:
                    found[frame] = _whole(client, _of_frame(client, frame))
                except SchemaRegistryError as error:
                    if error.error_code != _SCHEMA_NOT_FOUND:
                        raise
                    found[frame] = None
        return found

    @contextmanager
    def _client(self, what: str) -> Iterator[SchemaRegistryClient]:
        try:
            with SchemaRegistryClient(self._configuration()) as client:
                yield client
        except SchemaRegistryError as error:
            raise _refused(what, error) from error
        except (httpx.HTTPError, OSError) as error:
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise _unreachable(f"the schema registry does not answer when asked for {what}: {told}", _CHECK) from error
        except ValueError as error:
            # An answer that is no JSON.
            raise _unreachable(f"the schema registry gave no answer that can be read for {what}", _CHECK) from error

    def _configuration(self) -> dict[str, Any]:
        settings = self.settings
        tls = settings.tls
        files = {
            "ssl.ca.location": None if tls is None else tls.ca_file,
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
            password = _secret(settings.password_file)
            configuration["basic.auth.user.info"] = f"{settings.username}:{password}"
        if settings.token_file is not None:
            configuration |= {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": _secret(settings.token_file),
                # Of Confluent Cloud; the client asks for it wherever there is a token.
                "bearer.auth.logical.cluster": "",
                "bearer.auth.identity.pool.id": "",
            }
        return configuration


def _secret(file: str) -> str:
    """Without the line break that an editor leaves at the end."""
    return read_secret(Path(file)).rstrip("\r\n")


def _of_frame(client: SchemaRegistryClient, frame: bytes) -> Schema:
    number = number_of(frame)
    return client.get_schema_by_guid(guid_of(frame)) if number is None else client.get_schema(number)


def _whole(client: SchemaRegistryClient, schema: Schema) -> Found:
    found: dict[tuple[str, int], str] = {}
    _add_references(client, schema, found)
    return Found(str(schema.schema_str), schema.schema_type or "AVRO", tuple(found.values()))


def _add_references(client: SchemaRegistryClient, schema: Schema, found: dict[tuple[str, int], str]) -> None:
    for each in schema.references or ():
        key = (str(each.subject), int(each.version or 0))
        if key not in found:
            referred = client.get_version(*key).schema
            _add_references(client, referred, found)
            found[key] = str(referred.schema_str)


def _refused(what: str, error: SchemaRegistryError) -> SinkPipelineError:
    fact = f"the schema registry refused to tell {what}: {error.error_message} (HTTP {error.http_status_code})"
    match error.http_status_code:
        case 401:
            remedy = "check decode.schemaRegistry.auth, and the Secrets it names"
            return SinkPipelineError(Reason.AUTHENTICATION_FAILED, fact, remedy)
        case 403:
            remedy = "grant the user of decode.schemaRegistry.auth to read subjects and schemas"
            return SinkPipelineError(Reason.AUTHORIZATION_FAILED, fact, remedy)
        case _:
            return _unreachable(fact, _CHECK)


def _unreachable(fact: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.SCHEMA_REGISTRY_UNREACHABLE, fact, remedy)
