"""A server that has taken over from the one that was read: looks where to go on in its log. Changes nothing."""

from __future__ import annotations

import contextlib

from sinkpipeline.changes.binlog.dialect import Dialect
from sinkpipeline.changes.binlog.reader import Reader
from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.changes.ports import Begun
from sinkpipeline.core.changes import taking_over
from sinkpipeline.core.changes.binlog import BEGIN
from sinkpipeline.core.changes.binlog_beginning import Seen
from sinkpipeline.core.changes.gtids import Gtids
from sinkpipeline.core.changes.positions import BinlogPosition, binlog_commit


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
    if not reader.ask(lambda dialect, wire: dialect.gives_gtids(wire)):
        raise taking_over.without_gtids(place, kind, before, seen.identity.server, where)
    begun = taking_over.transaction_of(place) if place.index else None
    if executed is None or (place.index and begun is None):
        raise taking_over.unknown_gtids(place, kind, before, seen.identity.server, where)
    if begun is not None and not (place.inside and same_tables):
        fact = "how many of its changes that are is not known, as other tables are read now than before"
        raise taking_over.another_order(place, fact, where)
    needed = executed.copy()
    if begun is not None:
        needed.add(begun)
    missing = reader.ask(lambda dialect, wire: dialect.lacks(wire, needed))
    if missing is not None:
        raise taking_over.lacking(place, missing, where)
    number, previous = reader.ask(lambda dialect, wire: _file(dialect, wire, reader, place, seen, executed))
    ahead = reader.ask(lambda dialect, wire: dialect.ahead(wire, previous, executed))
    begin = taking_over.begin_of(place, seen.identity.log, number, executed, ahead)
    return begin if begun is None else _inside(reader, place, begin)


def _file(
    dialect: Dialect, wire: Wire, reader: Reader, place: BinlogPosition, seen: Seen, executed: Gtids
) -> tuple[int, Gtids]:
    """The newest file before which there is nothing that the topic lacks; and what is before it in the log."""
    more: str | None = None
    for each in reversed(seen.files):
        begin = BinlogPosition(binlog_commit(each.number, BEGIN), 0, seen.identity.log)
        previous = dialect.previous(wire, begin.file)
        lacking = executed.lacks(previous)
        if lacking.is_empty:
            more = dialect.missing(wire, reader.connected, begin, executed)
            if more is None:
                return each.number, previous
            break
        more = str(lacking)
    raise taking_over.removed(place, more or "what the topic lacks", reader.where)


def _inside(reader: Reader, place: BinlogPosition, begin: BinlogPosition) -> BinlogPosition:
    """Behind what is in the topic of a transaction: as many changes of the tables that are read."""
    count, begun = 0, ""
    last: tuple[int, int] | None = None
    transaction = taking_over.transaction_of(place)
    with contextlib.closing(reader.read_to_end(begin)) as events:
        for event in events:
            match event:
                case Begun(note):
                    begun = note
                case [*changes]:
                    found = taking_over.transaction_of(begin.moved(begin.commit, 0, begun))
                    if found != transaction:
                        raise taking_over.another_order(place, f"its log has {found} before that", reader.where)
                    for change in changes:
                        if (change.commit, change.nth) != last:
                            last = (change.commit, change.nth)
                            count += 1
                            if count == place.inside:
                                return begin.moved(change.commit, change.nth + 1, begun, count)
                case _:
                    pass
    fact = f"its log has {count} changes of it, and {place.inside} were read"
    raise taking_over.another_order(place, fact, reader.where)
