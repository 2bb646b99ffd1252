"""Whether a server with a binary log suits, and its tables: each thing that speaks against them, with what helps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sinkpipeline.core.changes.binlog_kinds import MARIADB, MYSQL, BinlogKind
from sinkpipeline.core.changes.incremental import no_key
from sinkpipeline.core.errors import Reason, SinkPipelineError

_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a look at a server found."""

    kind: BinlogKind
    """As which it is read."""
    version: str
    """Such as 10.11.19-MariaDB-log."""
    has_log: bool
    format: str
    image: str
    metadata: str
    engines: Mapping[str, str]
    """By table, as `database.table`, what stores it; a table that is missing is not there."""
    unreadable: frozenset[str] = frozenset()
    """Tables that the user may not read."""
    only: frozenset[str] = frozenset()
    """Databases that alone are logged (binlog_do_db); empty: all are."""
    ignored: frozenset[str] = frozenset()
    """Databases that are not logged (binlog_ignore_db)."""
    replicates_silently: bool = False
    """Whether what comes from another server is not logged."""
    sync_binlog: int = 1
    """After how many writes the log is on the disk; 0: some time."""
    cascades: Mapping[str, str] = field(default_factory=dict)
    """By table, what a foreign key of it does to its rows by itself, such as ON DELETE CASCADE."""
    versioned: frozenset[str] = frozenset()
    """Tables of which the server keeps all rows that there ever were (MariaDB)."""
    old_times: Mapping[str, str] = field(default_factory=dict)
    """By table, a column of a time with a fraction as MariaDB 5.3 has stored it, with its type."""
    logs_cascades: bool = False
    """Whether rows that a foreign key changes are logged: by MySQL from 9.6 on, without innodb_native_foreign_keys."""
    unlockable: frozenset[str] = frozenset()
    """Tables that the user may not lock, as a snapshot of MySQL has to."""
    row_value_options: str = ""
    """What of a value is logged where that is not all of it."""
    error_action: str = ""
    """What the server does when it can't write its log; empty: it has no choice (MariaDB)."""
    log_engine: str = ""
    """What stores the log where it is not in files of its own (MariaDB 12.3)."""

    @property
    def release(self) -> tuple[int, int]:
        """The first two numbers of its version."""
        found = _VERSION.match(self.version)
        return (0, 0) if found is None else (int(found[1]), int(found[2]))


def check_suitable(facts: Facts, where: str) -> None:
    """That the log of a server can be read. Raises SinkPipelineError: SourceUnsuitable."""
    for error in unsuitable(facts, where):
        raise error


def unsuitable(facts: Facts, where: str) -> Iterable[SinkPipelineError]:
    """Each thing that speaks against a server."""
    kind = facts.kind
    found = MARIADB if "mariadb" in facts.version.lower() else MYSQL
    if found is not kind:
        yield _unsuitable(
            f"{where} is {found.title} {facts.version}",
            f"write spec.source.{found.name} instead of spec.source.{kind.name}",
        )
        return
    if facts.release < kind.oldest:
        oldest = ".".join(map(str, kind.oldest))
        yield _unsuitable(f"{where} is of version {facts.version}", f"use {kind.title} {oldest} or newer")
        return
    if not facts.has_log:
        yield _unsuitable(f"{where} has no binary log", "start the server with log_bin and server_id")
        return
    if facts.log_engine:
        yield _unsuitable(
            f"{where} has binlog_storage_engine = {facts.log_engine}: its log has no files that could be read from a "
            "place on",
            "start the server without binlog_storage_engine",
        )
        return
    for name, is_set, wanted in (
        ("binlog_format", facts.format, "ROW"),
        ("binlog_row_image", facts.image, "FULL"),
        ("binlog_row_metadata", facts.metadata, "FULL"),
    ):
        if is_set.upper() != wanted:
            yield _unsuitable(
                f"{where} has {name} = {is_set}",
                f"run SET GLOBAL {name} = '{wanted}', write it into the server's configuration, and end the sessions "
                "that have begun before",
            )
    if facts.row_value_options:
        yield _unsuitable(
            f"{where} has binlog_row_value_options = {facts.row_value_options}, and so logs only what has changed in a "
            "value of JSON",
            UNPARTIAL,
        )
    if facts.error_action.upper() == "IGNORE_ERROR":
        yield _unsuitable(
            f"{where} has binlog_error_action = IGNORE_ERROR: it goes on without its log when it can't write that",
            "run SET GLOBAL binlog_error_action = 'ABORT_SERVER', and write it into the server's configuration",
        )


UNPARTIAL = (
    "run SET GLOBAL binlog_row_value_options = '', write it into the server's configuration, and end the sessions that "
    "have begun before"
)


def unlogged(facts: Facts, tables: Iterable[str], where: str) -> Iterable[SinkPipelineError]:
    """Each reason why rows of the tables change without a word in the log."""
    kind = facts.kind
    if facts.replicates_silently:
        yield _unsuitable(
            f"{where} gets changes of other servers, or got some, with {kind.relays} = OFF: its log has not these",
            f"name the server where they are made; or start this one with {kind.relays} = ON",
        )
    for table in tables:
        spelled = next((each for each in facts.engines if each.lower() == table.lower()), table)
        if spelled != table and table not in facts.engines:
            yield _unsuitable(
                f"{where} logs table {table} as {spelled}, as it takes capitals for the same",
                f"write {spelled} into source.{kind.name}.tables",
            )
    for table in tables:
        database = table.split(".", 1)[0]
        if database in facts.ignored or (facts.only and database not in facts.only):
            yield _unsuitable(
                f"{where} does not log the changes of database {database} (binlog_do_db, binlog_ignore_db)",
                "start the server without these",
            )
            break
    else:
        if facts.only or facts.ignored:
            # Rows go by the database of their table, and what is logged as text by that of the session.
            yield _unsuitable(
                f"{where} does not log what a session runs that has chosen another database, as TRUNCATE of a table "
                "that is read (binlog_do_db, binlog_ignore_db)",
                "start the server without these",
            )
    for table in tables:
        if table in facts.cascades and not facts.logs_cascades:
            yield _unsuitable(f"{where}: {cascading(table, facts.cascades[table])}", UNCASCADE)


def cascading(table: str, action: str) -> str:
    """What is wrong with a table of which a foreign key changes rows."""
    return f"table {table} has a foreign key with {action}, and the server does not log the rows that it changes so"


UNCASCADE = (
    "make the foreign key anew without that, and change these rows by a statement or by a trigger of the other table: "
    "what these change is logged"
)


def unsuitable_tables(
    facts: Facts, tables: Iterable[str], where: str, *, snapshot: bool
) -> Iterable[SinkPipelineError]:
    """Each thing that speaks against the tables."""
    for table in tables:
        engine = facts.engines.get(table)
        if engine is None:
            yield _unsuitable(
                f"{where} has no table {table}, or the user may not see it",
                f"create it, correct source.{facts.kind.name}.tables, or run GRANT SELECT on it",
            )
        elif table in facts.old_times:
            yield _unsuitable(
                f"table {table} of {where} has a column of a time with a fraction that is stored as by MariaDB 5.3, "
                f"which the log does not say: {facts.old_times[table]}",
                f"with mysql56_temporal_format on, run ALTER TABLE {quoted(table)} MODIFY {facts.old_times[table]}",
            )
        elif snapshot and table in facts.versioned:
            yield _unsuitable(
                f"table {table} of {where} is system-versioned: the log has its columns of time, a snapshot has not",
                "write startingPosition: Now",
            )
        elif snapshot and engine.lower() != "innodb":
            yield _unsuitable(
                f"table {table} of {where} is stored by {engine}, of which no snapshot can be taken",
                f"run ALTER TABLE {quoted(table)} ENGINE = InnoDB; or write startingPosition: Now",
            )
        elif snapshot and table in facts.unreadable:
            yield _unsuitable(
                f"the user of {where} may not read table {table}, and startingPosition is Snapshot",
                f"run GRANT SELECT ON {quoted(table)} for the user",
            )
        elif snapshot and table in facts.unlockable:
            database = quoted_name(table.split(".", 1)[0])
            yield _unsuitable(
                f"the user of {where} may not lock table {table}, as a snapshot does for a moment",
                f"run GRANT LOCK TABLES ON {database}.* for the user; or write startingPosition: Now",
            )


def keyless(table: str, where: str) -> SinkPipelineError:
    """A table whose rows can't be read beside the stream."""
    return no_key(table, where, f"ALTER TABLE {quoted(table)} ADD PRIMARY KEY (...)")


def quoted(table: str) -> str:
    """`database.table` as SQL spells it."""
    return ".".join(quoted_name(each) for each in table.split(".", 1))


def quoted_name(name: str) -> str:
    """A name as SQL spells it."""
    return "`" + name.replace("`", "``") + "`"


def warning(facts: Facts) -> str | None:
    """What a person should know of a server that can be read."""
    if facts.sync_binlog == 1:
        return None
    return (
        f"warning: sync_binlog is {facts.sync_binlog}: if the machine loses power, its log may lack changes that the "
        "tables have; write sync_binlog = 1 into the server's configuration"
    )


def _unsuitable(fact: str, remedy: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, remedy)
