"""What is asked of the server: who it is, what its log and its tables are like. Changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sinkpipeline.changes.binlog.charsets import decode_of
from sinkpipeline.changes.binlog.wire import OutOfEvents, SqlFault, Wire
from sinkpipeline.changes.ports import AnotherServer
from sinkpipeline.core.changes import binlog
from sinkpipeline.core.changes.binlog_events import Event, Format, Gtid, Head, Rotate
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.binlog_mysql import GTIDS
from sinkpipeline.core.changes.binlog_places import Places
from sinkpipeline.core.changes.binlog_statements import cascade
from sinkpipeline.core.changes.binlog_suitable import Facts, quoted, quoted_name
from sinkpipeline.core.changes.binlog_values import Decode
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.lag import End
from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.positions import BinlogPosition, parse_binlog
from sinkpipeline.core.errors import Reason

Connect = Callable[[], Wire]
"""Makes another connection to the same server, for whoever closes it."""

_BETWEEN: Final = frozenset({3, 4, 35, 160, 161, 163, 164})
"""Events that no transaction has in it: a file ends, or begins."""
_OF_TRANSACTIONS: Final = GTIDS | {binlog.FORMAT, binlog.ROTATE, binlog.MARIADB_GTID}
_SETTINGS = (
    "SHOW GLOBAL VARIABLES WHERE variable_name IN ('version', 'log_bin', 'binlog_format', 'binlog_row_image',"
    " 'binlog_row_metadata', 'binlog_row_value_options', 'sync_binlog', 'log_slave_updates', 'log_replica_updates',"
    " 'innodb_native_foreign_keys', 'binlog_error_action', 'binlog_storage_engine')"
)
_EXPIRES = (
    "SHOW GLOBAL VARIABLES WHERE variable_name IN ('binlog_expire_logs_seconds', 'expire_logs_days',"
    " 'binlog_expire_logs_auto_purge')"
)
_TABLES = (
    "SELECT concat(table_schema, '.', table_name), engine, table_type FROM information_schema.tables"
    " WHERE table_type <> 'VIEW' AND table_schema = %s AND table_name = %s"
)
_OLD_TIMES = (
    "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    " AND column_type LIKE '%%mariadb-5.3%%' AND datetime_precision > 0"
)
_READABLE = (
    "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
    " AND NOT find_in_set('select', privileges) LIMIT 1"
)
_NOW = "SELECT floor(unix_timestamp(now(3)) * 1000)"
_TYPES = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
_CHARSETS = "SELECT character_set_name, maxlen FROM information_schema.character_sets"
_COLLATIONS = "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
# Since 10.10 a collation may be of several character sets, and has an id with each.
_FULL_COLLATIONS = "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
_HAS_FULL = (
    "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'information_schema'"
    " AND table_name = 'collation_character_set_applicability' AND column_name = 'id'"
)


def server(wire: Wire, kind: BinlogKind) -> str:
    """Who answers."""
    [(found,)] = wire.rows(f"SELECT @@global.{kind.identified_by}")
    return str(found)


def settings(wire: Wire) -> dict[str, str]:
    """What the server is told of its log, by the names of its variables; only those that it knows."""
    return {name.lower(): value for name, value in wire.rows(_SETTINGS)}


def facts(
    wire: Wire,
    kind: BinlogKind,
    tables: Sequence[str],
    *,
    told: Mapping[str, str],
    status: Sequence[Sequence[str]],
    is_replica: bool,
) -> Facts:
    """Whether the server suits, and what is there of the tables.

    Args:
        wire: to ask.
        kind: as which it is read.
        tables: `database.table` of each.
        told: as `settings` has it.
        status: of its log, as it says it: its third and fourth columns are databases that are logged, and not.
        is_replica: whether anything comes from another server.
    """
    relays = told.get("log_replica_updates", told.get("log_slave_updates", "ON"))
    only, ignored = next(((row[2] or "", row[3] or "") for row in status), ("", ""))
    engines, unreadable, cascades, versioned, old = {}, set(), {}, set(), {}
    for table in tables:
        names = table.split(".", 1)
        for name, engine, table_type in wire.rows(_TABLES, names):
            engines[name] = engine or "nothing"
            if "VERSIONED" in table_type:
                versioned.add(name)
            for column, definition in wire.rows(_OLD_TIMES, names):
                old[name] = f"{quoted_name(column)} {definition.split('/*')[0].strip()}"
            if wire.rows(_READABLE, names):
                unreadable.add(name)
            action = cascade_of(wire, name)
            if action is not None:
                cascades[name] = action
    return Facts(
        kind=kind,
        version=told["version"],
        has_log=told["log_bin"] == "ON",
        format=told.get("binlog_format", "ROW"),
        image=told["binlog_row_image"],
        metadata=told.get("binlog_row_metadata", "unknown"),
        engines=engines,
        unreadable=frozenset(unreadable),
        cascades=cascades,
        versioned=frozenset(versioned),
        old_times=old,
        only=_names(only),
        ignored=_names(ignored),
        replicates_silently=is_replica and relays != "ON",
        sync_binlog=int(told["sync_binlog"]),
        logs_cascades=told.get("innodb_native_foreign_keys") == "OFF",
        row_value_options=told.get("binlog_row_value_options", ""),
        error_action=told.get("binlog_error_action", ""),
        log_engine=told.get("binlog_storage_engine", ""),
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def cascade_of(wire: Wire, table: str) -> str | None:
    """What a foreign key of a table does to its rows by itself.

    By its definition: of information_schema a user who may only read sees no foreign keys.
    """
    [(_, definition)] = wire.rows(f"SHOW CREATE TABLE {quoted(table)}")
    return cascade(definition)


def touch(wire: Wire, tables: Sequence[str]) -> None:
    """Until its transaction ends, nobody alters, renames or empties one of the tables.

    Raises:
        SqlFault: also where somebody does so, or waits for it, for longer than lock_wait_timeout.
    """
    for each in tables:
        wire.rows(f"SELECT 1 FROM {quoted(each)} LIMIT 0")  # noqa: S608 - names are quoted


def key_of(wire: Wire, table: str) -> tuple[str, ...]:
    """The columns of what the log calls a table's primary key; none where it has none.

    Without a primary key that is the first one that is unique, without nulls and beginnings of columns.
    """
    keys: dict[str, list[Sequence[str]]] = {}
    for row in wire.rows(f"SHOW INDEX FROM {quoted(table)}"):
        # Of a hash of texts, the log has no key.
        if int(row[1]) == 0 and (row[2] == "PRIMARY" or row[10] != "HASH"):
            keys.setdefault(row[2], []).append(row)
    for name, parts in keys.items():
        # Of each part: its column, how much of that counts if not all, and whether it may be null.
        if name == "PRIMARY" or not any(part[7] is not None or part[9] or part[4] is None for part in parts):
            return tuple(part[4] for part in parts)
    return ()


class At(NamedTuple):
    """What stands at a place of the log."""

    born: int
    """When its file was begun, in Unix seconds."""
    event: Event | None
    """None where the log ends there."""
    kind: int = 0
    """Of the event, as its server numbers them."""

    @property
    def is_between(self) -> bool:
        """Whether no transaction goes on there."""
        return self.event is None or isinstance(self.event, Gtid) or self.kind in _BETWEEN


def at_place(wire: Wire, file: str, offset: int, *, has_checksums: bool, may_be_cut_off: bool = False) -> At:
    """Reads one event; the connection can't be used any more.

    Args:
        wire: to read by.
        file: of the log.
        offset: in it.
        has_checksums: of what comes before the file says it.
        may_be_cut_off: whether half an event may stand there, with which the file ends.

    Raises:
        NotUnderstood, SqlFault: no event begins there.
        SinkPipelineError: SourceUnreachable.
    """
    wire.dump(file, offset)
    born = None
    try:
        while True:
            data = wire.receive()
            head = binlog.head(data)
            said = binlog.parse(data, head, has_checksums=has_checksums)
            if isinstance(said, Format):
                # As the file's first event it is itself what was asked for.
                has_checksums, born = said.has_checksums, said.born
            elif isinstance(said, Rotate) and said.file != file and born is not None and not head.is_in_log:
                # A file that a server did not close, as it was killed: what follows is of the next one.
                return At(born, None)
            elif head.is_in_log and born is not None:
                return At(born, said, head.kind)
    except OutOfEvents:
        if born is None:
            raise
        return At(born, None)
    except SqlFault as fault:
        # All that is whole in its file is before it.
        if born is None or not (may_be_cut_off and fault.is_of_a_half):
            raise
        return At(born, None)


def found_at(
    connect: Connect, place: BinlogPosition, *, has_checksums: bool, may_be_cut_off: bool = False
) -> At | None:
    """What stands at a place, with what `at_place` says of it; None where no event begins there.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
    """
    try:
        with contextlib.closing(connect()) as wire:
            return at_place(wire, place.file, place.offset, has_checksums=has_checksums, may_be_cut_off=may_be_cut_off)
    except NotUnderstood:
        return None
    except SqlFault as fault:
        if not fault.is_of_the_log:
            raise
        return None


def transactions(
    connect: Connect, place: BinlogPosition, *, has_checksums: bool
) -> Iterator[tuple[BinlogPosition, Head, Gtid]]:
    """What begins behind a place, to the end of the log: where, and the head of its first event, and that.

    Raises:
        SqlFault
        SinkPipelineError: SourceUnreachable.
        NotUnderstood
    """
    at, found = Places(place.number, place.offset), place
    with contextlib.suppress(OutOfEvents):
        for data in _events(connect, place, at):
            head = binlog.head(data)
            if head.is_in_log:
                at.passed(head)
            if head.kind not in _OF_TRANSACTIONS:
                continue
            match binlog.parse(data, head, has_checksums=has_checksums):
                case Format(of_file):
                    has_checksums = of_file
                case Rotate(file, offset):
                    at.rotated(parse_binlog(f"{file}:0").number, offset)
                case Gtid() as said if head.is_in_log:
                    # Beyond 4 GiB it counts as part of the one before.
                    if at.is_begin(head):
                        found = place.moved(place.commit_at(at.number, head.start))
                    yield found, head, said
                case _:
                    pass


def _events(connect: Connect, place: BinlogPosition, at: Places) -> Iterator[bytes]:
    """What comes from a place on; `at`: where the newest is, which whoever reads it keeps."""
    while True:
        with contextlib.closing(connect()) as wire:
            wire.dump(place.file, place.offset)
            try:
                while True:
                    yield wire.receive()
            except SqlFault as fault:
                if not fault.is_of_a_half:
                    raise
        place = begin_of_next(place.moved(place.commit_at(at.number, binlog.BEGIN)))


def begin_of_next(place: BinlogPosition) -> BinlogPosition:
    """Where the first event is of the file behind that of a place."""
    return place.moved(place.commit_at(place.number + 1, binlog.BEGIN))


def begin_of_file(place: BinlogPosition) -> BinlogPosition:
    """Where the first event is of the file of a place."""
    return place.moved(place.commit_at(place.number, binlog.BEGIN))


def add_gtids(connect: Connect, place: BinlogPosition, found: Gtids, *, has_checksums: bool) -> bool:
    """Adds the GTIDs of the file of a place that stand before it; false where a transaction there has none.

    Raises:
        as `transactions`.
    """
    for at, _, said in transactions(connect, begin_of_file(place), has_checksums=has_checksums):
        if at.commit >= place.commit:
            break
        if said.gtid is None:
            return False
        found.add(said.gtid)
    return True


def before_file(wire: Wire, file: str, kind: str) -> str:
    """What the event of a kind says with which a file begins, as its server prints it."""
    [told] = [row[5] for row in wire.rows("SHOW BINLOG EVENTS IN %s LIMIT 4", (file,)) if row[2] == kind]
    return str(told)


def another_server(kind: BinlogKind, where: str, before: str, now: str) -> AnotherServer:
    """Who answers is not who has answered before."""
    return AnotherServer(
        Reason.SOURCE_UNREACHABLE,
        f"{where} is another server than a moment ago: {kind.identified_by} was {before}, is {now}",
        "nothing: the stage looks whether it has taken over; or name one server, and not an address behind which there "
        "are several that are read by turns",
    )


def clock(wire: Wire, commit: int) -> End:
    """The server's end, with its clock."""
    [(now,)] = wire.rows(_NOW)
    return End(commit, int(now))


def expires_s(wire: Wire) -> int:
    """How long it keeps its files; 0: for ever."""
    found = dict(wire.rows(_EXPIRES))
    if found.get("binlog_expire_logs_auto_purge") == "OFF":
        return 0
    if int(found.get("binlog_expire_logs_seconds", 0)):
        return int(found["binlog_expire_logs_seconds"])
    return int(float(found.get("expire_logs_days", 0)) * 86_400)


def has_checksums(wire: Wire) -> bool:
    """Whether what the server tells now has checksums."""
    [(kind,)] = wire.rows("SELECT @@global.binlog_checksum")
    return bool(kind != "NONE")


def folds(wire: Wire) -> bool:
    """Whether it takes names of tables for the same that differ in capitals."""
    [(how,)] = wire.rows("SELECT @@global.lower_case_table_names")
    return int(how) != 0


def decodes(wire: Wire) -> Mapping[int, Decode | None]:
    """By the number of a collation, how its texts are read; None: they are bytes."""
    [(has_full,)] = wire.rows(_HAS_FULL)
    rows = wire.rows(_COLLATIONS) + (wire.rows(_FULL_COLLATIONS) if int(has_full) else [])
    single = {name: int(size) == 1 for name, size in wire.rows(_CHARSETS)}

    def ask(charset: str, data: bytes) -> str:
        [(text,)] = wire.rows(f"SELECT CONVERT(_{charset} x'{data.hex()}' USING utf8mb4)")
        return str(text)

    made = {name: decode_of(name, ask, is_single=is_single) for name, is_single in single.items()}
    return {int(number): made[name] for number, name in rows if number is not None and name in made}


def types(wire: Wire, schema: str, table: str) -> Mapping[str, str]:
    """Of each column of a table as it is now; none where the user may not see it."""
    return {name: data_type.lower() for name, data_type in wire.rows(_TYPES, (schema, table))}
