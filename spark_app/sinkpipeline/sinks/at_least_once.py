"""The idempotent Kafka sink: rows are acknowledged before the driver writes progress; a crash between repeats them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable

from typing_extensions import override

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.records import Row
from sinkpipeline.kafka.producers import PlainProducer, RecordRefused
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.partition_writer import PartitionWriter
from sinkpipeline.sinks.worker import Worker

_NEVER = CutPolicy(rows=sys.maxsize, bytes=sys.maxsize, seconds=math.inf)


class AtLeastOnceWriter(PartitionWriter):
    """What is open was produced, and may be acknowledged or not; a cut waits until it is.

    Raises (all methods) SinkPipelineError: RecordUndecodable, RecordRefused, DeadLetterFailed, BrokerUnreachable, ...
    """

    def __init__(
        self, plan: BatchPlan, partition: SourcePartition, worker: Worker, *, cuts: CutPolicy | None = None
    ) -> None:
        # Rows are held only where those among them may have to be found that Kafka refuses.
        default = _NEVER if plan.settings.dead_letter is None else CutPolicy()
        super().__init__(plan, partition, worker, cuts or default)
        self._token = worker.token(plan.run)
        self._properties = plan.producer_properties
        self._producer = worker.take_plain(plan.settings.connection, self._properties)

    def write(self, batch: RowBatch) -> None:
        self._hold(batch)
        self._guard(self._produce_held)
        if self._letters is None:
            self._held.clear()

    def idle(self) -> None:
        """Nothing is held open, so there is nothing to end."""

    def finish(self) -> None:
        self._guard(self._flush_held)
        if self._letters is not None:
            self._letters.close()
        self._worker.keep_plain(self._plan.settings.connection, self._properties, self._producer)

    def receipt(self) -> Receipt:
        return Receipt(partition=self._partition, progress=self._state, delivered=self._delivered, owner=self._token)

    def _guard(self, step: Callable[[], None]) -> None:
        """Runs a step; repeats it where a record was refused among others. Steps begin at `_produced`."""
        while True:
            try:
                step()
            except RecordRefused as refusal:
                self._isolate(refusal)
                self._go_on()
            except SinkPipelineError as error:
                if not self._can_do_without_letters(error):
                    raise
                self._go_on()
            else:
                return

    def _go_on(self) -> None:
        """With another producer: one that lost a row never says again that all is well."""
        self._producer.close()
        self._producer = PlainProducer(self._plan.settings.connection, self._properties)
        self._start_over()

    def _flush_held(self) -> None:
        self._produce_held()
        self._cut(self._produced)

    @override
    def _begin(self) -> None:
        if not self._is_open:
            self._opened_at = time.monotonic()

    @override
    def _send(self, topic: str, rows: Iterable[Row]) -> None:
        self._producer.produce_rows(topic, rows)

    @override
    def _cut(self, next_offset: int) -> None:
        if not self._is_open:
            return
        self._producer.flush()
        self._count(self._advanced(next_offset))
