"""Where records come from: `spec.source`.

Refused: no topics, topics and a pattern at once, a pattern outside the one dialect (`core/topic_pattern.py`).
"""

import enum
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator
from typing_extensions import Self

from sinkpipeline.core import topic_pattern
from sinkpipeline.core.manifest.base import Bounds, Part, StringMap
from sinkpipeline.core.manifest.binlog_source import MariadbSource, MysqlSource
from sinkpipeline.core.manifest.kafka import Auth, BootstrapServers, KafkaConnection
from sinkpipeline.core.manifest.names import Directory, GroupId, GroupIdPrefix, PointInTime, TopicName
from sinkpipeline.core.manifest.postgresql_source import PostgresqlSource
from sinkpipeline.core.manifest.problems import refuse
from sinkpipeline.core.manifest.properties import SOURCE, source_properties
from sinkpipeline.core.moments import moment_ms

MAX_TOPICS = 1000


class StartingOffsets(str, enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class OnDataLoss(str, enum.Enum):
    FAIL = "Fail"
    SKIP = "Skip"


class IsolationLevel(str, enum.Enum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


def _topic_pattern(pattern: str) -> str:
    try:
        topic_pattern.check(pattern)
    except topic_pattern.PatternError as error:
        refuse("write a regular expression as docs/manifest.md describes it", f"has {error}")
    return pattern


def _distinct(topics: tuple[str, ...]) -> tuple[str, ...]:
    for index, topic in enumerate(topics):
        if topic in topics[:index]:
            refuse("name each topic once", f'repeats "{topic}"', (index,))
    return topics


def _existing(text: str) -> str:
    try:
        moment_ms(text)
    except ValueError:
        refuse("write a day that exists", "is on a day that does not exist")
    return text


class StartFrom(Part):
    """Positions that somebody else has committed; exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    checkpoint: Directory | None = None
    """After the last committed batch of a query of Spark's: the directory of its option checkpointLocation, as the
    driver sees it."""
    group: GroupId | None = None
    """Where a consumer group stands, such as that of a connector (connect-NAME); it must have no members."""
    timestamp: Annotated[PointInTime, AfterValidator(_existing)] | None = None
    """In each partition, at the first record that is not older than this time, such as "2026-01-01T00:00:00Z"."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.checkpoint, self.group, self.timestamp)) != 1:
            refuse("give exactly one of checkpoint, group and timestamp", "does not name exactly one place to begin")
        return self


TopicPattern = Annotated[
    str,
    AfterValidator(_topic_pattern),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": topic_pattern.MAX_PATTERN}),
]


class KafkaSource(Part):
    """Topics of one Kafka cluster: exactly one of `topics` and `topic_pattern`."""

    bootstrap_servers: BootstrapServers
    """host:port of the brokers, separated by commas: all of them, or at least two."""
    topics: (
        Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=MAX_TOPICS), AfterValidator(_distinct)] | None
    ) = None
    """The topics to read; either these or topicPattern."""
    topic_pattern: TopicPattern | None = None
    """A regular expression for whole names of topics, such as orders-.*; docs/manifest.md has what it may hold. Topics
    that appear later are read from their beginning."""
    starting_offsets: StartingOffsets = StartingOffsets.EARLIEST
    """Where topics that have no progress yet are read from."""
    start_from: StartFrom | None = None
    """Where a sink without progress begins instead of startingOffsets, to go on where another program has stopped.
    Topics without a position there are read from startingOffsets."""
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    """What happens if the source no longer has the offsets that come next. Fail stops the sink. Skip leaves these
    records out for good, counts them as lost, and goes on."""
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    """read_committed does not read the rows of aborted transactions."""
    auth: Auth | None = None
    """How to authenticate; left out, neither encrypted nor authenticated."""
    group_id_prefix: GroupIdPrefix | None = None
    """What the names of consumer groups begin with, so that an ACL can name them; default sinkpipeline.<identity>."""
    # Without a default, which would be stored with every pipeline and so restart its driver with an upgrade.
    commit_group_offsets: bool | None = None
    """true writes each sink's frontier as the committed offsets of the consumer group <groupIdPrefix>.<sink> too, for
    tools that show the lag of groups. Nothing reads them here. It needs Read on the group."""
    properties: Annotated[StringMap, Bounds(len(SOURCE), 249), AfterValidator(source_properties)] = StringMap()
    """Allow-listed properties of the Kafka consumer (Java), such as fetch.max.bytes; values in quotes. Credentials
    stand in Secrets, under auth."""

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
        return self.topic_pattern is not None and topic_pattern.matches(self.topic_pattern, topic)


Database = PostgresqlSource | MariadbSource | MysqlSource
"""Whose changes are read."""


KINDS: Final = ("kafka", "postgresql", "mariadb", "mysql")


class Source(Part):
    """Exactly one kind of source: kafka, postgresql, mariadb or mysql."""

    kafka: KafkaSource | None = None
    """Topics of one Kafka cluster."""
    postgresql: PostgresqlSource | None = None
    """The changes of a PostgreSQL database."""
    mariadb: MariadbSource | None = None
    """The changes of a MariaDB server."""
    mysql: MysqlSource | None = None
    """The changes of a MySQL server."""

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            wrong = f"stands beside {given[0]}" if given else "is missing"
            right = f"give exactly one of {', '.join(KINDS[:-1])} and {KINDS[-1]}"
            refuse(right, wrong, (given[-1] if given else "kafka",))
        return self

    @property
    def database(self) -> Database | None:
        """What a stage reads; None where records come from Kafka."""
        return self.postgresql or self.mariadb or self.mysql

    @property
    def kind(self) -> str:
        """The name of the part that is given."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)
