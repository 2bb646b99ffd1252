"""From the manifest to what the protocol works with: connections with their Secrets, defaults, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import (
    Connection,
    MskIam,
    Oauthbearer,
    Sasl,
    SaslLogIn,
    check_authority,
    check_tls,
    password_file,
    read_password,
    read_token,
    secret_file,
)
from sinkpipeline.kafka.settings import (
    DeadLetterSettings,
    EncodingSettings,
    RegistrySettings,
    SinkSettings,
    SourceSettings,
)

_FORMATS: Mapping[manifest.DecodeFormat, Literal["avro", "json", "protobuf", "debezium"]] = {
    manifest.DecodeFormat.AVRO: "avro",
    manifest.DecodeFormat.JSON: "json",
    manifest.DecodeFormat.PROTOBUF: "protobuf",
    manifest.DecodeFormat.DEBEZIUM: "debezium",
}
"""Those that ask for schemas."""


def resolve_connection(connection: manifest.KafkaConnection, secrets_dir: Path | None) -> Connection:
    """Finds the Secrets of a connection as files, `secrets_dir/<secret>/<key>`.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    auth = connection.auth
    tls = None if auth is None else resolve_tls(auth.tls, secrets_dir)
    sasl = None if auth is None or auth.sasl is None else _log_in(auth.sasl, secrets_dir)
    return Connection(bootstrap_servers=connection.bootstrap_servers, tls=tls, sasl=sasl)


def _log_in(sasl: manifest.Sasl, secrets_dir: Path | None) -> SaslLogIn:
    if sasl.aws_msk_iam is not None:
        return MskIam(region=sasl.aws_msk_iam.region)
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


def resolve_tls(tls: manifest.Tls | None, secrets_dir: Path | None) -> Tls | None:
    """Finds its files, and refuses those that no client can use.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    if tls is None:
        return None
    ca, certificate = tls.ca_secret_ref, tls.cert_secret_ref
    return check_tls(
        Tls(
            ca_file=None if ca is None else secret_file(secrets_dir, ca.name, ca.key),
            certificate_file=None
            if certificate is None
            else secret_file(secrets_dir, certificate.name, certificate.cert_key),
            key_file=None if certificate is None else secret_file(secrets_dir, certificate.name, certificate.key_key),
        )
    )


def resolve_registry(pipeline: manifest.SinkPipeline, secrets_dir: Path | None) -> RegistrySettings | None:
    """The registry that is asked for schemas; None where none is: values have no frame, or only that is looked at.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    decode, topics = pipeline.spec.decode, pipeline.spec.reads.topics
    registry = decode.schema_registry
    if registry is None or not decode.asks_registry:
        return None
    return replace(
        _registry(registry, secrets_dir, "decode.schemaRegistry"),
        subject=registry.subject_of(topics[0] if topics else None, "value"),
        version=registry.reader_version,
        reader=None if registry.reader is None else registry.reader.schema_text,
        id_bytes=registry.id_format.size,
        decode_format=_FORMATS[decode.format],
        message=decode.message,
    )


def _registry(registry: manifest.RegistrySubject, secrets_dir: Path | None, path: str) -> RegistrySettings:
    """Where it is, and who we are there."""
    auth = registry.auth or manifest.RegistryAuth.model_construct()
    password = None if auth.basic is None else auth.basic.password_secret_ref
    token = None if auth.bearer is None else auth.bearer.token_secret_ref
    return RegistrySettings(
        url=registry.url,
        tls=resolve_tls(auth.tls, secrets_dir),
        username=None if auth.basic is None else auth.basic.username,
        password_file=None if password is None else _checked(secrets_dir, password, read_password),
        token_file=None if token is None else _checked(secrets_dir, token, read_token),
        path=path,
    )


def resolve_encodings(kafka: manifest.KafkaSink, at: str, secrets_dir: Path | None) -> tuple[EncodingSettings, ...]:
    """Of the sink that stands `at` this path.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    parts = () if kafka.encode is None else kafka.encode.parts()
    return tuple(
        EncodingSettings(
            part=part,
            registry=replace(
                _registry(each.schema_registry, secrets_dir, f"{at}.kafka.encode.{part}.schemaRegistry"),
                # Of several topics no subject follows, and the manifest gives it.
                subject=each.schema_registry.subject_of(None if kafka.topic is None else kafka.topic.name, part),
            ),
            auto_register=each.schema_registry.auto_register,
        )
        for part, each in parts
    )


def _checked(secrets_dir: Path | None, ref: manifest.SecretRef, read: Callable[[Path], str]) -> str:
    path = secret_file(secrets_dir, ref.name, ref.key)
    read(Path(path))
    return path


def resolve_source(pipeline: manifest.SinkPipeline, secrets_dir: Path | None) -> SourceSettings:
    source = pipeline.spec.reads
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
        registry=resolve_registry(pipeline, secrets_dir),
    )


def resolve_sink(
    pipeline: manifest.SinkPipeline,
    sink: manifest.Sink,
    of: manifest.KafkaSink,
    at: str,
    *,
    owner: Owner,
    source: SourceSettings,
    secrets_dir: Path | None,
) -> SinkSettings:
    """The settings of one sink; `of`: what of it is Kafka's; `at`: its path in the manifest.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    return SinkSettings(
        id=SinkId(pipeline.identity, sink.name),
        owner=owner,
        source=source,
        connection=resolve_connection(pipeline.connection(sink), secrets_dir),
        data=_data(of),
        progress=progress_request(of.progress_topic.name, of.progress_topic.replication_factor),
        dead_letter=resolve_dead_letter(sink.dead_letter),
        exactly_once=sink.delivery_guarantee is manifest.DeliveryGuarantee.EXACTLY_ONCE,
        refuse_existing_data=sink.on_existing_data is manifest.OnExistingData.REFUSE,
        properties=MappingProxyType(dict(of.properties)),
        encodings=resolve_encodings(of, at, secrets_dir),
    )


def _data(kafka: manifest.KafkaSink) -> TopicRequest:
    if kafka.topic is not None:
        return resolve_topic(kafka.topic)
    parts = tuple(resolve_topic(each) for each in kafka.data_topics)
    return TopicRequest(name=", ".join(each.name for each in parts), parts=parts)


def resolve_topic(topic: manifest.DataTopic) -> TopicRequest:
    return TopicRequest(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config=MappingProxyType(dict(topic.config)),
    )


def resolve_dead_letter(dead_letter: manifest.DeadLetter | None) -> DeadLetterSettings | None:
    if dead_letter is None:
        return None
    return DeadLetterSettings(
        topic=resolve_topic(dead_letter.topic),
        auto_create=dead_letter.auto_create,
        drop=dead_letter.on_failure is manifest.OnFailure.DROP_AND_CONTINUE,
    )
