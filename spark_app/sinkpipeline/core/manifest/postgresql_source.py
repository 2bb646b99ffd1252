"""The changes of a PostgreSQL database as a source: `spec.source.postgresql`.

A stage beside the driver reads them from a replication slot into a Kafka topic, the change topic, for the sinks.
"""

import enum
import hashlib
import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.changes.checkpoints import Checkpoint, CheckpointError, from_debezium, from_place
from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.changes import ChangeTopic, StartingPosition, Transactions, check_begins
from sinkpipeline.core.manifest.decode import MAX_TABLES, distinct_tables
from sinkpipeline.core.manifest.durations import Duration, PositiveDuration
from sinkpipeline.core.manifest.names import DebeziumOffset, LogPlace, Quantity, SlotName, SqlName, TableOfChanges
from sinkpipeline.core.manifest.postgresql import PostgresqlAuth, Servers
from sinkpipeline.core.manifest.problems import Fault, fault_error, refuse

_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_MANGLED = 40
_DIGEST = 8


class ReplicaIdentity(str, enum.Enum):
    """Which tables are read."""

    ANY = "Any"
    REQUIRE_FULL = "RequireFull"


class Publication(Part):
    """Which tables are read: a publication of the database."""

    name: SqlName
    """The publication; it never changes."""
    create: bool = True
    """Whether a first start creates it if it is missing."""
    tables: (
        Annotated[
            tuple[TableOfChanges, ...], Field(min_length=1, max_length=MAX_TABLES), AfterValidator(distinct_tables)
        ]
        | None
    ) = None
    """The tables that it is created with, as schema.table; left out, all tables of the database, which takes a
    superuser. A publication that is there is not altered."""

    @model_validator(mode="after")
    def _creates_with_tables(self) -> Self:
        if self.tables is not None and not self.create:
            wrong = "stands beside create: false, and a publication that is there is not altered"
            raise fault_error([Fault("remove it, or set create: true", wrong, ("tables",))])
        return self


class Slot(Part):
    """The replication slot, by which the database keeps what was not read yet."""

    name: SlotName | None = None
    """The slot; it never changes. Default: a name made of the pipeline's identity."""
    create: bool = True
    """Whether a first start creates it if it is missing. A later start never does: without it, changes are lost."""
    failover: bool = False
    """Whether standbys get the slot too, so that it is there after a failover; PostgreSQL 17 and newer."""


class Limits(Part):
    """What the slot may cost the database."""

    max_retained: Quantity | None = None
    """If the slot holds more WAL than this, such as 20Gi, the status says that it is at risk; nothing is stopped. Left
    out, only the server's own max_slot_wal_keep_size counts."""
    idle_advance: PositiveDuration = Duration(10_000)
    """While only tables change that are not read, the slot follows in steps of this."""

    @property
    def max_retained_bytes(self) -> int | None:
        if self.max_retained is None:
            return None
        number = re.match(r"[0-9]+", self.max_retained)
        if number is None:
            raise ValueError("the manifest's types let no quantity through without a number")
        return int(number[0]) * _UNITS[self.max_retained[number.end() :]]


def _debezium(text: str) -> str:
    try:
        from_debezium(text)
    except CheckpointError as error:
        refuse("give what Kafka Connect answers to GET /connectors/NAME/offsets", f"is {error}")
    return text


class StartFromLog(Part):
    """Where another reader of the slot has stopped; exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    lsn: LogPlace | None = None
    """Everything that was committed before this LSN has been delivered, such as "0/3279E770". "0/3279E770 (439)", with
    the index that a status has, adds so many changes of the transaction that was committed there."""
    debezium_offsets: Annotated[DebeziumOffset, AfterValidator(_debezium)] | None = None
    """What Kafka Connect answers to GET /connectors/NAME/offsets, or the offset alone, of Debezium's connector for
    PostgreSQL. A transaction of which Debezium has delivered only a part is delivered whole."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.lsn is None) == (self.debezium_offsets is None):
            refuse("give exactly one of lsn and debeziumOffsets", "does not name exactly one place to begin")
        return self

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to begin."""
        if self.lsn is not None:
            return from_place(self.lsn)
        if self.debezium_offsets is None:
            raise ValueError("the manifest's types let one of them through")
        return from_debezium(self.debezium_offsets)


class PostgresqlSource(Part):
    """The changes of tables of a PostgreSQL database, read from a replication slot into a Kafka topic."""

    servers: Servers
    """host:port of the server, several separated by commas: the primary is used. A pooler can't be used."""
    database: SqlName
    """The database."""
    auth: PostgresqlAuth
    """As whom to connect. The role needs REPLICATION: docs/changes.md has its rights."""
    publication: Publication
    """Which tables are read."""
    slot: Slot = Slot()
    """By which the database keeps what was not read yet."""
    starting_position: StartingPosition | None = None
    """Where a first start begins; either this or startFrom. Snapshot: with the rows of the tables, as they are when the
    slot is created, and then with the transactions that are committed after it. IncrementalSnapshot: with these
    transactions at once, and the rows of one table after the other beside them. Now: with these transactions alone."""
    start_from: StartFromLog | None = None
    """Where a first start begins that goes on with the slot of another program, such as Debezium, which has ended. It
    needs slot.create: false, and the publication of that program."""
    transactions: Transactions = Transactions.SPLIT
    """Split: a large transaction of the database becomes several of Kafka, so that a reader may see a part of it for a
    while. Whole: each becomes one, and one that takes longer than 40 s stops the stage."""
    replica_identity: ReplicaIdentity = ReplicaIdentity.ANY
    """RequireFull: a table without REPLICA IDENTITY FULL is refused, so that before is always the whole row, and no
    column is unchanged."""
    limits: Limits = Limits()
    """What the slot may cost the database."""
    changes: ChangeTopic
    """Where the changes are written, and read by the sinks."""

    @model_validator(mode="after")
    def _begins_somewhere(self) -> Self:
        check_begins(self.starting_position, self.start_from)
        if self.starting_position is StartingPosition.SNAPSHOT and not self.slot.create:
            wrong = "is false, and a slot that is there has no snapshot of the tables any more"
            raise fault_error([Fault("set it to true, or startingPosition: Now", wrong, ("slot", "create"))])
        if self.start_from is not None and self.slot.create:
            wrong = "is not false, and a slot that is created now has nothing of what was before"
            right = "set it to false beside startFrom, and slot.name to the slot that was read"
            raise fault_error([Fault(right, wrong, ("slot", "create"))])
        return self

    def slot_name(self, identity: str) -> str:
        """The manifest's, or one of the identity: no two identities have the same."""
        if self.slot.name is not None:
            return self.slot.name
        mangled = re.sub("[^a-z0-9_]", "_", identity)[:_MANGLED]
        return f"sinkpipeline_{mangled}_{hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST]}"
