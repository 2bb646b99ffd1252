"""What runs in a Python worker: the rows of one source partition of one batch, into the sink's writer.

One task is one source partition, in offset order: the Kafka source makes it so, and nothing between it and here
shuffles or coalesces. A task that finds it otherwise refuses.

An error that the driver must act on travels in the receipt, so Spark doesn't retry what must not be retried; what is
raised (a bug, a killed process) Spark retries.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.log_lines import log_fields
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.schemas import PENDING
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.sink_writer import SinkWriter
from sinkpipeline.sinks.whole_records import grouped
from sinkpipeline.sinks.worker import this_worker
from sinkpipeline.spark.prompt import is_guarded
from sinkpipeline.spark.wire import ROW, TARGET_TOPIC, note_from_wire

RECEIPT_SCHEMA = "receipt STRING"
SINK, BATCH = "mdc.sink", "mdc.batch"
"""Local properties of Spark: what a task is about, in its log too."""

_IDLE_POLL_S = 1.0
_AHEAD = 2
_MOST_UNKNOWN = 256
"""Schemas that a receipt names at most: the first ones that the task met."""
_NONE = -(2**63)
"""A timestamp that nobody has."""
_UNGUARDED = SinkPipelineError(
    Reason.INTERNAL_ERROR,
    "Python workers are not started by sinkpipeline's own daemon, and so would not notice an input that ends early",
    "remove spark.python.daemon.module and spark.python.use.daemon from Spark's defaults",
)
Frames = tuple[bytes, ...]
"""In order of appearance, each once."""


def make_task(plan: BatchPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for `DataFrame.mapInArrow`: rows as `wire.to_wire` gives them, to one receipt."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and not is_guarded():
            # Nothing is read: rows that are missing at the end of the input would not be missed.
            yield pa.RecordBatch.from_pydict({"receipt": [Receipt(error=_UNGUARDED).to_json()]})
            return
        retried = context is not None and context.attemptNumber() > 0
        batch = None if context is None else context.getLocalProperty(BATCH)
        with log_fields(sink=plan.settings.id.sink, batch=None if batch is None else int(batch)):
            receipt = run_task(plan, batches, retried=retried)
        yield pa.RecordBatch.from_pydict({"receipt": [receipt.to_json()]})

    return task


def run_task(plan: BatchPlan, batches: Iterable[pa.RecordBatch], *, retried: bool) -> Receipt:
    """Writes all rows; the receipt says how far that got, and why not further."""
    ahead = _ReadAhead(batches)
    writer: SinkWriter | None = None
    partition: SourcePartition | None = None
    size = 0
    unknown: Frames = ()
    try:
        while not unknown and (batch := ahead.next(writer)) is not None:
            if partition is None:
                partition = partition_of(plan, batch)
            batch, unknown = decoded_part(batch)
            if unknown and not batch.num_rows:
                break
            if writer is None:
                writer = _writer(plan, partition, retried=retried)
            rows = to_rows(batch, partition)
            size += rows.size
            writer.write(rows)
        if writer is not None:
            writer.finish()
        if unknown:
            # What comes behind tells which schemas are needed too, so that all are asked for together.
            unknown = tuple(dict.fromkeys((*unknown, *ahead.unknown())))
    except Oversized:
        # What is not committed yet is replayed by the sink's next start, which measures.
        ahead.drain()
        told = Receipt(partition=partition, in_doubt=retried) if writer is None else writer.receipt()
        return replace(told, retried=retried, oversized=True)
    except SinkPipelineError as error:
        # Read to the end: a worker that leaves input behind is ended by Spark, and its kept producers with it.
        ahead.drain()
        # Without a writer nothing was read, so what an earlier attempt did is not known.
        told = Receipt(partition=partition, in_doubt=retried) if writer is None else writer.receipt()
        return replace(told, retried=retried, error=error)
    if writer is not None:
        told = writer.receipt()
    else:
        told = Receipt(partition=partition, in_doubt=retried) if unknown else Receipt()
    frames = tuple(each.hex() for each in unknown[:_MOST_UNKNOWN])
    return replace(told, retried=retried, size=size, unknown=frames)


def _writer(plan: BatchPlan, partition: SourcePartition, *, retried: bool) -> SinkWriter:
    if plan.settings.exactly_once:
        return ExactlyOnceWriter(plan, partition, this_worker(), retried=retried)
    return AtLeastOnceWriter(plan, partition, this_worker(), retried=retried)


class _ReadAhead:
    """Reads the task's input in a thread, so that an open transaction can be ended while the next rows are late."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_AHEAD)
        self._ended = False
        self._thread = threading.Thread(target=self._run, args=(batches,), name="read-ahead", daemon=True)
        self._thread.start()

    def _run(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if batch.num_rows:
                    self._queue.put(batch)
        except BaseException as error:  # noqa: BLE001 - raised again where the task runs
            self._queue.put(error)
        else:
            self._queue.put(None)

    def next(self, writer: SinkWriter | None) -> pa.RecordBatch | None:
        """The next batch, or None at the end, however often it is asked for."""
        while not self._ended:
            try:
                item = self._queue.get(timeout=_IDLE_POLL_S)
            except queue.Empty:
                if writer is not None:
                    writer.idle()
                continue
            self._ended = not isinstance(item, pa.RecordBatch)
            if isinstance(item, BaseException):
                raise item
            return item
        return None

    def unknown(self) -> Frames:
        """Reads to the end: the frames of records whose schemas are not known, as many as a receipt names."""
        found: dict[bytes, None] = {}
        while (batch := self.next(None)) is not None:
            if len(found) < _MOST_UNKNOWN:
                found |= dict.fromkeys(decoded_part(batch)[1])
        return tuple(found)

    def drain(self) -> None:
        while self.next(None) is not None:
            pass


class Oversized(Exception):
    """A record that is too large for counted Arrow batches came without its content."""


def decoded_part(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Frames]:
    """The rows before the first one whose schema is not known, and the frames of all those that are such."""
    unknown = undecoded(batch["notes"])
    if not unknown:
        return batch, ()
    return batch.slice(0, min(unknown)), tuple(dict.fromkeys(unknown.values()))


def undecoded(notes: Any) -> dict[int, bytes]:
    """The rows, of an Arrow batch or table, whose schemas are not known: their frames, in order of appearance."""
    if _all_null(notes):
        return {}
    suspects = np.flatnonzero(pc.fill_null(pc.match_substring(notes, PENDING), False).to_numpy(zero_copy_only=False))
    found = {int(index): note_from_wire(notes[int(index)].as_py()).pending for index in suspects}
    return {index: frame for index, frame in found.items() if frame is not None}


def partition_of(plan: BatchPlan, batch: pa.RecordBatch) -> SourcePartition:
    """The source partition of a task, which its first row names; the topic where the batch has several."""
    topics = {partition.topic for partition in plan.ranges}
    topic = batch["topic"][0].as_py() if "topic" in batch.schema.names else topics.pop()
    return SourcePartition(topic, batch["partition"][0].as_py())


def to_rows(batch: pa.RecordBatch, partition: SourcePartition) -> RowBatch:
    """The columns as lists.

    Raises:
        Oversized: the batch holds a record without its content.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    other = "topic" in columns and not pc.all(pc.equal(columns["topic"], partition.topic)).as_py()
    if other or (columns["partition"].to_numpy() != partition.partition).any():
        raise SinkPipelineError(
            Reason.INTERNAL_ERROR,
            f"a task that began with {partition} was given rows of another partition",
            "remove settings of spark.conf that repartition, coalesce or split the source",
        )
    rows = row_batch(batch)
    if rows is None:
        raise Oversized
    return rows


def row_batch(batch: pa.RecordBatch) -> RowBatch | None:
    """The columns of the wire as lists; None where a record came without its content."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    notes = [] if _all_null(columns["notes"]) else [note_from_wire(text) for text in columns["notes"].to_pylist()]
    if any(note.oversized for note in notes):
        return None
    targets, topics = columns.get("target_partition"), columns.get(TARGET_TOPIC)
    rows = RowBatch(
        # Numbers by way of NumPy, which makes a list of them in a third of pyarrow's time.
        offsets=columns["offset"].to_numpy().tolist(),
        keys=columns["key"].to_pylist(),
        values=columns["value"].to_pylist(),
        target_partitions=None
        if targets is None or _all_null(targets)
        else pc.fill_null(targets, -1).to_numpy().tolist(),
        target_topics=None if topics is None else topics.to_pylist(),
        timestamps=_sendable(columns["timestamp_ms"]),
        headers=[note.headers for note in notes] or None,
        errors=[note.error for note in notes] or None,
        size=batch.nbytes,
    )
    return grouped(rows) if ROW in columns else rows


def _sendable(timestamps: Any) -> list[int]:
    """The client takes 0 for now, so 1970's first millisecond becomes its second; all others are kept, also -1."""
    known = timestamps.fill_null(_NONE).to_numpy()
    return np.where(known == 0, 1, np.where(known == _NONE, 0, known)).tolist()  # type: ignore[no-any-return]


def _all_null(column: Any) -> bool:
    return bool(column.null_count == len(column))
