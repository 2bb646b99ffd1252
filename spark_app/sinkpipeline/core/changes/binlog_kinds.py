"""Which kinds of servers have a binary log that is read, and what each calls its things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sinkpipeline.core.changes.gtids import Gtids, MariadbGtids, MysqlGtids


@dataclass(frozen=True, kw_only=True)
class BinlogKind:
    """One kind of server."""

    name: str
    """As `spec.source` has it."""
    title: str
    """For people."""
    oldest: tuple[int, int]
    """The oldest release that is read."""
    options: str
    """How its log is read: an index in a transaction means something else otherwise."""
    identified_by: str
    """The variable by which one server is told from another."""
    rights: str
    """What the user needs on *.*, as GRANT has it."""
    locks: bool
    """Whether a snapshot locks its tables for a moment: a right of its own, and it waits for who has changed them."""
    anew: str
    """The statement by which somebody begins its log anew."""
    characters: frozenset[int]
    """The types of columns that have a character set in its log, whether that is of bytes or not."""
    hides_types: bool
    """Whether it has types that are logged as if they were bytes."""
    relays: str
    """The variable that says whether it logs what comes from another server."""
    gtids: type[Gtids]
    """How it names transactions."""

    def rights_for(self, user: str) -> str:
        """The statements that give them, in a sentence; `user`: as the server has it, such as cdc@%."""
        name, _, host = user.rpartition("@")
        snapshot = f"GRANT SELECT on each table{', and GRANT LOCK TABLES on its database' if self.locks else ''}"
        return f"run GRANT {self.rights} ON *.* TO '{name}'@'{host}'; and, for startingPosition: Snapshot, {snapshot}"


MARIADB: Final = BinlogKind(
    name="mariadb",
    title="MariaDB",
    oldest=(10, 5),
    options="binlog capability=4 index=event*1000000+row",
    identified_by="server_id",
    rights="REPLICATION SLAVE, BINLOG MONITOR",
    locks=False,
    anew="RESET MASTER",
    # With spatial ones, and with those that are compressed.
    characters=frozenset({15, 140, 141, 252, 253, 254, 255}),
    hides_types=True,
    relays="log_slave_updates",
    gtids=MariadbGtids,
)
MYSQL: Final = BinlogKind(
    name="mysql",
    title="MySQL",
    oldest=(8, 0),
    options="mysql binlog index=event*1000000+row",
    identified_by="server_uuid",
    rights="REPLICATION SLAVE, REPLICATION CLIENT",
    locks=True,
    anew="RESET BINARY LOGS AND GTIDS (RESET MASTER before 8.2)",
    # With vectors.
    characters=frozenset({15, 242, 252, 253, 254}),
    hides_types=False,
    relays="log_replica_updates",
    gtids=MysqlGtids,
)
BINLOG_KINDS: Final[Mapping[str, BinlogKind]] = MappingProxyType({each.name: each for each in (MARIADB, MYSQL)})
"""By their names."""
