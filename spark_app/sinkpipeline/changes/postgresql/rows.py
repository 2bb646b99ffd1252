"""The rows of a table as a transaction sees them, in chunks by its primary key, as changes have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sinkpipeline.changes.ports import Chunk, Where
from sinkpipeline.changes.postgresql import copying
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.wire import Wire
from sinkpipeline.core.changes.copytext import parse_row
from sinkpipeline.core.changes.pgoutput import Values
from sinkpipeline.core.changes.values import Change, Writer

CHUNK = 20_000
"""Rows that one statement reads."""
_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class Rows:
    """How the rows of a table are read, and written."""

    wire: Wire
    table: CopiedTable
    read_at: int
    """Unix milliseconds of the server."""
    large_as_text: bool

    def read(self, after: Sequence[str], where: Where, wait_s: float) -> Iterator[Chunk | None]:
        """Those behind a key, in its order; None where nothing has come for so long.

        Raises:
            SqlFault, NotUnderstood
            SinkPipelineError: SourceUnreachable.
        """
        table = self.table
        writer = Writer(
            lambda relation: tuple(relation.columns[at].name for at in table.key), large_as_text=self.large_as_text
        )
        writer.relation(table.relation)
        oid, last = table.relation.oid, tuple(after)
        read = 0
        while True:
            changes: list[Change] = []
            row: Values = []
            count = 0
            for line in copying.lines(self.wire, table, last or None, CHUNK, wait_s):
                if line is not None:
                    if not changes:
                        at = where(read)
                        writer.enter(at.commit, self.read_at, "null", at.index)
                    row = parse_row(line)
                    changes.append(writer.read(oid, row))
                    count, read = count + 1, read + 1
                if line is None or len(changes) >= _AT_ONCE:
                    yield self._chunk(changes, row)
                    changes = []
            if changes:
                yield self._chunk(changes, row)
            if not table.key or count < CHUNK:
                return
            last = self._key(row)

    def _chunk(self, changes: list[Change], row: Values) -> Chunk | None:
        return Chunk(changes, self._key(row)) if changes else None

    def _key(self, row: Values) -> tuple[str, ...]:
        return tuple(str(row[at]) for at in self.table.key)
