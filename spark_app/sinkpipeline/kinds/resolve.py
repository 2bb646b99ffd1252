"""From the manifest to the settings of its sinks, of whatever kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.kafka import resolve as kafka
from sinkpipeline.kafka.connection import secret_file
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.nats import resolve as nats
from sinkpipeline.nats.settings import SinkSettings as NatsSettings
from sinkpipeline.postgresql import resolve as postgresql
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings
from sinkpipeline.redis_streams import resolve as redis_streams
from sinkpipeline.redis_streams.settings import SinkSettings as RedisSettings

CellSettings = NatsSettings | PostgresqlSettings | RedisSettings
"""Of a sink that keeps its progress beside its rows."""
SinkSettings = KafkaSettings | CellSettings

FILE_CLUSTER = "file"
"""The cluster that owns what is run from a manifest file."""


def resolve_sinks(pipeline: manifest.SinkPipeline, secrets_dir: Path | None) -> list[SinkSettings]:
    """The settings of every sink, for a run from a file.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    source = kafka.resolve_source(pipeline, secrets_dir)
    owner = Owner(cluster=FILE_CLUSTER, name=f"{pipeline.metadata.namespace}/{pipeline.metadata.name}")
    return [
        _resolved(pipeline, sink, f"sinks[{index}]", owner, source, secrets_dir)
        for index, sink in enumerate(pipeline.spec.sinks)
    ]


def _resolved(
    pipeline: manifest.SinkPipeline,
    sink: manifest.Sink,
    at: str,
    owner: Owner,
    source: SourceSettings,
    secrets_dir: Path | None,
) -> SinkSettings:
    if sink.kafka is not None:
        return kafka.resolve_sink(pipeline, sink, sink.kafka, at, owner=owner, source=source, secrets_dir=secrets_dir)
    id_, group_id = SinkId(pipeline.identity, sink.name), f"{source.group_id_prefix}.{sink.name}"
    wanted = kafka.resolve_dead_letter(sink.dead_letter)
    letters = None if wanted is None else KafkaLetters(sink=id_, source=source, group_id=group_id, wanted=wanted)
    if sink.nats is not None:
        auth = sink.nats.auth
        return nats.resolve_sink(
            sink,
            sink.nats,
            id=id_,
            owner=owner,
            source=source,
            group_id=group_id,
            tls=None if auth is None else kafka.resolve_tls(auth.tls, secrets_dir),
            secret_file=lambda ref: secret_file(secrets_dir, ref.name, ref.key),
            dead_letter=letters,
        )
    if sink.redis is not None:
        of = sink.redis.auth
        return redis_streams.resolve_sink(
            sink,
            sink.redis,
            id=id_,
            owner=owner,
            source=source,
            group_id=group_id,
            tls=None if of is None else kafka.resolve_tls(of.tls, secrets_dir),
            secret_file=lambda ref: secret_file(secrets_dir, ref.name, ref.key),
            dead_letter=letters,
        )
    if sink.postgresql is None:
        raise ValueError("the manifest's types let no sink through that is of no kind")
    return postgresql.resolve_sink(
        sink,
        sink.postgresql,
        id=id_,
        owner=owner,
        source=source,
        group_id=group_id,
        tls=kafka.resolve_tls(sink.postgresql.auth.tls, secrets_dir),
        secret_file=lambda ref: secret_file(secrets_dir, ref.name, ref.key),
        dead_letter=letters,
        follows=pipeline.spec.decode.format is manifest.DecodeFormat.DEBEZIUM,
    )


def ordered_by(settings: SinkSettings, kind: str | None) -> SinkSettings:
    """With what `orderBy` is by Spark's analysis: a number or a time; None where the sink has none."""
    if kind is None or not isinstance(settings, PostgresqlSettings) or settings.table.upsert is None:
        return settings
    upsert = replace(settings.table.upsert, order_kind=kind)
    return replace(settings, table=replace(settings.table, upsert=upsert))


def letters_of(settings: CellSettings) -> KafkaLetters | None:
    """Where dead letters of a sink go that is no topic."""
    found = settings.dead_letter
    if found is not None and not isinstance(found, KafkaLetters):
        raise TypeError(f"dead letters that are in no topic: {type(found).__name__}")
    return found
