"""One streaming query of one started sink: Spark cuts the micro-batches and runs the tasks; `SinkDelivery` decides."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sinkpipeline.core.batch import SMALL_OFFSETS, Receipt, rows_at_once
from sinkpipeline.core.batch_counts import BatchCounts
from sinkpipeline.core.causes import NO_TOKEN, of_spark
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.log_lines import log_fields
from sinkpipeline.core.rowplan import rows_of
from sinkpipeline.sinks.contract import BatchPlan, Restart
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.spark import untimed
from sinkpipeline.spark.collect import Found, collected
from sinkpipeline.spark.encoder import Encoder
from sinkpipeline.spark.schemas import planned
from sinkpipeline.spark.source import Checkpoint, read_stream, refusal_of
from sinkpipeline.spark.task import BATCH, RECEIPT_SCHEMA, SINK, make_task
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import COUNTED_ROW_BYTES, count_batches, counted_rows, to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sinkpipeline.core.batch import OffsetRange
    from sinkpipeline.core.manifest import SinkPipeline
    from sinkpipeline.core.naming import SourcePartition
    from sinkpipeline.core.ports import Settings
    from sinkpipeline.core.rowplan import RowPlan
    from sinkpipeline.kinds.resolve import SinkSettings
    from sinkpipeline.spark.schemas import Schemas

_LOG = logging.getLogger("sinkpipeline.query")

_MAX_MESSAGE = 600
_PY4J = "An error occurred while calling "
"""How py4j begins the text of an error; Java's own words follow it."""


_CAUSE = "Caused by: "
_AWAITED = "Exception thrown in awaitResult"
"""How Spark begins where the rows of a job are fetched as Arrow; the job's own error is its cause."""


class _Stopping(Exception):
    pass


class OnTrigger(Protocol):
    """A trigger is done with all that it found."""

    def __call__(self, *, found_records: bool) -> None: ...


@dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """What a query needs of the manifest beyond its sink."""

    rows: RowPlan
    trigger_ms: int
    max_offsets_per_trigger: int
    small_offsets: int = SMALL_OFFSETS
    """The most offsets of a batch that the driver delivers itself; 0: tasks deliver all."""
    schemas: Schemas | None = None
    """Where records name their schemas in a registry."""
    encoder: Encoder | None = None
    """Where rows are written with schemas of a registry."""

    def of_sink(self, spark: SparkSession, pipeline: SinkPipeline, sink: SinkSettings) -> QuerySettings:
        """With what that sink transforms and encodes itself."""
        rows, encoder = rows_of(self.rows, pipeline, sink.id.sink), Encoder(spark, sink.encodings, registers=True)
        return replace(self, rows=rows, encoder=encoder)

    def planned(self) -> RowPlan:
        """With the schemas that are known now.

        Raises:
            SinkPipelineError: as `Encoder.plan`.
        """
        rows = planned(self.rows, self.schemas)
        return rows if self.encoder is None else self.encoder.plan(rows)


class SinkQuery:
    """One query start: made by the sink's runner, driven by Spark's thread."""

    def __init__(
        self,
        spark: SparkSession,
        query: QuerySettings,
        settings: Settings,
        delivery: SinkDelivery,
        *,
        on_trigger: OnTrigger,
        counted: bool,
        patience_s: float,
    ) -> None:
        """Makes no query yet.

        Args:
            spark: the driver's session.
            query: what the manifest says beyond the sink.
            settings: of the sink.
            delivery: of its start, which may have had queries before this one; it outlives them.
            on_trigger: is called when a trigger is done with all that it found.
            counted: whether Arrow batches are counted, or measured, see `wire`.
            patience_s: how long a task waits for the source.
        """
        self._spark = spark
        self._query_settings = query
        self._on_trigger = on_trigger
        self._counted = counted
        self._patience_s = patience_s
        self._settings = settings
        self.delivery = delivery
        self.error: Exception | None = None
        """Why the query ended by itself."""
        self.counts = BatchCounts()
        """What those batches cost that were delivered."""
        self._lock = threading.Lock()
        self._stopping = False
        self._abandoned = False
        self._checkpoint = Checkpoint(Path(tempfile.mkdtemp(prefix="sinkpipeline-checkpoint-")))
        self._query: StreamingQuery | None = None
        self._most_rows: int | None = None
        """Of an Arrow batch."""
        self._rows_at_once = 0
        self._ranges: Mapping[SourcePartition, OffsetRange] = {}

    def start(self) -> None:
        """Starts the streaming query from the frontier."""
        source = self._settings.source
        # Inherited by the query's thread: every sink has a pool of its own.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._settings.id.sink)
        self._spark.sparkContext.setLocalProperty(SINK, self._settings.id.sink)
        try:
            stream = read_stream(
                self._spark,
                source,
                self._settings.group_id,
                self.delivery.frontier,
                self._query_settings.max_offsets_per_trigger,
                self._patience_s,
            )
            # Of counted batches no value may be large; what is decoded in Python is one before it is on the wire.
            largest = COUNTED_ROW_BYTES if self._counted else None
            rows = replace(self._query_settings.planned(), largest=largest)
            # Here and not in each batch, which would be planned twice, and its rows projected twice.
            wire = to_wire(
                output_rows(stream, rows),
                several_topics=len({partition.topic for partition in self.delivery.frontier}) > 1,
                targets=rows.select.partition is not None,
                counted=self._counted,
            )
            self._query = (
                # With a name of each start's own: Spark may still be stopping the query of the one before.
                wire.writeStream.queryName(f"{self._settings.id} {self._checkpoint.directory.name}")
                .foreachBatch(self._on_batch)
                .option("checkpointLocation", self._checkpoint.directory.as_uri())
                .trigger(processingTime=f"{self._query_settings.trigger_ms} milliseconds")
                .start()
            )
        except (PySparkException, Py4JError) as error:
            raise spark_error(error) from error

    def wait(self, timeout_s: float) -> bool:
        """Waits for the query's end, for at most `timeout_s`; whether it has ended. Its `error` says why."""
        if self._query is None:
            return True
        try:
            ended = self._query.awaitTermination(timeout_s)  # type: ignore[arg-type] # a fraction is fine
        except (PySparkException, Py4JError) as error:
            if self.error is None:
                self.error = self.delivery.explained(spark_error(error))
            return True
        return bool(ended)

    def check_world(self) -> bool:
        """Between batches: are the topics still the same ones, is the sink still ours? Does nothing during a batch.

        What it raises ends the query: no batch begins afterwards, which would look at the same trouble once more, half
        a minute long, before anybody is told. Nor does it look again at what a batch has ended with.

        Returns:
            Whether it looked.

        Raises:
            Restart, SinkPipelineError: as SinkDelivery.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self.error is not None:
                return False
            self.delivery.check_world()
        except (Restart, SinkPipelineError):
            self._stopping = True
            raise
        finally:
            self._lock.release()
        return True

    def stop(self) -> None:
        """Lets the running batch finish, and ends the query."""
        with self._lock:
            self._stopping = True
        if self._query is not None:
            try:
                self._query.stop()
            except (PySparkException, Py4JError) as error:
                _LOG.debug("%s: while stopping: %s", self._settings.id, error)

    def abandon(self) -> None:
        """Ends the running batch, if there is one, before it has finished; after it, `stop` need not wait.

        As after a crash, the next start delivers what was not committed.
        """
        self._abandoned = True
        if self._query is not None:
            try:
                # Spark gives the jobs of a query its run's id.
                self._spark.sparkContext.cancelJobGroup(str(self._query.runId))
            except (PySparkException, Py4JError) as error:
                _LOG.debug("%s: while a batch is abandoned: %s", self._settings.id, error)

    def close(self) -> None:
        """After `stop`, or after the query ended by itself."""
        shutil.rmtree(self._checkpoint.directory, ignore_errors=True)

    def _on_batch(self, wire: DataFrame, batch_id: int) -> None:
        with self._lock, log_fields(sink=self._settings.id.sink, batch=batch_id):
            if self._stopping or self._abandoned:
                raise _Stopping
            try:
                self._run_batch(wire, batch_id)
            except (SinkPipelineError, Restart) as error:
                self.error = error
                raise
            except (PySparkException, Py4JError) as error:
                if self._abandoned:
                    raise _Stopping from error
                told = spark_error(error)
                if told.reason is Reason.RECORD_UNDECODABLE:
                    told = untimed.named(told, self._settings, self._ranges)
                self.error = self.delivery.explained(told)
                raise
            except Exception as error:
                self.error = SinkPipelineError(
                    Reason.INTERNAL_ERROR,
                    f"{type(error).__name__}: {error}",
                    "please report this with the log file",
                )
                _LOG.exception("%s: a batch failed", self._settings.id)
                raise

    def _run_batch(self, wire: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        # Of the job that collects a small batch too.
        self._spark.sparkContext.setLocalProperty(BATCH, str(batch_id))
        self._ranges = self._checkpoint.ranges(batch_id)
        plan = self.delivery.begin(self._ranges)
        if self._counted:
            self._count_batches(wire)
        receipts: list[Receipt] = []
        found = self._collected(wire, plan) if self.delivery.takes(plan) else None
        if found is None or not self.delivery.deliver(plan, found.rows, found.stops):
            told = wire.mapInArrow(make_task(plan), RECEIPT_SCHEMA).collect()
            receipts = [Receipt.from_json(row.receipt) for row in told]
            self.delivery.end(plan, receipts)
        took = time.monotonic() - began
        self.counts = self.counts.with_batch(took, receipts, self.delivery.take_costs())
        self._on_trigger(found_records=bool(plan.ranges))

    def _count_batches(self, wire: DataFrame) -> None:
        """Of large rows fewer at once: 5,000 of 10 KB would be 50 MB in each of JVM and worker, out of every cache."""
        if self._most_rows is None:
            self._most_rows = self._rows_at_once = counted_rows(wire)
            count_batches(wire, self._rows_at_once)
        wanted = rows_at_once(self._most_rows, self._rows_at_once, self.delivery.largest)
        if wanted != self._rows_at_once:
            self._rows_at_once = wanted
            count_batches(wire, wanted)

    def _collected(self, wire: DataFrame, plan: BatchPlan) -> Found | None:
        try:
            return collected(wire, plan)
        except (PySparkException, Py4JError) as error:
            if not self._abandoned:
                self.delivery.not_collected(error)
            raise


def spark_error(error: Exception) -> SinkPipelineError:
    """Our error for Spark's: its condition and the line that matters, without the stack of Java."""
    text = str(error)
    refusal = refusal_of(text)
    if refusal is not None:
        return refusal
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    lines = [
        line.strip(" \t:").removeprefix(_CAUSE)
        for line in text.splitlines()
        if line.strip() and not line.startswith(_PY4J) and _AWAITED not in line
    ]
    if "Traceback (most recent call last)" in text:
        # The Python worker's own last line says what happened; Java's stack follows it.
        python = [line for line in lines if not line.startswith(("at ", "File ", "Caused by", "..."))]
        lines = [line for line in python if "Error" in line or "Exception" in line] or lines
        message = lines[-1]
    else:
        message = next((line for line in lines if not line.startswith("at ")), type(error).__name__)
    told = f"{f' with {condition}' if condition else ''}: {message[:_MAX_MESSAGE]}"
    cause = of_spark(text)
    if cause is None:
        remedy = "the log file has Spark's own account; the batch is tried again"
        return SinkPipelineError(Reason.BATCH_FAILED, f"Spark failed{told}", remedy)
    if cause.reason is Reason.SOURCE_SLOW:
        return SinkPipelineError(cause.reason, f"the source gave no record in time; Spark failed{told}", cause.remedy)
    if cause is NO_TOKEN:
        fact = f"Spark's Kafka client got no token for the source's brokers; Spark failed{told}"
        return SinkPipelineError(cause.reason, fact, cause.remedy)
    if cause.reason is Reason.BROKER_UNREACHABLE:
        return SinkPipelineError(cause.reason, f"no answer from the source's brokers; Spark failed{told}", cause.remedy)
    return SinkPipelineError(cause.reason, f"Spark failed{told}", cause.remedy)
