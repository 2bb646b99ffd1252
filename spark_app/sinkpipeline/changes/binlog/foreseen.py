"""What a start of a stage would find, looked at beforehand: everything here describes or observes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from sinkpipeline.changes.binlog.dialect import Dialect
from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.binlog.start import first, going_on, moved, with_added
from sinkpipeline.changes.binlog.wire import SqlFault, refused
from sinkpipeline.changes.observing import observed
from sinkpipeline.changes.ports import Foreseen, at
from sinkpipeline.changes.settings import BinlogSettings, StageSettings
from sinkpipeline.core.changes.binlog_suitable import Facts, unlogged, unsuitable, unsuitable_tables, warning
from sinkpipeline.core.changes.incremental import IncrementalMark, reads
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.progress import Progress


def foresee_of(dialect: Dialect) -> Callable[[StageSettings], Foreseen]:
    """What looks at a server of a kind."""
    return partial(_foresee, dialect)


def _foresee(dialect: Dialect, settings: StageSettings) -> Foreseen:
    """Looks at the server, its tables, and the progress of the stage."""
    found, wanted = Foreseen(), settings.binlog
    progress: Progress | None = None
    try:
        progress = observed(settings)
    except SinkPipelineError as error:
        found.errors.append(error)
    try:
        with closing(Reader(dialect, wanted)) as reader:
            facts = _facts(reader)
            found.errors += _refusals(facts, wanted, reader.where)
            found.told += filter(None, [warning(facts)])
            if progress is not None and not found.errors:
                found.told += _told(reader, progress, facts)
    except SinkPipelineError as error:
        found.errors.append(error)
    return found


def _facts(reader: Reader) -> Facts:
    with closing(reader.connected()) as wire:
        try:
            return reader.dialect.facts(wire, reader.settings.tables)
        except SqlFault as fault:
            raise refused(fault, reader.where, reader.user, reader.dialect.kind) from fault


def _refusals(facts: Facts, wanted: BinlogSettings, where: str) -> list[SinkPipelineError]:
    """Each thing that is wrong: a start names the first one alone."""
    return [
        *unsuitable(facts, where),
        *unlogged(facts, wanted.tables, where),
        *unsuitable_tables(facts, wanted.tables, where, snapshot=wanted.reads_rows),
    ]


def _told(reader: Reader, progress: Progress, facts: Facts) -> list[str]:
    wanted = reader.settings
    if progress.exists and progress.meta is not None:
        state = progress.partitions[wanted.partition]
        before = state
        _, state = going_on(progress.meta, state, reader)
        if state.snapshot is not None:
            anew = f"a start takes {state.snapshot.rows} rows back, and begins it anew in epoch {state.epoch + 1}"
            return [f"the snapshot of the tables is not complete: {anew}"]
        mark = with_added(progress.meta, state, reader, facts).incremental
        behind = reader.seen().behind(at(state))
        resumes = f"resumes at {state.pos}, {behind} bytes before the server's end"
        return [*filter(None, [moved(before, state, reader)]), resumes, *(reads(mark) if mark else ())]
    start, seen = first(reader)
    # Whether the user may read the log, only its begin tells.
    reader.seen(seen.end)
    where = "with a snapshot of the tables" if start is None else f"at {start}"
    overlap = "" if wanted.start_from is None else wanted.start_from.overlap
    told = [f"starts for the first time, {where}" + (f"; {overlap}" if overlap else "")]
    if wanted.incremental:
        reader.check_copied(facts, wanted.tables)
        told += reads(IncrementalMark(waiting=wanted.tables))
    return told
