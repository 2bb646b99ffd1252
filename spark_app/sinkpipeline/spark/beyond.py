"""What the source has beyond a sink's frontier, as it was last seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from sinkpipeline.core.arrivals import Arrivals
from sinkpipeline.core.held_back import HeldBack
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import between
from sinkpipeline.core.progress import Progress
from sinkpipeline.core.status import SinkReport


class Beyond:
    """For one thread at a time."""

    def __init__(self) -> None:
        self.waits_s: float | None = None
        """For how long the oldest record has waited that was not handled yet; None where that is not known."""
        self._ends: Mapping[SourcePartition, int] | None = None
        self._held_back: HeldBack | None = None
        self._arrivals = Arrivals()

    def see(
        self, ends: Mapping[SourcePartition, int] | None, held_back: HeldBack | None, progress: Progress | None
    ) -> None:
        """End offsets, and what is held back behind them; None where they are unknown."""
        self._ends, self._held_back, self.waits_s = ends, held_back, None
        if ends is not None and progress is not None:
            frontier = {each: state.next for each, state in progress.partitions.items()}
            self.waits_s = self._arrivals.look(ends, frontier, time.monotonic())

    def of(self, report: SinkReport) -> SinkReport:
        """With the lag of its frontier."""
        report = replace(report, held_back=self._held_back)
        if self._ends is None or report.progress is None:
            return report
        states = report.progress.partitions
        lag = sum(between(states[each].next, end) for each, end in self._ends.items() if each in states)
        return replace(report, lag=lag)
