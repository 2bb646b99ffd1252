"""What MariaDB says of itself and its log."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sinkpipeline.changes.binlog import look
from sinkpipeline.changes.binlog.look import Connect
from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.core.changes.binlog_beginning import Identity, Seen, files_of
from sinkpipeline.core.changes.binlog_kinds import MARIADB, BinlogKind
from sinkpipeline.core.changes.binlog_suitable import Facts
from sinkpipeline.core.changes.gtids import ANYBODY, Gtids, MariadbGtids, domain_of
from sinkpipeline.core.changes.positions import BinlogPosition, parse_binlog
from sinkpipeline.core.errors import Reason, SinkPipelineError

_PLACE: Final = "SHOW STATUS WHERE variable_name IN ('binlog_snapshot_file', 'binlog_snapshot_position')"
_LOCK_S: Final = 5
_TOUCH_S: Final = 1
"""Who alters a table waits for the lock that is held then, is before us, and lets everybody else wait."""
_REPLICATES: Final = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('gtid_slave_pos', 'wsrep_on')"


@dataclass(frozen=True)
class MariadbDialect:
    """Of MariaDB: a `Dialect`."""

    kind: BinlogKind = MARIADB

    def facts(self, wire: Wire, tables: Sequence[str]) -> Facts:
        told = look.settings(wire)
        status: Sequence[Sequence[str]] = wire.rows("SHOW MASTER STATUS") if told["log_bin"] == "ON" else ()
        # Who replicates a server without GTIDs has no position of them, and the nodes of a cluster have none either.
        replicates = [*wire.rows(_REPLICATES), *wire.rows("SHOW GLOBAL STATUS LIKE 'slaves_running'")]
        is_replica = any(value not in ("", "0", "OFF") for _, value in replicates)
        return look.facts(wire, self.kind, tables, told=told, status=status, is_replica=is_replica)

    def files(self, wire: Wire, where: str) -> Seen:
        server = look.server(wire, self.kind)
        log, found = files_of([(row[0], row[1]) for row in wire.rows("SHOW BINARY LOGS")], where)
        identity = Identity(server=server, log=log, options=self.kind.options)
        return Seen(kind=self.kind, identity=identity, files=found)

    def seen(self, wire: Wire, where: str, connect: Connect, place: BinlogPosition | None = None) -> Seen:
        found = self.files(wire, where)
        at = found.end if place is None else place
        [(gtids,)] = wire.rows("SELECT binlog_gtid_pos(%s, %s)", (at.file, at.offset))
        found = replace(found, gtids=gtids)
        if place is None or found.size_of(place.number) is None:
            return found
        has_checksums = look.has_checksums(wire)
        is_closed = place.number < found.files[-1].number
        at_place = look.found_at(connect, place, has_checksums=has_checksums, may_be_cut_off=is_closed)
        if at_place is None or not at_place.is_between:
            return replace(found, gtids=None)
        return replace(found, born=at_place.born)

    def previous(self, wire: Wire, file: str) -> Gtids:
        return MariadbGtids.parse(look.before_file(wire, file, "Gtid_list"))

    def whole_before(self, wire: Wire, file: str) -> Gtids | None:
        return self.previous(wire, file)

    def unlogged(self, wire: Wire) -> Gtids:
        """Of a server that was made of a backup: all up to where it has begun, which its log has never had."""
        [(restored,)] = wire.rows("SELECT @@global.gtid_slave_pos")
        # Asked for later: so what a replica logs meanwhile is among these.
        logged = dict(self._state(wire).items())
        found = MariadbGtids.parse(restored).items()
        return MariadbGtids({(at[0], ANYBODY): number for at, number in found if at not in logged})

    def lacks(self, wire: Wire, executed: Gtids) -> str | None:
        [(restored,)] = wire.rows("SELECT @@global.gtid_slave_pos")
        has, logged = MariadbGtids.parse(restored), self._state(wire)
        missing = {
            (domain, server): number
            for (domain, server), number in logged.lacks(MariadbGtids.parse(str(executed))).items()
            # Of what it had before its log, it knows the newest alone, whoever has written that.
            if max(has.newest_of(domain) or -1, (server == ANYBODY and logged.newest_of(domain)) or -1) < number
        }
        return str(MariadbGtids(missing)) if missing else None

    def missing(self, wire: Wire, connect: Connect, begin: BinlogPosition, executed: Gtids) -> str | None:
        """A log that begins with a server that was made of a backup begins behind what that had."""
        known = MariadbGtids.parse(str(executed))
        wanted = set(self._state(wire).domains - MariadbGtids.parse(str(self.previous(wire, begin.file))).domains)
        if not wanted:
            return None
        for _, _, said in look.transactions(connect, begin, has_checksums=look.has_checksums(wire)):
            domain, number = domain_of(str(said.gtid))
            if domain in wanted:
                newest = known.newest_of(domain) or 0
                if number > newest + 1:
                    return f"what is between {newest} and {said.gtid}"
                wanted.discard(domain)
            if not wanted:
                break
        return None

    def ahead(self, wire: Wire, previous: Gtids, executed: Gtids) -> Gtids:
        behind = MariadbGtids.parse(str(previous)).lacks(MariadbGtids.parse(str(executed)))
        logged = dict(self._state(wire).items())
        return MariadbGtids({at: number for at, number in behind.items() if at in logged or at[1] == ANYBODY})

    @staticmethod
    def _state(wire: Wire) -> MariadbGtids:
        [(told,)] = wire.rows("SELECT @@global.gtid_binlog_state")
        return MariadbGtids.parse(told)

    def gives_gtids(self, wire: Wire) -> bool:
        _ = wire
        return True

    def begin_of(self, wire: Wire, connect: Connect, place: BinlogPosition) -> BinlogPosition:
        """Every reader begins at the GTID event."""
        _ = wire, connect
        return place

    def snapshot(self, wire: Wire, tables: Sequence[str], connect: Connect, *, begins: bool) -> BinlogPosition:
        """Without a lock of rows: a transaction with a consistent snapshot has the place of the log by itself."""
        before = self._end(wire)
        # Also beside a stream: what was prepared before it knew of a table was passed over.
        count = len(wire.rows("XA RECOVER"))
        with contextlib.closing(connect()) as holding:
            # A snapshot knows tables by what they are, and not by their names. So these stay what they are from before
            # it on: a table that takes the name of one would be read as it was, with nothing of it in the log.
            holding.rows(f"SET SESSION lock_wait_timeout = {_LOCK_S}")
            holding.rows("START TRANSACTION")
            look.touch(holding, tables)
            wire.rows(f"SET SESSION lock_wait_timeout = {_TOUCH_S}")
            wire.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            told = dict(wire.rows(_PLACE))
            look.touch(wire, tables)
        found = parse_binlog(f"{told['Binlog_snapshot_file']}:{told['Binlog_snapshot_position']}")
        # One that was prepared since may be committed by now: then only the log tells it.
        if count or (begins and self._has_prepared(wire, connect, before, found)):
            raise SinkPipelineError(
                Reason.SOURCE_UNREACHABLE,
                f"a snapshot waits for XA transactions that are prepared ({count} when it began): their rows are in "
                "the log before it, and not in the tables",
                "nothing if they end by themselves: the snapshot begins anew; else run XA RECOVER, and XA COMMIT or XA "
                "ROLLBACK for each",
            )
        [(gtids,)] = wire.rows("SELECT binlog_gtid_pos(%s, %s)", (found.file, found.offset))
        return found.moved(found.commit, 0, gtids or "")

    @staticmethod
    def _end(wire: Wire) -> BinlogPosition:
        [(file, offset, *_)] = wire.rows("SHOW MASTER STATUS")
        return parse_binlog(f"{file}:{offset}")

    @staticmethod
    def _has_prepared(wire: Wire, connect: Connect, begin: BinlogPosition, end: BinlogPosition) -> bool:
        """Whether an XA transaction was prepared between two places of the log."""
        if begin.commit >= end.commit:
            return False
        for at, _, said in look.transactions(connect, begin, has_checksums=look.has_checksums(wire)):
            if at.commit >= end.commit:
                break
            if said.is_prepared:
                return True
        return False


DIALECT: Final = MariadbDialect()
