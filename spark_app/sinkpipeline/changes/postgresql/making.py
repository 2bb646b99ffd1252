"""Makes the publication and the slot of a first start, and takes the slot from whoever reads it."""

from __future__ import annotations

import time

from sinkpipeline.changes.postgresql import look
from sinkpipeline.changes.postgresql.wire import SqlFault, Wire, refused
from sinkpipeline.changes.settings import Publication, Slot
from sinkpipeline.core.changes.beginning import PLUGIN
from sinkpipeline.core.changes.positions import parse_lsn
from sinkpipeline.core.errors import Reason, SinkPipelineError

_BUSY_S = 30.0
_POLL_S = 0.05
_ALREADY_THERE = "42710"
_NO_RIGHT = "42501"
_VERSION_OF_FAILOVER = 170000
_GENERATED = "publish_generated_columns = stored"
_CREATE = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s)"
_CREATE_FOR_STANDBYS = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s, false, false, true)"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def publication_statement(wanted: Publication, *, generated: bool = False) -> str:
    """What creates it. Changes of a partition are told as the partitioned table's.

    `generated`: with stored generated columns; from version 18 on.
    """
    tables = ", ".join(".".join(map(quoted, each.split(".", 1))) for each in wanted.tables)
    of = f"TABLE {tables}" if tables else "ALL TABLES"
    more = f", {_GENERATED}" if generated else ""
    return f"CREATE PUBLICATION {quoted(wanted.name)} FOR {of} WITH (publish_via_partition_root = true{more})"


def publishing_generated(wanted: Publication, *, is_there: bool) -> str:
    """What publishes stored generated columns; from version 18 on."""
    if not is_there:
        return publication_statement(wanted, generated=True)
    return f"ALTER PUBLICATION {quoted(wanted.name)} SET ({_GENERATED})"


def create_publication(wire: Wire, wanted: Publication, where: str) -> bool:
    """Whether it was created: one that is there already is as good.

    Raises:
        SinkPipelineError: SourceUnsuitable.
    """
    statement = publication_statement(wanted)
    try:
        wire.rows(statement)
    except SqlFault as fault:
        if fault.sqlstate == _ALREADY_THERE:
            return False
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE, f"{where}: {fault.text}", f"run as a role that may: {statement}"
        ) from fault
    return True


def drop_publication(wire: Wire, name: str, where: str) -> None:
    """Raises SinkPipelineError: SourceUnsuitable, SourceUnreachable."""
    statement = f"DROP PUBLICATION IF EXISTS {quoted(name)}"
    try:
        wire.rows(statement)
    except SqlFault as fault:
        raise SinkPipelineError(
            Reason.SOURCE_UNSUITABLE, f"{where}: {fault.text}", f"run as a role that may: {statement}"
        ) from fault


def create_slot(wire: Wire, wanted: Slot, version: int, where: str, role: str) -> int:
    """The LSN at which it begins: every transaction that commits behind it is handed out.

    Raises:
        SinkPipelineError: SourceUnsuitable, SourceUnreachable.
    """
    makes = _CREATE_FOR_STANDBYS if wanted.failover and version >= _VERSION_OF_FAILOVER else _CREATE
    try:
        [(lsn,)] = wire.rows(makes, (wanted.name, PLUGIN))
    except SqlFault as fault:
        raise refused(fault, where, role) from fault
    return parse_lsn(lsn)


def free(wire: Wire, slot: str, where: str) -> None:
    """Ends whoever reads the slot, until nobody does. Its Kafka id was taken before: what it has read it can't write.

    Raises:
        SinkPipelineError: SlotBusy, SourceUnreachable.
    """
    deadline = time.monotonic() + _BUSY_S
    while (state := look.slot_state(wire, slot)) is not None and state.active_pid is not None:
        why = ""
        try:
            wire.rows("SELECT pg_terminate_backend(%s)", (state.active_pid,))
        except SqlFault as fault:
            if fault.sqlstate != _NO_RIGHT:
                raise refused(fault, where, "") from fault
            why = f", and may not be ended by us: {fault.text}"
        if time.monotonic() > deadline:
            raise busy(wire, slot, where, why)
        time.sleep(_POLL_S)


def busy(wire: Wire, slot: str, where: str, why: str = "") -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SLOT_BUSY,
        f"slot {slot} of {where} is read by {look.reader_of(wire, slot)}{why}",
        "end that reader; if it is no stage of this pipeline, give it a slot of its own",
    )
