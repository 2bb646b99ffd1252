"""From the manifest to the settings of its sinks, of whatever kinds."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from sinkpipeline.cells.given import Given
from sinkpipeline.changes.settings import (
    AnyDatabase,
    BinlogConnection,
    BinlogSettings,
    DatabaseSettings,
    Publication,
    Slot,
    StageSettings,
)
from sinkpipeline.core import manifest
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.rowplan import LACKING
from sinkpipeline.kafka import resolve as kafka
from sinkpipeline.kafka.connection import secret_file
from sinkpipeline.kafka.letters import KafkaLetters
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.nats import resolve as nats
from sinkpipeline.nats.settings import SinkSettings as NatsSettings
from sinkpipeline.postgresql import resolve as postgresql
from sinkpipeline.postgresql.settings import Connection as DatabaseConnection
from sinkpipeline.postgresql.settings import SinkSettings as PostgresqlSettings
from sinkpipeline.redis_streams import resolve as redis_streams
from sinkpipeline.redis_streams.settings import SinkSettings as RedisSettings

CellSettings = NatsSettings | PostgresqlSettings | RedisSettings
"""Of a sink that keeps its progress beside its rows."""
SinkSettings = KafkaSettings | CellSettings

FILE_CLUSTER = "file"
"""The cluster that owns what is run from a manifest file."""


def file_owner(pipeline: manifest.SinkPipeline) -> Owner:
    """Whose progress it is, of a run from a file."""
    return Owner(cluster=FILE_CLUSTER, name=f"{pipeline.metadata.namespace}/{pipeline.metadata.name}")


def resolve_sinks(pipeline: manifest.SinkPipeline, secrets_dir: Path | None) -> list[SinkSettings]:
    """The settings of every sink, for a run from a file.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    source = kafka.resolve_source(pipeline, secrets_dir)
    return [
        _resolved(pipeline, sink, f"sinks[{index}]", file_owner(pipeline), source, secrets_dir)
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
    of = sink.nats or sink.postgresql or sink.redis
    if of is None:
        raise ValueError("the manifest's types let no sink through that is of no kind")
    id_, group_id = SinkId(pipeline.identity, sink.name), f"{source.group_id_prefix}.{sink.name}"
    wanted = kafka.resolve_dead_letter(sink.dead_letter)
    given = Given(
        id=id_,
        owner=owner,
        source=source,
        group_id=group_id,
        refuse_existing_data=sink.on_existing_data is manifest.OnExistingData.REFUSE,
        exactly_once=sink.delivery_guarantee is manifest.DeliveryGuarantee.EXACTLY_ONCE,
        stops_rolled_back=sink.on_rollback is manifest.OnRollback.STOP,
        dead_letter=None if wanted is None else KafkaLetters(sink=id_, source=source, group_id=group_id, wanted=wanted),
        tls=None if of.auth is None else kafka.resolve_tls(of.auth.tls, secrets_dir),
        secret_file=lambda ref: secret_file(secrets_dir, ref.name, ref.key),
    )
    if isinstance(of, manifest.NatsSink):
        return nats.resolve_sink(of, given)
    if isinstance(of, manifest.RedisSink):
        return redis_streams.resolve_sink(of, given)
    follows = pipeline.spec.decode.format.value in LACKING
    return postgresql.resolve_sink(of, given, follows=follows)


def resolve_stage(pipeline: manifest.SinkPipeline, secrets_dir: Path | None, owner: Owner) -> StageSettings | None:
    """What reads the changes of a database; None where records come from Kafka.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid, UsageInvalid.
    """
    source = pipeline.spec.source
    if source.database is None:
        return None
    changes = source.database.changes
    if isinstance(source.database, manifest.BinlogSource):
        database: AnyDatabase = _binlog(source.database, source.kind, pipeline.identity, secrets_dir)
    else:
        database = _postgresql(source.database, pipeline.identity, secrets_dir)
    return StageSettings(
        # No sink can have this name.
        id=SinkId(pipeline.identity, f"source.{source.kind}"),
        owner=owner,
        run=str(uuid.uuid4()),
        takes_over=True,
        kafka=kafka.resolve_connection(pipeline.spec.reads.connection, secrets_dir),
        topic=kafka.resolve_topic(changes.topic),
        progress=progress_request(changes.progress_topic.name, changes.progress_topic.replication_factor),
        dead_letter=kafka.resolve_dead_letter(changes.dead_letter),
        refuse_existing_data=changes.on_existing_data is not manifest.OnExistingData.APPEND,
        database=database,
    )


def _postgresql(of: manifest.PostgresqlSource, identity: str, secrets_dir: Path | None) -> DatabaseSettings:
    return DatabaseSettings(
        connection=DatabaseConnection(
            servers=of.servers,
            database=of.database,
            user=of.auth.username,
            password_file=_password(of.auth.password_secret_ref, secrets_dir),
            tls=kafka.resolve_tls(of.auth.tls, secrets_dir),
        ),
        publication=Publication(
            name=of.publication.name, create=of.publication.create, tables=of.publication.tables or ()
        ),
        slot=Slot(name=of.slot_name(identity), create=of.slot.create, failover=of.slot.failover),
        snapshot=of.starting_position is manifest.StartingPosition.SNAPSHOT,
        incremental=of.starting_position is manifest.StartingPosition.INCREMENTAL_SNAPSHOT,
        start_from=None if of.start_from is None else of.start_from.checkpoint,
        whole_transactions=of.transactions is manifest.Transactions.WHOLE,
        idle_advance_s=of.limits.idle_advance.seconds,
        max_retained=of.limits.max_retained_bytes,
        require_full=of.replica_identity is manifest.ReplicaIdentity.REQUIRE_FULL,
    )


def _binlog(of: manifest.BinlogSource, kind: str, identity: str, secrets_dir: Path | None) -> BinlogSettings:
    return BinlogSettings(
        name="mysql" if kind == "mysql" else "mariadb",
        connection=BinlogConnection(
            server=of.server,
            user=of.auth.username,
            password_file=_password(of.auth.password_secret_ref, secrets_dir),
            tls=kafka.resolve_tls(of.auth.tls, secrets_dir),
        ),
        tables=of.tables,
        server_id=of.number(identity),
        snapshot=of.starting_position is manifest.StartingPosition.SNAPSHOT,
        incremental=of.starting_position is manifest.StartingPosition.INCREMENTAL_SNAPSHOT,
        start_from=None if of.start_from is None else of.start_from.checkpoint,
        whole_transactions=of.transactions is manifest.Transactions.WHOLE,
        idle_advance_s=of.limits.idle_advance.seconds,
    )


def _password(ref: manifest.SecretRef | None, secrets_dir: Path | None) -> str | None:
    return None if ref is None else secret_file(secrets_dir, ref.name, ref.key)


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
