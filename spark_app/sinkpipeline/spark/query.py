"""One streaming query of one started sink: what the driver does with each micro-batch.

    compare the topic ids ─► ranges begin at the frontier? ─► tasks write ─► fold their receipts
                                                                              └► advance what nobody reported
Whatever goes wrong ends the query. The next start fences every partition and reads the truth before it goes on, so
nothing here has to be undone.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sinkpipeline.core.batch import Receipt, check_contiguous, first_error, fold_receipts, unfinished
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress, encode
from sinkpipeline.core.starting import check_run, partition_counts
from sinkpipeline.core.topics import data_topic_lost
from sinkpipeline.kafka.failpoints import failpoint
from sinkpipeline.kafka.producers import Fenced, InDoubt
from sinkpipeline.kafka.progress_log import ProgressFollower
from sinkpipeline.kafka.starting import SinkStarter, StartedSink, now_ms
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.spark.source import Checkpoint, read_stream
from sinkpipeline.spark.task import RECEIPT_SCHEMA, make_task
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import to_wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sinkpipeline.core.batch import OffsetRange
    from sinkpipeline.core.rowplan import RowPlan

_LOG = logging.getLogger("sinkpipeline.query")

SNAPSHOT_EVERY = 20_000
"""Progress records of ours after which all keys are written again, so that the suffix a start must read stays short."""

_MAX_MESSAGE = 600


class Restart(Exception):
    """The sink must be started again; this is not a failure."""


class _Stopping(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """What a query needs of the manifest beyond its sink."""

    rows: RowPlan
    trigger_ms: int
    max_offsets_per_trigger: int


class SinkQuery:
    """One query start: made by the sink's runner, driven by Spark's thread; any may read `progress` and `exact`."""

    def __init__(
        self,
        spark: SparkSession,
        query: QuerySettings,
        starter: SinkStarter,
        started: StartedSink,
        on_progress: Callable[[Progress, int], None],
    ) -> None:
        self._spark = spark
        self._query_settings = query
        self._settings = starter.settings
        self._starter = starter
        self._started = started
        self._control = started.control
        self._on_progress = on_progress
        self.progress = started.progress
        self.exact = True
        """Whether `progress` is certain: false from before a batch until every outcome of it is known."""
        self.error: Exception | None = None
        """Why the query ended by itself."""
        self._owners: dict[SourcePartition, str] = {}
        self._records_since_snapshot = 0
        self._lock = threading.Lock()
        self._stopping = False
        self._follower = ProgressFollower(
            self._settings.connection,
            self._settings.progress.name,
            self._settings.group_id,
            self._settings.id,
            started.progress.end,
        )
        self._verified = started.progress.end
        self._checkpoint = Checkpoint(Path(tempfile.mkdtemp(prefix="sinkpipeline-checkpoint-")))
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Starts the streaming query from the frontier."""
        source = self._settings.source
        topics = self._started.source
        frontier = {each: state for each, state in self.progress.partitions.items() if each.topic in topics}
        # Inherited by the query's thread: every sink has a pool of its own.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._settings.id.sink)
        try:
            stream = read_stream(
                self._spark,
                source,
                self._settings.group_id,
                frontier,
                self._query_settings.max_offsets_per_trigger,
            )
            self._query = (
                output_rows(stream, self._query_settings.rows)
                .writeStream.queryName(str(self._settings.id))
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
                self.error = spark_error(error)
            return True
        return bool(ended)

    def check_world(self) -> None:
        """Between batches: are the topics still the same ones, is the sink still ours? Does nothing during a batch.

        Raises:
            Restart: see `_check_topics`.
            SinkPipelineError: likewise; Superseded.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._check_topics()
            self._observe()
        finally:
            self._lock.release()

    def stop(self) -> None:
        """Lets the running batch finish, and ends the query."""
        with self._lock:
            self._stopping = True
        if self._query is not None:
            try:
                self._query.stop()
            except (PySparkException, Py4JError) as error:
                _LOG.debug("%s: while stopping: %s", self._settings.id, error)

    def close(self) -> None:
        """After `stop`, or after the query ended by itself."""
        self._follower.close()
        self._control.close()
        shutil.rmtree(self._checkpoint.directory, ignore_errors=True)

    def snapshot(self) -> None:
        """Writes all keys in one control transaction; nothing while an outcome is in doubt, as it could move back.

        Raises:
            Restart: another writer of the control id, or an outcome in doubt: the next start reads the truth.
        """
        if not self.exact:
            return
        self._write(self.progress)
        self._records_since_snapshot = 0

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._stopping:
                raise _Stopping
            try:
                self._run_batch(rows, batch_id)
            except (SinkPipelineError, Restart) as error:
                self.error = error
                raise
            except (PySparkException, Py4JError) as error:
                self.error = spark_error(error)
                raise
            except Exception as error:
                self.error = SinkPipelineError(
                    Reason.INTERNAL_ERROR,
                    f"{type(error).__name__}: {error}",
                    "please report this with the log file",
                )
                _LOG.exception("%s: a batch failed", self._settings.id)
                raise

    def _run_batch(self, rows: DataFrame, batch_id: int) -> None:
        # 1. Is the world still the one that we started in?
        self._check_topics()
        self._observe()
        # 2. Does Spark go on where we are?
        ranges = self._with_new_partitions(self._checkpoint.ranges(batch_id))
        check_contiguous(ranges, self.progress.partitions)
        ranges = {partition: offsets for partition, offsets in ranges.items() if offsets.start < offsets.end}
        # 3. The tasks write rows and progress.
        self.exact = not self._settings.exactly_once
        receipts = self._run_tasks(rows, ranges)
        self._take(receipts)
        error = first_error(receipts)
        if error is not None:
            raise error
        # 4. What nobody reported: ranges in which nothing survived.
        self._advance(receipts, ranges)
        failpoint("after-batch")
        if self._records_since_snapshot >= SNAPSHOT_EVERY:
            self.snapshot()

    def _run_tasks(self, rows: DataFrame, ranges: Mapping[SourcePartition, OffsetRange]) -> list[Receipt]:
        frontier = self.progress.partitions
        plan = BatchPlan(
            settings=self._settings,
            run=self._started.run,
            data_partitions=self._started.data_topic.partitions,
            max_message_bytes=self._started.max_message_bytes,
            progress_topic_id=self._started.progress_topic.id,
            verified=self._verified,
            ranges=dict(ranges),
            frontier={partition: frontier[partition] for partition in ranges},
            owners={partition: owner for partition, owner in self._owners.items() if partition in ranges},
        )
        told = to_wire(rows).mapInArrow(make_task(plan), RECEIPT_SCHEMA).collect()
        return [Receipt.from_json(row.receipt) for row in told]

    def _take(self, receipts: list[Receipt]) -> None:
        """Believes the receipts: what they report was committed, or acknowledged under AtLeastOnce."""
        before = self.progress.partitions
        partitions = fold_receipts(before, receipts)
        if not self._settings.exactly_once:
            changed = {each: state for each, state in partitions.items() if state != before[each]}
            if changed:
                self._write(Progress(partitions=MappingProxyType(changed)))
        self.progress = replace(self.progress, partitions=MappingProxyType(partitions))
        self.exact = not any(receipt.in_doubt for receipt in receipts)
        for receipt in receipts:
            if receipt.partition is not None and receipt.owner is not None:
                self._owners[receipt.partition] = receipt.owner
            self._verified = max(self._verified, receipt.verified or 0)
            self._records_since_snapshot += receipt.commits
        self._on_progress(self.progress, sum(receipt.delivered for receipt in receipts))

    def _advance(self, receipts: list[Receipt], ranges: Mapping[SourcePartition, OffsetRange]) -> None:
        rest = unfinished(ranges, self.progress.partitions, at=now_ms())
        if not rest:
            return
        reported = {receipt.partition for receipt in receipts}
        if any(receipt.retried for receipt in receipts) and not rest.keys() <= reported:
            # An attempt that was lost may have delivered rows of these: they are fenced and read first.
            raise Restart("a task was tried again, and a partition reported nothing")
        self._write(Progress(partitions=MappingProxyType(rest)))
        self.progress = replace(self.progress, partitions=MappingProxyType({**self.progress.partitions, **rest}))
        self._on_progress(self.progress, 0)

    def _with_new_partitions(self, ranges: Mapping[SourcePartition, OffsetRange]) -> dict[SourcePartition, OffsetRange]:
        """Writes partitions that appeared under control, before their first row is delivered."""
        new = sorted(ranges.keys() - self.progress.partitions.keys())
        if not new:
            return dict(ranges)
        meta = self.progress.meta
        if meta is None or any(partition.topic not in self._started.source for partition in new):
            # A topic that a pattern found: the start takes down its id.
            raise Restart("a new topic matches topicPattern")
        beginnings = self._starter.source_admin.beginning_offsets(new)
        states = {each: PartitionProgress(epoch=meta.epoch, next=beginnings[each], at=now_ms()) for each in new}
        partitions = {**self.progress.partitions, **states}
        grown = replace(meta, partitions=MappingProxyType(partition_counts(partitions)))
        self._write(Progress(meta=grown, partitions=MappingProxyType(states)))
        self.progress = replace(self.progress, meta=grown, partitions=MappingProxyType(partitions))
        return {
            partition: replace(offsets, start=states[partition].next) if offsets.start < 0 else offsets
            for partition, offsets in ranges.items()
        }

    def _observe(self) -> None:
        """Reads on in the progress topic, so that tasks need not read far; a newer driver shows here first."""
        seen = self._follower.poll()
        check_run(self._settings.id, seen.meta, self._started.run)
        known = self.progress.partitions
        if any(each not in known or state.next > known[each].next for each, state in seen.partitions.items()):
            raise Restart("the progress topic knows more than this driver")
        self._verified = max(self._verified, self._follower.position)

    def _check_topics(self) -> None:
        """Compares the ids of source, data and progress topics with those of the start.

        Raises:
            Restart: the start is to decide anew, with our frontier as its memory.
            SinkPipelineError: SourceRecreated, DataTopicLost, BrokerUnreachable.
        """
        found = self._starter.source_admin.topics(tuple(self._started.source))
        for name, topic_id in self._started.source.items():
            topic = found[name]
            if topic is None or topic.id != topic_id:
                raise SinkPipelineError(
                    Reason.SOURCE_RECREATED,
                    f"source topic {name} was deleted{'' if topic is None else ' and created again'} while it was read",
                    "its offsets mean other records now; start anew under another identity",
                )
        names = (self._settings.data.name, self._settings.progress.name)
        topics = self._starter.admin.topics(names)
        data, progress = topics[names[0]], topics[names[1]]
        if data is None or data.id != self._started.data_topic.id:
            if self.progress.rows > 0:
                raise data_topic_lost(
                    names[0], f"it was {'deleted' if data is None else 're-created'} while rows were delivered into it"
                )
            raise Restart("the data topic changed before a row was delivered")
        if progress is None or progress.id != self._started.progress_topic.id:
            raise Restart("the progress topic was deleted or re-created")

    def _write(self, progress: Progress) -> None:
        try:
            records = encode(self._settings.id, progress)
            self._control.write(self._settings.progress.name, records)
        except (Fenced, InDoubt) as trouble:
            raise Restart(f"the control transaction was not confirmed ({type(trouble).__name__})") from trouble
        self._records_since_snapshot += len(records)


def spark_error(error: Exception) -> SinkPipelineError:
    """Our error for Spark's: its condition and the line that matters, without the stack of Java."""
    text = str(error)
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in text:
        # The Python worker's own last line says what happened; Java's stack follows it.
        python = [line for line in lines if not line.startswith(("at ", "File ", "Caused by", "..."))]
        lines = [line for line in python if "Error" in line or "Exception" in line] or lines
        message = lines[-1]
    else:
        message = lines[0] if lines else type(error).__name__
    return SinkPipelineError(
        Reason.BATCH_FAILED,
        f"Spark failed{f' with {condition}' if condition else ''}: {message[:_MAX_MESSAGE]}",
        "the log file has Spark's own account; the batch is tried again",
    )
