"""What is asked of the server: who it is, what its log and its tables are like. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sinkpipeline.changes.mariadb.wire import Wire
from sinkpipeline.core.changes import binlog
from sinkpipeline.core.changes.binlog_beginning import Facts, Identity, Seen, files_of, quoted
from sinkpipeline.core.changes.binlog_values import CODECS
from sinkpipeline.core.changes.lag import End

_FACTS = (
    "SELECT version(), @@global.log_bin, @@global.binlog_format, @@global.binlog_row_image, @@global.sync_binlog,"
    " NOT @@global.log_slave_updates AND @@global.gtid_slave_pos <> ''"
)
_METADATA = "SHOW GLOBAL VARIABLES LIKE 'binlog_row_metadata'"
_EXPIRES = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('binlog_expire_logs_seconds', 'expire_logs_days')"
_TABLES = (
    "SELECT concat(t.table_schema, '.', t.table_name), t.engine, EXISTS (SELECT 1 FROM information_schema.statistics"
    " AS s WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = 'PRIMARY')"
    " FROM information_schema.tables AS t WHERE t.table_type <> 'VIEW' AND t.table_schema = %s AND t.table_name = %s"
)
_READABLE = (
    "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    " AND NOT find_in_set('select', privileges) LIMIT 1"
)
_NOW = "SELECT floor(unix_timestamp(now(3)) * 1000)"
_TYPES = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
_COLLATIONS = "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
# Since 10.10 a collation may be of several character sets, and has an id with each.
_FULL_COLLATIONS = "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
_HAS_FULL = (
    "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'information_schema'"
    " AND table_name = 'collation_character_set_applicability' AND column_name = 'id'"
)


def facts(wire: Wire, tables: Sequence[str]) -> Facts:
    """Whether the server suits, and what is there of the tables."""
    [(version, has_log, form, image, synced, is_silent)] = wire.rows(_FACTS)
    only, ignored = _filters(wire) if has_log == "1" else ("", "")
    metadata = [value for _, value in wire.rows(_METADATA)]
    engines, keyless, unreadable, cascades = {}, set(), set(), {}
    for table in tables:
        names = table.split(".", 1)
        for name, engine, has_key in wire.rows(_TABLES, names):
            engines[name] = engine or "nothing"
            if not int(has_key):
                keyless.add(name)
            if wire.rows(_READABLE, names):
                unreadable.add(name)
            action = cascade_of(wire, name)
            if action is not None:
                cascades[name] = action
    return Facts(
        version=version,
        has_log=has_log == "1",
        format=form,
        image=image,
        metadata=metadata[0] if metadata else "unknown",
        engines=engines,
        keyless=frozenset(keyless),
        unreadable=frozenset(unreadable),
        cascades=cascades,
        only=_names(only),
        ignored=_names(ignored),
        replicates_silently=is_silent == "1",
        sync_binlog=int(synced),
    )


def _filters(wire: Wire) -> tuple[str, str]:
    """Which databases are logged, and which are not."""
    for _, _, only, ignored, *_ in wire.rows("SHOW MASTER STATUS"):
        return only or "", ignored or ""
    return "", ""


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def cascade_of(wire: Wire, table: str) -> str | None:
    """What a foreign key of a table does to its rows by itself.

    By its definition: of information_schema a user who may only read sees no foreign keys.
    """
    [(_, definition)] = wire.rows(f"SHOW CREATE TABLE {quoted(table)}")
    return binlog.cascade(definition)


def seen(wire: Wire, where: str, place: tuple[str, int] | None = None) -> Seen:
    """The server, its files, and its GTIDs at a place; without one, at the end."""
    [(server,)] = wire.rows("SELECT @@global.server_id")
    log, files = files_of([(row[0], row[1]) for row in wire.rows("SHOW BINARY LOGS")], where)
    found = Seen(identity=Identity(server=server, log=log), files=files)
    file, offset = (found.end.file, found.end.offset) if place is None else place
    [(gtids,)] = wire.rows("SELECT binlog_gtid_pos(%s, %s)", (file, offset))
    return Seen(identity=found.identity, files=files, gtids=gtids)


def born(wire: Wire, file: str, *, has_checksums: bool) -> int | None:
    """When a file of the log was begun, in Unix seconds; the connection can't be used any more."""
    wire.dump(file, binlog.BEGIN)
    while True:
        data = wire.receive()
        said = binlog.parse(data, binlog.head(data), has_checksums=has_checksums)
        if isinstance(said, binlog.Format):
            return said.born


def files(wire: Wire, where: str) -> Seen:
    """The same without GTIDs, which the server reads a file for."""
    log, found = files_of([(row[0], row[1]) for row in wire.rows("SHOW BINARY LOGS")], where)
    return Seen(identity=Identity(server="", log=log), files=found)


def clock(wire: Wire, commit: int) -> End:
    """The server's end, with its clock."""
    [(now,)] = wire.rows(_NOW)
    return End(commit, int(now))


def expires_s(wire: Wire) -> int:
    """How long it keeps its files; 0: for ever."""
    found = dict(wire.rows(_EXPIRES))
    if int(found.get("binlog_expire_logs_seconds", 0)):
        return int(found["binlog_expire_logs_seconds"])
    return int(float(found.get("expire_logs_days", 0)) * 86_400)


def has_checksums(wire: Wire) -> bool:
    """Whether what the server tells now has checksums."""
    [(kind,)] = wire.rows("SELECT @@global.binlog_checksum")
    return bool(kind != "NONE")


def codecs(wire: Wire) -> Mapping[int, str | None]:
    """By the number of a collation, Python's name of its character set; None of one that Python does not have."""
    [(has_full,)] = wire.rows(_HAS_FULL)
    rows = wire.rows(_COLLATIONS) + (wire.rows(_FULL_COLLATIONS) if int(has_full) else [])
    return {int(number): CODECS.get(name) for number, name in rows if number is not None}


def types(wire: Wire, schema: str, table: str) -> Mapping[str, str]:
    """Of each column of a table as it is now; none where the user may not see it."""
    return {name: kind.lower() for name, kind in wire.rows(_TYPES, (schema, table))}
