"""What is asked of the server: who it is, what its slot and publication say. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sinkpipeline.changes.postgresql.wire import Wire
from sinkpipeline.core.changes.beginning import Identity, Seen, SlotState
from sinkpipeline.core.changes.incremental import ALL, Listed
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.changes.positions import parse_lsn
from sinkpipeline.core.changes.suitable import Facts, Table

_FACTS = (
    "SELECT current_setting('server_version_num')::int, current_setting('wal_level'), getdatabaseencoding(),"
    " current_user, pg_is_in_recovery(), EXISTS (SELECT FROM pg_roles AS r WHERE (r.rolname = current_user"
    " AND (r.rolreplication OR r.rolsuper)) OR (r.rolname = 'rds_replication' AND pg_has_role(r.oid, 'MEMBER')))"
)
_IDENTITY = (
    "SELECT d.oid::text, coalesce((SELECT p.oid::text FROM pg_publication AS p WHERE p.pubname = %s), ''),"
    " pg_current_wal_flush_lsn()::text FROM pg_database AS d WHERE d.datname = current_database()"
)
_SLOT = (
    "SELECT plugin, datoid::text, confirmed_flush_lsn::text, restart_lsn::text, wal_status, active_pid, safe_wal_size,"
    # Columns of later versions: 17, 14.
    " to_jsonb(s) ->> 'invalidation_reason', coalesce((to_jsonb(s) ->> 'two_phase')::bool, false)"
    " FROM pg_replication_slots AS s WHERE slot_name = %s"
)
_END = "SELECT pg_current_wal_flush_lsn()::text, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_PUBLISHED_TABLES = (
    # From 15 on it names the columns that are published.
    "SELECT to_jsonb(t) -> 'attnames' AS sent, c.oid, c.relkind, c.relreplident = 'f' AS is_full"
    " FROM pg_publication_tables AS t JOIN pg_publication AS p USING (pubname)"
    " JOIN pg_namespace AS n ON n.nspname = t.schemaname JOIN pg_class AS c ON c.relnamespace = n.oid"
    " AND c.relname = t.tablename WHERE pubname = %s AND (p.pubupdate OR p.pubdelete)"
)
_NAMED_TABLES = (
    "SELECT '[]'::jsonb AS sent, c.oid, c.relkind, c.relreplident = 'f' AS is_full"
    " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p') AND CASE WHEN %s::text[] IS NULL THEN n.nspname <> 'information_schema'"
    " AND n.nspname !~ '^pg_' AND c.relpersistence = 'p' AND NOT c.relispartition"
    " ELSE n.nspname || '.' || c.relname = ANY (%s) END"
)
_TABLES = (
    "WITH found AS ({found}),"
    # The log has an old row as the partition says, and the stream tells it as the partitioned table does.
    " wanted AS (SELECT sent, oid, NULL::bool AS is_of_full, NULL::oid AS root FROM found UNION ALL"
    " SELECT sent, l.relid, is_full, oid FROM found, pg_partition_tree(oid) AS l WHERE relkind = 'p' AND l.isleaf)"
    " SELECT format('%%I.%%I', n.nspname, c.relname),"
    # An index that was dropped is no identity any more, and a key that may be deferred is none.
    " CASE WHEN c.relreplident IN ('i', 'd') AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid"
    " AND i.indimmediate AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END)"
    " THEN 'n' ELSE c.relreplident END::text,"
    " EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary),"
    " ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0"
    " AND NOT a.attisdropped AND a.attgenerated <> '' AND NOT sent ? a.attname::text"
    " AND current_setting('server_version_num')::int >= 180000 ORDER BY a.attnum),"
    " ARRAY(SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid"
    " AND a.attnum = ANY (i.indkey::int2[]) WHERE i.indrelid = c.oid"
    " AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END), is_of_full,"
    " {own}, {of_root}"
    " FROM wanted JOIN pg_class AS c USING (oid) JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " LEFT JOIN pg_class AS r ON r.oid = root WHERE c.relkind <> 'f' ORDER BY 1"
)
_TOLD_BY = (
    "ARRAY(SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid"
    " AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) WHERE i.indrelid = {of}.oid"
    " AND CASE {of}.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END ORDER BY a.attnum)"
)
"""The columns of a replica identity that is an index."""
_UNPUBLISHED = (
    "SELECT name FROM pg_publication AS p, unnest(ARRAY['insert', 'update', 'delete', 'truncate'],"
    " ARRAY[pubinsert, pubupdate, pubdelete, pubtruncate]) AS t (name, is_sent) WHERE pubname = %s AND NOT is_sent"
)
_PUBLISHED = (
    "SELECT t.schemaname || '.' || t.tablename, coalesce((SELECT 'table ' || r.oid"
    " FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE p.pubname = t.pubname"
    " AND (r.prrelid = c.oid OR c.oid IN (SELECT relid FROM pg_partition_tree(r.prrelid)))"
    " ORDER BY r.prrelid = c.oid DESC LIMIT 1){schemas}, %s), c.oid::text"
    " FROM pg_publication_tables AS t JOIN pg_namespace AS n ON n.nspname = t.schemaname"
    " JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.tablename WHERE t.pubname = %s ORDER BY 1"
)
_SCHEMAS = (
    ", (SELECT 'schema ' || s.oid FROM pg_publication_namespace AS s JOIN pg_publication AS p ON p.oid = s.pnpubid"
    # A partition may be in another schema than its table.
    " WHERE p.pubname = t.pubname AND (s.pnnspid = n.oid OR s.pnnspid IN (SELECT a.relnamespace"
    " FROM pg_partition_ancestors(c.oid) AS u JOIN pg_class AS a ON a.oid = u.relid))"
    " ORDER BY s.pnnspid = n.oid DESC LIMIT 1)"
)
_VERSION_OF_SCHEMAS = 150000
_KEY = (
    "SELECT a.attname FROM pg_index AS i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)"
    " JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
    " WHERE i.indrelid = %s::oid AND i.indisprimary AND place <= i.indnkeyatts ORDER BY place"
)
_READER = (
    "SELECT a.pid, coalesce(a.client_addr::text, 'local'), a.application_name, a.usename"
    " FROM pg_replication_slots AS s JOIN pg_stat_activity AS a ON a.pid = s.active_pid WHERE s.slot_name = %s"
)
_FORK = re.compile(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", re.MULTILINE)


def facts(wire: Wire, publication: str) -> Facts:
    """Whether the server suits; the tables are those of a publication that is there."""
    [(version, wal_level, encoding, role, in_recovery, may_replicate)] = wire.rows(_FACTS)
    return Facts(
        version=version,
        wal_level=wal_level,
        encoding=encoding,
        role=role,
        may_replicate=may_replicate,
        in_recovery=in_recovery,
        tables=tables(wire, publication),
        unpublished=tuple(each for (each,) in wire.rows(_UNPUBLISHED, (publication,))),
    )


def tables(wire: Wire, publication: str) -> tuple[Table, ...]:
    """Of a publication that sends updates or deletes, with the partitions of each; none where it is missing."""
    return tuple(map(_table, wire.rows(_tables(_PUBLISHED_TABLES), (publication,))))


def named(wire: Wire, names: Sequence[str]) -> tuple[Table, ...]:
    """Likewise, those that a publication of these would have, each as `schema.table`; of all where none is named."""
    wanted = list(names) or None
    return tuple(map(_table, wire.rows(_tables(_NAMED_TABLES), (wanted, wanted))))


def _tables(found: str) -> str:
    return _TABLES.format(found=found, own=_TOLD_BY.format(of="c"), of_root=_TOLD_BY.format(of="r"))


def _table(row: tuple[Any, ...]) -> Table:
    name, identity, has_key, unsent, key, is_of_full, told_by, of_root = row
    return Table(
        name=name,
        identity=identity,
        has_key=has_key,
        unsent=tuple(unsent),
        unsent_of_key=tuple(each for each in unsent if each in key),
        is_partition=is_of_full is not None,
        is_of_full=bool(is_of_full),
        untold=() if identity == "f" else tuple(each for each in of_root if each not in told_by),
    )


def published(wire: Wire, publication: str) -> dict[str, Listed]:
    """The tables of a publication as `schema.table`, with the entry by which each is in it, as `Meta.tables`.

    That is one of the table itself, of one whose partition it is, or of its schema.
    """
    [(version,)] = wire.rows("SELECT current_setting('server_version_num')::int")
    schemas = _SCHEMAS if version >= _VERSION_OF_SCHEMAS else ""
    rows = wire.rows(_PUBLISHED.format(schemas=schemas), (ALL, publication))
    return {name: Listed(by, oid) for name, by, oid in rows}


def server(wire: Wire) -> tuple[str, int]:
    """Its system identifier and its timeline; by a connection for replication."""
    [[system, timeline, *_]] = wire.command("IDENTIFY_SYSTEM")
    return system, int(timeline)


def seen(wire: Wire, slot: str, publication: str) -> Seen:
    """The server and its slot; by a connection for replication whose stream has not begun."""
    system, timeline = server(wire)
    [(database, published, flushed)] = wire.rows(_IDENTITY, (publication,))
    identity = Identity(system=system, timeline=timeline, database=database, slot=slot, publication=published)
    return Seen(
        identity=identity, slot=slot_state(wire, slot), flushed=parse_lsn(flushed), forks=_forks(wire, identity)
    )


def _forks(wire: Wire, identity: Identity) -> dict[int, int]:
    if identity.timeline == 1:
        # It comes from no other, and has no such file.
        return {}
    [[_, content]] = wire.command(f"TIMELINE_HISTORY {identity.timeline}")
    return {int(timeline): parse_lsn(lsn) for timeline, lsn in _FORK.findall(content)}


def slot_state(wire: Wire, slot: str) -> SlotState | None:
    """None where it is missing."""
    for plugin, database, confirmed, restart, wal_status, pid, safe, why, is_two_phase in wire.rows(_SLOT, (slot,)):
        return SlotState(
            plugin=plugin,
            database=database,
            confirmed=None if confirmed is None else parse_lsn(confirmed),
            restart=None if restart is None else parse_lsn(restart),
            wal_status=wal_status,
            active_pid=pid,
            safe_bytes=safe,
            invalidated=why,
            is_two_phase=is_two_phase,
        )
    return None


def end(wire: Wire) -> End:
    """Up to where the server's WAL is on the disk, and what time it is there."""
    [(lsn, clock)] = wire.rows(_END)
    return End(parse_lsn(lsn), clock)


def reader_of(wire: Wire, slot: str) -> str:
    """Who reads a slot, for people."""
    for pid, address, application, role in wire.rows(_READER, (slot,)):
        return f"pid {pid} of role {role} from {address} ({application})"
    return "somebody"


def primary_key(wire: Wire, table: int) -> tuple[str, ...]:
    """The columns of a table's primary key, by the table's oid; none where it has none."""
    return tuple(name for (name,) in wire.rows(_KEY, (table,)))
