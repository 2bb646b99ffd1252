"""A slot that was just made, and the tables as they were at that moment.

    slot, its snapshot ──► a connection that keeps both
                  └──────► a connection that reads: the snapshot's transaction, locks, chunks by primary key

The snapshot is gone with the connection that made the slot. So nothing of this outlives a life of the stage.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from sinkpipeline.changes.ports import Look, Parts, Started
from sinkpipeline.changes.postgresql import copying, rows
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.rows import writer_of
from sinkpipeline.changes.postgresql.wire import SqlFault, Wire, refused, told
from sinkpipeline.changes.settings import DatabaseSettings
from sinkpipeline.core.changes.beginning import Identity, check_copied
from sinkpipeline.core.changes.positions import LogPosition, Position
from sinkpipeline.core.changes.values import Change
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.sinks.failpoints import failpoint

_LOG = logging.getLogger("sinkpipeline.changes")

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
            start, self._name = copying.export_slot(self._maker, settings.slot, version)
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
        self.start: Position = LogPosition(start)
        self._expected: Sequence[CopiedTable] = ()
        self._identity: Identity | None = None
        self._tables: list[CopiedTable] = []
        self._read_at = 0

    def close(self) -> None:
        for wire in (self._wire, self._maker):
            if wire is not None:
                wire.close()

    def expect(self, identity: Identity, tables: Sequence[CopiedTable]) -> None:
        """What was seen before the slot was made: the source, and the tables of the publication."""
        self._identity, self._expected = identity, tables

    def open(self) -> None:
        """Locks the tables, which are those that the publication had before the slot was made.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        publication, tables = self._settings.publication.name, self._expected
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
        with self._told():
            self._tables = [copying.pinned(self._wire, each) for each in now]

    @property
    def names(self) -> list[str]:
        """Of the tables."""
        return [f"{each.relation.schema}.{each.relation.name}" for each in self._tables]

    @property
    def estimate(self) -> int:
        """How many rows the tables may have."""
        return sum(each.estimate for each in self._tables)

    def judge(self, look: Look) -> None:
        """That the slot is still the one of this snapshot.

        Raises:
            SinkPipelineError: also SlotLost, SourceDataLost, SourceRecreated.
        """
        if self._identity is None:
            raise ValueError("a snapshot is judged by what was seen before it")
        check_copied(look.state, self._identity, self.start.commit, self._where)

    def read(self, number: int, at: Position, wait_s: float) -> Iterator[list[Change] | None]:
        """The rows of a table, in the order of its key; None where nothing has come for a moment.

        Raises:
            SinkPipelineError: also SourceUnsuitable.
        """
        if self._wire is None:
            raise ValueError("rows are read after the tables were locked")
        table = self._tables[number]
        writer = writer_of(table, large_as_text=self._settings.large_integers_as_text)
        writer.enter(at.commit, self._read_at, "null", at.index)
        with self._told():
            for batch in rows.read(self._wire, table, (), wait_s):
                yield None if batch is None else [writer.read(table.relation.oid, each) for each in batch.rows]

    def _told(self) -> contextlib.AbstractContextManager[None]:
        return told(self._where, self._settings.connection.user)


def copy(parts: Parts, started: Started) -> Exported:
    """Makes the slot of a snapshot: what is left of an earlier one is dropped.

    Raises:
        SinkPipelineError: as `Reader.tables`, `Reader.drop_slot` and `Reader.export`.
    """
    reader, found = parts.reader, started.found
    tables = reader.tables(found.version)
    if found.slot is not None:
        _LOG.warning("slot %s is dropped and made anew", found.identity.slot)
        reader.drop_slot(found.slot)
        failpoint("snapshot-after-drop")
    made: Exported = reader.export(found.version)
    failpoint("stage-after-creation")
    made.expect(found.identity, tables)
    return made
