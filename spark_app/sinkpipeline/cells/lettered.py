"""What is to become of dead letters, by the cells of their records and by what their topic says is settled.

    letter   its cell                        other letters of the record
    counts   speaks of it
    repeats  is gone                         one was settled, and the record was handled
    repeats  speaks of another one           that one is pending, and the record was handled
    neither  all else: nobody knows whether its record is in the target, or comes there

A letter that is settled and counts is of a store that went back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sinkpipeline.cells.letters import Count, counted, key_of
from sinkpipeline.cells.records import decode_cell
from sinkpipeline.cells.store import NO_CELL, Cell, Cells, Version
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.order import is_before
from sinkpipeline.core.redrive import MOST_LETTERS, Ledger, Letter, LetterId, Span, spans


@dataclass(frozen=True)
class Counting:
    """The cell that says that a letter counts."""

    key: str
    version: Version
    epoch: int | None
    """As of `Count`."""


@dataclass(frozen=True)
class Fates:
    """What is to become of letters."""

    counting: Mapping[LetterId, Counting]
    repeated: frozenset[LetterId]
    uncounted: frozenset[LetterId]


@dataclass(frozen=True)
class _Known:
    """What a letter is about."""

    key: str
    """Of the cell that says whether it counts."""
    redrives: int
    source: str
    """The key of its source partition's cell."""
    offset: int
    ledger: Ledger
    """What is settled of the partition that it stands in."""


@dataclass
class LetteredRecords:
    """Every letter of a sink that was read, by its record."""

    sink: SinkId
    _known: dict[LetterId, _Known] = field(default_factory=dict, init=False)
    _alike: dict[str, list[LetterId]] = field(default_factory=dict, init=False)
    """Those of one record, by its cell."""

    def note(self, found: Letter, ledger: Ledger) -> None:
        """A letter that was read, perhaps again; `ledger` is that of its partition."""
        if found.id in self._known:
            return
        record = found.letter.record
        source, key = self.sink.partition_key(record.partition), key_of(found.letter)
        self._known[found.id] = _Known(key, found.letter.redrives, source, record.offset, ledger)
        self._alike.setdefault(key, []).append(found.id)

    def key(self, letter: LetterId) -> str:
        """Of its cell."""
        return self._known[letter].key

    def fates(self, cells: Cells, letters: Sequence[LetterId]) -> Fates:
        """By one read, so that a record is handled or not, and its letter counts or not, at one moment.

        Raises:
            SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown, and what reading raises.
        """
        known = {each: self._known[each] for each in letters}
        keys = {each.key for each in known.values()} | {each.source for each in known.values()}
        found = cells.read(list(keys)) if keys else {}
        counting: dict[LetterId, Counting] = {}
        repeated, uncounted = set[LetterId](), set[LetterId]()
        for id_, each in known.items():
            cell = found.get(each.key, NO_CELL)
            named = counted(cell)
            if named is not None and named.redrives == each.redrives:
                counting[id_] = Counting(each.key, cell.version, named.epoch)
            elif self._repeats(id_, named) and _is_handled(each, found.get(each.source, NO_CELL)):
                repeated.add(id_)
            else:
                uncounted.add(id_)
        return Fates(counting, frozenset(repeated), frozenset(uncounted))

    def not_told(
        self, cells: Cells, partition: int, ledger: Ledger, outcomes: Mapping[str, Sequence[Span]]
    ) -> dict[str, tuple[Span, ...]]:
        """What the last commit of a redrive has settled, and the topic does not say yet, by outcome.

        `outcomes`: as the redrive's cell has them. A letter that counts is not among it: its row went with its cell, so
        a server has lost the end of the commit that wrote both. Such a letter is pending, also one that was reopened.

        Raises:
            SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown, and what reading raises.
        """
        named = {
            outcome: [at for first, last in each for at in range(first, last + 1)] for outcome, each in outcomes.items()
        }
        found = {outcome: [at for at in each if not ledger.outcome(self.sink, at)] for outcome, each in named.items()}
        ids = [LetterId(partition, at) for each in found.values() for at in each]
        # Of one that nobody has read, as retention has taken it, there is no cell to ask.
        counting = self.fates(cells, [each for each in ids if each in self._known]).counting
        lost = {each.offset for each in counting}
        left = {outcome: tuple(spans(at for at in each if at not in lost)) for outcome, each in found.items()}
        return {outcome: each for outcome, each in left.items() if each}

    def reopen(self, cells: Cells) -> list[LetterId]:
        """The settled letters that count, which are pending from here on: the store went back, and lost their rows.

        A letter's cell goes with its row, before the topic says that it is settled. One of each record: of others with
        the same cell a pending one, if there is one, gives the row.

        Raises:
            SinkPipelineError: ProgressCorrupt, and what reading raises.
        """
        keys = [key for key, letters in self._alike.items() if any(map(self._is_settled, letters))]
        reopened = []
        for begin in range(0, len(keys), MOST_LETTERS):
            for key, cell in cells.read(keys[begin : begin + MOST_LETTERS]).items():
                named = counted(cell)
                alike = sorted(self._counted(key, named))
                if alike and all(map(self._is_settled, alike)):
                    self._known[alike[0]].ledger.reopen(self.sink, alike[0].offset)
                    reopened.append(alike[0])
        return reopened

    def _counted(self, key: str, named: Count | None) -> list[LetterId]:
        """The letters of this cell of which any may be the one that it names."""
        return [each for each in self._alike[key] if named is not None and self._known[each].redrives == named.redrives]

    def _repeats(self, id_: LetterId, named: Count | None) -> bool:
        """`named`: the letter that counts.

        A cell that counts a settled letter is of a store that went back: the row that came of it is gone.
        """
        key = self.key(id_)
        if named is None:
            return any(self._is_settled(each) for each in self._alike[key] if each != id_)
        return any(each != id_ and not self._is_settled(each) for each in self._counted(key, named))

    def _is_settled(self, id_: LetterId) -> bool:
        return self._known[id_].ledger.outcome(self.sink, id_.offset) is not None


def _is_handled(letter: _Known, cell: Cell) -> bool:
    """Raises SinkPipelineError: ProgressCorrupt, ProgressVersionUnknown."""
    progress = None if cell.value is None else decode_cell(cell.value, letter.source).progress
    return progress is not None and is_before(letter.offset, progress.next)
