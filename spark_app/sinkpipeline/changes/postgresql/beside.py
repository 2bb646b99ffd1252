"""One table as it was at one place of the log, beside whoever reads the slot.

Only who makes a slot is told which place a snapshot is of. So a temporary one is made, and is gone once a transaction
has begun that sees what the snapshot does.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterator, Sequence

from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.ports import Batch, TableAway
from sinkpipeline.changes.postgresql import copying, look, rows
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.reader import name_of
from sinkpipeline.changes.postgresql.rows import writer_of
from sinkpipeline.changes.postgresql.wire import SqlFault, Wire, told
from sinkpipeline.changes.settings import AnyDatabase, DatabaseSettings
from sinkpipeline.core.changes.positions import LogPosition, Position
from sinkpipeline.core.changes.suitable import check_readable
from sinkpipeline.core.changes.values import Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError

_KEY = (
    # Whoever makes a column anew, or writes its values anew by ALTER TYPE ... USING, writes its row here.
    "SELECT coalesce(string_agg(concat_ws(' ', a.attname, a.atttypid, a.attcollation, a.attnum, a.xmin), ', '"
    " ORDER BY k.place), ''), coalesce(bool_and(age(a.xmin) > age(%s::xid)), false)"
    " FROM pg_index AS i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)"
    " JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
    " WHERE i.indrelid = %s::oid AND i.indisprimary AND k.place <= i.indnkeyatts"
)
# No transaction that is older than this has written catalogs behind the place up to which the stage has confirmed.
_OLDEST = "SELECT catalog_xmin::text FROM pg_replication_slots WHERE slot_name = %s"
_WAIT_S = 0.2
_WAITED = "55P03"
_WAIT = "SET lock_timeout = '30s'"
"""For each transaction that has written when the slot is made: it is waited for, as for a lock."""


class TableExport:
    """A `TableSnapshot`."""

    def __init__(self, settings: DatabaseSettings, name: str, cancellation: Cancellation) -> None:
        """Makes it.

        Raises:
            SinkPipelineError: SourceUnreachable, SourceUnsuitable, AuthenticationFailed, SecretNotFound.
        """
        self._settings = settings
        self._where = name_of(settings)
        self._cancellation = cancellation
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as stack, self._told():
            side = self._connected(stack)
            oldest = next((xid for (xid,) in side.rows(_OLDEST, (settings.slot.name,))), None)
            version = look.facts(side, settings.publication.name).version
            before = self._found(side, version, name)
            maker = self._connected(stack, replication=True)
            maker.rows(_WAIT)
            self._check_wanted()
            start, snapshot = copying.export_temporary(maker, f"sinkpipeline_{uuid.uuid4()}".replace("-", "_"))
            self._wire = self._connected(undo)
            self._check_wanted()
            self.read_at = copying.enter(self._wire, snapshot, [before])
            table = self._found(side, version, name)
            is_same = (table.relation, table.key) == (before.relation, before.key)
            if not is_same or copying.rewritten(self._wire, [before]):
                raise SinkPipelineError(
                    Reason.SOURCE_UNREACHABLE,
                    f"{self._where}: table {name} was altered or emptied while a snapshot of it was made",
                    "nothing: another snapshot is made",
                )
            if not table.key:
                raise TableAway.of(copying.keyless(table, self._where))
            self._table = table = copying.pinned(self._wire, table)
            [(key, self.is_settled)] = side.rows(_KEY, (oldest, table.relation.oid))
            # One that was dropped and made again has other rows, and so has one to which a partition was attached.
            partitions = " ".join(map(str, table.attached))
            digest = f" {hashlib.sha256(partitions.encode()).hexdigest()[:16]}" if partitions else ""
            self.key = f"{table.relation.oid}{digest}: {key}"
            undo.pop_all()
        self.start: Position = LogPosition(start)
        self.server = ""
        self.relation = table.relation

    def close(self) -> None:
        self._wire.close()

    def read(self, after: Sequence[str]) -> Iterator[Batch | None]:
        with self._told():
            yield from rows.read(self._wire, self._table, after, _WAIT_S)

    def writer(self) -> Writer:
        return writer_of(self._table, large_as_text=self._settings.large_integers_as_text)

    def _connected(self, stack: contextlib.ExitStack, *, replication: bool = False) -> Wire:
        wire = Wire(self._settings.connection, self._where, replication=replication)
        stack.callback(wire.close)
        self._cancellation.add(wire.cancel)
        return wire

    def _check_wanted(self) -> None:
        """What a server is not asked yet, nobody can cancel there."""
        if self._cancellation.is_set:
            raise SinkPipelineError(
                Reason.SOURCE_UNREACHABLE, f"{self._where}: a snapshot is not wanted any more", "nothing"
            )

    def _found(self, wire: Wire, version: int, name: str) -> CopiedTable:
        publication, user = self._settings.publication.name, self._settings.connection.user
        for table in copying.tables(wire, publication, version, name):
            try:
                check_readable({table.name: table.unreadable}, user, self._where)
            except SinkPipelineError as error:
                raise TableAway.of(error) from error
            return table
        raise TableAway(
            Reason.SOURCE_UNSUITABLE,
            f"{self._where}: publication {publication} has no table {name} any more, and its rows are to be read",
            "nothing if it was dropped, or taken out of the publication: the next start leaves it out",
        )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        with told(self._where, self._settings.connection.user):
            try:
                yield
            except SqlFault as fault:
                if fault.sqlstate != _WAITED:
                    raise
                raise SinkPipelineError(
                    Reason.SOURCE_UNREACHABLE,
                    f"{self._where}: a transaction that has written is open, or somebody alters the table, and a "
                    f"snapshot waits for that: {fault.text}",
                    "nothing if it ends by itself: another snapshot is made; else find it by SELECT pid, xact_start, "
                    "query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start, and end it",
                ) from fault


def copy_table(settings: AnyDatabase, name: str, cancellation: Cancellation) -> TableExport:
    """Makes a snapshot of one table.

    Raises:
        SinkPipelineError: as `TableExport`.
    """
    if not isinstance(settings, DatabaseSettings):
        raise TypeError(f"a table of {settings.name} is asked for what is PostgreSQL's")
    return TableExport(settings, name, cancellation)
