"""Where a stage goes on, or begins: by what was read of its progress, and of the server. Announces it.

    progress                     startingPosition     what begins
    none                         Now                  a slot, and its stream
    none                         startFrom            the stream of somebody else's slot, from there
    none                         Snapshot             a snapshot of the tables
    none                         IncrementalSnapshot  a slot, and its stream; the rows of the tables beside it
    in the middle of a snapshot  whatever             a snapshot, anew, in another epoch
    complete                     whatever             its stream goes on; the rows of tables that came since beside it

The progress decides: what the manifest says of a first start is for a first start alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from sinkpipeline.changes.claim import Claim, Claimed
from sinkpipeline.changes.ports import Started, at
from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.beginning import (
    Identity,
    Seen,
    SlotState,
    check_anew,
    check_going_on,
    decide_first,
    identity_of,
    slot_in_the_way,
)
from sinkpipeline.core.changes.dropping import PUBLICATION, SLOT, made_of, with_made
from sinkpipeline.core.changes.incremental import IncrementalMark, Listed, added_again, asked_since
from sinkpipeline.core.changes.positions import LogPosition
from sinkpipeline.core.changes.suitable import unpublished_told
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.progress import Meta, PartitionProgress, corrupt
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")


class Found(NamedTuple):
    """What a start has found of the server."""

    identity: Identity
    version: int
    """Of the server."""
    slot: SlotState | None = None
    """What is left of a snapshot that was given up."""


def _started(
    state: PartitionProgress | None, identity: Identity, version: int, slot: SlotState | None = None
) -> Started:
    return Started(state, identity.to_meta(), Found(identity, version, slot), identity.timeline)


def begin(settings: StageSettings, claim: Claim, claimed: Claimed, reader: Reader) -> Started:
    """What is read, and where to go on; announces this stage.

    Raises:
        SinkPipelineError: whatever speaks against it.
    """
    facts = reader.facts()
    seen = reader.seen()
    if facts.unpublished:
        _LOG.warning("%s: %s", reader.where, unpublished_told(settings.postgresql.publication.name, facts.unpublished))
    partition, progress = settings.postgresql.partition, claimed.progress
    if progress.exists and progress.meta is not None:
        state, known, slot = progress.partitions[partition], _known(progress.meta), None
        if state.snapshot is None:
            check_going_on(known, at(state), seen, reader.where)
        else:
            check_anew(known, at(state), seen, reader.where)
            slot = slot_in_the_way(seen, reader.where, announced=True)
        try:
            reader.check_tables(facts.tables)
        except SinkPipelineError as error:
            # What it says is of changes to come: those that are there can be read.
            _LOG.warning("%s", error)
        published = reader.published()
        more = with_added(progress.meta, state, reader, facts.version, published)
        source = with_made(seen.identity.to_meta(), made_of(progress.meta.source))
        claim.announce(claimed, source, None if more == state else more, published)
        failpoint("stage-after-meta")
        return _started(more, seen.identity, facts.version, slot)
    seen = reader.prepare(seen)
    announced = _is_announced(progress.meta, seen)
    if settings.postgresql.snapshot:
        # Before anything is made: what may not be read is told.
        reader.tables(facts.version)
        slot = slot_in_the_way(seen, reader.where, announced=announced)
        claim.announce(claimed, _source(progress.meta, seen, reader, makes_slot=True), tables=reader.published())
        failpoint("stage-after-meta")
        return _started(None, seen.identity, facts.version, slot)
    if settings.postgresql.incremental:
        # Before anything is made: what may not be read is told.
        reader.check_copied(facts.version, reader.published())
    asked = settings.postgresql.asked(announced=announced)
    start = decide_first(seen, asked, reader.where)
    source = _source(progress.meta, seen, reader, makes_slot=asked.create)
    claim.announce(claimed, source, tables=reader.published())
    failpoint("stage-after-meta")
    if start is None:
        start = LogPosition(reader.create_slot(facts.version))
        failpoint("stage-after-creation")
    # Until a slot is made, which may take long, tables are made whose rows it does not hand out.
    tables, mark = reader.published(), None
    if settings.postgresql.incremental and tables:
        reader.check_copied(facts.version, tables)
        mark = IncrementalMark(waiting=tuple(tables))
    epoch = 0 if progress.meta is None else progress.meta.epoch
    state = PartitionProgress(epoch=epoch, next=0, at=now_ms(), pos=start, incremental=mark)
    claim.announce(claimed, source, state, tables)
    return _started(state, seen.identity, facts.version)


def with_added(
    meta: Meta, state: PartitionProgress, reader: Reader, version: int, published: Mapping[str, Listed]
) -> PartitionProgress:
    """The progress, with the tables whose rows are to be read beside the stream.

    `published`: as `look.published`.

    Raises:
        SinkPipelineError: SourceUnsuitable.
    """
    if state.snapshot is not None:
        # It begins anew, with the tables of now.
        return state
    for each in added_again(meta.tables, published):
        what = "its rows are read again" if reader.settings.reads_rows else "nor are its rows read"
        _LOG.warning(
            "%s: table %s was added to the publication again: changes before that are not there, and %s; rows "
            "that were deleted before that stay with whoever has read them",
            reader.where,
            each,
            what,
        )
    mark, added = asked_since(meta.tables, published, state.incremental, reads_rows=reader.settings.reads_rows)
    if added:
        reader.check_copied(version, added)
    return state if mark == state.incremental else replace(state, incremental=mark, at=now_ms())


def _source(meta: Meta | None, seen: Seen, reader: Reader, *, makes_slot: bool) -> dict[str, str]:
    """`meta.source` of a first start: whose changes are read, and what of the database goes with the pipeline.

    A slot is announced before it is made. One that is there already, and was not announced, is refused, or is not ours.
    """
    # An attempt before may have created the publication, if it is still that one.
    is_made = meta is not None and PUBLICATION in made_of(meta.source)
    is_same = meta is not None and _known(meta).publication == seen.identity.publication
    made = {
        SLOT: makes_slot,
        PUBLICATION: reader.made_publication or (is_made and is_same),
    }
    return with_made(seen.identity.to_meta(), (what for what, is_ours in made.items() if is_ours))


def _known(meta: Meta) -> Identity:
    try:
        return identity_of(meta.source)
    except ValueError as error:
        raise corrupt(f"the meta record of a stage has no source: {error}") from error


def _is_announced(meta: Meta | None, seen: Seen) -> bool:
    """Whether a start before has said that it makes this slot, in this database."""
    if meta is None or meta.partitions is not None:
        return False
    known = _known(meta)
    now = seen.identity
    return (known.system, known.database, known.slot) == (now.system, now.database, now.slot)


def check(reader: Reader, started: Started, state: PartitionProgress) -> None:
    """Nobody has moved the slot since it was looked at: from here on nobody can."""
    identity, slot = started.found.identity, reader.slot()
    seen = Seen(identity=identity, slot=slot, flushed=reader.end().commit, forks={})
    check_going_on(identity, at(state), seen, reader.where)
