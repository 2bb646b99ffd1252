"""A server that has taken over from the one that was read: looks where to go on in its log. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.ports import Begun, Ended
from sinkpipeline.core.changes import taking_over
from sinkpipeline.core.changes.binlog_beginning import LogFile, Seen
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.positions import BinlogPosition, binlog_file

_WAIT_S = 0.1


def taken_over(reader: Reader, before: str, place: BinlogPosition, seen: Seen, *, same_tables: bool) -> BinlogPosition:
    """Where to go on.

    Args:
        reader: of the new server.
        before: the server that was read.
        place: of the progress, in that one's log.
        seen: the new server.
        same_tables: whether the tables that are read are those that were read.

    Raises:
        SinkPipelineError: SourceRecreated, SourceRolledBack, SourceDataLost, ProgressCorrupt.
    """
    kind, where = reader.dialect.kind, reader.where
    executed = taking_over.executed_at(kind, place)
    begun = taking_over.transaction_of(place) if place.index else None
    is_half = place.index > 0
    if executed is None or (is_half and not (begun and place.inside)) or not reader.gives_gtids():
        raise taking_over.without_gtids(place, kind, before, seen.identity.server, where)
    if is_half and not same_tables:
        fact = "and other tables are to be read now than before, by which that part can't be found"
        raise taking_over.another_order(place, fact, where)
    needed = executed.copy()
    if begun is not None:
        needed.add(begun)
    missing = reader.lacks(needed)
    if missing is not None:
        raise taking_over.lacking(place, missing, where)
    number, previous = _file(reader, place, seen.identity.log, seen.files, executed)
    begin = taking_over.begin_of(place, seen.identity.log, number, executed, previous)
    return begin if begun is None else _inside(reader, place, begin)


def _file(
    reader: Reader, place: BinlogPosition, log: str, files: Sequence[LogFile], executed: Gtids
) -> tuple[int, Gtids]:
    """The newest file before which there is nothing that the topic lacks; and what is before it."""
    more = executed
    for each in reversed(files):
        previous = reader.previous(binlog_file(log, each.number))
        more = executed.lacks(previous)
        if more.is_empty:
            return each.number, previous
    raise taking_over.removed(place, str(more), reader.where)


def _inside(reader: Reader, place: BinlogPosition, begin: BinlogPosition) -> BinlogPosition:
    """Behind what is in the topic of a transaction: as many changes of the tables that are read."""
    count, begun = 0, ""
    last: tuple[int, int] | None = None
    transaction = taking_over.transaction_of(place)
    for event in reader.read(begin, _WAIT_S):
        match event:
            case Begun(note):
                begun = note
            case [*changes]:
                if (found := taking_over.transaction_of(begin.moved(begin.commit, 0, begun))) != transaction:
                    raise taking_over.another_order(place, f"its log has {found} before that", reader.where)
                for change in changes:
                    if (change.commit, change.nth) != last:
                        last = (change.commit, change.nth)
                        count += 1
                        if count == place.inside:
                            reader.stop_reading()
                            return begin.moved(change.commit, change.nth + 1, begun, count)
            case Ended() if taking_over.transaction_of(begin.moved(begin.commit, 0, begun)) == transaction:
                break
            case _:
                pass
    raise taking_over.another_order(
        place, f"its log has {count} changes of it, and {place.inside} were read", reader.where
    )
