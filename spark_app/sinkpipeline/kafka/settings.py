"""What the protocol must know of one sink: the manifest's fields, resolved to connections and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sinkpipeline.core import manifest, topic_pattern
from sinkpipeline.core.manifest import StartFrom, StartingOffsets
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection


@dataclass(frozen=True, kw_only=True)
class RegistrySettings:
    """A schema registry, and which of its schemas has the columns. Credentials are files, as of a connection."""

    url: str
    tls: Tls | None = None
    username: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    subject: str | None = None
    version: str | None = None
    """Of the subject; None where `reader` is given."""
    reader: str | None = None
    """The reader's schema."""
    id_bytes: int = 4
    decode_format: Literal["avro", "json", "protobuf", "debezium"] = "avro"
    """What the schemas are of, where they are readers' and writers'."""
    message: str | None = None
    """Of protobuf: which message of the reader's schema; None: its first one."""
    path: str = "decode.schemaRegistry"
    """In the manifest."""


@dataclass(frozen=True, kw_only=True)
class EncodingSettings:
    """Where the schema is that a part of each row is written with."""

    part: manifest.EncodedPart
    registry: RegistrySettings
    """With the schema's subject."""
    auto_register: bool = True


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The source; exactly one of `topics` and `pattern` is set."""

    connection: Connection
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting_offsets: StartingOffsets = StartingOffsets.EARLIEST
    start_from: StartFrom | None = None
    """Where a first start begins instead."""
    skip_lost: bool = False
    read_committed: bool = True
    group_id_prefix: str = "sinkpipeline"
    commit_group_offsets: bool = False
    """Whether the driver writes the frontier as the offsets of each sink's group too."""
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    registry: RegistrySettings | None = None
    """Where the schemas of its records are; None where nothing is asked of a registry."""

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name, on the source's cluster, is a source topic."""
        return topic in self.topics if self.pattern is None else topic_pattern.matches(self.pattern, topic)


@dataclass(frozen=True, kw_only=True)
class DeadLetterSettings:
    """Where a sink's dead letters go, on the sink's cluster."""

    topic: TopicRequest
    auto_create: bool = True
    drop: bool = False
    """Whether a record is dropped that can't even be dead-lettered; else it stops the sink."""


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """One Kafka sink."""

    id: SinkId
    owner: Owner
    source: SourceSettings
    connection: Connection
    data: TopicRequest
    progress: TopicRequest
    dead_letter: DeadLetterSettings | None = None
    """None where a record that can't be delivered stops the sink."""
    exactly_once: bool = True
    refuse_existing_data: bool = False
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    encodings: tuple[EncodingSettings, ...] = ()
    """Of its key and its value, where a registry has their schemas."""
    adopt: Owner | None = None
    """Another owner whose progress may be taken over."""

    @property
    def data_names(self) -> tuple[str, ...]:
        """Of the topic, or of all topics."""
        return tuple(each.name for each in self.data.each)

    @property
    def group_id(self) -> str:
        return f"{self.source.group_id_prefix}.{self.id.sink}"
