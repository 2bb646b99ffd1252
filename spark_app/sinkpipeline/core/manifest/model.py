"""The resource as a whole: `SinkPipeline`, immutable, with every default applied.

Parse, don't check: who holds a `SinkPipeline` holds one that keeps every rule of this package. What the world says
about it (does the topic exist, does the expression mean something) is asked elsewhere.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part, StringMap
from sinkpipeline.core.manifest.decode import Decode, DecodeFormat, Transform
from sinkpipeline.core.manifest.kafka import KafkaConnection
from sinkpipeline.core.manifest.lookup import ConfigMapRef, config_maps_of
from sinkpipeline.core.manifest.names import Identity, NamespaceName, ResourceName
from sinkpipeline.core.manifest.operation import DeletionPolicy, FailurePolicy, Spark, Trigger
from sinkpipeline.core.manifest.problems import Fault, fault_error
from sinkpipeline.core.manifest.reading import reading_faults, topics_read
from sinkpipeline.core.manifest.routing import connection_of, routing_faults
from sinkpipeline.core.manifest.sinks import MAX_SINKS, Sink, distinct_names, some_required
from sinkpipeline.core.manifest.source import KafkaSource, Source

API_VERSION = "sinkpipeline.io/v1alpha1"
KIND = "SinkPipeline"


class OwnerReference(Part):
    """Kubernetes' own."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Part):
    """Kubernetes' own ObjectMeta, without `managedFields`, which is the API server's bookkeeping."""

    name: ResourceName
    namespace: NamespaceName = "default"
    labels: StringMap = StringMap()
    annotations: StringMap = StringMap()
    generation: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    generate_name: str | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Spec(Part):
    """Where records come from, what happens to them, which sinks they go to."""

    # `SinkPipeline.identity` is the effective one.
    identity: Identity | None = None
    """The name under which progress is kept; it never changes. Default <namespace>.<name>."""
    source: Source
    """Where records come from: exactly one kind."""
    decode: Decode = Decode(format=DecodeFormat.RAW)
    """How the value of a record is decoded."""
    transform: Transform = Transform()
    """What happens to each record, for sinks without a transform of their own: row by row."""
    trigger: Trigger = Trigger()
    """When a micro-batch begins and how large it gets."""
    sinks: Annotated[
        tuple[Sink, ...],
        Field(max_length=MAX_SINKS),
        AfterValidator(distinct_names),
        AfterValidator(some_required),
    ]
    """Where records go. Each sink has its own progress; no sink waits for another. Of a database there may be none: the
    change topic is all that is delivered then, without Spark."""
    failure_policy: FailurePolicy = FailurePolicy()
    """How often failures of each sink's batches, and deaths of the driver, are tried again."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """What happens when the resource is deleted. Retain deletes no topic, no stream, no table and no progress. Delete
    deletes the progress, and the data topics, streams and tables that this pipeline created, with all rows in them.
    Source, progress and dead-letter topics are never deleted."""
    suspend: bool = False
    """true stops the driver after its running batch; progress and topics stay."""
    restart_nonce: int | None = None
    """A change from one number to another restarts the driver and closes open circuits. Setting it for the first time
    or removing it restarts nothing. A run from a file ignores it."""
    spark: Spark = Spark()
    """What Spark gets."""

    @property
    def reads(self) -> KafkaSource:
        """The topics that sinks read: of a database, its change topic."""
        return topics_read(self.source, self.sinks)

    @model_validator(mode="after")
    def _routes(self) -> Self:
        if faults := [*_sinkless_faults(self), *reading_faults(self.source, self.sinks, self.decode)]:
            raise fault_error(faults)
        faults = [
            *routing_faults(self.reads, self.sinks),
            *_subject_faults(self.reads, self.decode),
            *_encode_faults(self),
            *_select_faults(self.transform, self.sinks),
        ]
        if faults:
            raise fault_error(faults)
        return self


def _sinkless_faults(spec: Spec) -> Iterator[Fault]:
    if spec.sinks:
        return
    if spec.source.database is None:
        yield Fault(
            "give at least one sink", "is empty, and only the changes of a database go somewhere without", ("sinks",)
        )
    elif spec.transform != Transform():
        wrong = "is for sinks, and there is none: the change topic has all that is read"
        yield Fault("leave it out, or give a sink", wrong, ("transform",))


def _subject_faults(source: KafkaSource, decode: Decode) -> Iterator[Fault]:
    registry = decode.schema_registry if decode.asks_registry else None
    if registry is not None and registry.means_subject_of_topic and len(source.topics or ()) != 1:
        wrong = "is missing, and the source does not name exactly one topic"
        yield Fault("name the subject of the reader's schema", wrong, ("decode", "schemaRegistry", "subject"))


def _encode_faults(spec: Spec) -> Iterator[Fault]:
    for index, sink in enumerate(spec.sinks):
        own = None if sink.transform is None else sink.transform.select
        select = own or spec.transform.select
        for part, _ in sink.encodings():
            if select is None or getattr(select, part) is None:
                right = f"give the STRUCT in select.{part} of the sink's transform, or of spec.transform"
                yield Fault(right, "has nothing to encode", ("sinks", index, "kafka", "encode", part))


def _select_faults(transform: Transform, sinks: tuple[Sink, ...]) -> Iterator[Fault]:
    if transform.select is not None and sinks and all(sink.kafka is None for sink in sinks):
        wrong = "is for kafka sinks, and there is none"
        yield Fault("give each sink a transform.select of its own", wrong, ("transform", "select"))


class SinkPipeline(Part):
    """Where records come from, what happens to them, which sinks they go to."""

    api_version: Literal["sinkpipeline.io/v1alpha1"]
    kind: Literal["SinkPipeline"]
    metadata: Metadata
    spec: Spec
    """What is asked for."""

    @property
    def identity(self) -> str:
        """What progress belongs to; it never changes."""
        return self.spec.identity or f"{self.metadata.namespace}.{self.metadata.name}"

    @property
    def group_id_prefix(self) -> str:
        """What the names of the source's consumer groups begin with, so that an ACL can name them."""
        return self.spec.reads.group_id_prefix or f"sinkpipeline.{self.identity}"

    def connection(self, sink: Sink) -> KafkaConnection:
        """The cluster of a sink, and the credentials there; of one that is no topic, the source's."""
        return connection_of(self.spec.reads, sink)

    def config_maps(self) -> Iterator[ConfigMapRef]:
        """What of it stands in ConfigMaps."""
        if self.spec.decode.schema_config_map_ref is not None:
            yield self.spec.decode.schema_config_map_ref
        for transform in (self.spec.transform, *(sink.transform for sink in self.spec.sinks)):
            yield from config_maps_of(None if transform is None else transform.lookups)

    @property
    def logs_in_as_its_pods(self) -> bool:
        """Whether brokers are reached with the credentials of the drivers' pods, which nobody else has."""
        connections = (self.spec.reads.connection, *map(self.connection, self.spec.sinks))
        return any(each.logs_in_as_its_pod for each in connections)

    def to_document(self) -> dict[str, Any]:
        """The manifest with every default spelled out; parsing it gives an equal pipeline."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
