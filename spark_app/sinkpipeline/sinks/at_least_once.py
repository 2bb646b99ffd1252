"""The idempotent Kafka sink: rows are acknowledged before the driver writes progress; a crash between repeats them."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import replace

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.producers import RecordRefused
from sinkpipeline.sinks.contract import BatchPlan, RowBatch, refused, undecodable
from sinkpipeline.sinks.worker import Worker


class AtLeastOnceWriter:
    """Raises (all methods) SinkPipelineError: RecordUndecodable, RecordRefused, BrokerUnreachable and the like."""

    def __init__(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> None:
        self._plan = plan
        self._partition = partition
        self._worker = worker
        self._state = plan.frontier[partition]
        self._next = self._state.next
        """Source offsets below it were produced, acknowledged or not."""
        self._unacknowledged = 0
        self._delivered = 0
        self._token = worker.token(plan.run)
        self._properties = {**plan.settings.properties, "message.max.bytes": str(plan.max_message_bytes)}
        self._producer = worker.take_plain(plan.settings.connection, self._properties)

    def write(self, batch: RowBatch) -> None:
        begin, end = bisect_left(batch.offsets, self._next), len(batch)
        if begin == end:
            return
        bad = batch.first_bad(begin, end, self._plan.data_partitions)
        stop = end if bad is None else bad[0]
        try:
            self._producer.produce_rows(self._plan.settings.data.name, batch.rows(begin, stop))
        except RecordRefused as refusal:
            if refusal.index is None:
                raise refused(self._partition, self._state.next, batch.offsets[-1] + 1, refusal.text) from refusal
            index = begin + refusal.index
            self._produced(index - begin, batch.offsets[index])
            raise refused(self._partition, batch.offsets[index], batch.offsets[index] + 1, refusal.text) from refusal
        self._produced(stop - begin, batch.offsets[stop] if bad is not None else batch.offsets[-1] + 1)
        if bad is not None:
            self._flush()
            raise undecodable(self._partition, batch.offsets[stop], bad[1])

    def idle(self) -> None:
        """Nothing is held open, so there is nothing to end."""

    def finish(self) -> None:
        self._flush()
        self._worker.keep_plain(self._plan.settings.connection, self._properties, self._producer)

    def receipt(self) -> Receipt:
        return Receipt(partition=self._partition, progress=self._state, delivered=self._delivered, owner=self._token)

    def _produced(self, rows: int, next_offset: int) -> None:
        self._unacknowledged += rows
        self._next = next_offset

    def _flush(self) -> None:
        try:
            self._producer.flush()
        except RecordRefused as refusal:
            raise refused(self._partition, self._state.next, self._next, refusal.text) from refusal
        self._state = replace(
            self._state,
            next=self._next,
            rows=self._state.rows + self._unacknowledged,
            at=int(time.time() * 1000),
        )
        self._delivered += self._unacknowledged
        self._unacknowledged = 0
