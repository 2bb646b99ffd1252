"""What MySQL says of itself and its log.

By default its transactions have no GTIDs, and it does not say which ones are before a place. So what is noted of a
place is a mark, which stands in its log itself: the GTID where there is one, when the last transaction was committed,
by the server's clock to the microsecond, and where that begins. Who goes on reads there whether it is the same one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sinkpipeline.changes.binlog import look
from sinkpipeline.changes.binlog.look import Connect
from sinkpipeline.changes.binlog.wire import SqlFault, Wire
from sinkpipeline.core.changes.binlog import BEGIN
from sinkpipeline.core.changes.binlog_beginning import Identity, Seen, files_of
from sinkpipeline.core.changes.binlog_events import Gtid, Query
from sinkpipeline.core.changes.binlog_grants import may_lock
from sinkpipeline.core.changes.binlog_kinds import MYSQL, BinlogKind
from sinkpipeline.core.changes.binlog_suitable import Facts, quoted
from sinkpipeline.core.changes.gtids import Gtids, MysqlGtids
from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.positions import BinlogPosition, binlog_file, noted, parse_binlog
from sinkpipeline.core.errors import Reason, SinkPipelineError

LOCK_S: Final = 5
"""Who writes into a table waits while a lock of it is waited for; so that is not waited for longer."""
_TOUCH_S: Final = 1
"""Likewise: who alters a table waits for the lock that is held then, and is before us."""
_SYNTAX: Final = 1064
_WAITED: Final = 1205


@dataclass(frozen=True)
class MysqlDialect:
    """Of MySQL: a `Dialect`."""

    kind: BinlogKind = MYSQL

    def facts(self, wire: Wire, tables: Sequence[str]) -> Facts:
        told = look.settings(wire)
        status = _status(wire) if told["log_bin"] == "ON" else []
        is_replica = bool(_either(wire, "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"))
        found = look.facts(wire, self.kind, tables, told=told, status=status, is_replica=is_replica)
        grants = [grant for (grant,) in wire.rows("SHOW GRANTS")]
        return replace(found, unlockable=frozenset(each for each in tables if not may_lock(grants, each)))

    def files(self, wire: Wire, where: str) -> Seen:
        server = look.server(wire, self.kind)
        sizes = {row[0]: row[1] for row in wire.rows("SHOW BINARY LOGS")}
        # The size of a file that is encrypted has more in it than places of it.
        sizes |= {row[0]: row[1] for row in _status(wire)}
        log, found = files_of(sizes.items(), where)
        identity = Identity(server=server, log=log, options=self.kind.options)
        return Seen(kind=self.kind, identity=identity, files=found)

    def seen(self, wire: Wire, where: str, connect: Connect, place: BinlogPosition | None = None) -> Seen:
        found = self.files(wire, where)
        has_checksums = look.has_checksums(wire)
        if place is None:
            end = found.end
            return replace(found, gtids="", born=_born(connect, end.file, has_checksums=has_checksums))
        if found.size_of(place.number) is None:
            return found
        return _judged(connect, found, place, has_checksums=has_checksums)

    def previous(self, wire: Wire, file: str) -> Gtids:
        return MysqlGtids.parse(look.before_file(wire, file, "Previous_gtids"))

    def whole_before(self, wire: Wire, file: str) -> Gtids | None:
        """What it has not written to its end it cuts off as it starts."""
        _ = wire, file
        return None

    def unlogged(self, wire: Wire) -> Gtids:
        """As of a clone, of a backup, or from a time without log_replica_updates: no file names these."""
        [(told,)] = wire.rows("SELECT @@global.gtid_purged")
        return MysqlGtids.parse(told)

    def lacks(self, wire: Wire, executed: Gtids) -> str | None:
        [(told,)] = wire.rows("SELECT @@global.gtid_executed")
        missing = MysqlGtids.parse(told).lacks(MysqlGtids.parse(str(executed)))
        return None if missing.is_empty else str(missing)

    def missing(self, wire: Wire, connect: Connect, begin: BinlogPosition, executed: Gtids) -> str | None:
        _ = connect, begin
        missing = executed.lacks(self.unlogged(wire))
        return None if missing.is_empty else str(missing)

    def ahead(self, wire: Wire, previous: Gtids, executed: Gtids) -> Gtids:
        return previous.lacks(self.unlogged(wire).lacks(executed))

    def gives_gtids(self, wire: Wire) -> bool:
        [(mode,)] = wire.rows("SELECT @@global.gtid_mode")
        return bool(mode == "ON")

    def begin_of(self, wire: Wire, connect: Connect, place: BinlogPosition) -> BinlogPosition:
        """Debezium names the statement behind the GTID event. Nothing says how long that is, so the file is read."""
        has_checksums = look.has_checksums(wire)
        try:
            with contextlib.closing(connect()) as asking:
                event = look.at_place(asking, place.file, place.offset, has_checksums=has_checksums).event
            return _gtid_before(connect, place, has_checksums=has_checksums) if isinstance(event, Query) else place
        except (NotUnderstood, SqlFault):
            # Whoever looks at the place says what is wrong with it.
            return place

    def snapshot(self, wire: Wire, tables: Sequence[str], connect: Connect, *, begins: bool) -> BinlogPosition:
        """With a lock on the tables for a moment.

        Who changes them holds a lock until its transaction is in the log and committed; so between the two nothing is.
        """
        # Whoever has prepared a transaction with one of them holds its lock, too.
        _ = begins
        has_checksums = look.has_checksums(wire)
        with contextlib.closing(connect()) as locking:
            try:
                locking.rows(f"SET SESSION lock_wait_timeout = {LOCK_S}")
                locking.rows(f"LOCK TABLES {', '.join(f'{quoted(each)} READ' for each in tables)}")
            except SqlFault as fault:
                raise _waited(fault, tables) or fault from fault
            [(file, offset, *_)] = _status(locking)
            wire.rows(f"SET SESSION lock_wait_timeout = {_TOUCH_S}")
            wire.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            try:
                look.touch(wire, tables)
            except SqlFault as fault:
                raise _waited(fault, tables) or fault from fault
            # That this is answered shows that the lock was there all the time.
            locking.rows("UNLOCK TABLES")
        found = parse_binlog(f"{file}:{offset}")
        born = _born(connect, file, has_checksums=has_checksums)
        return found.moved(found.commit, 0, noted("", found.number, born))


def _either(wire: Wire, now: str, before: str) -> list[tuple[Any, ...]]:
    """What a statement answers that was called otherwise before."""
    try:
        return wire.rows(now)
    except SqlFault as fault:
        if fault.code != _SYNTAX:
            raise
        return wire.rows(before)


def _status(wire: Wire) -> list[tuple[Any, ...]]:
    return _either(wire, "SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")


def _gtid_before(connect: Connect, place: BinlogPosition, *, has_checksums: bool) -> BinlogPosition:
    """Where the GTID event stands that ends at a place; that place where none does."""
    begin = look.begin_of_file(place)
    for at, head, _ in look.transactions(connect, begin, has_checksums=has_checksums):
        if at.commit >= place.commit:
            break
        if head.end == place.offset:
            return at
    return place


def _judged(connect: Connect, found: Seen, place: BinlogPosition, *, has_checksums: bool) -> Seen:
    """With whether the transaction is there that was noted with a place; or, if none was, whether one begins there."""
    number = place.number if not place.gtids or place.noted_in is None else place.noted_in
    if found.size_of(number) is None:
        # It was removed with its file, since; what is at the place itself is ours to tell by the server alone.
        return replace(found, gtids=place.gtids)
    offset = int(place.gtids.rpartition(" ")[2]) if place.gtids else place.offset
    with contextlib.closing(connect()) as wire:
        try:
            at = look.at_place(wire, binlog_file(place.log, number), offset, has_checksums=has_checksums)
        except NotUnderstood:
            return found
        except SqlFault as fault:
            if _is_of_the_mode(fault):
                # What was logged in another gtid_mode is not handed out: when the file was begun is what is left.
                return replace(found, gtids=place.gtids, born=_born(connect, place.file, has_checksums=has_checksums))
            if not fault.is_of_the_log:
                raise
            return found
    is_there = at.is_between
    if place.gtids:
        is_there = isinstance(at.event, Gtid) and at.event.mark(offset) == place.gtids
    if number != place.number:
        # That of the place's own file is not known.
        return replace(found, gtids=place.gtids if is_there and place.is_born(number, at.born) else None)
    return replace(found, gtids=place.gtids if is_there else None, born=at.born)


def _is_of_the_mode(fault: SqlFault) -> bool:
    return "gtid_mode" in fault.text.lower()


def _born(connect: Connect, file: str, *, has_checksums: bool) -> int:
    with contextlib.closing(connect()) as wire:
        return look.at_place(wire, file, BEGIN, has_checksums=has_checksums).born


def _waited(fault: SqlFault, tables: Sequence[str]) -> SinkPipelineError | None:
    if fault.code != _WAITED:
        return None
    return SinkPipelineError(
        Reason.SOURCE_UNREACHABLE,
        f"a snapshot waited {LOCK_S} s for a lock on {', '.join(tables)}: a transaction that has changed one of them "
        f"is open, or somebody alters one ({fault.text})",
        "nothing if that ends by itself: the snapshot begins anew; else find it by SELECT * FROM "
        "information_schema.innodb_trx, or by XA RECOVER, and end it",
    )


DIALECT: Final = MysqlDialect()
