"""The changes of tables of a MariaDB or MySQL server as a source: `spec.source.mariadb`, `spec.source.mysql`.

A stage beside the driver reads them from the binary log into a Kafka topic, the change topic, for the sinks.
"""

import hashlib
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from sinkpipeline.core.changes.checkpoints import Checkpoint, CheckpointError, binlog_from_debezium, from_binlog
from sinkpipeline.core.manifest.base import Part
from sinkpipeline.core.manifest.changes import ChangeTopic, StartingPosition, Transactions, check_begins
from sinkpipeline.core.manifest.decode import MAX_TABLES, distinct_tables
from sinkpipeline.core.manifest.durations import Duration, PositiveDuration
from sinkpipeline.core.manifest.kafka import SERVER_SCHEMA, SecretRef, Tls, checked_server
from sinkpipeline.core.manifest.names import BinlogPlace, DebeziumOffset, SqlName, TableOfDatabase
from sinkpipeline.core.manifest.problems import refuse

_OUR_IDS = 1 << 30
"""From here on are those that are made of identities; people number their servers from 1 on."""


def _server(text: str) -> str:
    return checked_server(text, "db-0:3306")


class BinlogAuth(Part):
    """As whom we connect; without `tls` the connection is not encrypted."""

    username: SqlName
    """The user."""
    password_secret_ref: SecretRef | None = None
    """The key of a Secret that holds the password. Left out where the server asks for none, or for a certificate."""
    tls: Tls | None = None
    """Encrypts the connection, and checks the server's certificate and name; `{}` trusts the certificate authorities of
    the image."""


def _debezium(text: str) -> str:
    try:
        binlog_from_debezium(text)
    except CheckpointError as error:
        refuse("give what Kafka Connect answers to GET /connectors/NAME/offsets", f"is {error}")
    return text


class StartFromBinlog(Part):
    """Where another reader of the log has stopped; exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    binlog: BinlogPlace | None = None
    """Everything before this place has been delivered: a file and where a transaction begins or ends in it, such as
    "binlog.000003:4711"."""
    debezium_offsets: Annotated[DebeziumOffset, AfterValidator(_debezium)] | None = None
    """What Kafka Connect answers to GET /connectors/NAME/offsets, or the offset alone, of Debezium's connector for
    this kind of server. A transaction of which Debezium has delivered only a part is delivered whole."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.binlog is None) == (self.debezium_offsets is None):
            refuse("give exactly one of binlog and debeziumOffsets", "does not name exactly one place to begin")
        return self

    @property
    def checkpoint(self) -> Checkpoint:
        """Where to begin."""
        if self.binlog is not None:
            return from_binlog(self.binlog)
        if self.debezium_offsets is None:
            raise ValueError("the manifest's types let one of them through")
        return binlog_from_debezium(self.debezium_offsets)


class BinlogLimits(Part):
    """How often the position is noted."""

    idle_advance: PositiveDuration = Duration(10_000)
    """While only tables change that are not read, the position follows in steps of this."""


class BinlogSource(Part):
    """The changes of tables of a server, read from its binary log into a Kafka topic."""

    server: Annotated[str, AfterValidator(_server), SERVER_SCHEMA]
    """host:port of the server, or an address that leads to the one that takes writes: GTIDs tell where to go on."""
    auth: BinlogAuth
    """As whom to connect: docs/changes.md has the rights."""
    tables: Annotated[
        tuple[TableOfDatabase, ...], Field(min_length=1, max_length=MAX_TABLES), AfterValidator(distinct_tables)
    ]
    """The tables, as database.table. One that is added later is read from then on; its rows too, unless
    startingPosition is Now."""
    server_id: Annotated[int, Field(ge=1, le=4_294_967_295)] | None = None
    """As which replica the log is read; no other one of the server may have this number. Default: one made of the
    pipeline's identity."""
    starting_position: StartingPosition | None = None
    """Where a first start begins; either this or startFrom. Snapshot: with the rows of the tables, as they are at one
    moment, and then with the transactions that are committed after it. IncrementalSnapshot: with these transactions at
    once, and the rows of one table after the other beside them. Now: with these transactions alone."""
    start_from: StartFromBinlog | None = None
    """Where a first start begins that goes on for another program, such as Debezium, which has ended."""
    transactions: Transactions = Transactions.SPLIT
    """Split: a large transaction of the database becomes several of Kafka, so that a reader may see a part of it for a
    while. Whole: each becomes one, and one that takes longer than 40 s stops the stage."""
    limits: BinlogLimits = BinlogLimits()
    """How often the position is noted."""
    changes: ChangeTopic
    """Where the changes are written, and read by the sinks."""

    @model_validator(mode="after")
    def _begins_somewhere(self) -> Self:
        check_begins(self.starting_position, self.start_from)
        return self

    def number(self, identity: str) -> int:
        """The manifest's serverId, or one of the identity."""
        if self.server_id is not None:
            return self.server_id
        return _OUR_IDS + int(hashlib.sha256(identity.encode()).hexdigest(), 16) % _OUR_IDS


class MariadbSource(BinlogSource):
    """The changes of tables of a MariaDB server, read from its binary log into a Kafka topic."""


class MysqlSource(BinlogSource):
    """The changes of tables of a MySQL server, read from its binary log into a Kafka topic."""
