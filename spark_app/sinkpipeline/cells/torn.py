"""What a store kept of a commit whose end it lost: the cell, and only the first of the rows behind it.

A store that writes a commit one message after the other can lose its tail in the middle of one: with its machine, or as
its file is cut. So the cell goes first, and says how many messages follow and what it said before. Where the last of
them is missing, the commit is torn: only rows of the first so many records are there. Whoever reads the cell is told
the progress that is true of these, and whoever claims it writes it so.

    before ──► cell ──► rows of offsets 3 4 5 | 6 7 8      lost: from | on
                        the cell reads as: next = 6
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sinkpipeline.cells.records import decode_cell, encode_cell
from sinkpipeline.core.order import after


@dataclass(frozen=True)
class Left:
    """What is left of a commit."""

    rows: int
    """How many of its rows, without those of a record of which others are lost."""
    offset: int | None
    """Of the last record that is whole there; None where none is."""


def as_left(value: bytes, before: bytes, left: Left, where: str) -> bytes:
    """What a cell says of what is left, of its last value and the one before that; what it counts beside rows is lost.

    Raises:
        SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown.
    """
    now, was = decode_cell(value, where), decode_cell(before, where)
    progress = was.progress
    if progress is not None and left.offset is not None:
        progress = replace(progress, next=after(left.offset), rows=progress.rows + left.rows)
    return encode_cell(replace(now, progress=progress))
