"""Where records go: `spec.sinks`.

Refused here: what one sink can't be. What sinks and source can't be to each other stands in `routing`.
"""

import enum
import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Bounds, Part, StringMap
from sinkpipeline.core.manifest.decode import SinkSelect, SinkTransform
from sinkpipeline.core.manifest.encode import Encode, EncodedPart, Encoding
from sinkpipeline.core.manifest.kafka import Auth, BootstrapServers
from sinkpipeline.core.manifest.names import SinkName, TopicName
from sinkpipeline.core.manifest.nats import NatsSink
from sinkpipeline.core.manifest.postgresql import PostgresqlSink
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse, refuse_repeated
from sinkpipeline.core.manifest.properties import SINK, sink_properties
from sinkpipeline.core.manifest.redis import RedisSink

MAX_SINKS = 32
MAX_PARTITIONS = 10_000
MAX_REPLICATION_FACTOR = 32_767
"""Kafka's protocol has a 16-bit integer there."""

DEFAULT_PROGRESS_TOPIC = "_sinkpipeline-progress"


class DeliveryGuarantee(str, enum.Enum):
    EXACTLY_ONCE = "ExactlyOnce"
    AT_LEAST_ONCE = "AtLeastOnce"


class OnExistingData(str, enum.Enum):
    """Whether a first start may append to a data topic that holds data."""

    APPEND = "Append"
    REFUSE = "Refuse"


class OnRollback(str, enum.Enum):
    """What a sink means that has lost its newest rows together with their progress."""

    REDELIVER = "Redeliver"
    STOP = "Stop"


class Partitioner(str, enum.Enum):
    MURMUR2 = "murmur2"
    """As the Java clients do, so that a key keeps its partition whoever writes it."""


TOPIC_OPTION = r"[a-z][a-z0-9]*(\.[a-z0-9]+)+"


def _topic_config(config: StringMap) -> StringMap:
    right = "use the name of a Kafka topic option, such as retention.ms"
    faults = [
        Fault(right, "is not the name of a topic option", (key,))
        for key in config
        if not re.fullmatch(TOPIC_OPTION, key)
    ]
    if faults:
        raise fault_error(faults)
    return config


PartitionCount = Annotated[int, Field(ge=1, le=MAX_PARTITIONS)]
ReplicationFactor = Annotated[int, Field(ge=1, le=MAX_REPLICATION_FACTOR)]


class DataTopic(Part):
    """The topic that rows are written to, and how it is created; None leaves it to the broker."""

    name: TopicName
    """The topic; it never changes: another topic is another sink."""
    partitions: PartitionCount | None = None
    """How many partitions it is created with; left out, the broker's default."""
    replication_factor: ReplicationFactor | None = None
    """How many replicas it is created with; left out, the broker's default."""
    config: Annotated[StringMap, Bounds(100, 4096), AfterValidator(_topic_config)] = StringMap()
    """Topic options that it is created with, such as retention.ms; a topic that differs is reported, not altered."""


MAX_TOPICS = 32


def _distinct_topics(topics: tuple[DataTopic, ...]) -> tuple[DataTopic, ...]:
    refuse_repeated([each.name for each in topics], "name each topic once")
    return topics


class DeadLetterTopic(DataTopic):
    """The topic that dead letters are written to, and how it is created; None leaves it to the broker."""

    name: TopicName
    """The topic; several sinks and pipelines may share it."""


class OnFailure(str, enum.Enum):
    """What a record means to its sink that can't even be written as a dead letter."""

    STOP = "Stop"
    DROP_AND_CONTINUE = "DropAndContinue"


class DeadLetter(Part):
    """Where records go that can't be delivered, each with headers that say why."""

    topic: DeadLetterTopic
    """The topic that dead letters are written to, on the sink's cluster (of a sink that is no topic: the source's);
    neither the sink's data topic, nor a progress topic, nor a source topic."""
    on_failure: OnFailure = OnFailure.STOP
    """What happens if a dead letter can't be written. Stop stops the sink, and nothing is lost. DropAndContinue drops
    the record for good, and counts it."""
    auto_create: bool = True
    """Whether a missing topic is created when the sink starts. With false, onFailure decides about records that can't
    be delivered while the topic is missing."""


class ProgressTopic(Part):
    """The topic that progress is written to; several sinks may share it. It has always 1 partition."""

    name: TopicName = DEFAULT_PROGRESS_TOPIC
    """The topic; it never changes."""
    replication_factor: ReplicationFactor | None = None
    """How many replicas it is created with; left out, the broker's default."""


class KafkaSink(Part):
    """A topic of a Kafka cluster: the source's cluster unless `bootstrap_servers` says otherwise."""

    # `SinkPipeline.connection` gives the effective bootstrap servers and the effective auth.
    bootstrap_servers: BootstrapServers | None = None
    """host:port of the sink's brokers, separated by commas: all, or at least two. Left out, the source's cluster, and
    the source's auth unless `auth` is given here."""
    auth: Auth | None = None
    """How to authenticate; never the source's where bootstrapServers is given here."""
    topic: DataTopic | None = None
    """The topic that rows are written to. Exactly one of topic and topics is given."""
    topics: (
        Annotated[tuple[DataTopic, ...], Field(min_length=1, max_length=MAX_TOPICS), AfterValidator(_distinct_topics)]
        | None
    ) = None
    """The topics that rows are written to: transform.select.topic says for each row which one. A topic can be added
    later; to remove one, reset the sink."""
    progress_topic: ProgressTopic = ProgressTopic()
    """The compacted topic with 1 partition that holds the sink's progress; several sinks may share it."""
    partitioner: Partitioner = Partitioner.MURMUR2
    """murmur2 of the key, as the Java clients do."""
    encode: Encode | None = None
    """How a STRUCT that select gives is written with a schema of a registry. Left out, rows are STRING or BINARY."""
    properties: Annotated[StringMap, Bounds(len(SINK), 249), AfterValidator(sink_properties)] = StringMap()
    """Allow-listed properties of the Kafka producer (librdkafka), such as compression.type or linger.ms; values in
    quotes. Credentials stand in Secrets, under auth."""

    @property
    def data_topics(self) -> tuple[DataTopic, ...]:
        """All that rows are written to."""
        return self.topics or (() if self.topic is None else (self.topic,))

    @model_validator(mode="after")
    def _has_topics(self) -> Self:
        if (self.topic is None) == (self.topics is None):
            wrong = "is missing" if self.topic is None else "stands beside topics"
            refuse("give exactly one of topic and topics", wrong, ("topic",))
        for part, each in () if self.topics is None or self.encode is None else self.encode.parts():
            if each.schema_registry.subject is None and each.schema_registry.strategy.of_topic:
                right = "give it, or subjectNameStrategy: RecordName"
                at = ("encode", part, "schemaRegistry", "subject")
                refuse(right, "is missing, and the sink has no topic that it could follow from", at)
        return self


KINDS = ("kafka", "nats", "postgresql", "redis")


class Sink(Part):
    """Exactly one kind of sink: kafka, nats, postgresql or redis."""

    name: SinkName
    """The name under which the sink's progress is kept. A renamed sink is a new sink without progress: it reads the
    source from startingOffsets, so records may be delivered again."""
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    """ExactlyOnce: rows and progress are written in one transaction. AtLeastOnce: rows are written before progress, so
    a crash may repeat some. A postgresql sink is always ExactlyOnce."""
    required: bool = True
    """Whether the condition Ready depends on this sink. With false, Ready stays True while the sink fails; its own
    state, phase and SinksHealthy show the failure. It changes nothing about what is delivered."""
    on_existing_data: OnExistingData = OnExistingData.APPEND
    """What a first start does if the topic, stream or table holds data. Append writes behind that data. Refuse does not
    start."""
    on_rollback: OnRollback | None = None
    """Only of nats and redis: what happens if the server has lost the newest rows together with their progress, as
    after a failover. Redeliver, the default, delivers them again, and says how many. Stop stops the sink until a person
    decides."""
    transform: SinkTransform | None = None
    """What happens to each record for this sink alone. Left out, it is spec.transform."""
    kafka: KafkaSink | None = None
    """A topic of a Kafka cluster."""
    nats: NatsSink | None = None
    """A stream of NATS JetStream."""
    postgresql: PostgresqlSink | None = None
    """A table of a PostgreSQL database."""
    redis: RedisSink | None = None
    """A stream of Redis or Valkey."""
    dead_letter: DeadLetter | None = None
    """The topic for records that can't be delivered. Left out, such a record stops the sink."""

    @property
    def kind(self) -> str:
        """As its field is called."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    def encodings(self) -> Iterator[tuple[EncodedPart, Encoding]]:
        """What of a row is encoded, and how; nothing of a sink that is no topic."""
        if self.kafka is not None and self.kafka.encode is not None:
            yield from self.kafka.encode.parts()

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        faults = list(_faults(self))
        if faults:
            raise fault_error(faults)
        return self


def _faults(sink: Sink) -> Iterator[Fault]:
    given = [name for name in KINDS if getattr(sink, name) is not None]
    if len(given) != 1:
        wrong = f"stands beside {given[-1]}" if given else "is missing"
        yield Fault(f"give exactly one of {', '.join(KINDS[:-1])} and {KINDS[-1]}", wrong, tuple(given or KINDS)[:1])
        return
    [kind] = given
    select = None if sink.transform is None else sink.transform.select
    if kind == "postgresql" and sink.delivery_guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
        right = "remove it: rows and progress are in one transaction"
        yield Fault(right, f"is AtLeastOnce, which a {kind} sink never is", ("deliveryGuarantee",))
    yield from _without_meaning(sink, kind)
    if sink.kafka is not None and (select is None or select.topic is None) != (sink.kafka.topics is None):
        yield (
            Fault("give kafka.topics in place of kafka.topic", "has a meaning for topics only", (*_SELECT, "topic"))
            if sink.kafka.topics is None
            else Fault(
                "give an expression that has the name of one of kafka.topics",
                "is missing, and kafka.topics needs it",
                (*_SELECT, "topic"),
            )
        )
    if sink.postgresql is not None:
        known = sink.postgresql.table.columns
        for name in () if select is None else select.columns or ():
            if name not in known:
                yield Fault("add it to postgresql.table.columns", "is none of the table", (*_SELECT, "columns", name))
    if sink.nats is not None and sink.nats.subject is None and (select is None or select.subject is None):
        yield Fault("give nats.subject, or transform.select.subject", "is missing", ("nats", "subject"))


def _without_meaning(sink: Sink, kind: str) -> Iterator[Fault]:
    if sink.on_rollback is not None and kind not in ROLL_BACK:
        right = "remove it: only nats and redis tell that rows and progress went back together"
        yield Fault(right, f"has no meaning for a {kind} sink", ("onRollback",))
    select = None if sink.transform is None else sink.transform.select
    for name in SinkSelect.model_fields if select is not None else ():
        if getattr(select, name) is not None and name not in SELECTED[kind]:
            yield Fault(f"use {listed(SELECTED[kind])}", f"has no meaning for a {kind} sink", (*_SELECT, name))


ROLL_BACK = ("nats", "redis")
"""The kinds whose stores count by themselves what they were given."""
_SELECT = ("transform", "select")
SELECTED = {
    "kafka": ("key", "value", "headers", "timestamp", "partition", "topic"),
    "nats": ("value", "headers", "subject"),
    "postgresql": ("columns",),
    "redis": ("key", "value", "headers"),
}
"""What of `select` has a meaning for a kind."""


def listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def distinct_names(sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
    """Refuses two sinks of one name: they would own the same progress."""
    refuse_repeated([sink.name for sink in sinks], "give each sink its own name")
    return sinks


def some_required(sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
    """Refuses a pipeline that would be ready whatever its sinks do."""
    if sinks and not any(sink.required for sink in sinks):
        right = "leave required out of at least one sink, or set it to true"
        raise fault_error([Fault(right, "is false, as it is for every sink", (0, "required"))])
    return sinks
