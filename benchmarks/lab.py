"""What the benchmarks share: a broker, a source topic, one Spark session, and the pipelines that are compared.

All pipelines of a run share one broker, one JVM and one source topic, and take turns, so that what is measured is their
ratio. Broker, JVM and Python workers share the machine's cores.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import psutil
import pyspark
from pyspark.sql import DataFrame, SparkSession

from record import Record
from servers.local_kafka import LocalKafka
from sinkpipeline.core.batch import SMALL_OFFSETS
from sinkpipeline.core.failure import FailurePolicy, fetch_patience_s
from sinkpipeline.core.ledger_ports import Ports
from sinkpipeline.core.manifest import SinkPipeline, parse_manifest
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.rowplan import row_plan
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.producers import plain_config, transactional_config
from sinkpipeline.kafka.settings import SinkSettings as KafkaSettings
from sinkpipeline.kinds import kafka_alone, ports
from sinkpipeline.kinds.resolve import SinkSettings, resolve_sinks
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.spark.query import QuerySettings
from sinkpipeline.spark.runner import SinkRunner
from sinkpipeline.spark.session import CHECKPOINT_FILES, plain_files, spark_session
from sinkpipeline.spark.source import broker_waits_s, read_stream, source_options
from support.app.command import manifest
from support.kafka.topics import create_topic, produce, unique
from support.waiting import wait_until

SPARK = "Spark"
"""Spark's own Kafka sink, at-least-once, as shipped."""
SPARK_PLAIN = "Spark, plain files"
"""The same with the checkpoint file manager that our sessions set, which anyone can set."""
AT_LEAST_ONCE = "AtLeastOnce"
EXACTLY_ONCE = "ExactlyOnce"
VARIANTS = (SPARK, AT_LEAST_ONCE, EXACTLY_ONCE)
SOURCE_ALONE = "Spark's source alone"
"""What it reads is dropped."""
_OF_SPARK = (SPARK, SPARK_PLAIN, SOURCE_ALONE)

PARTS: Final = ("broker", "jvm", "driver", "workers")
"""Whose CPU is taken. `jvm` is all of Spark's, `driver` our driver's Python, which is this process: it delivers small
batches itself, and looks after each batch whether a stretch is over."""
CPU_HEADS: Final = ("broker", "JVM", "driver", "workers")
CPU_TOLD: Final = "broker, JVM, driver's Python, workers: CPU seconds per million rows, medians"
"""Of the columns with `cpu_per_million`, and what is said below such a table."""

DEADLINE_S = 1200.0
_LOOK_S = 1.0
L = TypeVar("L")


@dataclass(frozen=True)
class Stretch:
    """What was measured between two moments."""

    seconds: float
    rows: int
    cpu_s: Mapping[str, float]
    """CPU seconds of `PARTS`. A worker that ended in between is not counted."""
    dead: int = 0
    """Dead letters among the rows."""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def as_it_came(rows: DataFrame) -> DataFrame:
    return rows.select("key", "value")


@dataclass(kw_only=True)
class Lab:
    """A broker and a Spark session, with one source topic."""

    kafka: LocalKafka
    spark: SparkSession
    directory: Path
    record: Record
    """It is told what each variant ran with."""
    label: str = ""
    """What the next variant is called in the record; by default after its sink."""
    source: str = "source"
    sink_partitions: int = 4
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"interval": "0s"})
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of our pipelines' spec, such as decode and transform."""
    as_spark_does: Callable[[DataFrame], DataFrame] = as_it_came
    """What Spark's own sink is given for the same rows."""
    compression: str = "none"
    """Of all sinks' producers."""
    dead_letters: bool = False
    """Whether our sinks have a dead-letter topic."""
    small_offsets: int = SMALL_OFFSETS
    """The most offsets of a batch that the driver delivers itself."""
    changed: threading.Event = field(default_factory=threading.Event)
    """A sink of ours has come further, or has another state."""

    def fill(self, rows: int, partitions: int, size: int = 100) -> None:
        """Creates the source topic with rows of `size` bytes in all its partitions."""
        create_topic(self.kafka.bootstrap_servers, self.source, partitions=partitions)
        self.append(rows, partitions, size)

    def append(self, rows: int, partitions: int, size: int = 100) -> None:
        """Rows of `size` bytes to all partitions of the source topic."""
        text = half_as_long(size - 8)
        for partition in range(partitions):
            records = ((b"%08d" % number, text[number % 4096 :][: size - 8]) for number in range(rows // partitions))
            produce(self.kafka.bootstrap_servers, self.source, records, partition=partition)

    def drain(self, variant: str) -> Stretch:
        """Delivers the whole source topic: from the query's start, the sink being started, to the last row."""
        return self._spark_drain(variant) if variant in _OF_SPARK else self._our_drain(variant)

    def _spark_drain(self, variant: str) -> Stretch:
        with self.spark_query(variant) as (query, ends):
            before = self.cpu(), time.monotonic()
            query.processAllAvailable()
            return self._stretch(*before, sum(ends.values()))

    def _our_drain(self, guarantee: str) -> Stretch:
        with self.our_query(guarantee) as (runner, ends):
            before = self.cpu(), time.monotonic()
            self.until(runner, lambda: runner.reached(ends))
            progress = runner.report.progress
            dead = 0 if progress is None else sum(each.dead for each in progress.partitions.values())
            return replace(self._stretch(*before, sum(ends.values())), dead=dead)

    @contextmanager
    def spark_query(self, variant: str = SPARK) -> Iterator[tuple[Any, Mapping[SourcePartition, int]]]:
        """Spark's own sink on the same source, read with the same options as ours; keys and values pass."""
        name = unique("spark")
        pipeline = parse_manifest(self._document(name, AT_LEAST_ONCE))
        settings = kafka_alone(resolve_sinks(pipeline, None)[0], "this benchmark")
        self._set_checkpoint_files(None if variant in (SPARK, SOURCE_ALONE) else plain_files(pyspark.__version__))
        create_topic(self.kafka.bootstrap_servers, f"{name}-out", partitions=self.sink_partitions)
        ends = self.ends()
        beginning = {each: PartitionProgress(epoch=0, next=0, at=0) for each in ends}
        most = pipeline.spec.trigger.max_offsets_per_trigger
        patience_s = fetch_patience_s(broker_waits_s(settings.source))
        document = {"source": self._document("any", AT_LEAST_ONCE)["spec"]["source"]}
        # Its producers have Spark's defaults.
        self._note(variant, settings, most, {"compression.type": self.compression}, document)
        rows = self.as_spark_does(read_stream(self.spark, settings.source, "bench", beginning, most, patience_s))
        if variant == SOURCE_ALONE:
            writer = rows.writeStream.format("noop")
        else:
            writer = (
                rows.writeStream.format("kafka")
                .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
                .option("kafka.compression.type", self.compression)
                .option("topic", f"{name}-out")
            )
        query = (
            writer.queryName(name)
            .option("checkpointLocation", (self.directory / name).as_uri())
            .trigger(processingTime=f"{pipeline.spec.trigger.interval.milliseconds} milliseconds")
            .start()
        )
        try:
            yield query, ends
        finally:
            query.stop()

    @contextmanager
    def our_query(self, guarantee: str) -> Iterator[tuple[SinkRunner, Mapping[SourcePartition, int]]]:
        """Our sink, started; with the source's end offsets."""
        name = unique(guarantee.lower())
        pipeline = parse_manifest(self._document(name, guarantee))
        settings = kafka_alone(resolve_sinks(pipeline, None)[0], "this benchmark")
        self._set_checkpoint_files(plain_files(pyspark.__version__))
        most = pipeline.spec.trigger.max_offsets_per_trigger
        if settings.exactly_once:
            producer = transactional_config(settings.connection, "that of a partition", settings.properties)
        else:
            producer = plain_config(settings.connection, settings.properties)
        self._note(guarantee, settings, most, producer, self._document("any", guarantee))
        admin = Admin(settings.connection)
        with self.running(pipeline, settings, ports(settings, admin, admin)) as found:
            yield found

    @contextmanager
    def running(
        self, pipeline: SinkPipeline, settings: SinkSettings, its_ports: Ports
    ) -> Iterator[tuple[SinkRunner, Mapping[SourcePartition, int]]]:
        """The sink of a pipeline, of any kind, started; with the source's end offsets."""
        trigger = pipeline.spec.trigger
        query = QuerySettings(
            rows=row_plan(pipeline),
            trigger_ms=trigger.interval.milliseconds,
            max_offsets_per_trigger=trigger.max_offsets_per_trigger,
            small_offsets=self.small_offsets,
        )
        runner = SinkRunner(
            spark=self.spark,
            query=query.of_sink(self.spark, pipeline, settings),
            starter=SinkStarter(ports=its_ports),
            policy=FailurePolicy(max_consecutive_failures=1),
            on_change=self.changed.set,
        )
        ends = self.ends()
        runner.start()
        try:
            self.until(runner, lambda: runner.report.state.value == "Running")
            yield runner, ends
        finally:
            runner.stop()
            runner.join(60)

    def _set_checkpoint_files(self, manager: str | None) -> None:
        """For the query that starts next. Our sessions set it, and Spark's sink as shipped must not be given it."""
        if manager is None:
            self.spark.conf.unset(CHECKPOINT_FILES)
        else:
            self.spark.conf.set(CHECKPOINT_FILES, manager)

    def _note(
        self, variant: str, settings: KafkaSettings, most: int, producer: Mapping[str, Any], document: Mapping[str, Any]
    ) -> None:
        conf = self.effective_conf()
        consumer = source_options(settings.source, "bench", {}, most, fetch_patience_s(broker_waits_s(settings.source)))
        self.record.ran(
            f"{self.label or variant}, {conf['spark.master']}",
            spark=conf,
            consumer=consumer,
            producer=producer,
            manifest=document,
        )

    def effective_conf(self) -> dict[str, str]:
        """Spark's, for the query that starts next."""
        conf = {**dict(self.spark.sparkContext.getConf().getAll()), **self.spark.conf.getAll}
        conf[CHECKPOINT_FILES] = self.spark.conf.get(CHECKPOINT_FILES, None) or "Spark's default"
        return conf

    def until(self, runner: SinkRunner, condition: Callable[[], bool]) -> None:
        """Looks after each change: a look costs CPU of the driver, which is counted."""

        def met() -> bool:
            self.changed.clear()
            if runner.report.error is not None:
                raise runner.report.error
            if condition():
                return True
            self.changed.wait(_LOOK_S)
            return False

        wait_until(met, "the pipeline has come so far", DEADLINE_S, poll_s=0)

    def ends(self) -> dict[SourcePartition, int]:
        pipeline = parse_manifest(self._document("any", AT_LEAST_ONCE))
        admin = Admin(kafka_alone(resolve_sinks(pipeline, None)[0], "this benchmark").connection)
        topic = admin.topics([self.source])[self.source]
        assert topic is not None
        partitions = [SourcePartition(self.source, number) for number in range(topic.partitions)]
        return admin.end_offsets(partitions, read_committed=True)

    def _document(self, name: str, guarantee: str) -> dict[str, Any]:
        document = manifest(
            self.kafka.bootstrap_servers, name, [self.source], trigger=dict(self.trigger), spark={}, **self.spec
        )
        sink = document["spec"]["sinks"][0]
        sink["deliveryGuarantee"] = guarantee
        sink["kafka"]["topic"]["partitions"] = self.sink_partitions
        sink["kafka"]["properties"] = {"compression.type": self.compression}
        if self.dead_letters:
            topic = {"name": f"{name}-dead", "partitions": self.sink_partitions, "replicationFactor": 1}
            sink["deadLetter"] = {"topic": topic}
        return document

    def cpu(self) -> dict[str, float]:
        """Seconds so far of `PARTS`."""
        seconds = {"broker": 0.0, "jvm": 0.0, "driver": cpu_of(psutil.Process()), "workers": 0.0}
        for pid in self.kafka.pids.values():
            seconds["broker"] += cpu_of(psutil.Process(pid))
        servers = self._servers()
        for process in psutil.Process().children(recursive=True):
            if process.pid not in servers:
                try:
                    name = "jvm" if "java" in process.name() else "workers"
                    seconds[name] += cpu_of(process)
                except psutil.NoSuchProcess:
                    continue
        return seconds

    def _servers(self) -> set[int]:
        """Whose CPU seconds are counted apart."""
        return set(self.kafka.pids.values())

    def _stretch(self, cpu: Mapping[str, float], began: float, rows: int) -> Stretch:
        seconds = time.monotonic() - began
        return Stretch(seconds, rows, {name: value - cpu[name] for name, value in self.cpu().items()})


def half_as_long(size: int) -> bytes:
    """Text that a codec makes about half as long, more than `size` bytes of it."""
    return random.Random(1).randbytes(size // 2 + 2049).hex().encode()  # noqa: S311 - no secret


def cpu_per_million(stretches: Sequence[Stretch]) -> list[str]:
    """CPU seconds of each of `PARTS` for a million rows, medians: cells of a table."""
    return [f"{statistics.median(each.cpu_s[part] / each.rows * 1e6 for each in stretches):.2f} s" for part in PARTS]


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def lab(
    master: str,
    record: Record,
    conf: Mapping[str, str] | None = None,
    broker: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Lab]:
    """A laboratory of its own: a broker with its full compiler, and a session on `master`; `broker`: its properties."""
    with laboratory(Lab, master, record, conf, broker, **settings) as bench:
        yield bench


@contextmanager
def laboratory(
    make: Callable[..., L],
    master: str,
    record: Record,
    conf: Mapping[str, str] | None,
    broker: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[L]:
    """Likewise, of any kind."""
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "1",
        **(conf or {}),
    }
    with TemporaryDirectory(prefix="bench-") as directory, LocalKafka(jvm_options=(), properties=broker) as kafka:
        home = Path(directory)
        with spark_session("bench", master, conf, home / "spark.log") as spark:
            yield make(kafka=kafka, spark=spark, directory=home, record=record, **settings)
