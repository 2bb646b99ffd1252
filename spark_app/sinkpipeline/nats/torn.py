"""What is left of a commit whose end the stream has lost."""

from __future__ import annotations

from dataclasses import dataclass

from sinkpipeline.cells.torn import Left, as_left
from sinkpipeline.core.progress import corrupt
from sinkpipeline.nats.client import Client, Stored
from sinkpipeline.nats.rows import MORE, OFFSET


@dataclass(frozen=True)
class Torn:
    """A cell of a torn commit."""

    value: bytes | None
    """What it says of what is left."""
    left: Left
    leftover: tuple[int, ...]
    """The sequences of rows whose record is not whole."""


def look_at_rows(client: Client, stream: str, cell: Stored, behind: int, before: str | None) -> Torn:
    """Reads all messages of the commit that are there.

    Raises:
        SinkPipelineError: ProgressCorrupt, and what reading raises.
    """
    batch = cell.headers.get("Nats-Batch-Id")
    if before is None:
        raise corrupt(f"the store has lost a part of a commit, and {cell.subject} does not say what it held before")
    found = client.messages(stream, [{"seq": cell.seq + number} for number in range(1, behind + 1)])
    rows = [each for each in found if each is not None and each.headers.get("Nats-Batch-Id") == batch]
    rows = [each for each in rows if OFFSET in each.headers]
    leftover: list[int] = []
    while rows and rows[-1].headers[OFFSET].endswith(MORE):
        leftover.append(rows.pop().seq)
    left = Left(len(rows), int(rows[-1].headers[OFFSET]) if rows else None)
    return Torn(as_left(cell.payload, before.encode(), left, cell.subject), left, tuple(leftover))
