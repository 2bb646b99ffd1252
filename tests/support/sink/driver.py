"""A driver without Spark: the product's own starts, deliveries and writers of one sink, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from typing_extensions import Self

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.topics import Memory
from sinkpipeline.kafka import session
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kinds import ports
from sinkpipeline.sinks import claiming
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import BatchPlan, Restart, RowBatch
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.sink_writer import SinkWriter
from sinkpipeline.sinks.small_batches import SmallBatches
from sinkpipeline.sinks.starting import SinkStarter, StartedSink
from sinkpipeline.sinks.worker import Worker
from support.sink.one_sink import OneSink, rows

BEFORE_ROWS = "before-rows"
"""A point of `Driver.batch`, beside the writer's own failpoints."""


class Driver:
    """One driver of one sink; rows hold their source offsets as text. Use it in a `with`."""

    def __init__(self, sink: OneSink, memory: Memory | None = None, **settings: Any) -> None:
        admin = Admin(sink.connection)
        self.sink = sink
        self.starter = SinkStarter(ports=ports(sink.settings(**settings), admin, admin), remembered=Remembered(memory))
        self.small_batches = SmallBatches(self.starter.settings)
        self.started: StartedSink
        self.delivery: SinkDelivery
        self._worker = Worker()
        self._running = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self.starter.remembered.let_go()

    def start(self) -> None:
        """A start with what this driver remembers; after trouble, as its runner would."""
        self.leave()
        self.started = self.starter.start()
        self.delivery = SinkDelivery(self.starter, self.started, lambda _progress, _rows: None, self.small_batches)
        self._running = True

    def leave(self) -> None:
        """The driver is gone, or about to start again."""
        if self._running:
            self.delivery.close()
            self._running = False

    @property
    def rows(self) -> int:
        return self.delivery.progress.rows

    def plan(self, end: int) -> BatchPlan:
        """The next batch, of every partition up to `end`."""
        partitions = self.delivery.progress.partitions
        return self.delivery.begin({each: OffsetRange(state.next, end) for each, state in partitions.items()})

    def batch(self, end: int, point: str = "", action: Callable[[], object] = lambda: None, **columns: Any) -> None:
        """Runs a batch; does something once, as soon as a writer comes to a point.

        `columns` as those of `one_sink.rows`.
        """
        plan = self.plan(end)
        pending = {point: action}

        def reached(name: str) -> None:
            pending.pop(name, lambda: None)()

        with mock.patch.object(claiming, "failpoint", reached), mock.patch.object(session, "failpoint", reached):
            receipts = [
                self._write(plan, each, rows(range(offsets.start, offsets.end), **columns), reached=reached)
                for each, offsets in sorted(plan.ranges.items())
            ]
        self.delivery.end(plan, receipts)

    def small(self, end: int, **columns: Any) -> bool:
        """A batch that this side takes; where it can't deliver it after all, tasks do. Whether it could.

        `columns` as those of `one_sink.rows`.
        """
        plan = self.plan(end)
        assert self.delivery.takes(plan)
        found = {each: rows(range(offsets.start, offsets.end), **columns) for each, offsets in plan.ranges.items()}
        if self.delivery.deliver(plan, sorted(found.items())):
            return True
        self.delivery.end(plan, [self._write(plan, each, batch) for each, batch in sorted(found.items())])
        return False

    def until(self, end: int, attempts: int = 3) -> None:
        """Delivers all up to `end`; starts again where the driver asks for it, and after what may be tried again."""
        for _ in range(attempts):
            try:
                self.batch(end)
                self.delivery.check_world()
            except Restart:
                self.start()
            except SinkPipelineError as error:
                if not error.reason.retry:
                    raise
                self.start()
            else:
                return
        raise AssertionError(f"no batch went well in {attempts} attempts")

    def _write(
        self,
        plan: BatchPlan,
        partition: SourcePartition,
        batch: RowBatch | None = None,
        *,
        reached: Callable[[str], None] = failpoint,
    ) -> Receipt:
        """A task: an error of it travels in its receipt."""
        writer: SinkWriter | None = None
        try:
            if plan.settings.exactly_once:
                writer = ExactlyOnceWriter(plan, partition, self._worker)
            else:
                writer = AtLeastOnceWriter(plan, partition, self._worker)
            reached(BEFORE_ROWS)
            offsets = plan.ranges[partition]
            writer.write(batch or rows(range(offsets.start, offsets.end)))
            writer.finish()
        except SinkPipelineError as error:
            told = Receipt(partition=partition) if writer is None else writer.receipt()
            return replace(told, error=error)
        return writer.receipt()
