"""Cells that stand in the target: whoever deletes it deletes them too."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from sinkpipeline.cells.ledger import CellHold, CellLedger, Place
from sinkpipeline.cells.store import Cells
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress import Progress
from sinkpipeline.nats.target import NatsStream


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
        """Before anything is written into a stream that would not keep it."""
        if isinstance(self.kept_in, NatsStream):
            self.kept_in.check()
        hold = NatsHold(self.cells, self.sink, self.kept_in, tells_faults=self.tells_faults)
        hold.take()
        return hold
