"""What Spark does for a sink's query: it cuts micro-batches, runs a task for each source partition, and tries again.

The real SinkQuery and the real task run on it: its classes stand where pyspark's would. A batch's tasks run on Python
workers, each of which runs one task at a time; an attempt that is lost may live on as a zombie, and so may every task
of a job or a driver that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from pyspark.errors import PySparkException

from model.broker import Broker
from model.scheduler import Process, Scheduler, Thread
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.sinks.contract import BatchPlan, OversizedRecord, RowBatch
from sinkpipeline.sinks.whole_records import grouped
from sinkpipeline.sinks.worker import Worker
from sinkpipeline.spark import task
from sinkpipeline.spark.collect import Found

MAX_FAILURES = 4
"""spark.task.maxFailures."""

_IDLE_POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What Spark is free to choose."""

    workers: int = 2
    moves: int = 0
    """By how many workers a partition moves from batch to batch."""
    retry_moves: bool = True
    """Whether a retried task goes to another worker."""
    max_offsets: int = 4
    """Of one partition in one batch."""
    rows_at_a_time: int = 2
    explodes: bool = False
    """Whether records may have several rows."""


@dataclass(eq=False)
class PythonWorker:
    process: Process
    state: Worker
    busy: Thread | None = None

    @property
    def idle(self) -> bool:
        return not self.process.dead and (self.busy is None or self.busy.done)


@dataclass(eq=False)
class Attempt:
    number: int
    worker: PythonWorker
    thread: Thread
    answer: list[str] | None = None
    lost: bool = False
    """Spark has given it up, whatever it may still do."""
    loses_answer: bool = False
    """It will be given up when it is done."""

    @property
    def failed(self) -> bool:
        return self.answer is None and (self.lost or self.worker.process.dead or self.thread.done)

    @property
    def over(self) -> bool:
        return self.failed or self.answer is not None


@dataclass(eq=False)
class Spark:
    """The session of one driver, with its Python workers."""

    scheduler: Scheduler
    broker: Broker
    process: Process
    habits: Habits
    keeps_row: Callable[[bytes], bool]
    topic_of: Callable[[bytes], str] | None = None
    """Which topic a row names; None where the sink has one, which no row names."""
    workers: list[PythonWorker] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    """Those that run."""
    skips: dict[SourcePartition, int] = field(default_factory=dict)
    """By how many offsets the next batch begins elsewhere than where the last one ended."""

    @property
    def sparkContext(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
        java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
        return SimpleNamespace(setLocalProperty=lambda *_: None, _gateway=SimpleNamespace(proc=None), _jsc=java)

    def worker_for(self, home: int, avoid: PythonWorker | None) -> PythonWorker:
        """The first that is free, from `home` on."""
        while len(self.workers) < self.habits.workers:
            self._add_worker()
        count = len(self.workers)
        for worker in (self.workers[(home + turn) % count] for turn in range(count)):
            if worker.idle and worker is not avoid:
                return worker
        return self._add_worker()

    def _add_worker(self) -> PythonWorker:
        process = Process(f"{self.process.name}-worker{len(self.workers)}", self.process.latency_s)
        self.process.children.append(process)
        self.workers.append(PythonWorker(process, Worker()))
        return self.workers[-1]


class Stream:
    """The source, and everything between it and the query's start."""

    def __init__(self, spark: Spark, topics: tuple[str, ...], frontier: Mapping[SourcePartition, int]) -> None:
        self.spark = spark
        self.positions = dict(frontier)
        self.counted = False
        self._topics = topics
        self._on_batch: Callable[[Frame, int], None] = lambda _frame, _batch: None

    @property
    def writeStream(self) -> Stream:  # noqa: N802 - Spark's name
        return self

    def queryName(self, _name: str) -> Stream:  # noqa: N802 - likewise
        return self

    def option(self, name: str, value: str) -> Stream:
        if name == "checkpointLocation":
            self._checkpoint = Checkpoint.made[value]
        return self

    def trigger(self, **_interval: str) -> Stream:
        return self

    def foreachBatch(self, on_batch: Callable[[Frame, int], None]) -> Stream:  # noqa: N802 - likewise
        self._on_batch = on_batch
        return self

    def start(self) -> RunningQuery:
        return RunningQuery(self.spark, self)

    def has_data(self) -> bool:
        broker, positions = self.spark.broker, self.positions
        return any(
            log.stable > positions.get(SourcePartition(name, number), log.low)
            for name in self._topics
            if name in broker.topics
            for number, log in enumerate(broker.topics[name].logs)
        )

    def next_ranges(self) -> dict[SourcePartition, OffsetRange]:
        found = {}
        for name in self._topics:
            topic = self.spark.broker.topics.get(name)
            for number, log in enumerate(topic.logs if topic is not None else ()):
                partition = SourcePartition(name, number)
                start = self.positions.get(partition, -1)
                first = log.low if start < 0 else start
                found[partition] = OffsetRange(
                    start, max(first, min(log.stable, first + self.spark.habits.max_offsets))
                )
        return found

    def run_batch(self, batch_id: int) -> None:
        for partition, by in self.spark.skips.items():
            if partition in self.positions:
                self.positions[partition] = max(0, self.positions[partition] + by)
        self.spark.skips.clear()
        ranges = self.next_ranges()
        self._refuse_lost_data(ranges)
        self._checkpoint.batches[batch_id] = ranges
        self._on_batch(Frame(self.spark, ranges, counted=self.counted), batch_id)
        self.positions |= {partition: offsets.end for partition, offsets in ranges.items()}

    def _refuse_lost_data(self, ranges: Mapping[SourcePartition, OffsetRange]) -> None:
        """What failOnDataLoss does."""
        for partition, offsets in ranges.items():
            log = self.spark.broker.log(partition.topic, partition.partition)
            if 0 <= offsets.start < log.low or offsets.start > log.high:
                raise PySparkException(message=f"some data of {partition} may have been lost")


class Checkpoint:
    """The offset log of one query."""

    made: ClassVar[dict[str, Checkpoint]] = {}
    """By the address of their directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made[directory.as_uri()] = self
        self.batches: dict[int, dict[SourcePartition, OffsetRange]] = {}

    def ranges(self, batch_id: int) -> dict[SourcePartition, OffsetRange]:
        return self.batches[batch_id]


class RunningQuery:
    def __init__(self, spark: Spark, stream: Stream) -> None:
        self._spark = spark
        self._stream = stream
        self._stopping = False
        self._thread = spark.scheduler.spawn(spark.process, "stream", "stream", self._run)

    def awaitTermination(self, timeout_s: float) -> bool:  # noqa: N802 - Spark's name
        ended = self._spark.scheduler.wait("await", lambda: self._thread.done, timeout_s)
        if ended and self._thread.error is not None and not self._stopping:
            raise PySparkException(message=f"the query ended: {self._thread.error}")
        return ended

    def stop(self) -> None:
        self._stopping = True
        self._spark.scheduler.wait("stopping", lambda: self._thread.done)

    def _run(self) -> None:
        batch_id = 0
        while True:
            self._spark.scheduler.wait("trigger", lambda: self._stopping or self._stream.has_data())
            if self._stopping:
                return
            self._stream.run_batch(batch_id)
            batch_id += 1


@dataclass(frozen=True)
class Frame:
    """The rows of a batch."""

    spark: Spark
    ranges: Mapping[SourcePartition, OffsetRange]
    counted: bool = False

    @property
    def sparkSession(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
        return SimpleNamespace(conf=SimpleNamespace(get=lambda _: None, set=lambda *_: None))

    def mapInArrow(self, function: Callable[[Iterable[Any]], Iterable[Any]], _schema: str) -> Job:  # noqa: N802 - Spark's name
        return Job(self.spark, function, self.ranges, counted=self.counted)


class Job:
    """The tasks of a batch. An empty range gets none; one whose rows were all filtered out gets one without rows."""

    def __init__(
        self,
        spark: Spark,
        function: Callable[[Iterable[Any]], Iterable[Any]],
        ranges: Mapping[SourcePartition, OffsetRange],
        *,
        counted: bool,
    ) -> None:
        self._spark = spark
        self._counted = counted
        self._task = function
        self._ranges = {each: offsets for each, offsets in sorted(ranges.items()) if offsets.start < offsets.end}
        self._number = sum(offsets.end for offsets in self._ranges.values())
        self.attempts: dict[SourcePartition, Attempt] = {}
        """The newest of each partition."""
        self.failed = False

    def collect(self) -> list[SimpleNamespace]:
        self._spark.jobs.append(self)
        try:
            return self._run()
        finally:
            self._spark.jobs.remove(self)

    def _run(self) -> list[SimpleNamespace]:
        for index, partition in enumerate(self._ranges):
            self._launch(index, partition, None)
        while True:
            self._spark.scheduler.wait("job", self._has_news)
            for index, (partition, attempt) in enumerate(list(self.attempts.items())):
                self.failed |= attempt.failed and attempt.number + 1 >= MAX_FAILURES
                if self.failed:
                    # Its other tasks are told to end, which a Python worker may not hear: they live on.
                    raise PySparkException(message=f"the job failed: {attempt.thread.error or 'a task was lost'}")
                if attempt.failed:
                    self._launch(index, partition, attempt)
            if all(attempt.answer is not None for attempt in self.attempts.values()):
                return [
                    SimpleNamespace(receipt=receipt)
                    for attempt in self.attempts.values()
                    for receipt in attempt.answer or ()
                ]

    def _has_news(self) -> bool:
        attempts = self.attempts.values()
        return self.failed or any(each.failed for each in attempts) or all(each.over for each in attempts)

    def _launch(self, index: int, partition: SourcePartition, earlier: Attempt | None) -> None:
        habits = self._spark.habits
        number = 0 if earlier is None else earlier.number + 1
        home = partition.partition + self._number * habits.moves
        worker = self._spark.worker_for(home, None if earlier is None or not habits.retry_moves else earlier.worker)

        def run() -> None:
            told = [receipt.column(0)[0].as_py() for receipt in self._task(self._rows(partition))]
            attempt.lost |= attempt.loses_answer
            if not attempt.lost:
                attempt.answer = told

        thread = self._spark.scheduler.spawn(worker.process, f"task{partition.partition}.{number}", "task", run)
        # What TaskContext.get() and this_worker() give there.
        thread.context = SimpleNamespace(
            attemptNumber=lambda: number,
            partitionId=lambda: index,
            worker=worker.state,
            getLocalProperty=lambda _name: None,
            is_cut=False,
        )
        worker.busy = thread
        attempt = self.attempts[partition] = Attempt(number, worker, thread)

    def _rows(self, partition: SourcePartition) -> list[ArrowBatch]:
        return _read(self._spark, partition, self._ranges[partition], counted=self._counted)


def _read(spark: Spark, partition: SourcePartition, offsets: OffsetRange, *, counted: bool) -> list[ArrowBatch]:
    log = spark.broker.log(partition.topic, partition.partition)
    if 0 <= offsets.start < log.low or offsets.end > log.high:
        raise LookupError(f"some data of {partition} may have been lost")
    records, _ = log.read(max(0, offsets.start), committed=True)
    rows = [
        (record.offset, record.key, value)
        for record in records
        if record.offset < offsets.end and record.value is not None and spark.keeps_row(record.value)
        for value in exploded(record.value)
    ]
    size, several = spark.habits.rows_at_a_time, spark.habits.explodes
    return [
        ArrowBatch(partition, rows[begin : begin + size], counted, several, spark.topic_of)
        for begin in range(0, len(rows), size)
    ]


def exploded(value: bytes) -> list[bytes]:
    """The values of a record's rows; for what it can't be delivered stands in the last of them."""
    kind = value.rpartition(b":")[2]
    return [value + b"/0", value + b"/1" if kind == b"several" else value] if kind.startswith(b"several") else [value]


@dataclass(frozen=True)
class ArrowBatch:
    """A few rows of one partition."""

    partition: SourcePartition
    rows: list[tuple[int, bytes | None, bytes | None]]
    counted: bool
    """Whether a large record comes without its content."""
    several: bool = False
    """Whether records may have several rows, of which this may have a part."""
    topic_of: Callable[[bytes], str] | None = None


def to_wire(stream: Stream, *, counted: bool = False, **_: bool) -> Stream:
    stream.counted = counted
    return stream


def to_rows(batch: ArrowBatch, _partition: SourcePartition) -> RowBatch:
    if batch.counted and any((value or b"").endswith(b":large") for _, _, value in batch.rows):
        raise task.Oversized
    offsets, keys, values = (list(column) for column in zip(*batch.rows, strict=True))
    rows = RowBatch(
        offsets=offsets,
        keys=keys,
        values=values,
        target_partitions=None,
        target_topics=None if batch.topic_of is None else [batch.topic_of(value or b"") for value in values],
        timestamps=[0] * len(offsets),
        headers=None,
        errors=[_error(value) for value in values],
        size=10 * len(offsets),
    )
    return grouped(rows) if batch.several else rows


def collected(frame: Frame, _plan: BatchPlan) -> Found:
    """The rows of a batch that the driver delivers: a job whose tasks only read."""

    def failed(_fate: object) -> None:
        raise PySparkException(message="the job failed: a task was lost")

    frame.spark.scheduler.call("collect", lambda: None, failed)
    ranges = {each: offsets for each, offsets in sorted(frame.ranges.items()) if offsets.start < offsets.end}
    try:
        batches = [
            batch
            for each, offsets in ranges.items()
            for batch in _read(frame.spark, each, offsets, counted=frame.counted)
        ]
        return Found([(batch.partition, to_rows(batch, batch.partition)) for batch in batches])
    except LookupError as error:
        raise PySparkException(message=str(error)) from error
    except task.Oversized as oversized:
        raise OversizedRecord from oversized


def _error(value: bytes | None) -> str | None:
    return ErrorClass.MALFORMED_JSON.error("it is none") if (value or b"").endswith((b":bad", b"-bad")) else None


class ReadAhead:
    """The task's input, without the thread that reads ahead of it."""

    scheduler: Scheduler

    def __init__(self, batches: Iterable[ArrowBatch]) -> None:
        self._batches = iter(batches)
        thread = ReadAhead.scheduler.current
        assert thread is not None
        self._of = thread.context

    def next(self, writer: Any) -> ArrowBatch | None:
        scheduler = ReadAhead.scheduler
        since = scheduler.now
        scheduler.call("rows", lambda: None, lambda _: None)
        if writer is not None and scheduler.now - since > _IDLE_POLL_S:
            writer.idle()
        return self.cut() if self._of.is_cut else next(self._batches, None)

    def cut(self) -> ArrowBatch | None:
        """What a worker's connection says where the executor has closed it, between two batches."""
        raise ConnectionAbortedError("the executor has closed the connection")

    def drain(self) -> None:
        for _ in self._batches:
            pass


def read_stream(
    spark: Spark,
    source: Any,
    _group: str,
    frontier: Mapping[SourcePartition, PartitionProgress],
    _max: int,
    _patience_s: float,
) -> Stream:
    return Stream(spark, source.topics, {each: state.next for each, state in frontier.items()})
