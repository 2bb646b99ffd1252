"""How a redrive writes to a store of cells: rows, the cells of their letters, and a cell of its own, in one commit.

    cell of the redrive   what the last commit has settled of its partition; then the topic's redrive record says so too
    cell of a letter      removed with its row; or it says that a newer letter counts, where it failed again

The redrive's own cell is claimed as a source partition's is: of two redrives the newer one finds it as it left it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from sinkpipeline.cells.session import CLAIM_ATTEMPTS, CellSession, passing_outages
from sinkpipeline.cells.store import Cell, Cells, Moved, Puts, Version
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import Fenced
from sinkpipeline.core.progress import corrupt
from sinkpipeline.core.records import Columns, Row
from sinkpipeline.core.redrive import Span, redrive_of
from sinkpipeline.sinks.letters import SentLetters

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What the last commit of a redrive has settled."""

    run: str
    topic: str
    """The id of the dead-letter topic: offsets mean nothing in another one."""
    outcomes: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """With a word that no other one has."""
        document = {"v": VERSION, "run": self.run, "claim": str(uuid.uuid4()), "topic": self.topic}
        return json.dumps({**document, "settled": self.outcomes}, separators=(",", ":")).encode()


def decode_settled(cell: Cell, where: str) -> Settled | None:
    """Raises SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown."""
    if cell.value is None:
        return None
    try:
        document = parse_json(cell.value.decode())
        if document["v"] != VERSION:
            raise SinkPipelineError(
                Reason.PROGRESS_VERSION_UNKNOWN,
                f"{where} is of version {document['v']}, known is {VERSION}",
                "run the release that wrote it",
            )
        outcomes = {
            str(outcome): tuple((int(first), int(last)) for first, last in found)
            for outcome, found in document["settled"].items()
        }
        return Settled(run=str(document["run"]), topic=str(document["topic"]), outcomes=outcomes)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise corrupt(f"{where} is no cell of a redrive: {error}") from error


class RedriveSession(CellSession):
    """A partition of a dead-letter topic, as this redrive has taken it."""

    found: Settled | None = None
    """What an earlier redrive has settled last."""
    ids_of: Callable[[Sequence[int]], Iterable[str | None]] | None = None
    """By the offsets of its letter, by what each row is known again; None where that need not be."""

    @override
    def send(self, rows: Iterable[Row]) -> None:
        super().send(rows)
        if self.ids_of is None:
            return
        if not isinstance(rows, Columns) or rows.sources is None:
            raise TypeError("rows of a store of cells come with the offsets of their letters")
        self._ids.extend(self.ids_of(rows.sources()))

    def settle(self, settled: Settled, letters: Puts) -> None:
        """What was sent counts, with what becomes of the cells of its letters.

        Raises:
            SinkPipelineError: Superseded, where the cell of a letter is not as it was.
        """
        self._flush()
        try:
            self._commit(settled.encode(), letters)
        except Fenced as fenced:
            if fenced.args[0] == self.key:
                raise
            raise settled_by_another(str(fenced)) from fenced


def settled_by_another(letter: str) -> SinkPipelineError:
    return SinkPipelineError(
        Reason.SUPERSEDED,
        f"a dead letter was settled by somebody else, or counted anew by its driver, meanwhile: {letter}",
        "redrive again: what was settled stays settled",
    )


def last_settled(
    cells: Cells, sink: SinkId, partitions: Collection[SourcePartition]
) -> dict[SourcePartition, Settled | None]:
    """What the last commits of redrives have settled in partitions of the dead-letter topic; changes nothing.

    Raises:
        SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown, and what reading raises.
    """
    keys = {each: redrive_of(sink).partition_key(each) for each in partitions}
    found = cells.read(list(keys.values()))
    return {each: decode_settled(found[key], key) for each, key in keys.items()}


def take(
    cells: Cells, sink: SinkId, partition: SourcePartition, mine: Settled, letters: SentLetters | None
) -> RedriveSession:
    """Whoever redrives this partition has it no more; `mine`: as whom, for which topic.

    Raises:
        Fenced: others take it again and again.
        InDoubt: an outage.
    """
    key = redrive_of(sink).partition_key(partition)
    for _ in range(CLAIM_ATTEMPTS):
        with passing_outages():
            cell = cells.read([key])[key]
        found = decode_settled(cell, key)
        kept = mine if found is None else Settled(run=mine.run, topic=found.topic, outcomes=found.outcomes)
        try:
            version: Version = cells.put({key: (kept.encode(), cell.version)})[key]
        except Moved:
            continue
        session = RedriveSession(cells, key, mine.run, version, None, letters)
        session.found = found
        return session
    raise Fenced(key)
