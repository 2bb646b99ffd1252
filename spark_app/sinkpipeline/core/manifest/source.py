"""Where records come from: `spec.source`.

Refused: no topics, topics and a pattern at once, a pattern that Java and we would read differently.
"""

import enum
import functools
import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError, model_validator
from pydantic_core import SchemaError
from typing_extensions import Self

from sinkpipeline.core.manifest.base import Part, StringMap
from sinkpipeline.core.manifest.kafka import Auth, BootstrapServers, KafkaConnection
from sinkpipeline.core.manifest.names import GroupIdPrefix, TopicName
from sinkpipeline.core.manifest.problems import refuse
from sinkpipeline.core.manifest.properties import source_properties

MAX_TOPICS = 1000
_MAX_PATTERN = 1024

_NOT_JAVA = re.compile(r"\(\?P|(?<!\\)[*+?}]\+")
"""Syntax that our engine reads and Java doesn't, or reads differently: named groups, possessive quantifiers."""


class StartingOffsets(str, enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class OnDataLoss(str, enum.Enum):
    FAIL = "Fail"
    SKIP = "Skip"


class IsolationLevel(str, enum.Enum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> TypeAdapter[str]:
    # Pydantic's engine, not `re`: it is linear in the text, so that no manifest can hang the operator that reads it.
    engine = StringConstraints(pattern=pattern)
    TypeAdapter(Annotated[str, engine])  # alone first: `a)|(b` would be valid only between our parentheses
    return TypeAdapter(Annotated[str, StringConstraints(pattern=f"^(?:{pattern})$")])


def _topic_pattern(pattern: str) -> str:
    right = "write a regular expression that Java and RE2 read alike (no look-around, no back-references)"
    if not pattern or len(pattern) > _MAX_PATTERN:
        refuse(f"{right} of 1 to {_MAX_PATTERN} characters", f"has {len(pattern)} characters")
    if _NOT_JAVA.search(pattern):
        refuse(right, "holds a named group or a possessive quantifier")
    try:
        _matcher(pattern)
    except SchemaError:
        refuse(right, "is not such a regular expression")
    return pattern


def _distinct(topics: tuple[str, ...]) -> tuple[str, ...]:
    for index, topic in enumerate(topics):
        if topic in topics[:index]:
            refuse("name each topic once", f'repeats "{topic}"', (index,))
    return topics


class KafkaSource(Part):
    """Topics of one Kafka cluster: exactly one of `topics` and `topic_pattern`."""

    bootstrap_servers: BootstrapServers
    topics: (
        Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=MAX_TOPICS), AfterValidator(_distinct)] | None
    ) = None
    topic_pattern: Annotated[str, AfterValidator(_topic_pattern)] | None = None
    starting_offsets: StartingOffsets = StartingOffsets.EARLIEST
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    """Spark's own default would deliver the rows of aborted transactions."""
    auth: Auth | None = None
    group_id_prefix: GroupIdPrefix | None = None
    """`SinkPipeline.group_id_prefix` is the effective one."""
    properties: Annotated[StringMap, AfterValidator(source_properties)] = StringMap()

    @model_validator(mode="after")
    def _topics_or_pattern(self) -> Self:
        if self.topics is None and self.topic_pattern is None:
            refuse("name the source topics here, or give topicPattern", "is missing", ("topics",))
        if self.topics is not None and self.topic_pattern is not None:
            refuse("give topics or topicPattern, not both", "stands beside topics", ("topicPattern",))
        return self

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection(bootstrapServers=self.bootstrap_servers, auth=self.auth)

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name, on the source's cluster, is a source topic."""
        if self.topics is not None:
            return topic in self.topics
        try:
            _matcher(self.topic_pattern or "").validate_python(topic)
        except ValidationError:
            return False
        return True


class Source(Part):
    """Exactly one kind of source; Kafka is the one that is served."""

    kafka: KafkaSource
