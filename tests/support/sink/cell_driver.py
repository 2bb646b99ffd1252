"""A driver of a sink with progress in cells, and one worker that writes its batches: the product's, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.commit_counts import NONE
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import Restart, RowBatch
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.sinks.worker import Worker
from support.sink.one_sink import rows

Writer = ExactlyOnceWriter | AtLeastOnceWriter
MakeBatch = Callable[[SourcePartition, range], RowBatch]


def keyed(partition: SourcePartition, offsets: range) -> RowBatch:
    """The rows of the partitions are told apart by their keys."""
    return rows(offsets, keys=[str(partition).encode()] * len(offsets))


class Driver:
    """One driver of the sink, whose batches are written by one worker."""

    pause_s = 0.0
    """How long it waits before it tries again."""

    def __init__(
        self,
        ports: Ports,
        ends: dict[SourcePartition, int],
        step: int = 4,
        make: MakeBatch = keyed,
        remembered: Remembered | None = None,
    ) -> None:
        self.ports, self.step, self.make, self.ends = ports, step, make, ends
        self.starter = SinkStarter(ports=ports, remembered=remembered or Remembered())
        self.worker = Worker()
        self.costs = NONE
        """Of all tasks that came to their end."""
        self.start()

    def start(self) -> None:
        self.started = self.starter.start()
        self.delivery = SinkDelivery(self.starter, self.started, lambda _progress, _rows: None)

    def writers(self) -> Iterator[tuple[Writer, range]]:
        """Of the next batch, each with the offsets that it is to write."""
        ranges = {
            each: OffsetRange(state.next, min(state.next + self.step, self.ends[each]))
            for each, state in self.delivery.progress.partitions.items()
        }
        self.plan = self.delivery.begin(ranges)
        for each in sorted(self.plan.ranges):
            offsets = self.plan.ranges[each]
            make = ExactlyOnceWriter if self.plan.settings.exactly_once else AtLeastOnceWriter
            yield make(self.plan, each, self.worker), range(offsets.start, offsets.end)

    def batch(self) -> None:
        receipts = []
        for writer, offsets in self.writers():
            receipts.append(self.write(writer, offsets))
            self.costs += receipts[-1].costs
        self.delivery.end(self.plan, receipts)

    def drain(self) -> None:
        """Until all is delivered; starts again as a runner would."""
        is_started = True
        for _ in range(200):
            try:
                if not is_started:
                    self.start()
                    is_started = True
                while not self.is_done():
                    self.batch()
            except Restart:
                is_started = False
            except SinkPipelineError as error:
                is_started = False
                if not error.reason.retry:
                    raise
                time.sleep(self.pause_s)
            else:
                return
        raise AssertionError("it never came to its end")

    @property
    def dead(self) -> int:
        """How many records were dead-lettered, by the progress."""
        return sum(each.dead for each in self.delivery.progress.partitions.values())

    def is_done(self) -> bool:
        return all(self.delivery.progress.partitions[each].next >= end for each, end in self.ends.items())

    def write(self, writer: Writer, offsets: range) -> Receipt:
        writer.write(self.make(writer._partition, offsets))
        writer.finish()
        return writer.receipt()
