"""What MariaDB says of itself and its log."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sinkpipeline.changes.binlog import look
from sinkpipeline.changes.binlog.dialect import Connect
from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.core.changes.binlog import BEGIN
from sinkpipeline.core.changes.binlog_beginning import Facts, Identity, Seen, files_of
from sinkpipeline.core.changes.binlog_kinds import MARIADB, BinlogKind
from sinkpipeline.core.changes.positions import BinlogPosition, parse_binlog

_PLACE: Final = "SHOW STATUS WHERE variable_name IN ('binlog_snapshot_file', 'binlog_snapshot_position')"


@dataclass(frozen=True)
class MariadbDialect:
    """Of MariaDB: a `Dialect`."""

    kind: BinlogKind = MARIADB

    def facts(self, wire: Wire, tables: Sequence[str]) -> Facts:
        told = look.settings(wire)
        status: Sequence[Sequence[str]] = wire.rows("SHOW MASTER STATUS") if told["log_bin"] == "ON" else ()
        positions = wire.rows("SHOW GLOBAL VARIABLES LIKE 'gtid_slave_pos'")
        is_replica = any(value for _, value in positions)
        return look.facts(wire, self.kind, tables, told=told, status=status, is_replica=is_replica)

    def files(self, wire: Wire, where: str) -> Seen:
        [(server,)] = wire.rows("SELECT @@global.server_id")
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
        with contextlib.closing(connect()) as other:
            return replace(found, born=look.at_place(other, place.file, BEGIN, has_checksums=has_checksums).born)

    def begin_of(self, wire: Wire, connect: Connect, place: BinlogPosition) -> BinlogPosition:
        """Every reader begins at the GTID event."""
        _ = wire, connect
        return place

    def snapshot(self, wire: Wire, tables: Sequence[str], connect: Connect) -> BinlogPosition:
        """Without a lock: a transaction with a consistent snapshot has the place of the log by itself."""
        _ = tables, connect
        wire.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        told = dict(wire.rows(_PLACE))
        found = parse_binlog(f"{told['Binlog_snapshot_file']}:{told['Binlog_snapshot_position']}")
        [(gtids,)] = wire.rows("SELECT binlog_gtid_pos(%s, %s)", (found.file, found.offset))
        return found.moved(found.commit, 0, gtids or "")


DIALECT: Final = MariadbDialect()
