"""Two servers of a kind, of which one takes over from the other: by replication, or transaction by transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from servers.binlog_server import SUPERUSER, BinlogServer
from servers.local_process import HOST
from support.changes.binlog import ORDERS, SERVERS, BinlogLab
from support.changes.lab import Killed
from support.waiting import wait_until

FIRST_FREE: Final = 100
"""GTIDs from here on are nobody's."""
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "mysql": {"log-replica-updates": "ON"},
    # Newer ones remove no file before a replica was connected.
    "mariadb": {"log-slave-updates": "ON", "loose-slave-connections-needed-for-purge": "0"},
}


def server(kind: str, number: int, **settings: str) -> BinlogServer:
    """One that logs what it replicates, under a number of its own."""
    return SERVERS[kind](settings={**SETTINGS[kind], "server-id": str(number), **settings})


def replicate(source: BinlogServer, replica: BinlogServer) -> None:
    """From the beginning of the source's log, for ever."""
    where = f"'{HOST}', {{0}}_PORT = {source.port}, {{0}}_USER = '{SUPERUSER}'"
    if source.kind == "mysql":
        told = f"SOURCE_HOST = {where.format('SOURCE')}, SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
        statements = [f"CHANGE REPLICATION SOURCE TO {told}, SOURCE_CONNECT_RETRY = 1", "START REPLICA"]
    else:
        told = f"MASTER_HOST = {where.format('MASTER')}, MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
        # What it has committed itself, as the source of others, it does not ask for.
        statements = [f"CHANGE MASTER TO {told}, MASTER_DEMOTE_TO_SLAVE = 1", "START SLAVE"]
    execute(replica, *statements)


def promote(replica: BinlogServer) -> None:
    """It replicates no more."""
    execute(
        replica,
        *(["STOP REPLICA", "RESET REPLICA ALL"] if replica.kind == "mysql" else ["STOP SLAVE", "RESET SLAVE ALL"]),
    )


def execute(server: BinlogServer, *statements: str) -> None:
    with server.connected() as session, session.cursor() as cursor:
        for each in statements:
            cursor.execute(each)


def executed(server: BinlogServer) -> str:
    """What the server has, as it says it."""
    name = "gtid_executed" if server.kind == "mysql" else "gtid_binlog_pos"
    [found] = server.told(f"SELECT @@global.{name}") or ("",)
    return str(found)


def caught_up(source: BinlogServer, replica: BinlogServer) -> None:
    wait_until(lambda: executed(replica) == executed(source), "the replica has all of its source", 60)


@dataclass
class Transaction:
    """One that any server can be given."""

    number: int
    statements: Sequence[str]
    domain: int = 0
    """Of MariaDB."""
    server: int = 1
    """Likewise, who has committed it."""


class CutAt:
    """Ends a life in this process at its first commit that has changes."""

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "committed" and event["rows"]:
            raise Killed


def inserting(lab: BinlogLab, number: int, domain: int = 0, server: int = 1) -> Transaction:
    """As if the first server had committed it."""
    first = 1000 * number + 500_000 * domain
    values = ", ".join(f"({first + each}, 'x')" for each in range(3))
    return Transaction(FIRST_FREE + number, [f"INSERT INTO {lab.name}.orders VALUES {values}"], domain, server)


def rows_of(*numbers: int, domain: int = 0) -> Counter[int]:
    """What `TwoServers.ids` is where these are in the topic."""
    return Counter(1000 * number + 500_000 * domain + each for number in numbers for each in range(3))


@dataclass
class TwoServers:
    """A lab on the first one, and another one that may take over."""

    lab: BinlogLab
    other: BinlogServer
    _uuid: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.first = self.lab.server
        if self.first.kind == "mysql":
            [self._uuid] = self.first.told("SELECT @@global.server_uuid") or ("",)

    def give(self, server: BinlogServer, transaction: Transaction) -> None:
        """As the first server has committed it, whoever applies it."""
        number, domain = transaction.number, transaction.domain
        if server.kind == "mysql":
            before, behind = [f"SET gtid_next = '{self._uuid}:{number}'"], ["SET gtid_next = 'AUTOMATIC'"]
        else:
            writer = transaction.server
            before, behind = [f"SET gtid_domain_id = {domain}, server_id = {writer}, gtid_seq_no = {number}"], []
        with server.connected(None) as session, session.cursor() as cursor:
            for each in (*before, "BEGIN", *transaction.statements, "COMMIT", *behind):
                cursor.execute(each)

    def give_rows(self, to: BinlogServer, *numbers: int) -> None:
        """Transactions of these numbers, with three rows each."""
        for number in numbers:
            self.give(to, inserting(self.lab, number))

    def ids(self) -> Counter[int]:
        """How often each row is in the topic."""
        return Counter(int(dict(each.told.row)["id"]) for each in self.lab.found())

    def copy(self, source: BinlogServer, to: BinlogServer) -> None:
        """Makes it anew, of what a source has, as clones and backups do: without a word of that in its log."""
        with source.connected(self.lab.name) as session, session.cursor() as cursor:
            cursor.execute("SELECT id, note FROM orders")
            rows = list(cursor.fetchall())
        has = executed(source).replace("\n", "")
        place = "gtid_purged" if to.kind == "mysql" else "gtid_slave_pos"
        with to.connected(self.lab.name) as session, session.cursor() as cursor:
            for each in ("SET sql_log_bin = 0", "DELETE FROM orders"):
                cursor.execute(each)
            cursor.executemany("INSERT INTO orders VALUES (%s, %s)", rows)
        to.told("RESET BINARY LOGS AND GTIDS", "RESET MASTER")
        execute(to, f"SET GLOBAL {place} = '{has}'")

    def take_over(self) -> None:
        """From here on the stage is sent to the other server, which has all from its beginning."""
        self.lab.server, self.lab.begins_at = self.other, 0

    def back(self) -> None:
        self.lab.server, self.lab.begins_at = self.first, 0


def two(servers: str, directory: Path, made: Sequence[BinlogServer], *, follows: bool = True) -> TwoServers:
    """With a table, which the other one has by replication."""
    first, other = made
    lab = BinlogLab(first, servers, directory)
    lab.sql(ORDERS)
    if follows:
        replicate(first, other)
        caught_up(first, other)
    return TwoServers(lab, other)
