"""Cells that stand in the target: whoever deletes it deletes them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from sinkpipeline.cells.ledger import CellHold, CellLedger, Place
from sinkpipeline.cells.session import CLAIM_ATTEMPTS
from sinkpipeline.cells.store import Cells, Moved
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.redrive import redrive_of
from sinkpipeline.nats.reader import MOST_MESSAGES
from sinkpipeline.nats.target import NatsStream

_ALL = 10**9


class NatsHold(CellHold):
    """A sink whose cells may be gone with its stream."""

    def __init__(self, cells: Cells, sink: SinkId, kept_in: Place, *, tells_faults: bool) -> None:
        super().__init__(cells, sink, tells_faults=tells_faults)
        self._kept_in = kept_in

    @override
    def remove(self, found: Progress) -> None:
        if self._kept_in.id() is not None:
            super().remove(found)


@dataclass(frozen=True)
class NatsLedger(CellLedger):
    """The cells of one sink, in its stream."""

    @override
    def hold(self, *, source_topics: int) -> CellHold:
        """Before anything is written into a stream that would not keep it.

        The cells of letters are no start's: where `meta` is not marked to stay, they are not either, and go first.
        """
        if isinstance(self.kept_in, NatsStream):
            self.kept_in.check()
            if self.kept_in.would_expire():
                for prefix in (self.sink.letters_prefix, redrive_of(self.sink).prefix):
                    self._write_anew(list(self.cells.find(prefix, _ALL)))
        hold = NatsHold(self.cells, self.sink, self.kept_in, tells_faults=self.tells_faults)
        hold.take()
        return hold

    def _write_anew(self, keys: Sequence[str]) -> None:
        """As they are; one that was removed meanwhile stays so."""
        for begin in range(0, len(keys), MOST_MESSAGES):
            some = keys[begin : begin + MOST_MESSAGES]
            for _ in range(CLAIM_ATTEMPTS):
                found = {key: cell for key, cell in self.cells.read(some).items() if cell.value is not None}
                try:
                    self.cells.put({key: (cell.value, cell.version) for key, cell in found.items()})
                except Moved:
                    continue
                break
