"""Where a stage goes on, or begins, in a binary log: by what was read of its progress, and of the server. Announces it.

progress                     startingPosition     what begins
none                         Now                  the stream, at the end of the log
none                         startFrom            the stream, from there
none                         Snapshot             a snapshot of the tables
none                         IncrementalSnapshot  the stream, at the end of the log; the rows of the tables beside it
in the middle of a snapshot  whatever             a snapshot, anew, in another epoch
complete                     whatever             its stream goes on; the rows of tables that came since beside it
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.binlog.taking_over import taken_over
from sinkpipeline.changes.claim import Claim, Claimed
from sinkpipeline.changes.ports import Started, at
from sinkpipeline.changes.settings import BinlogSettings, StageSettings
from sinkpipeline.core.changes.binlog_beginning import (
    Identity,
    Seen,
    check_going_on,
    check_same,
    check_there,
    identity_of,
)
from sinkpipeline.core.changes.binlog_suitable import Facts
from sinkpipeline.core.changes.incremental import IncrementalMark, Listed, asked_since
from sinkpipeline.core.changes.positions import BinlogPosition, noted
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import Meta, PartitionProgress, corrupt
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")


def begin(settings: StageSettings, claim: Claim, claimed: Claimed, reader: Reader) -> Started:
    """What is read, and where to go on; announces this stage.

    Raises:
        SinkPipelineError: whatever speaks against it.
    """
    facts = reader.facts()
    progress, partition = claimed.progress, settings.binlog.partition
    if progress.exists and progress.meta is not None:
        state = progress.partitions[partition]
        identity, state = going_on(progress.meta, state, reader)
        if (told := moved(progress.partitions[partition], state, reader)) is not None:
            _LOG.warning("%s", told)
        try:
            reader.check_tables(facts)
        except SinkPipelineError as error:
            # What it says is of changes to come: those that are there can be read.
            _LOG.warning("%s", error)
        if state.snapshot is None:
            place = reader.with_executed(place_of(state))
            if not _same_tables(progress.meta, reader):
                # What was counted of a transaction that goes on was of other tables.
                place = place.moved(place.commit, place.index, place.note)
            state = replace(state, pos=place)
        more = with_added(progress.meta, state, reader, facts)
        # Of one that the user may not see yet, the rows are not read: it counts as added when it can be seen.
        known = [each for each in settings.binlog.tables if each in facts.engines or reader.is_missing(each)]
        before = progress.partitions[partition]
        is_as_before = more == before and at(more).to_record() == at(before).to_record()
        claim.announce(claimed, identity.to_meta(), None if is_as_before else more, _entries(known))
        failpoint("stage-after-meta")
        return Started(more, identity.to_meta(), facts)
    reader.check_tables(facts)
    start, seen = first(reader)
    mark = None
    if settings.binlog.incremental:
        reader.check_copied(facts, settings.binlog.tables)
        mark = IncrementalMark(waiting=settings.binlog.tables)
    source = seen.identity.to_meta()
    claim.announce(claimed, source, tables=_entries(settings.binlog.tables))
    failpoint("stage-after-meta")
    if start is None:
        return Started(None, source, facts)
    epoch = 0 if progress.meta is None else progress.meta.epoch
    start = reader.with_executed(start)
    state = PartitionProgress(epoch=epoch, next=0, at=now_ms(), pos=start, incremental=mark)
    claim.announce(claimed, source, state)
    return Started(state, source, facts)


def with_added(meta: Meta, state: PartitionProgress, reader: Reader, facts: Facts) -> PartitionProgress:
    """The progress, with the tables whose rows are to be read beside the stream.

    Raises:
        SinkPipelineError: SourceUnsuitable.
    """
    if state.snapshot is not None:
        # It begins anew, with the tables of now.
        return state
    settings: BinlogSettings = reader.settings
    # Of one that is not there yet, all rows come by the stream.
    there = [each for each in settings.tables if each in facts.engines]
    mark, added = asked_since(meta.tables, _entries(there), state.incremental, reads_rows=settings.reads_rows)
    reader.check_copied(facts, added)
    return state if mark == state.incremental else replace(state, incremental=mark, at=now_ms())


def _entries(tables: Iterable[str]) -> dict[str, Listed]:
    """As `Meta.tables`: the manifest names each."""
    return {each: Listed(each, each) for each in tables}


def going_on(meta: Meta, state: PartitionProgress, reader: Reader) -> tuple[Identity, PartitionProgress]:
    """The source, which is the one that the progress is of, or has taken over from it; and the progress in its log.

    Raises:
        SinkPipelineError: SourceRecreated, SourceDataLost, SourceRolledBack, ProgressCorrupt.
    """
    known, place = _known(meta), place_of(state)
    is_another = reader.server != known.server
    if is_another and state.snapshot is None and known.options == reader.dialect.kind.options:
        seen = reader.seen()
        behind = taken_over(reader, known.server, place, seen, same_tables=_same_tables(meta, reader))
        return seen.identity, replace(state, pos=behind, at=now_ms())
    seen = reader.seen(place)
    if state.snapshot is not None:
        check_same(known, seen, reader.where)
    else:
        check_going_on(known, place, seen, reader.where)
    return seen.identity, state


def moved(before: PartitionProgress, state: PartitionProgress, reader: Reader) -> str | None:
    """That another server has taken over, for people; None where that is not so."""
    if at(state) == at(before):
        return None
    return f"{reader.where} has taken over, behind {at(before)} of the former server, at {at(state)}"


def _same_tables(meta: Meta, reader: Reader) -> bool:
    return meta.tables is None or set(meta.tables) == set(reader.settings.tables)


def place_of(state: PartitionProgress) -> BinlogPosition:
    """Where a stage stands in a log. Raises SinkPipelineError: ProgressCorrupt."""
    place = at(state)
    if not isinstance(place, BinlogPosition):
        raise corrupt(f"the progress of a stage that reads a binary log is at {place}")
    return place


def first(reader: Reader) -> tuple[BinlogPosition | None, Seen]:
    """Where a first start begins, None where with a snapshot; and the server.

    Raises:
        SinkPipelineError: SourceDataLost, SourceRolledBack, SourceRecreated.
    """
    settings: BinlogSettings = reader.settings
    seen = reader.seen()
    if settings.snapshot and reader.dialect.kind.locks:
        return None, seen
    # Their rows are in the log before the beginning, and nothing behind it says what they were.
    if count := reader.prepared():
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE,
            f"{reader.where} has {count} XA transactions that are prepared: what they have changed would be missing if "
            "they are committed behind the beginning",
            "run XA RECOVER, and XA COMMIT or XA ROLLBACK for each",
        )
    if settings.start_from is None:
        return (None if settings.snapshot else seen.end), seen
    place = settings.start_from.at
    if not isinstance(place, BinlogPosition):
        raise TypeError(f"{place} is no place in a binary log")
    log = seen.identity.log
    if log == place.log:
        place = reader.begin_of(place)
        seen = reader.seen(place)
        check_there(place, seen, reader.where)
        if seen.gtids is not None:
            return place.moved(place.commit, place.index, noted(seen.gtids, place.number, seen.born)), seen
    raise SinkPipelineError(
        Reason.SOURCE_RECREATED,
        f"{reader.where} has a log called {log}, in which no event begins at {place.place}, which startFrom names",
        "name the server of which startFrom is, and a place at which a transaction begins or ends",
    )


def check(reader: Reader, started: Started, state: PartitionProgress) -> None:
    """Nothing moves a log; what is gone of it since it was looked at, the stream tells."""


def _known(meta: Meta) -> Identity:
    try:
        return identity_of(meta.source)
    except ValueError as error:
        raise corrupt(f"the meta record of a stage has no source: {error}") from error
