"""Where a stage goes on, or begins: by what was read of its progress, and of the server. Announces it."""

from __future__ import annotations

import logging

from sinkpipeline.changes.claim import Claim, Claimed
from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.beginning import (
    Asked,
    Identity,
    Seen,
    check_going_on,
    decide_first,
    identity_of,
)
from sinkpipeline.core.changes.positions import LogPosition, Position
from sinkpipeline.core.changes.suitable import check_tables
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.progress import Meta, PartitionProgress, corrupt
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.starting import now_ms

_LOG = logging.getLogger("sinkpipeline.changes")


def at(state: PartitionProgress) -> Position:
    if state.pos is None:
        raise corrupt("the progress of a stage has no position")
    return state.pos


def begin(
    settings: StageSettings, claim: Claim, claimed: Claimed, reader: Reader
) -> tuple[Identity, PartitionProgress]:
    """What is read, and where to go on; announces this stage.

    Raises:
        SinkPipelineError: whatever speaks against it.
    """
    facts = reader.facts()
    seen = reader.seen()
    partition, progress = settings.database.partition, claimed.progress
    if progress.exists and progress.meta is not None:
        state = progress.partitions[partition]
        check_going_on(_known(progress.meta), at(state), seen, reader.where)
        try:
            check_tables(facts.tables, reader.where, require_full=settings.database.require_full)
        except SinkPipelineError as error:
            # What it says is of changes to come: those that are there can be read.
            _LOG.warning("%s", error)
        claim.announce(claimed, seen.identity.to_meta())
        failpoint("stage-after-meta")
        return seen.identity, state
    seen = reader.prepare(seen)
    asked = Asked(create=settings.database.slot.create, announced=_is_announced(progress.meta, seen))
    start = decide_first(seen, asked, reader.where)
    claim.announce(claimed, seen.identity.to_meta())
    failpoint("stage-after-meta")
    if start is None:
        start = LogPosition(reader.create_slot(facts.version))
        failpoint("stage-after-creation")
    epoch = 0 if progress.meta is None else progress.meta.epoch
    state = PartitionProgress(epoch=epoch, next=0, at=now_ms(), pos=start)
    claim.announce(claimed, seen.identity.to_meta(), state)
    return seen.identity, state


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


def check_slot(reader: Reader, identity: Identity, state: PartitionProgress) -> None:
    """Nobody has moved the slot since it was looked at: from here on nobody can."""
    slot = reader.slot()
    seen = Seen(identity=identity, slot=slot, flushed=reader.flushed(), forks={})
    check_going_on(identity, at(state), seen, reader.where)
