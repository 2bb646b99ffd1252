"""Where records go: `spec.sinks`.

Refused here: what one sink can't be. What sinks and source can't be to each other stands in `routing`.
"""

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from sinkpipeline.core.manifest.base import Part, StringMap
from sinkpipeline.core.manifest.kafka import Auth, BootstrapServers
from sinkpipeline.core.manifest.names import SinkName, TopicName
from sinkpipeline.core.manifest.problems import Fault, fault_error
from sinkpipeline.core.manifest.properties import sink_properties

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


class Partitioner(str, enum.Enum):
    MURMUR2 = "murmur2"
    """As the Java clients do, so that a key keeps its partition whoever writes it."""


def _topic_config(config: StringMap) -> StringMap:
    right = "use the name of a Kafka topic option, such as retention.ms"
    faults = [
        Fault(right, "is not the name of a topic option", (key,))
        for key in config
        if not re.fullmatch(r"[a-z][a-z0-9]*(\.[a-z0-9]+)+", key)
    ]
    if faults:
        raise fault_error(faults)
    return config


PartitionCount = Annotated[int, Field(ge=1, le=MAX_PARTITIONS)]
ReplicationFactor = Annotated[int, Field(ge=1, le=MAX_REPLICATION_FACTOR)]


class DataTopic(Part):
    """The topic that rows are written to, and how it is created; None leaves it to the broker."""

    name: TopicName
    partitions: PartitionCount | None = None
    replication_factor: ReplicationFactor | None = None
    config: Annotated[StringMap, AfterValidator(_topic_config)] = StringMap()


class ProgressTopic(Part):
    """The topic that progress is written to; several sinks may share it. It has always 1 partition."""

    name: TopicName = DEFAULT_PROGRESS_TOPIC
    replication_factor: ReplicationFactor | None = None


class KafkaSink(Part):
    """A topic of a Kafka cluster: the source's cluster unless `bootstrap_servers` says otherwise."""

    bootstrap_servers: BootstrapServers | None = None
    """`SinkPipeline.connection` gives the effective ones, and the effective `auth`."""
    auth: Auth | None = None
    topic: DataTopic
    progress_topic: ProgressTopic = ProgressTopic()
    partitioner: Partitioner = Partitioner.MURMUR2
    properties: Annotated[StringMap, AfterValidator(sink_properties)] = StringMap()


class Sink(Part):
    """Exactly one kind of sink; Kafka is the one that is served."""

    name: SinkName
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    on_existing_data: OnExistingData = OnExistingData.APPEND
    kafka: KafkaSink


def distinct_names(sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
    """Refuses two sinks of one name: they would own the same progress."""
    names = [sink.name for sink in sinks]
    faults = [
        Fault("give each sink its own name", f'repeats "{name}"', (index, "name"))
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if faults:
        raise fault_error(faults)
    return sinks
