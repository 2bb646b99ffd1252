"""What a start of a stage would find, looked at beforehand: everything here describes or observes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from sinkpipeline.changes.observing import observed
from sinkpipeline.changes.ports import Foreseen
from sinkpipeline.changes.postgresql import copying, look, making
from sinkpipeline.changes.postgresql.wire import SqlFault, Wire, refused
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.beginning import (
    Seen,
    check_anew,
    check_going_on,
    decide_first,
    identity_of,
    publication_missing,
    slot_in_the_way,
)
from sinkpipeline.core.changes.incremental import Listed, asked_since, no_key, reads
from sinkpipeline.core.changes.suitable import (
    Facts,
    check_readable,
    check_suitable,
    check_tables,
    unpublished_told,
)
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import Progress

T = TypeVar("T")
_MISSING = (
    "SELECT name FROM unnest(%s::text[]) AS name WHERE NOT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n"
    " ON n.oid = c.relnamespace WHERE n.nspname || '.' || c.relname = name AND c.relkind IN ('r', 'p'))"
)
_UNREADABLE = (
    "SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid"
    " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE format('%%I.%%I', n.nspname, c.relname) = %s"
    " AND a.attnum > 0 AND NOT a.attisdropped"
    " AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'))"
)
_SLOTS = "SELECT count(*), current_setting('max_replication_slots')::int FROM pg_replication_slots"


def foresee(settings: StageSettings) -> Foreseen:
    """Looks at the database, the slot, and the progress of the stage."""
    found, wanted = Foreseen(), settings.postgresql
    where = f"PostgreSQL at {wanted.connection.servers}, database {wanted.connection.database}"
    progress = _tried(found, lambda: observed(settings))
    wire = _tried(found, lambda: Wire(wanted.connection, where))
    if wire is None:
        return found
    with closing(wire):
        try:
            facts = look.facts(wire, wanted.publication.name)
            found.errors += _of_the_server(facts, where, failover=wanted.slot.failover)
            if facts.unpublished:
                found.told.append(unpublished_told(wanted.publication.name, facts.unpublished))
            is_first = progress is not None and not progress.exists
            found.errors += _of_tables(wire, settings, facts, where, is_first=is_first)
        except SqlFault as fault:
            found.errors.append(refused(fault, where, wanted.connection.user))
            return found
    if facts.in_recovery or not facts.may_replicate or facts.wal_level != "logical":
        # The server would say the same again.
        return found
    _tried(found, lambda: _of_the_slot(found, settings, progress, where))
    return found


def _tried(found: Foreseen, act: Callable[[], T]) -> T | None:
    try:
        return act()
    except SinkPipelineError as error:
        found.errors.append(error)
        return None


def _of_the_server(facts: Facts, where: str, *, failover: bool) -> Iterator[SinkPipelineError]:
    """Each thing that is wrong: a start names the first one alone."""
    good = replace(facts, wal_level="logical", may_replicate=True, encoding="UTF8")
    for each in (
        good,
        replace(good, wal_level=facts.wal_level),
        replace(good, may_replicate=facts.may_replicate),
        replace(good, encoding=facts.encoding),
    ):
        try:
            check_suitable(each, where, failover=failover)
        except SinkPipelineError as error:
            yield error
            if each is good:
                return


def _of_tables(
    wire: Wire, settings: StageSettings, facts: Facts, where: str, *, is_first: bool
) -> Iterator[SinkPipelineError]:
    wanted = settings.postgresql.publication
    tables = facts.tables
    [(is_there,)] = wire.rows("SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)", (wanted.name,))
    if not is_there:
        if not wanted.create:
            yield publication_missing(f"{where}: publication {wanted.name}")
            return
        tables = look.named(wire, wanted.tables)
        for (name,) in wire.rows(_MISSING, (list(wanted.tables),)):
            yield SinkPipelineError(
                Reason.SOURCE_UNSUITABLE,
                f"{where} has no table {name}, which publication.tables names",
                "create it, or correct publication.tables",
            )
    publishing = making.publishing_generated(wanted, is_there=is_there)
    for each in tables:
        try:
            check_tables([each], where, publishing, require_full=settings.postgresql.require_full)
        except SinkPipelineError as error:
            yield error
        if each.is_partition:
            # What is read is the partitioned table.
            continue
        if is_first and settings.postgresql.incremental and not each.has_key:
            yield no_key(each.name, where, f"ALTER TABLE {each.name} ADD PRIMARY KEY (...)")
        if settings.postgresql.reads_rows:
            [(columns,)] = wire.rows(_UNREADABLE, (each.name,))
            try:
                check_readable({each.name: columns or ()}, facts.role, where)
            except SinkPipelineError as error:
                yield error


def _of_the_slot(found: Foreseen, settings: StageSettings, progress: Progress | None, where: str) -> None:
    """By a connection for replication, as a start needs one: a pooler has none, and a server may have none left."""
    wanted = settings.postgresql
    with closing(Wire(wanted.connection, where, replication=True)) as wire:
        try:
            seen = look.seen(wire, wanted.slot.name, wanted.publication.name)
            [(used, most)] = wire.rows(_SLOTS)
            published = look.published(wire, wanted.publication.name)
        except SqlFault as fault:
            raise refused(fault, where, wanted.connection.user) from fault
    if progress is None:
        return
    if progress.exists and progress.meta is not None:
        _check_going_on(found, settings, progress, seen, where)
        if progress.partitions[wanted.partition].snapshot is None:
            _of_rows_beside(found, settings, progress, published, where, most=most if used >= most else None)
        return
    # A start that was interrupted has said that the slot is its own.
    announced = progress.meta is not None and progress.meta.partitions is None
    creates = [] if seen.identity.publication else [making.publication_statement(wanted.publication)]
    start = None
    if wanted.snapshot:
        slot_in_the_way(seen, where, announced=announced)
    else:
        start = decide_first(seen, wanted.asked(announced=announced), where)
    if start is None:
        # Rows beside the stream need another one for a moment.
        if used + wanted.incremental >= most:
            raise SinkPipelineError(
                Reason.SOURCE_UNSUITABLE,
                f"{where} has {used} replication slots, max_replication_slots is {most}, and a start needs "
                f"{1 + wanted.incremental} more",
                f"drop one that nobody reads; or {_more_slots(most)}",
            )
        creates.append(f"slot {wanted.slot.name}")
    begins = f"at {start}"
    if start is None:
        begins = "with a snapshot of the tables" if wanted.snapshot else "now"
        begins += ", and reads the rows of the tables while the stream goes on" if wanted.incremental else ""
    found.told.append(f"starts for the first time, {begins}; creates {' and '.join(creates) or 'nothing'}")
    if wanted.start_from is not None and wanted.start_from.overlap:
        found.told.append(wanted.start_from.overlap)


def _check_going_on(found: Foreseen, settings: StageSettings, progress: Progress, seen: Seen, where: str) -> None:
    state = progress.partitions[settings.postgresql.partition]
    if progress.meta is None or state.pos is None:
        return
    if state.snapshot is not None:
        check_anew(identity_of(progress.meta.source), state.pos, seen, where)
        slot_in_the_way(seen, where, announced=True)
        found.told.append(
            f"the snapshot of the tables is not complete: a start takes {state.snapshot.rows} rows back, and begins it "
            f"anew in epoch {state.epoch + 1}; drops slot {seen.identity.slot} and creates it again"
        )
        return
    check_going_on(identity_of(progress.meta.source), state.pos, seen, where)
    behind = max(0, seen.flushed - state.pos.commit)
    found.told.append(f"resumes at {state.pos}, {behind} bytes before the server's end")


def _more_slots(most: int) -> str:
    return f"run ALTER SYSTEM SET max_replication_slots = {most + 4}, and restart the server"


def _of_rows_beside(
    found: Foreseen,
    settings: StageSettings,
    progress: Progress,
    published: Mapping[str, Listed],
    where: str,
    *,
    most: int | None,
) -> None:
    """Which tables have come since, whose rows are to be read; and whether they can be.

    `most`: how many slots the server may have, where it has them all.
    """
    wanted = settings.postgresql
    meta, state = progress.meta, progress.partitions[wanted.partition]
    if meta is None:
        return
    mark, added = asked_since(meta.tables, published, state.incremental, reads_rows=wanted.reads_rows)
    if mark is not None:
        found.told += reads(mark)
        if most is not None:
            found.told.append(
                f"waits with that: a snapshot of a table needs a replication slot for a moment, and all {most} are "
                f"used; drop one that nobody reads, or {_more_slots(most)}"
            )
    if added:
        user = wanted.connection.user
        with closing(Wire(wanted.connection, where)) as wire:
            try:
                version = look.facts(wire, wanted.publication.name).version
                copying.check_beside(wire, wanted.publication.name, version, added, user, where)
            except SqlFault as fault:
                raise refused(fault, where, user) from fault
