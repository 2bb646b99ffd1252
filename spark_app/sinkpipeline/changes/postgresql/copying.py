"""What is asked of the server for a snapshot: a slot with it, which tables there are, their locks, and their rows.

A snapshot does not see what an ALTER TABLE that rewrites the table, or a TRUNCATE, has left: the table is empty then,
in silence. So the tables are locked before they are read, as pg_dump does it; and what was done to one between the
snapshot and the lock shows in its file, which is another one than the snapshot knows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sinkpipeline.changes.postgresql.making import quoted
from sinkpipeline.changes.postgresql.wire import SqlFault, Wire
from sinkpipeline.changes.settings import Slot
from sinkpipeline.core.changes.beginning import PLUGIN, SlotState
from sinkpipeline.core.changes.incremental import hidden_key, no_key
from sinkpipeline.core.changes.pgoutput import Column, Relation
from sinkpipeline.core.changes.positions import lsn_text, parse_lsn
from sinkpipeline.core.changes.suitable import check_readable
from sinkpipeline.core.errors import SinkPipelineError

_VERSION_OF_LISTS = 150000
_VERSION_OF_FAILOVER = 170000
_VERSION_OF_GENERATED = 180000
_LOCK_S = 60
_IN_USE = "55006"
_TABLES = (
    "SELECT c.oid::int8, n.nspname, c.relname, c.relreplident::text, c.relkind::text, {lists},"
    " (SELECT k.indnkeyatts FROM pg_index AS k WHERE k.indrelid = c.oid AND k.indisprimary),"
    " CASE c.relkind WHEN 'p' THEN (SELECT sum(greatest(l.reltuples, 0)) FROM pg_partition_tree(c.oid) AS t"
    " JOIN pg_class AS l ON l.oid = t.relid WHERE t.isleaf) ELSE greatest(c.reltuples, 0) END::int8"
    " FROM pg_publication_tables AS t JOIN pg_namespace AS n ON n.nspname = t.schemaname JOIN pg_class AS c"
    " ON c.relnamespace = n.oid AND c.relname = t.tablename WHERE t.pubname = %s{only} ORDER BY 2, 3"
)
_LISTS = "t.attnames::text[], t.rowfilter"
_ONE = " AND t.schemaname || '.' || t.tablename = %s"
_NO_LISTS = "NULL::text[], NULL::text"
_COLUMNS = (
    "SELECT a.attname, a.atttypid::int8, has_table_privilege(a.attrelid, 'SELECT')"
    " AND (SELECT has_schema_privilege(c.relnamespace, 'USAGE') FROM pg_class AS c WHERE c.oid = a.attrelid),"
    " (SELECT array_position(k.indkey::int2[], a.attnum) FROM pg_index AS k WHERE k.indrelid = a.attrelid"
    " AND k.indisprimary AND a.attnum = ANY ((k.indkey::int2[])[0:k.indnkeyatts - 1])),"
    " EXISTS (SELECT FROM pg_index AS k WHERE k.indrelid = a.attrelid AND k.indisreplident"
    " AND a.attnum = ANY ((k.indkey::int2[])[0:k.indnkeyatts - 1]))"
    " FROM pg_attribute AS a WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped{generated}"
    " ORDER BY a.attnum"
)
_PARTITIONS = (
    # By the snapshot of the transaction; functions go by what is there now. One that was made as a partition has been
    # empty then, and was made by who has noted that it is one: its system columns are written never again.
    "WITH RECURSIVE t (oid, attached) AS (SELECT %s::oid, false UNION ALL SELECT i.inhrelid, i.xmin::text <>"
    " (SELECT a.xmin::text FROM pg_attribute AS a WHERE a.attrelid = i.inhrelid AND a.attname = 'tableoid')"
    " FROM pg_inherits AS i JOIN t ON i.inhparent = t.oid) SELECT oid::int8, attached FROM t ORDER BY 1"
)
_STORED = " AND a.attgenerated = ''"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8"
_REWRITTEN = (
    "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid) AND c.relkind = 'r' AND (c.oid = ANY (%s::oid[])"
    " OR c.oid IN (SELECT t.relid FROM unnest(%s::oid[]) AS root, pg_partition_tree(root) AS t)) ORDER BY 1"
)
_OPERATORS = (
    "WITH t AS (SELECT typnamespace, typbasetype FROM pg_type WHERE oid = ANY (%s::oid[])), n AS (SELECT typnamespace"
    " FROM t UNION SELECT b.typnamespace FROM t JOIN pg_type AS b ON b.oid = t.typbasetype)"
    " SELECT set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''),"
    " string_agg(quote_ident(s.nspname), ', ')), false) FROM n JOIN pg_namespace AS s ON s.oid = n.typnamespace"
)
_DROP = (
    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND plugin = %s"
    " AND datoid = %s::oid AND confirmed_flush_lsn = %s::pg_lsn"
)


@dataclass(frozen=True, kw_only=True)
class CopiedTable:
    """One that a snapshot reads."""

    relation: Relation
    """As the stream tells it."""
    key: tuple[int, ...]
    """By which it is read in chunks: where the columns of its primary key are among its columns, in the key's order;
    none where it has none."""
    is_partitioned: bool
    only_rows: str | None
    """Which rows the publication names, as SQL; None: all."""
    estimate: int
    """How many rows it may have, as the server's statistics say."""
    hides_key: bool = False
    """Whether it has a primary key of which the publication has a part only."""
    unreadable: tuple[str, ...] = ()
    """Columns that the role may not read."""
    only_of: tuple[int, ...] = ()
    """Of a partitioned one, the partitions whose rows are read; none: all."""
    attached: tuple[int, ...] = ()
    """Those of them that were tables by themselves before."""

    @property
    def name(self) -> str:
        """As SQL spells it."""
        return f"{quoted(self.relation.schema)}.{quoted(self.relation.name)}"

    @property
    def alone(self) -> str:
        """The same without tables that inherit from it, which a publication names by themselves."""
        return self.name if self.is_partitioned else f"ONLY {self.name}"


def tables(wire: Wire, publication: str, version: int, one: str | None = None) -> list[CopiedTable]:
    """Those of a publication, as they are now; `one`: only this one, as `schema.table`."""
    asked = (publication,) if one is None else (publication, one)
    lists = _LISTS if version >= _VERSION_OF_LISTS else _NO_LISTS
    columns = _COLUMNS.format(generated="" if version >= _VERSION_OF_GENERATED else _STORED)
    found = []
    for oid, schema, name, identity, kind, names, only_rows, width, estimate in wire.rows(
        _TABLES.format(lists=lists, only="" if one is None else _ONE), asked
    ):
        rows = [each for each in wire.rows(columns, (oid,)) if names is None or each[0] in names]
        keyed = sorted((row[3], at) for at, row in enumerate(rows) if row[3] is not None)
        if len(keyed) < (width or 0):
            # By a part of it (the rest is generated, or not in a list), rows alike in that would be passed over.
            keyed = []
        found.append(
            CopiedTable(
                relation=Relation(
                    oid, schema, name, identity, tuple(Column(row[0], _is_of(identity, row), row[1]) for row in rows)
                ),
                key=tuple(at for _, at in keyed),
                is_partitioned=kind == "p",
                only_rows=only_rows,
                estimate=int(estimate or 0),
                hides_key=bool(width) and not keyed,
                unreadable=tuple(row[0] for row in rows if not row[2]),
            )
        )
    return found


def check_beside(wire: Wire, publication: str, version: int, names: Collection[str], role: str, where: str) -> None:
    """That rows of these tables, as `schema.table`, can be read while the stream goes on.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnsuitable, SourceUnreachable.
    """
    for table in tables(wire, publication, version):
        if f"{table.relation.schema}.{table.relation.name}" in names:
            check_readable({table.name: table.unreadable}, role, where)
            if not table.key:
                raise keyless(table, where)


def keyless(table: CopiedTable, where: str) -> SinkPipelineError:
    """A table whose rows can't be read beside the stream."""
    name = f"{_plain(table.relation.schema)}.{_plain(table.relation.name)}"
    if table.hides_key:
        return hidden_key(name, where)
    return no_key(name, where, f"ALTER TABLE {name} ADD PRIMARY KEY (...)")


def _plain(name: str) -> str:
    """As people spell it, which needs no quotes most often."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quoted(name)


def _is_of(identity: str, column: tuple[Any, ...]) -> bool:
    """Whether a column is of the replica identity; of a full one each is."""
    _, _, _, in_key, in_index = column
    match identity:
        case "f":
            return True
        case "d":
            return in_key is not None
        case "i":
            return bool(in_index)
        case _:
            return False


def export_slot(wire: Wire, slot: Slot, version: int) -> tuple[int, str]:
    """Makes it. The LSN at which it begins, and the name of a snapshot of that moment, which lives as long as `wire`.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """
    options = "EXPORT_SNAPSHOT"
    if slot.failover and version >= _VERSION_OF_FAILOVER:
        options = "(SNAPSHOT 'export', FAILOVER true)"
    [[_, start, snapshot, *_]] = wire.command(f'CREATE_REPLICATION_SLOT "{slot.name}" LOGICAL {PLUGIN} {options}')
    return parse_lsn(start), snapshot


def export_temporary(wire: Wire, name: str) -> tuple[int, str]:
    """Likewise, of a slot that is gone with `wire`.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """
    [[_, start, snapshot, *_]] = wire.command(
        f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL {PLUGIN} EXPORT_SNAPSHOT'
    )
    return parse_lsn(start), snapshot


def drop_slot(wire: Wire, name: str, state: SlotState) -> None:
    """Drops a slot, if it is still the one that was looked at: one of the same name may be another one by now.

    One that is read stays.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """
    if state.confirmed is None:
        # It was being made, and is gone with who made it.
        return
    try:
        wire.rows(_DROP, (name, state.plugin, state.database, lsn_text(state.confirmed)))
    except SqlFault as fault:
        if fault.sqlstate != _IN_USE:
            raise


def enter(wire: Wire, snapshot: str, wanted: Sequence[CopiedTable]) -> int:
    """Begins a transaction that sees what the snapshot does, with its tables locked; Unix milliseconds of the server.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """
    wire.rows(f"SET lock_timeout = '{_LOCK_S}s'")
    # The index of a key is ordered by operators of its type, wherever that is.
    wire.rows(_OPERATORS, [[each.relation.columns[at].type for each in wanted for at in each.key]])
    wire.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    wire.rows(f"SET TRANSACTION SNAPSHOT {wire.literal(snapshot)}")
    if wanted:
        wire.rows(f"LOCK TABLE {', '.join(each.alone for each in wanted)} IN ACCESS SHARE MODE")
    [(now,)] = wire.rows(_NOW)
    return int(now)


def rewritten(wire: Wire, wanted: Sequence[CopiedTable]) -> list[str]:
    """Of locked tables, those whose rows the snapshot does not see, as they were written anew since."""
    oids = [each.relation.oid for each in wanted]
    roots = [each.relation.oid for each in wanted if each.is_partitioned]
    return [name for (name,) in wire.rows(_REWRITTEN, (oids, roots))]


def pinned(wire: Wire, table: CopiedTable) -> CopiedTable:
    """A table of whose partitions only those are read that it had when the snapshot of the transaction was made.

    One that is attached later is not locked, and the snapshot has its rows as they were before it was a partition.
    """
    if not table.is_partitioned:
        return table
    found = wire.rows(_PARTITIONS, (table.relation.oid,))
    attached = tuple(oid for oid, was_a_table in found if was_a_table)
    return replace(table, only_of=tuple(oid for oid, _ in found), attached=attached)


def select(wire: Wire, table: CopiedTable, after: Sequence[str] | None, most: int) -> str:
    """The COPY of a chunk: rows whose key comes after `after`; of a table without a key, of all rows."""
    columns = [quoted(each.name) for each in table.relation.columns]
    conditions = [] if table.only_rows is None else [f"({table.only_rows})"]
    if table.only_of:
        conditions.append(f"tableoid = ANY ('{{{','.join(map(str, table.only_of))}}}'::oid[])")
    order = ""
    if table.key:
        key = ", ".join(columns[at] for at in table.key)
        order = f" ORDER BY {key} LIMIT {most}"
        if after is not None:
            conditions.append(f"({key}) > ({', '.join(map(wire.literal, after))})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {', '.join(columns)} FROM {table.alone}{where}{order}"  # noqa: S608 - names are quoted
    return f"COPY ({query}) TO STDOUT"


def lines(
    wire: Wire, table: CopiedTable, after: Sequence[str] | None, most: int, wait_s: float
) -> Iterator[bytes | None]:
    """The rows of a chunk, as COPY tells them; None where nothing has come for so long.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """
    return wire.copied(select(wire, table, after, most), wait_s)
