"""From the manifest to what the protocol works with: connections with their Secrets, defaults, names."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.topics import TopicRequest, progress_request
from sinkpipeline.kafka.connection import (
    Connection,
    Oauthbearer,
    Sasl,
    Tls,
    check_authority,
    check_tls,
    password_file,
    secret_file,
)
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings

FILE_CLUSTER = "file"
"""The cluster that owns what is run from a manifest file."""


def resolve_connection(connection: manifest.KafkaConnection, secrets_dir: Path | None) -> Connection:
    """Finds the Secrets of a connection as files, `secrets_dir/<secret>/<key>`.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    auth = connection.auth
    tls = None
    if auth is not None and auth.tls is not None:
        ca, certificate = auth.tls.ca_secret_ref, auth.tls.cert_secret_ref
        tls = check_tls(
            Tls(
                ca_file=None if ca is None else secret_file(secrets_dir, ca.name, ca.key),
                certificate_file=None
                if certificate is None
                else secret_file(secrets_dir, certificate.name, certificate.cert_key),
                key_file=None
                if certificate is None
                else secret_file(secrets_dir, certificate.name, certificate.key_key),
            )
        )
    sasl = None if auth is None or auth.sasl is None else _log_in(auth.sasl, secrets_dir)
    return Connection(bootstrap_servers=connection.bootstrap_servers, tls=tls, sasl=sasl)


def _log_in(sasl: manifest.Sasl, secrets_dir: Path | None) -> Sasl | Oauthbearer:
    if sasl.oauthbearer is not None:
        tokens = sasl.oauthbearer
        secret, ca = tokens.client_secret_ref, tokens.ca_secret_ref
        return Oauthbearer(
            token_endpoint_url=tokens.token_endpoint_url,
            client_id=tokens.client_id,
            client_secret_file=password_file(secrets_dir, secret.name, secret.key),
            scope=tokens.scope,
            extensions=tuple(tokens.extensions.items()),
            ca_file=None if ca is None else check_authority(secret_file(secrets_dir, ca.name, ca.key)),
        )
    if sasl.username is None or sasl.password_secret_ref is None:
        raise ValueError("the manifest's types let no log-in through that lacks its user")
    password = sasl.password_secret_ref
    return Sasl(
        mechanism=sasl.mechanism.value,
        username=sasl.username,
        password_file=password_file(secrets_dir, password.name, password.key),
    )


def resolve_source(pipeline: manifest.SinkPipeline, secrets_dir: Path | None) -> SourceSettings:
    source = pipeline.spec.source.kafka
    return SourceSettings(
        connection=resolve_connection(source.connection, secrets_dir),
        topics=source.topics or (),
        pattern=source.topic_pattern,
        starting_offsets=source.starting_offsets,
        start_from=source.start_from,
        skip_lost=source.on_data_loss is manifest.OnDataLoss.SKIP,
        read_committed=source.isolation_level is manifest.IsolationLevel.READ_COMMITTED,
        group_id_prefix=pipeline.group_id_prefix,
        commit_group_offsets=source.commit_group_offsets is True,
        properties=MappingProxyType(dict(source.properties)),
    )


def resolve_sinks(pipeline: manifest.SinkPipeline, secrets_dir: Path | None) -> list[SinkSettings]:
    """The settings of every sink, for a run from a file.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    source = resolve_source(pipeline, secrets_dir)
    owner = Owner(cluster=FILE_CLUSTER, name=f"{pipeline.metadata.namespace}/{pipeline.metadata.name}")
    return [
        SinkSettings(
            id=SinkId(pipeline.identity, sink.name),
            owner=owner,
            source=source,
            connection=resolve_connection(pipeline.connection(sink), secrets_dir),
            data=_request(sink.kafka.topic),
            progress=progress_request(sink.kafka.progress_topic.name, sink.kafka.progress_topic.replication_factor),
            dead_letter=_dead_letter(sink.dead_letter),
            exactly_once=sink.delivery_guarantee is manifest.DeliveryGuarantee.EXACTLY_ONCE,
            refuse_existing_data=sink.on_existing_data is manifest.OnExistingData.REFUSE,
            properties=MappingProxyType(dict(sink.kafka.properties)),
        )
        for sink in pipeline.spec.sinks
    ]


def _request(topic: manifest.DataTopic) -> TopicRequest:
    return TopicRequest(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config=MappingProxyType(dict(topic.config)),
    )


def _dead_letter(dead_letter: manifest.DeadLetter | None) -> DeadLetterSettings | None:
    if dead_letter is None:
        return None
    return DeadLetterSettings(
        topic=_request(dead_letter.topic),
        auto_create=dead_letter.auto_create,
        drop=dead_letter.on_failure is manifest.OnFailure.DROP_AND_CONTINUE,
    )
