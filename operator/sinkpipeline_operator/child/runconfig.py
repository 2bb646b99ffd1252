"""What a driver must run, and the hash that names it.

A change of anything in here needs a new driver; a change of anything else in the resource does not. The hash covers the
manifest with every default spelled out, what the operator adds to it, and the contents of the Secrets that it refers
to, as a digest: a Secret that was changed must reach the driver too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sinkpipeline.core.manifest import (
    BinlogAuth,
    KafkaConnection,
    NatsSink,
    PostgresqlAuth,
    RedisSink,
    RegistrySubject,
    SinkPipeline,
    Tls,
)

_RESTARTS_NOBODY = ("open_metrics", "log_json")
HASH_LENGTH = 10
"""Hexadecimal digits; a name of 52 characters, a dash and these are a label value of 63."""

_NOT_THE_DRIVERS = ("suspend", "deletionPolicy", "restartNonce")
"""Fields of spec that say what the operator does with the driver, and nothing to the driver itself."""

_NOT_THE_DRIVERS_OF_A_SINK = ("required",)
"""Likewise, of each sink: what its state means to the pipeline."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What the operator decides for all drivers: its own settings."""

    image: str
    spark_version: str
    service_account: str
    image_pull_policy: str = "IfNotPresent"
    open_metrics: bool = False
    """Whether drivers answer /metrics without their token. A driver that runs is not restarted for it."""
    log_json: bool = False
    """Whether drivers and executors log JSON. A driver that runs is not restarted for it."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One configuration of a driver."""

    document: Mapping[str, Any]
    """The manifest that the driver reads: nothing in it changes while the hash stays."""
    hash: str

    def name(self, pipeline: str) -> str:
        """The ConfigMap that holds the document."""
        return f"{pipeline}-{self.hash}"

    def to_json(self) -> str:
        return json.dumps(self.document, indent=2, sort_keys=True)


def run_config(pipeline: SinkPipeline, runtime: Runtime, secrets: Mapping[str, str]) -> RunConfig:
    """The configuration that the resource asks for.

    Args:
        pipeline: the resource.
        runtime: the operator's settings.
        secrets: the digest of each Secret that the pipeline refers to, by name.
    """
    whole = pipeline.to_document()
    sinks = [_without(sink, _NOT_THE_DRIVERS_OF_A_SINK) for sink in whole["spec"]["sinks"]]
    document = {
        "apiVersion": whole["apiVersion"],
        "kind": whole["kind"],
        "metadata": {"name": pipeline.metadata.name, "namespace": pipeline.metadata.namespace},
        "spec": _without(whole["spec"], _NOT_THE_DRIVERS) | {"sinks": sinks, "identity": pipeline.identity},
    }
    told = {name: value for name, value in vars(runtime).items() if name not in _RESTARTS_NOBODY}
    hashed = {"document": document, "runtime": told, "secrets": dict(sorted(secrets.items()))}
    digest = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
    return RunConfig(document=document, hash=digest[:HASH_LENGTH])


def _without(part: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in names}


def secret_digest(data: Mapping[str, str]) -> str:
    """A digest of some keys of a Secret (their base64 text, as the API has it), from which nothing can be read."""
    return hashlib.sha256(json.dumps(dict(sorted(data.items()))).encode()).hexdigest()


def secret_keys(pipeline: SinkPipeline, *, of_tasks: bool = False) -> dict[str, frozenset[str]]:
    """The keys of each Secret that the manifest refers to, by the Secret's name.

    Args:
        pipeline: the resource.
        of_tasks: only those that executors need: the database that a stage reads is none of their business.
    """
    keys: dict[str, set[str]] = {}
    connections = (pipeline.spec.reads.connection, *map(pipeline.connection, pipeline.spec.sinks))
    of_registries = map(_of_registry, _registries(pipeline))
    source = pipeline.spec.source.database
    databases: list[PostgresqlAuth | BinlogAuth] = [] if source is None or of_tasks else [source.auth]
    databases += [sink.postgresql.auth for sink in pipeline.spec.sinks if sink.postgresql is not None]
    of_databases = map(_of_database, databases)
    of_streams = (_of_stream(sink.nats) for sink in pipeline.spec.sinks)
    of_redis = (_of_redis(sink.redis) for sink in pipeline.spec.sinks)
    for name, key in chain(*map(_references, connections), *of_registries, *of_databases, *of_streams, *of_redis):
        keys.setdefault(name, set()).add(key)
    return {name: frozenset(found) for name, found in sorted(keys.items())}


def config_map_keys(pipeline: SinkPipeline) -> dict[str, frozenset[str]]:
    """Likewise, of each ConfigMap. Their content is not in the hash: a driver that runs keeps what it has read."""
    keys: dict[str, set[str]] = {}
    for ref in pipeline.config_maps():
        keys.setdefault(ref.name, set()).add(ref.key)
    return {name: frozenset(found) for name, found in sorted(keys.items())}


def _registries(pipeline: SinkPipeline) -> Iterator[RegistrySubject]:
    if pipeline.spec.decode.schema_registry is not None:
        yield pipeline.spec.decode.schema_registry
    for sink in pipeline.spec.sinks:
        yield from (each.schema_registry for _, each in sink.encodings())


def _references(connection: KafkaConnection) -> Iterator[tuple[str, str]]:
    auth = connection.auth
    if auth is None:
        return
    yield from _of_tls(auth.tls)
    tokens = None if auth.sasl is None else auth.sasl.oauthbearer
    for one in (
        None if auth.sasl is None else auth.sasl.password_secret_ref,
        None if tokens is None else tokens.client_secret_ref,
        None if tokens is None else tokens.ca_secret_ref,
    ):
        if one is not None:
            yield one.name, one.key


def _of_tls(tls: Tls | None) -> Iterator[tuple[str, str]]:
    if tls is not None and tls.ca_secret_ref is not None:
        yield tls.ca_secret_ref.name, tls.ca_secret_ref.key
    if tls is not None and tls.cert_secret_ref is not None:
        yield tls.cert_secret_ref.name, tls.cert_secret_ref.cert_key
        yield tls.cert_secret_ref.name, tls.cert_secret_ref.key_key


def _of_database(auth: PostgresqlAuth | BinlogAuth) -> Iterator[tuple[str, str]]:
    yield from _of_tls(auth.tls)
    if auth.password_secret_ref is not None:
        yield auth.password_secret_ref.name, auth.password_secret_ref.key


def _of_stream(sink: NatsSink | None) -> Iterator[tuple[str, str]]:
    auth = None if sink is None else sink.auth
    if auth is None:
        return
    yield from _of_tls(auth.tls)
    for ref in (auth.password_secret_ref, auth.token_secret_ref, auth.nkey_secret_ref, auth.creds_secret_ref):
        if ref is not None:
            yield ref.name, ref.key


def _of_redis(sink: RedisSink | None) -> Iterator[tuple[str, str]]:
    if sink is None:
        return
    if sink.auth is not None:
        yield from _of_tls(sink.auth.tls)
    asked = None if sink.sentinel is None else sink.sentinel.auth
    for auth in (sink.auth, asked):
        if auth is not None and auth.password_secret_ref is not None:
            yield auth.password_secret_ref.name, auth.password_secret_ref.key


def _of_registry(registry: RegistrySubject) -> Iterator[tuple[str, str]]:
    auth = registry.auth
    if auth is None:
        return
    yield from _of_tls(auth.tls)
    if auth.basic is not None:
        yield auth.basic.password_secret_ref.name, auth.basic.password_secret_ref.key
    if auth.bearer is not None:
        yield auth.bearer.token_secret_ref.name, auth.bearer.token_secret_ref.key
