"""How far a snapshot of the tables has come, as the progress of a stage says while it goes on.

Its rows stand before every change of the stream: at the LSN before the one at which the slot begins, where no record of
the server's log is, as these begin at multiples of 8. An index counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.changes.positions import Position


@dataclass(frozen=True, kw_only=True)
class SnapshotMark:
    """Stands in the progress from before the first row until one commit says that the snapshot is complete."""

    table: str = ""
    """Which one is being read, as `schema.table`; empty before the first."""
    done: int = 0
    """How many tables were read."""
    rows: int = 0
    """How many rows were read in this epoch."""
    since: tuple[int, ...] = ()
    """By partition of the change topic, from which offset on it may have rows that are to be taken back where this
    epoch is given up; 0 of a partition that is not listed."""

    def to_record(self) -> dict[str, Any]:
        """As progress records have it."""
        return {"table": self.table, "done": self.done, "rows": self.rows, "since": list(self.since)}


def mark_from_record(value: object) -> SnapshotMark:
    """What `to_record` has made; ValueError if it wasn't."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no mark of a snapshot")  # noqa: TRY004 - as any other that is none
    table, since = value.get("table"), value.get("since")
    counts = [value.get("done"), value.get("rows"), *(since if isinstance(since, list) else [None])]
    if not isinstance(table, str) or not all(type(each) is int and each >= 0 for each in counts):
        raise ValueError(f"{value!r} is no mark of a snapshot")
    done, rows, *offsets = counts
    return SnapshotMark(table=table, done=done, rows=rows, since=tuple(offsets))


def before_stream(start: Position) -> Position:
    """Where the first row of a snapshot stands: before everything that a source hands out from `start` on."""
    return start.moved(start.commit - 1)


def stream_start(at: Position) -> int:
    """The other way round: where the stream begins whose snapshot is at `at`."""
    return at.commit + 1
