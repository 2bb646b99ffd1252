"""What a stage is told: the database, the change topic, and under whose identity. Holds no secret.

A driver writes it into a file as JSON, and starts `python -m sinkpipeline.changes FILE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from sinkpipeline.core.changes.beginning import Asked
from sinkpipeline.core.changes.checkpoints import Checkpoint
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection as KafkaConnection
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.postgresql.settings import Connection as DatabaseConnection

CUTS = CutPolicy(rows=10_000, bytes=16 * 1024 * 1024, seconds=0.5)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Which tables are read."""

    name: str
    create: bool = True
    """Whether a first start makes it where it is missing."""
    tables: tuple[str, ...] = ()
    """`schema.table` of each, for its creation; none: all tables."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """By which the database keeps what was not read yet."""

    name: str
    create: bool = True
    """Whether a first start makes it where it is missing; later starts never do."""
    failover: bool = False
    """Whether its standbys get it too; PostgreSQL 17 and newer."""


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    """A PostgreSQL database whose changes are read: of transactions that commit after the slot was made.

    With `snapshot`, the tables are read first, as they were when the slot was made.
    """

    connection: DatabaseConnection
    publication: Publication
    slot: Slot
    snapshot: bool = False
    """Whether a first start reads the tables."""
    incremental: bool = False
    """Likewise, while the stream goes on."""
    start_from: Checkpoint | None = None
    """Where a first start begins with a slot that somebody else has read; None: where the slot stands."""
    name: Literal["postgresql"] = "postgresql"
    """Of the kind, and of the source in progress records and in transactional ids."""
    whole_transactions: bool = False
    """Whether each transaction of the database is in one of Kafka. If not, a reader may see a part of a large one for a
    while."""
    idle_advance_s: float = 10.0
    """While only other tables change, the slot follows in steps of this."""
    max_retained: int | None = None
    """Bytes of WAL beyond which the slot is told to be at risk; None: only as the server's own limit says."""
    require_full: bool = False
    """Whether a table is refused whose old rows are not sent whole (REPLICA IDENTITY FULL)."""
    large_integers_as_text: bool = True
    """Whether a bigint beyond 2^53 is a text, as many readers of JSON round such a number."""

    @property
    def reads_rows(self) -> bool:
        """Whether rows are read that are there before the stream: of the tables of a first start, and of later ones."""
        return self.snapshot or self.incremental

    @property
    def held(self) -> str | None:
        """The name of what the database keeps for this stage."""
        return self.slot.name

    @property
    def partition(self) -> SourcePartition:
        """The only one: one slot has one order."""
        return SourcePartition(self.name, 0)

    def asked(self, *, announced: bool) -> Asked:
        """What is asked for of the slot; `announced`: whether a start before has said that it makes it."""
        start = None if self.start_from is None else self.start_from.at
        return Asked(create=self.slot.create, announced=announced, start_from=start)


@dataclass(frozen=True, kw_only=True)
class BinlogConnection:
    """One server, and as whom."""

    server: str
    """host:port."""
    user: str
    password_file: str | None = None
    tls: Tls | None = None


@dataclass(frozen=True, kw_only=True)
class BinlogSettings:
    """A MariaDB or MySQL server whose changes are read from its binary log.

    With `snapshot`, the tables are read first, as they were at one moment.
    """

    connection: BinlogConnection
    tables: tuple[str, ...]
    """`database.table` of each that is read."""
    server_id: int
    """As whom the log is read: no replica of the server has the same one. Who comes later ends who has it."""
    snapshot: bool = False
    """Whether a first start reads the tables."""
    incremental: bool = False
    """Likewise, while the stream goes on."""
    start_from: Checkpoint | None = None
    """Where a first start begins, as somebody else has read the log up to there; None: where it ends."""
    name: Literal["mariadb", "mysql"] = "mariadb"
    """Of the kind, and of the source in progress records and in transactional ids."""
    whole_transactions: bool = False
    """Whether each transaction of the database is in one of Kafka. If not, a reader may see a part of a large one for a
    while."""
    idle_advance_s: float = 10.0
    """While only other tables change, the position follows in steps of this."""
    large_integers_as_text: bool = True
    """Whether a bigint beyond 2^53 is a text, as many readers of JSON round such a number."""

    @property
    def reads_rows(self) -> bool:
        """Whether rows are read that are there before the stream: of the tables of a first start, and of later ones."""
        return self.snapshot or self.incremental

    @property
    def held(self) -> str | None:
        """A log is kept for nobody."""
        return None

    @property
    def partition(self) -> SourcePartition:
        """The only one: one log has one order."""
        return SourcePartition(self.name, 0)


AnyDatabase = DatabaseSettings | BinlogSettings


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """One stage."""

    id: SinkId
    """The pipeline's identity, and the stage's name where others have that of a sink."""
    owner: Owner
    run: str
    """The uuid of the driver's start; each start of the driver has its own."""
    takes_over: bool
    """Whether another driver's stage is taken over. True in a driver's first life of a stage; once it has told that it
    `claimed`, False: it only goes on where no newer driver has taken over since."""
    kafka: KafkaConnection
    topic: TopicRequest
    """The change topic."""
    progress: TopicRequest
    database: Annotated[AnyDatabase, Field(discriminator="name")]
    dead_letter: DeadLetterSettings | None = None
    """None where a change that the topic doesn't take stops the stage."""
    refuse_existing_data: bool = True
    """Whether a first start refuses a change topic that holds data: without progress, that may be changes of ours."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of the producer, as the manifest's `kafka.properties`."""
    cuts: CutPolicy = CUTS
    adopt: Owner | None = None
    """Another owner whose progress may be taken over."""

    @property
    def postgresql(self) -> DatabaseSettings:
        """The database, which is one of PostgreSQL; TypeError if it isn't."""
        if not isinstance(self.database, DatabaseSettings):
            raise TypeError(f"a stage of {self.database.name} is asked for what is PostgreSQL's")
        return self.database

    @property
    def binlog(self) -> BinlogSettings:
        """Likewise, of MariaDB or MySQL."""
        if not isinstance(self.database, BinlogSettings):
            raise TypeError(f"a stage of {self.database.name} is asked for what a server with a binary log has")
        return self.database


def sink_settings(settings: StageSettings) -> SinkSettings:
    """A stage as Kafka's ports know it: its topics, and whose they are. It has no source in Kafka."""
    return SinkSettings(
        id=settings.id,
        owner=settings.owner,
        source=SourceSettings(connection=settings.kafka),
        connection=settings.kafka,
        data=replace(settings.topic, called="change topic"),
        progress=settings.progress,
        dead_letter=settings.dead_letter,
        refuse_existing_data=settings.refuse_existing_data,
        properties=settings.properties,
        adopt=settings.adopt,
    )


_ADAPTER = TypeAdapter(StageSettings)


def to_json(settings: StageSettings) -> bytes:
    """For a file that `read` reads."""
    # What nobody may change is a mapping that pydantic does not know.
    return _ADAPTER.dump_json(settings, indent=1, fallback=dict, warnings=False)


def read(path: Path) -> StageSettings:
    """Raises SinkPipelineError: UsageInvalid."""
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except OSError as error:
        fact = f"the stage's settings in {path} can't be read: {error.strerror}"
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        places = ", ".join(".".join(map(str, each["loc"])) for each in problems)
        fact = f"the stage's settings in {path} are none of this release: {places or problems[0]['msg']}"
    raise SinkPipelineError(Reason.USAGE_INVALID, fact, "let the driver of the same release start the stage")
