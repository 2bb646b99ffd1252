"""The rows of a table as a transaction sees them, in chunks by its primary key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sinkpipeline.changes.ports import BATCH_BYTES, BATCH_ROWS, Batch
from sinkpipeline.changes.postgresql import copying
from sinkpipeline.changes.postgresql.copying import CopiedTable
from sinkpipeline.changes.postgresql.wire import Wire
from sinkpipeline.core.changes.copytext import parse_row
from sinkpipeline.core.changes.pgoutput import Values
from sinkpipeline.core.changes.values import Writer

CHUNK = 20_000
"""Rows that one statement reads."""


def writer_of(table: CopiedTable, *, large_as_text: bool) -> Writer:
    """What makes changes of its rows."""
    made = Writer(lambda relation: tuple(relation.columns[at].name for at in table.key), large_as_text=large_as_text)
    made.relation(table.relation)
    return made


def read(wire: Wire, table: CopiedTable, after: Sequence[str], wait_s: float) -> Iterator[Batch | None]:
    """Those behind a key, in its order; None where nothing has come for so long.

    Raises:
        SqlFault, NotUnderstood
        SinkPipelineError: SourceUnreachable.
    """
    last = tuple(after)
    while True:
        rows: list[Values] = []
        count = size = 0
        for line in copying.lines(wire, table, last or None, CHUNK, wait_s):
            if line is not None:
                rows.append(parse_row(line))
                count, size = count + 1, size + len(line)
            if line is None or len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                if rows:
                    last = _key(table, rows[-1])
                yield Batch(rows, last) if rows else None
                rows, size = [], 0
        if rows:
            last = _key(table, rows[-1])
            yield Batch(rows, last)
        if not table.key or count < CHUNK:
            return


def _key(table: CopiedTable, row: Values) -> tuple[str, ...]:
    return tuple(str(row[at]) for at in table.key)
