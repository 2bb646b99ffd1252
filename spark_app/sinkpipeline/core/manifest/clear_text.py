"""Credentials that whoever reads the network would have: allowed, as networks differ, and told."""

from __future__ import annotations

from collections.abc import Iterator

from sinkpipeline.core.manifest.binlog_source import BinlogAuth
from sinkpipeline.core.manifest.kafka import Auth, SaslMechanism
from sinkpipeline.core.manifest.model import SinkPipeline
from sinkpipeline.core.manifest.postgresql import PostgresqlAuth
from sinkpipeline.core.manifest.registry import RegistrySubject
from sinkpipeline.core.manifest.sinks import Sink

_SENT = {SaslMechanism.PLAIN: "the password", SaslMechanism.OAUTHBEARER: "the token"}
"""With SCRAM no password is sent."""


def credentials_in_clear(pipeline: SinkPipeline) -> Iterator[str]:
    """What is sent without encryption, and what to write instead."""
    yield from _to_source(pipeline)
    for index, sink in enumerate(pipeline.spec.sinks):
        if sink.kafka is not None:
            yield from _to_brokers(f"spec.sinks[{index}].kafka.auth", sink.kafka.auth)
        yield from _to_servers(f"spec.sinks[{index}]", sink)
    if pipeline.spec.decode.schema_registry is not None:
        yield from _to_registry("spec.decode.schemaRegistry", pipeline.spec.decode.schema_registry)
    for index, sink in enumerate(pipeline.spec.sinks):
        for part, each in sink.encodings():
            yield from _to_registry(f"spec.sinks[{index}].kafka.encode.{part}.schemaRegistry", each.schema_registry)


def _to_source(pipeline: SinkPipeline) -> Iterator[str]:
    source = pipeline.spec.source
    if source.kafka is not None:
        yield from _to_brokers("spec.source.kafka.auth", source.kafka.auth)
    if source.database is not None:
        yield from _to_brokers(f"spec.source.{source.kind}.changes.auth", source.database.changes.auth)
        yield from _to_database(f"spec.source.{source.kind}.auth", source.database.auth)


def _to_database(path: str, auth: PostgresqlAuth | BinlogAuth) -> Iterator[str]:
    if auth.tls is None and auth.password_secret_ref is not None:
        yield f"{path}: a server that asks for the password itself gets it without encryption; add tls"


def _to_servers(at: str, sink: Sink) -> Iterator[str]:
    """Of a sink that is no topic."""
    if sink.nats is not None and sink.nats.auth is not None:
        what = sink.nats.auth.sends_in_clear
        if what is not None:
            yield f"{at}.nats.auth: {what} is sent without encryption; add tls"
    if sink.postgresql is not None:
        yield from _to_database(f"{at}.postgresql.auth", sink.postgresql.auth)
    if sink.redis is not None:
        if sink.redis.auth is not None and sink.redis.auth.sends_in_clear:
            yield f"{at}.redis.auth: the password is sent without encryption; add tls"
        if sink.redis.asks_in_clear:
            yield f"{at}.redis.sentinel.auth: the password is sent without encryption; add auth.tls"


def _to_registry(path: str, registry: RegistrySubject) -> Iterator[str]:
    if not registry.is_encrypted and registry.auth is not None:
        what = "the password" if registry.auth.basic is not None else "the token"
        yield f"{path}: {what} is sent without encryption; write https in url"


def _to_brokers(path: str, auth: Auth | None) -> Iterator[str]:
    if auth is not None and auth.tls is None and auth.sasl is not None and auth.sasl.mechanism in _SENT:
        yield f"{path}: {_SENT[auth.sasl.mechanism]} is sent without encryption; add tls, where the listener has it"
