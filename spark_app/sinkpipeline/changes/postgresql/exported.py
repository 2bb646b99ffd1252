"""A slot that was just made, and the tables as they were at that moment.

    slot, its snapshot ──► a connection that keeps both
                  └──────► a connection that reads: the snapshot's transaction, locks, chunks by primary key

The snapshot is gone with the connection that made the slot. So nothing of this outlives a life of the stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from sinkpipeline.changes.postgresql import copying
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.wire import SqlFault, Wire, refused
from sinkpipeline.changes.settings import DatabaseSettings
from sinkpipeline.core.changes.copytext import parse_row
from sinkpipeline.core.changes.pgoutput import Begin, NotUnderstood, Values
from sinkpipeline.core.changes.values import Change, Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError

CHUNK = 20_000
"""Rows that one statement reads."""
_AT_ONCE = 500
_ALREADY_THERE = "42710"


class Exported:
    """Of one thread; closed by whoever has it.

    Raises (all methods):
        SinkPipelineError: SourceUnreachable, and what their own docstrings name.
    """

    def __init__(self, settings: DatabaseSettings, where: str, version: int) -> None:
        """Makes the slot.

        Raises:
            SinkPipelineError: also SourceUnsuitable, AuthenticationFailed, SecretNotFound, SlotBusy.
        """
        self._settings = settings
        self._where = where
        self._version = version
        self._wire: Wire | None = None
        self._maker = Wire(settings.connection, where, replication=True)
        try:
            self.start, self._name = copying.export_slot(self._maker, settings.slot, version)
        except SqlFault as fault:
            self._maker.close()
            if fault.sqlstate == _ALREADY_THERE:
                raise SinkPipelineError(
                    Reason.SLOT_BUSY,
                    f"{where}: {fault.text}: another stage made it a moment ago",
                    "nothing if another stage took over just now: the stage looks again",
                ) from fault
            raise refused(fault, where, settings.connection.user) from fault
        except BaseException:
            self._maker.close()
            raise
        self.tables: list[CopiedTable] = []
        self._read_at = 0

    def close(self) -> None:
        for wire in (self._wire, self._maker):
            if wire is not None:
                wire.close()

    def open(self, tables: Sequence[CopiedTable]) -> None:
        """Locks the tables, which are those that the publication had before the slot was made.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        publication = self._settings.publication.name
        self._wire = Wire(self._settings.connection, self._where)
        with self._told(), contextlib.closing(Wire(self._settings.connection, self._where)) as other:
            self._read_at = copying.enter(self._wire, self._name, tables)
            # By a connection that sees tables as they are now, which nobody can change any more.
            now = copying.tables(other, publication, self._version)
            rewritten = copying.rewritten(self._wire, tables)
        if rewritten or [each.relation.oid for each in now] != [each.relation.oid for each in tables]:
            what = f"table {rewritten[0]} was written anew or emptied" if rewritten else "the publication was altered"
            raise SinkPipelineError(
                Reason.SOURCE_UNREACHABLE,
                f"{self._where}: {what} while the snapshot of the tables was made",
                "nothing: the snapshot begins anew",
            )
        self.tables = now

    def writer(self) -> Writer:
        """Which makes changes of the rows, one table after the other."""
        keys = {each.relation.oid: each.key for each in self.tables}
        found = Writer(
            lambda relation: tuple(relation.columns[at].name for at in keys[relation.oid]),
            large_as_text=self._settings.large_integers_as_text,
        )
        found.begin(Begin(self.start - 1, self._read_at, 0))
        return found

    def read(self, table: CopiedTable, writer: Writer, wait_s: float) -> Iterator[list[Change] | None]:
        """Its rows, in the order of its key; None where nothing has come for a moment.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        if self._wire is None:
            raise ValueError("rows are read after the tables were locked")
        writer.relation(table.relation)
        oid, after = table.relation.oid, None
        while True:
            changes: list[Change] = []
            row: Values = []
            count = 0
            with self._told():
                for line in copying.lines(self._wire, table, after, CHUNK, wait_s):
                    if line is not None:
                        row = parse_row(line)
                        changes.append(writer.read(oid, row))
                        count += 1
                    if line is None or len(changes) >= _AT_ONCE:
                        yield changes or None
                        changes = []
            if changes:
                yield changes
            if not table.key or count < CHUNK:
                return
            after = [str(row[at]) for at in table.key]

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SqlFault as fault:
            raise refused(fault, self._where, self._settings.connection.user) from fault
        except NotUnderstood as error:
            raise SinkPipelineError(
                Reason.INTERNAL_ERROR, f"{self._where}: {error}", "report it with the version of the server"
            ) from error
