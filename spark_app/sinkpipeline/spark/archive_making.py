"""Makes the archive of Spark's classes: `python -m sinkpipeline.spark.archive_making`.

A driver's JVM decodes a few records, transforms them and hands them to Python workers, and when it ends it writes down
the classes that it has. No broker has to run: Kafka's source looks for one where nobody listens, and the classes that a
broker's answers would have needed are loaded by their names.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.failure import FETCH_PATIENCE_S
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.archive import Archive, spark_home
from sinkpipeline.spark.java import CLASS_PATH, JAVA_OPTIONS, SHORT_LIVED, java_of
from sinkpipeline.spark.session import spark_session
from sinkpipeline.spark.source import read_stream
from sinkpipeline.spark.task import RECEIPT_SCHEMA
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import COUNTED_ROWS, count_batches, to_wire

_ROWS = 10
_BATCHES = 2
_DEADLINE_S = 300.0

_RECORD = (
    "'training' AS topic",
    "CAST(value % 2 AS INT) AS partition",
    "value AS offset",
    "CAST(CAST(value AS STRING) AS BINARY) AS key",
    "CAST(if(value = 3, 'not JSON', to_json(struct(value AS id, 1.5 AS amount, 'A' AS country))) AS BINARY) AS value",
    "timestamp",
    "0 AS timestampType",
    "array(struct('a' AS key, CAST('b' AS BINARY) AS value)) AS headers",
)
"""Columns of Spark's Kafka source, from those of a source that needs no broker."""

_PLANS = (
    RowPlan(
        decode_format="json",
        schema="id BIGINT NOT NULL, at TIMESTAMP, amount DOUBLE, price DECIMAL(9,2), country STRING, of ARRAY<INT>",
        where="amount > 0",
        select=RowSelect(
            key="CAST(id AS STRING)",
            value="to_json(struct(id, amount, country))",
            timestamp="kafka.timestamp",
        ),
    ),
    RowPlan(decode_format="raw"),
)

_POD = """
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training", "labels": {"a": "b"}}, "spec": {
  "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "conf"}}],
  "containers": [{"name": "executor", "env": [{"name": "A", "value": "b"}], "args": ["executor"],
    "resources": {"limits": {"memory": "1Gi"}}, "securityContext": {"runAsUser": 185},
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}], "ports": [{"name": "a", "containerPort": 1}]}]}}
"""

_OF_ANSWERS = re.compile(
    r"org/apache/(spark/"
    r"|kafka/clients/(consumer/|admin/|[^/]*$)"
    r"|kafka/common/([^/]*|(network|record|requests|metrics|header|compress)/.*)$"
    r"|kafka/common/message/(ApiVersions|Describe(Cluster|TopicPartitions)|Fetch|ListOffsets|Metadata)(Request|Response))"
)
_OF_PODS = (
    "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterManager",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterSchedulerBackend",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    "org.apache.spark.scheduler.cluster.k8s.ExecutorPodsAllocator",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "io.fabric8.kubernetes.client.impl.KubernetesClientImpl",
)


def make(archive: Archive, java: Path) -> None:
    """Makes it anew. Until it is whole there is none.

    Raises:
        SinkPipelineError, RuntimeError, OSError: there is none.
    """
    archive.directory.mkdir(parents=True, exist_ok=True)
    archive.classes.unlink(missing_ok=True)
    _write_class_path(archive)
    part = archive.directory / f".classes.{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(prefix="sinkpipeline-archive-") as directory:
            log = Path(directory) / "spark.log"
            conf = {CLASS_PATH: str(archive.class_path), JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={part} {SHORT_LIVED}"}
            with spark_session("training", "local[2]", conf, log, exit_s=_DEADLINE_S) as spark:
                _train(spark)
            if not part.is_file():
                raise RuntimeError(f"Java wrote no archive\n{log.read_text(errors='replace')}")
        _check(archive, java, part)
        # Others may start Spark, the image's user among them; and Java never writes to it again.
        part.chmod(0o444)
        archive.java.write_text(str(java))
        archive.java.chmod(0o644)
        part.rename(archive.classes)
    finally:
        part.unlink(missing_ok=True)


def _write_class_path(archive: Archive) -> None:
    jars = sorted((archive.home / "jars").glob("*.jar"), key=lambda jar: (not jar.name.startswith("slf4j-api-"), jar))
    text = f"Class-Path: {' '.join(f'../jars/{jar.name}' for jar in jars)}"
    # A line has at most 72 bytes; the next one begins with a space, and goes on.
    lines = ["Manifest-Version: 1.0", text[:72], *(f" {text[at : at + 71]}" for at in range(72, len(text), 71))]
    part = archive.directory / f".classpath.{os.getpid()}"
    with zipfile.ZipFile(part, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "\r\n".join([*lines, "", ""]))
    part.chmod(0o444)
    part.rename(archive.class_path)


def _train(spark: SparkSession) -> None:
    """What a driver and an executor do, but for Kafka's answers."""
    for plan in _PLANS:
        analyse(spark, plan)
        _run(spark, plan)
    _reach_nobody(spark)
    java: Any = spark._jvm  # noqa: SLF001 - PySpark offers no other way
    for name in _answers():
        # One whose own classes are in no jar is needed by nobody.
        with suppress(Py4JError):
            java.java.lang.Class.forName(name)


def _run(spark: SparkSession, plan: RowPlan) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).option("numPartitions", 2).load()
    wire = to_wire(output_rows(rows.selectExpr(*_RECORD), plan), several_topics=False, targets=False, counted=True)
    enough = threading.Event()

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        count_batches(batch, COUNTED_ROWS)
        told = batch.mapInArrow(_count, RECEIPT_SCHEMA).collect()
        if sum(int(row.receipt) for row in told) != _ROWS:
            raise RuntimeError("rows have not come to the workers")
        if batch_id == _BATCHES:
            enough.set()

    deadline = time.monotonic() + _DEADLINE_S
    with _started(wire, on_batch) as query:
        while not enough.is_set():
            if query.awaitTermination(0.1) or time.monotonic() > deadline:  # type: ignore[arg-type] # a fraction is fine
                raise RuntimeError(f"there were no {_BATCHES} batches within {_DEADLINE_S:.0f} s")


def _reach_nobody(spark: SparkSession) -> None:
    """Kafka's clients without a broker, and that of Kubernetes without an API server."""
    with socket.socket() as taken:
        # Nobody listens there.
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        patience = {"default.api.timeout.ms": "1000", "request.timeout.ms": "500"}
        source = SourceSettings(
            connection=Connection(bootstrap_servers=servers), topics=("training",), properties=patience
        )
        beginning = {SourcePartition("training", 0): PartitionProgress(epoch=0, next=0, at=0)}
        with (
            suppress(PySparkException),
            _started(read_stream(spark, source, "training", beginning, 1, FETCH_PATIENCE_S)) as query,
        ):
            query.awaitTermination(_DEADLINE_S)  # type: ignore[arg-type]
        java: Any = spark._jvm  # noqa: SLF001
        bytes_ = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {"bootstrap.servers": servers, "key.deserializer": bytes_, "value.deserializer": bytes_, **patience}
        consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(java.java.util.HashMap(settings))
        consumer.assign([java.org.apache.kafka.common.TopicPartition("training", 0)])
        consumer.poll(java.java.time.Duration.ofMillis(100))
        consumer.close()
        kubernetes = java.io.fabric8.kubernetes.client
        config = kubernetes.ConfigBuilder().withMasterUrl(f"http://{servers}").withRequestRetryBackoffLimit(0).build()
        client = kubernetes.KubernetesClientBuilder().withConfig(config).build()
        pod = kubernetes.utils.Serialization.unmarshal(_POD)
        with suppress(Py4JError):
            client.pods().inNamespace("training").resource(pod).create()
        client.close()


@contextmanager
def _started(rows: DataFrame, on_batch: Callable[[DataFrame, int], None] = lambda *_: None) -> Iterator[StreamingQuery]:
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            rows.writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", Path(checkpoint).as_uri())
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            yield query
        finally:
            query.stop()


def _answers() -> Iterator[str]:
    """The names of classes that only a broker's answers, or a pod, would bring."""
    for jar in sorted((Path(spark_home()) / "jars").glob("*kafka*.jar")):
        with zipfile.ZipFile(jar) as file:
            names = [name.removesuffix(".class") for name in file.namelist() if name.endswith(".class")]
        yield from (name.replace("/", ".") for name in names if _OF_ANSWERS.match(name))
    yield from _OF_PODS


def _count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"receipt": [str(sum(batch.num_rows for batch in batches))]})


def _check(archive: Archive, java: Path, classes: Path) -> None:
    """Java itself says whether it can be used: it is told to start with it, or not at all."""
    command = [str(java), "-Xshare:on", f"-XX:SharedArchiveFile={classes}", "-Xlog:class+load", "-cp"]
    main = "org.apache.spark.deploy.SparkSubmit"
    done = subprocess.run(  # noqa: S603
        [*command, str(archive.class_path), main, "--version"], capture_output=True, text=True, check=False
    )
    if f"{main} source: shared objects file (top)" not in done.stdout:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise RuntimeError(f"Java has written an archive that it can't use: {said}")


def main() -> None:
    # Where an image is built the machine's name often resolves to nothing, and Spark asks for its address.
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    java = java_of(os.environ)
    if java is None:
        sys.exit("there is no Java: set JAVA_HOME, or have java on the PATH")
    try:
        make(Archive(Path(spark_home())), java)
    except (SinkPipelineError, PySparkException, Py4JError, RuntimeError, OSError) as error:
        sys.exit(f"the archive of Spark's classes was not made: {error}")


if __name__ == "__main__":
    main()
