"""Redrives into a stream of NATS without Spark: rows as a repaired pipeline makes them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from sinkpipeline.core.redrive import Letter
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_sink import redriving
from support.sink.nats_sink import batch


@dataclass(frozen=True)
class NatsRepaired:
    """A transform; it pickles, as a class of a module."""

    delivered: range | None = None
    """Source offsets of records that `where` leaves; all of them by default."""

    def __call__(self, letters: Sequence[Letter]) -> RowBatch | None:
        left = [each for each in letters if self.delivered is None or each.letter.record.offset in self.delivered]
        values = [b"0:%d redriven" % each.letter.record.offset for each in left]
        return batch([each.id.offset for each in left], values) if left else None


def of_a_stream(settings: SinkSettings, rate: float | None) -> None:
    """In a process of its own."""
    with closing(redriving(settings, NatsRepaired(), rate=rate)) as redrive:
        survey = redrive.survey()
        if survey is not None:
            redrive.carry_out(survey)
