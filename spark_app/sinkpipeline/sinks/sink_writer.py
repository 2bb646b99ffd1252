"""What a task gives the rows of its source partition to."""

from __future__ import annotations

from typing import Protocol

from sinkpipeline.core.batch import Receipt
from sinkpipeline.sinks.contract import RowBatch


class SinkWriter(Protocol):
    """Writes the rows of one source partition of one batch."""

    def write(self, batch: RowBatch) -> None: ...

    def idle(self) -> None:
        """Called about once a second while the next rows are late."""

    def finish(self) -> None:
        """There are no more rows for this writer.

        What comes behind the last one is the driver's to count: only Spark knows whether the task was given all rows of
        its range.
        """

    def receipt(self) -> Receipt:
        """How far the writer got; without `error` and `retried`, which the runtime knows."""
