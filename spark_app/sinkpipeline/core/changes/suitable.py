"""Whether changes of a PostgreSQL server can be read as its catalogs say, and what to run where they can't."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sinkpipeline.core.errors import Reason, SinkPipelineError

_OLDEST = 130000
_FAILOVER = 170000


@dataclass(frozen=True, kw_only=True)
class Table:
    """One that a publication names, or would name."""

    name: str
    """As SQL spells it, with its schema."""
    identity: str
    """pg_class.relreplident: d(efault), n(othing), f(ull), i(ndex); n too where what it names is none."""
    has_key: bool
    """Whether it has a primary key."""
    unsent: tuple[str, ...] = ()
    """Generated columns that the publication does not send; none before version 18, which lets them be no identity."""
    unsent_of_key: tuple[str, ...] = ()
    """Those of them that are in the key by which it tells its rows apart."""
    is_partition: bool = False
    """Whether it stands here for the partitioned table, which the publication names."""
    is_of_full: bool = False
    """Likewise, of one whose replica identity is full."""
    untold: tuple[str, ...] = ()
    """Likewise, columns by which the partitioned table tells its rows apart, and this one does not."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a look at a server found."""

    version: int
    """server_version_num."""
    wal_level: str
    encoding: str
    role: str
    may_replicate: bool
    in_recovery: bool
    tables: tuple[Table, ...] = ()
    """Of the publication, where it sends updates or deletes."""
    unpublished: tuple[str, ...] = ()
    """What a publication that is there does not send, as its `publish` has it, such as delete."""


def check_suitable(facts: Facts, where: str, *, failover: bool = False) -> None:
    """Raises SinkPipelineError: SourceUnsuitable, SourceUnreachable."""
    if facts.in_recovery:
        raise SinkPipelineError(
            Reason.SOURCE_UNREACHABLE, f"{where} is a standby", "name the primary in source.postgresql.servers"
        )
    if facts.version < _OLDEST:
        raise _unsuitable(f"{where} is of version {facts.version // 10000}", "use PostgreSQL 13 or newer")
    if failover and facts.version < _FAILOVER:
        raise _unsuitable(
            f"slot.failover is true, and {where} is of version {facts.version // 10000}",
            "use PostgreSQL 17 or newer, or set slot.failover: false",
        )
    if facts.wal_level != "logical":
        raise _unsuitable(
            f"{where} has wal_level {facts.wal_level}",
            "run ALTER SYSTEM SET wal_level = logical, and restart the server; where a platform keeps its parameters, "
            "set it there",
        )
    if not facts.may_replicate:
        raise _unsuitable(
            f"role {facts.role} of {where} may not read the replication stream",
            f'run ALTER ROLE "{facts.role}" REPLICATION (Amazon RDS: GRANT rds_replication TO "{facts.role}")',
        )
    if facts.encoding == "SQL_ASCII":
        raise _unsuitable(
            f"{where} has encoding SQL_ASCII, so that a text may be any bytes", "use a database of encoding UTF8"
        )


def unpublished_told(publication: str, unpublished: Sequence[str]) -> str:
    """What a person should know of such a publication."""
    which = " and ".join(unpublished)
    return (
        f"publication {publication} does not send {which}: whoever follows the topic never learns of it; to change "
        f"that, run ALTER PUBLICATION \"{publication}\" SET (publish = 'insert, update, delete, truncate')"
    )


def check_tables(tables: Iterable[Table], where: str, publishing: str, *, require_full: bool = False) -> None:
    """That the rows which a change is of are told.

    Args:
        tables: of the publication, or of the one that is to be created.
        where: names the database, for people.
        publishing: the statement that publishes stored generated columns, too.
        require_full: whether the old rows have to be told whole.

    Raises:
        SinkPipelineError: SourceUnsuitable.
    """
    for table in tables:
        _check_identity(table, where)
        _check_generated(table, where, publishing)
        # With generated columns the partitioned table itself is refused.
        if table.is_of_full and table.identity != "f" and not table.unsent:
            raise _unsuitable(
                f"partition {table.name} of {where} does not send its old rows whole, and its partitioned table says "
                "that they are whole",
                f"run ALTER TABLE {table.name} REPLICA IDENTITY FULL",
            )
        if table.untold:
            raise _unsuitable(
                f"partition {table.name} of {where} does not tell its old rows by column {table.untold[0]}, and its "
                "partitioned table does: the keys of updates and deletions would be wrong",
                f"run ALTER TABLE {table.name} REPLICA IDENTITY FULL, or USING INDEX with an index of the same columns",
            )
        if require_full and table.identity != "f":
            raise _unsuitable(
                f"table {table.name} of {where} does not send its old rows whole, and replicaIdentity is RequireFull",
                f"leave replicaIdentity out: with column {table.unsent[0]}, which is generated and not published, the "
                "server would refuse its UPDATE and DELETE"
                if table.unsent
                else f"run ALTER TABLE {table.name} REPLICA IDENTITY FULL",
            )


def _check_identity(table: Table, where: str) -> None:
    if table.identity == "n" or (table.identity == "d" and not table.has_key):
        full = "" if table.unsent else f", or run ALTER TABLE {table.name} REPLICA IDENTITY FULL"
        raise _unsuitable(
            f"table {table.name} of {where} has no replica identity: once it is published, the server refuses "
            "its UPDATE and DELETE",
            f"give it a primary key that is not deferrable{full}",
        )


def _check_generated(table: Table, where: str, publishing: str) -> None:
    """From 18 on a server refuses to change rows by an identity of which the publication does not send all."""
    found = table.unsent if table.identity == "f" else table.unsent_of_key
    if not found:
        return
    send = f"run {publishing}"
    by_key = f"give it a primary key, and run ALTER TABLE {table.name} REPLICA IDENTITY DEFAULT"
    raise _unsuitable(
        f"generated column {found[0]} of table {table.name} of {where} is in its replica identity and is not "
        "published: once the table is, the server refuses its UPDATE and DELETE",
        f"{by_key}; or, if it is a stored one, {send}" if table.identity == "f" else send,
    )


def check_readable(unreadable: Mapping[str, Sequence[str]], role: str, where: str) -> None:
    """That a snapshot may read the tables: `unreadable` are the columns of each that the role may not read.

    To read only some columns does not suffice: tables are locked, which asks for a right on all of them.

    Raises:
        SinkPipelineError: SourceUnsuitable.
    """
    for table, columns in unreadable.items():
        if columns:
            raise _unsuitable(
                f"role {role} of {where} may not read table {table} (column {columns[0]}), and startingPosition is "
                "Snapshot",
                f'run GRANT USAGE ON SCHEMA {_schema(table)} TO "{role}"; GRANT SELECT ON {table} TO "{role}"',
            )


def _schema(table: str) -> str:
    """Of a name as SQL spells it."""
    found = re.match(r'"(?:[^"]|"")*"|[^."]+', table)
    return table if found is None else found[0]


def _unsuitable(fact: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, remedy)
