"""What a start of a stage decides by what it has read: where to go on, or why not. Nothing of it is guessed.

    another database, publication or slot        SourceRecreated
    progress beyond the end of the server        SourceRolledBack
    no slot, or one that the server gave up      SlotLost
    the slot confirmed beyond the progress       SourceDataLost       it follows the progress, and never leads it
    otherwise                                    go on at the progress; the slot may be behind it by any amount

A server forwards a reader silently that asks for less than the slot has: so all of this is compared before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from sinkpipeline.core.changes.positions import LogPosition, Position, lsn_text
from sinkpipeline.core.errors import Reason, SinkPipelineError

OPTIONS = "pgoutput proto_version=1 streaming=off messages=off"
"""How the stream is asked for: an index in a transaction means something else with other options."""
PLUGIN = "pgoutput"
MADE = "made"
"""The key of `meta.source`, beside those of the identity, that says what a start has created: `dropping.py`."""
_LOST = "lost"
_WAL_REMOVED = (
    "the server has removed WAL that was not read yet",
    "raise max_slot_wal_keep_size of the server, so that it keeps what a slow reader needs",
)
_GIVEN_UP = {
    "idle_timeout": (
        "nobody has read it for longer than idle_replication_slot_timeout of the server",
        (
            "raise idle_replication_slot_timeout of the server, or set it to 0: nobody reads the slot while the "
            "pipeline is stopped, nor while a Snapshot reads the tables (IncrementalSnapshot reads it meanwhile)"
        ),
    ),
    "wal_level_insufficient": ("wal_level of the server was lowered", "leave wal_level of the server at logical"),
    "rows_removed": (
        "the server, which was a standby, has removed rows of its catalogs that the slot needs",
        "set hot_standby_feedback of standbys to on",
    ),
}
"""By pg_replication_slots.invalidation_reason: what has happened, and what keeps it from happening again."""
_AT_RISK = 0.2

_ANEW = (
    "look what the topic lacks, and then go on under another spec.identity, with a slot of its own; what this one has "
    "delivered stays as it is"
)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What positions of a source are about; `meta.source` holds it as text."""

    system: str
    """The system identifier that initdb gave the server; its standbys have the same one."""
    timeline: int
    database: str
    """Its oid."""
    slot: str
    publication: str
    """Its oid; empty where there is none."""
    options: str = OPTIONS

    def to_meta(self) -> dict[str, str]:
        """As `meta.source` has it."""
        return {each.name: str(getattr(self, each.name)) for each in fields(self)}


def identity_of(source: Mapping[str, str]) -> Identity:
    """What `to_meta` was made of, with what a start has created beside it or not; ValueError if it wasn't."""
    names = {each.name for each in fields(Identity)}
    if source.keys() - {MADE} != names:
        raise ValueError(f"{sorted(source)} are not {sorted(names)}")
    texts = {name: source[name] for name in names - {"timeline"}}
    return Identity(timeline=int(source["timeline"]), **texts)


@dataclass(frozen=True, kw_only=True)
class SlotState:
    """A row of pg_replication_slots."""

    plugin: str | None
    database: str | None
    """Its oid; None of a physical slot."""
    confirmed: int | None
    """confirmed_flush_lsn: the server hands out no transaction again whose commit record is before this."""
    restart: int | None = None
    """restart_lsn: from here on the server keeps WAL."""
    wal_status: str | None = None
    active_pid: int | None = None
    safe_bytes: int | None = None
    """How much may be written until the slot can be lost; None where there is no limit."""
    invalidated: str | None = None
    """Why the server gave it up, from version 17 on: pg_replication_slots.invalidation_reason."""
    is_two_phase: bool = False
    """Whether it tells transactions when they are prepared."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A server and a slot, as one look found them."""

    identity: Identity
    slot: SlotState | None
    flushed: int
    """Up to where its WAL is on the disk."""
    forks: Mapping[int, int]
    """By timeline, at which LSN the server's history has left it."""


def check_going_on(known: Identity, at: Position, seen: Seen, where: str) -> None:
    """Refuses to go on at a position that does not mean there what it meant, or behind which something is missing.

    Args:
        known: of the `meta` that belongs to the position.
        at: of the progress.
        seen: the source as it is now.
        where: names the source, for people.

    Raises:
        SinkPipelineError: SourceRecreated, PublicationMissing, SourceRolledBack, SlotLost, SourceDataLost.
    """
    _check_same(known, seen.identity, where)
    _check_history(known, at, seen, where)
    name = known.slot
    if seen.slot is None:
        raise SinkPipelineError(
            Reason.SLOT_LOST,
            f"{where} has no replication slot {name} any more: the changes behind {at} are gone",
            f"find out who dropped it, or whether a standby took over that did not have it; {_ANEW}",
        )
    check_slot(seen.slot, seen.identity, where)
    confirmed = seen.slot.confirmed
    if confirmed is None or confirmed > at.commit:
        raise SinkPipelineError(
            Reason.SOURCE_DATA_LOST,
            f"slot {name} of {where} was confirmed up to {lsn_text(confirmed or 0)}, and the topic has all up to {at}: "
            "somebody has advanced the slot or made it anew, and what is between is gone",
            f"find out who reads this slot beside the stage; {_ANEW}",
        )


def check_slot(slot: SlotState, identity: Identity, where: str) -> None:
    """That a slot is one which can be read.

    Raises:
        SinkPipelineError: SlotLost, SourceRecreated.
    """
    _check_kind(slot, identity, where)
    _check_kept(slot, identity, where, _ANEW)


def _check_kept(slot: SlotState, identity: Identity, where: str, then: str, when: str = "") -> None:
    """That the server has not given a slot up; `then`: what to do beside what keeps the next one."""
    if slot.wal_status == _LOST:
        why, against = _GIVEN_UP.get(slot.invalidated or "", _WAL_REMOVED)
        raise SinkPipelineError(
            Reason.SLOT_LOST, f"slot {identity.slot} of {where} was invalidated{when}: {why}", f"{against}; {then}"
        )


def _check_kind(slot: SlotState, identity: Identity, where: str) -> None:
    if slot.plugin != PLUGIN or slot.database != identity.database:
        raise SinkPipelineError(
            Reason.SOURCE_RECREATED,
            f"slot {identity.slot} of {where} is of plugin {slot.plugin} and of the database with oid {slot.database}",
            f"name a slot of {PLUGIN} that was made in this database",
        )
    if slot.is_two_phase:
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE,
            f"slot {identity.slot} of {where} tells transactions when they are prepared (two_phase): they may be "
            "rolled back later",
            "name a slot that was made without two_phase",
        )


def _check_same(known: Identity, found: Identity, where: str) -> None:
    if not found.publication:
        raise publication_missing(where)
    same = {
        "system identifier": (known.system, found.system),
        "database": (known.database, found.database),
        "publication": (known.publication, found.publication),
        "slot": (known.slot, found.slot),
        "way to read it": (known.options, found.options),
    }
    for what, (before, now) in same.items():
        if before != now:
            raise SinkPipelineError(
                Reason.SOURCE_RECREATED,
                f"{where} is another source than the progress is of: its {what} was {before}, is {now}",
                f"name the one that was read before; or go on under another spec.identity, whose slot is new: {_ANEW}",
            )


def publication_missing(where: str) -> SinkPipelineError:
    """`where`: the source, and perhaps the publication's name."""
    return SinkPipelineError(
        Reason.PUBLICATION_MISSING,
        f"{where}: there is no such publication",
        "create the publication, before the slot: what is written meanwhile can't be read without it",
    )


def _check_history(known: Identity, at: Position, seen: Seen, where: str) -> None:
    now, before = seen.identity.timeline, known.timeline
    # Inside a transaction the position has the LSN at which its commit record begins: that record was read too.
    needed = at.commit + (at.index > 0)
    fact = None
    if now < before:
        fact = f"is on timeline {now}, and was read on timeline {before}"
    elif now > before and (left := seen.forks.get(before)) is None:
        fact = f"is on timeline {now}, whose history does not come from timeline {before}, on which it was read"
    elif now > before and left is not None and left < needed:
        fact = f"has left timeline {before} at {lsn_text(left)}, and was read on it up to {at}"
    elif needed > seen.flushed:
        fact = f"ends at {lsn_text(seen.flushed)}, and was read up to {at}"
    if fact is not None:
        raise SinkPipelineError(
            Reason.SOURCE_ROLLED_BACK,
            f"{where} {fact}: changes that are in the topic are not in the database any more",
            f"find out which server this is (a standby that was behind, a backup?); {_ANEW}",
        )


def not_sent_again(where: str, at: Position) -> SinkPipelineError:
    """The error for a transaction, in whose middle the progress stands, that the server does not send as it did."""
    return SinkPipelineError(
        Reason.SOURCE_ROLLED_BACK,
        f"{where} was read up to {at}, inside a transaction, and does not send the last change before that again: it "
        "is not the database that was read, or a table was added to its publication beside that transaction, so that "
        "the rest can't be read",
        f"find out which it is (a disk that was put back?); {_ANEW}",
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the manifest says of the slot."""

    create: bool
    announced: bool
    """Whether an earlier start has said that it makes this slot, and nothing was read yet."""
    start_from: Position | None = None
    """Up to where another program has delivered what it read of the slot; None: it begins where the slot stands."""


def decide_first(seen: Seen, asked: Asked, where: str) -> Position | None:
    """Where a first start begins, with a slot that is there; None where the slot is to be created.

    Raises:
        SinkPipelineError: SourceUnsuitable, SlotLost, SlotBusy, SourceRecreated, SourceDataLost, SourceRolledBack.
    """
    name = seen.identity.slot
    if seen.slot is None:
        if not asked.create:
            raise SinkPipelineError(
                Reason.SOURCE_UNSUITABLE,
                f"{where} has no replication slot {name}, and slot.create is false",
                f"run SELECT pg_create_logical_replication_slot('{name}', '{PLUGIN}'), or set slot.create: true",
            )
        return None
    check_slot(seen.slot, seen.identity, where)
    if asked.create and not asked.announced:
        raise _not_ours(name, where, "; or, to begin where this one stands, set slot.create: false")
    if seen.slot.confirmed is None:
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE,
            f"slot {name} of {where} is not complete yet: somebody is creating it",
            f"wait for that, or run SELECT pg_drop_replication_slot('{name}')",
        )
    if asked.start_from is None:
        return LogPosition(seen.slot.confirmed)
    _check_taken_over(seen, seen.slot, seen.slot.confirmed, asked.start_from, where)
    return asked.start_from


def _check_taken_over(seen: Seen, slot: SlotState, confirmed: int, start: Position, where: str) -> None:
    """That a slot which somebody else has read has everything from `start` on, and that nobody reads it any more."""
    name = seen.identity.slot
    if slot.active_pid is not None:
        raise SinkPipelineError(
            Reason.SLOT_BUSY,
            f"slot {name} of {where} is being read by process {slot.active_pid} of the server, so that {start} is not "
            "where its reader has stopped",
            "end that reader, and write into startFrom where it has stopped then",
        )
    if confirmed > start.commit:
        raise SinkPipelineError(
            Reason.SOURCE_DATA_LOST,
            f"slot {name} of {where} was confirmed up to {lsn_text(confirmed)}, and startFrom is {start}: what was "
            "committed between them is gone",
            "write into startFrom where the reader of this slot has stopped, and look up what is missing if that is "
            f"before {lsn_text(confirmed)}; or begin with startingPosition: Snapshot and another slot",
        )
    if start.commit + (start.index > 0) > seen.flushed:
        raise SinkPipelineError(
            Reason.SOURCE_ROLLED_BACK,
            f"{where} ends at {lsn_text(seen.flushed)}, and startFrom is {start}: that is of another server, or this "
            "one was rolled back",
            "name the server of which startFrom is",
        )


def _not_ours(name: str, where: str, way: str = "") -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SOURCE_UNSUITABLE,
        f"{where} has a replication slot {name} already, and no progress says that it is this stage's: it is "
        "somebody else's, or the progress was lost",
        f"name another slot{way}; or run SELECT pg_drop_replication_slot('{name}')",
    )


def slot_in_the_way(seen: Seen, where: str, *, announced: bool) -> SlotState | None:
    """What is left of a snapshot that was given up: its slot, which has lost its snapshot and is to be dropped.

    Nothing was read by it, so nothing is lost with it, wherever it stands.

    Args:
        seen: the source as it is now.
        where: names the source, for people.
        announced: whether the progress says that a stage of this pipeline makes this slot, or has made it.

    Raises:
        SinkPipelineError: SourceUnsuitable, SourceRecreated.
    """
    slot, name = seen.slot, seen.identity.slot
    if slot is None:
        return None
    if not announced:
        raise _not_ours(name, where)
    _check_kind(slot, seen.identity, where)
    return slot


def check_anew(known: Identity, at: Position, seen: Seen, where: str) -> None:
    """That a snapshot which was given up may begin anew: the source is the one of which its rows were read.

    Args:
        known: of the `meta` that belongs to the position.
        at: of its last row that counts.
        seen: the source as it is now.
        where: names the source, for people.

    Raises:
        SinkPipelineError: SourceRecreated, PublicationMissing, SourceRolledBack.
    """
    _check_same(known, seen.identity, where)
    _check_history(known, at, seen, where)


def check_copied(slot: SlotState | None, identity: Identity, start: int, where: str) -> None:
    """That the slot of a snapshot which goes on still begins at `start`.

    Raises:
        SinkPipelineError: SlotLost, SourceDataLost, SourceRecreated.
    """
    anew = "then start the pipeline again: the snapshot begins anew"
    if slot is None:
        raise SinkPipelineError(
            Reason.SLOT_LOST,
            f"slot {identity.slot} of {where} was dropped while the tables were read",
            f"find out who dropped it; {anew}",
        )
    _check_kind(slot, identity, where)
    _check_kept(slot, identity, where, anew, " while the tables were read")
    if slot.confirmed != start:
        raise SinkPipelineError(
            Reason.SOURCE_DATA_LOST,
            f"slot {identity.slot} of {where} is at {lsn_text(slot.confirmed or 0)} and began at {lsn_text(start)}: "
            "somebody has advanced it or made it anew while the tables were read",
            f"find out who reads this slot beside the stage; {anew}",
        )


def at_risk(slot: SlotState, flushed: int, max_retained: int | None) -> str | None:
    """Why a slot may be lost soon, or hold too much of the server's disk; None where neither is so."""
    retained = retained_bytes(slot, flushed)
    if slot.safe_bytes is not None and slot.safe_bytes < _AT_RISK * (max(0, slot.safe_bytes) + retained):
        return f"the server removes WAL that was not read yet after {max(0, slot.safe_bytes)} more bytes of WAL"
    if max_retained is not None and retained > max_retained:
        return f"the slot holds {retained} bytes of WAL, more than limits.maxRetained"
    return None


def retained_bytes(slot: SlotState, flushed: int) -> int:
    """How much WAL the server keeps for a slot."""
    return 0 if slot.restart is None else max(0, flushed - slot.restart)
