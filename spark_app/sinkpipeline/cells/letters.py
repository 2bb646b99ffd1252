"""Which dead letters count: a cell for each, written with the commit that handled its record.

A letter is acknowledged before that commit. So one may stand in its topic whose commit did not come through: its record
may be in the target by now, or be a letter once more. Only who finds the cell makes a row of a letter, and removes the
cell with it: what two letters say of one record is written once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from sinkpipeline.cells.store import Cell, Cells, Puts
from sinkpipeline.core.deadletter import DeadLetter, parse
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.progress import corrupt
from sinkpipeline.core.records import Row
from sinkpipeline.sinks.letters import SentLetters


def key_of(letter: DeadLetter) -> str:
    """By what the record holds, too: another topic of its name may have another record at its offset."""
    record = letter.record
    digest = hashlib.sha256()
    for part in (record.key, record.value):
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return letter.sink.letter_key(record.partition, record.offset, digest.hexdigest()[:16])


@dataclass(frozen=True)
class Count:
    """What the cell of a letter says."""

    redrives: int
    """Of several letters of one record the one that was redriven so often counts."""
    epoch: int | None
    """Of the progress under which the record became a letter; None if an earlier release wrote the cell."""

    def encode(self) -> bytes:
        document = {"redrives": self.redrives} if self.epoch is None else vars(self)
        return json.dumps(document, separators=(",", ":")).encode()


def counted(cell: Cell) -> Count | None:
    """Which letter counts, None where none does.

    Raises:
        SinkPipelineError: ProgressCorrupt.
    """
    if cell.value is None:
        return None
    try:
        document = parse_json(cell.value.decode())
        epoch = document.get("epoch")
        return Count(int(document["redrives"]), None if epoch is None else int(epoch))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise corrupt(f"the cell of a dead letter is none of ours: {error}") from error


def sent(letters: SentLetters | None, rows: Iterable[Row]) -> list[Row]:
    """Sends dead letters, of a sink that has them, and gives them back to be counted."""
    if letters is None:
        raise ValueError("a sink without dead letters sends some")
    found = list(rows)
    letters.send(found)
    return found


def counting(cells: Cells, rows: Iterable[Row], epoch: int) -> Puts:
    """The cells of dead letters, as they are about to be sent; one may be there already, from before a reset.

    `epoch`: of the progress with which their records are handled.
    """
    found = [parse(value, key, headers) for value, key, _, _, headers in rows]
    new = {key_of(each): Count(each.redrives, epoch).encode() for each in found}
    there = cells.read(list(new)) if new else {}
    return {key: (value, there[key].version) for key, value in new.items()}
