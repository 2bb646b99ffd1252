"""Where a stage goes on in the log of a server that has taken over: behind what it has of the former one, by GTIDs.

    what the topic has:      A:1-7                                 and a part of A:8
    the new server's log:    │ A:1-5 │ A:6  A:7  A:8  B:1 ...      in files of its own
                                     └ begins here: A:6 and A:7 are passed over, and of A:8 what is in the topic

    the new server lacks some of it          SourceRolledBack     it was behind when it took over
    it has removed some that the topic lacks SourceDataLost
    it has another one before A:8            SourceRecreated      within a transaction there is one order

What is passed over is told by GTIDs alone. So the new server may have logged transactions in another order.
"""

from __future__ import annotations

from sinkpipeline.core.changes.binlog import BEGIN
from sinkpipeline.core.changes.binlog_beginning import ANEW
from sinkpipeline.core.changes.binlog_events import ANONYMOUS
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.positions import BinlogPosition, binlog_commit
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import corrupt


def executed_at(kind: BinlogKind, place: BinlogPosition) -> Gtids | None:
    """All that was committed before a position; None: unknown.

    Raises:
        SinkPipelineError: ProgressCorrupt.
    """
    if not place.executed:
        return None
    try:
        found = kind.gtids.parse(place.executed)
        if place.index == 0:
            # What is noted is of the transaction that ends there.
            for each in filter(None, place.gtids.split(",")):
                gtid = each.partition(" ")[0]
                if gtid == ANONYMOUS:
                    return None
                found.add(gtid)
    except ValueError as error:
        raise corrupt(f"the progress of a stage has GTIDs that are none: {error}") from error
    return found


def transaction_of(place: BinlogPosition) -> str | None:
    """The GTID of the transaction that is noted with a position; None where it has none."""
    gtid = place.gtids.partition(" ")[0]
    return None if gtid in ("", ANONYMOUS) else gtid


def begin_of(place: BinlogPosition, log: str, number: int, executed: Gtids, ahead: Gtids) -> BinlogPosition:
    """The begin of a file of the new server, behind a position of the former one.

    Args:
        place: of the progress.
        log: what the new server calls its log.
        number: of the file in it.
        executed: what the topic has.
        ahead: what of that is in the file, or behind it.
    """
    counted = place.number + place.shift
    shift = max(0, counted + 1 - number)
    begin = BinlogPosition(binlog_commit(number + shift, BEGIN), 0, log, shift=shift)
    return begin.with_executed(str(executed), "" if ahead.is_empty else str(ahead))


def without_gtids(place: BinlogPosition, kind: BinlogKind, before: str, now: str, where: str) -> SinkPipelineError:
    """The new server gives none."""
    return SinkPipelineError(
        Reason.SOURCE_RECREATED,
        f"{_another(place, kind, before, now, where)}, and it gives no GTIDs that tell where to go on",
        "name the server that was read before; or run SET GLOBAL gtid_mode = 'ON' step by step, as MySQL's "
        f"documentation says; or {ANEW}",
    )


def unknown_gtids(place: BinlogPosition, kind: BinlogKind, before: str, now: str, where: str) -> SinkPipelineError:
    """The progress has none."""
    return SinkPipelineError(
        Reason.SOURCE_RECREATED,
        f"{_another(place, kind, before, now, where)}, and the progress has no GTIDs that tell where to go on: the "
        "former server gave none, or a former release has written it, or they are more than 16 KiB",
        f"name the server that was read before; started there once, with GTIDs, the stage notes them; or {ANEW}",
    )


def _another(place: BinlogPosition, kind: BinlogKind, before: str, now: str, where: str) -> str:
    called = kind.identified_by
    return f"{where} is another server than the one that was read up to {place}: its {called} was {before}, is {now}"


def lacking(place: BinlogPosition, missing: str, where: str) -> SinkPipelineError:
    """It lacks what is in the topic."""
    return SinkPipelineError(
        Reason.SOURCE_ROLLED_BACK,
        f"{where} has taken over, and lacks {missing}, which the former server had, and which the topic has up to "
        f"{place}",
        "name the former server if it is still there; or start this pipeline again once the new one has got them. If "
        f"they are lost, compare source and target, and {ANEW}",
    )


def removed(place: BinlogPosition, missing: str, where: str) -> SinkPipelineError:
    """It has removed what is not in the topic."""
    return SinkPipelineError(
        Reason.SOURCE_DATA_LOST,
        f"{where} has taken over from the server that was read up to {place}, and has removed the files with "
        f"{missing}, which the topic lacks",
        f"let each server keep its log as long as the others (binlog_expire_logs_seconds); {ANEW}",
    )


def another_order(place: BinlogPosition, found: str, where: str) -> SinkPipelineError:
    """The transaction of which the topic has a part can't be gone on with."""
    return SinkPipelineError(
        Reason.SOURCE_RECREATED,
        f"{where} has taken over while the topic had a part of transaction {transaction_of(place)}, at {place}: "
        f"{found}",
        f"name the former server if it is still there, until the stage is behind that transaction; else {ANEW}",
    )
