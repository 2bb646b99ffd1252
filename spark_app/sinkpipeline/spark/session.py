"""The Spark session of a driver on this machine or in a pod."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sinkpipeline.core.log_lines import FORMAT, PIPELINE, RUN, is_json
from sinkpipeline.spark.archive import with_archive
from sinkpipeline.spark.java import AVRO_LIMITS, EXECUTORS_JAVA_OPTIONS, JAVA_OPTIONS, SHORT_LIVED, java_options
from sinkpipeline.spark.not_started import not_started
from sinkpipeline.spark.required import REQUIRED_CONF

if TYPE_CHECKING:
    from sinkpipeline.core.manifest.operation import Spark

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

_JSON_LINES = Path(__file__).with_name("log4j2-json.properties")
"""Executors have the same image, and so the same file."""

CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_MOVED = (4, 1)
"""Since then what writes checkpoints stands in a package of its own."""

RESULT_SIZE = "spark.driver.maxResultSize"
"""Spark's own limit for what a job brings to the driver."""
_RESULT_BYTES = "64m"
"""That limit, unless the manifest has another one: rows may suddenly be larger than those of earlier batches."""

_MAX_TASK_ATTEMPTS = 4
_JVM_EXIT_S = 10.0
"""It closes its consumers before it ends, and waits for half a minute where the brokers don't answer."""


def plain_files(spark: str) -> str:
    """The manager of checkpoint files, of that version of Spark, which only writes files.

    Spark's default starts some 42 processes a batch, for the permissions of files that outlive the query. Ours don't.
    """
    version = tuple(int(each) for each in spark.split(".")[:2])
    package = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if version >= _MOVED else "")
    return f"{package}.FileSystemBasedCheckpointFileManager"


def with_task_attempts(master: str) -> str:
    """A local master that tries a task again as a cluster does: without the number, local Spark gives up at once."""
    if master == "local":
        return f"local[1,{_MAX_TASK_ATTEMPTS}]"
    if master.startswith("local[") and master.endswith("]") and "," not in master:
        return f"{master[:-1]},{_MAX_TASK_ATTEMPTS}]"
    return master


def session_conf(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration: our defaults, then the manifest's, then what delivery depends on.

    Without a master it is the one of spark-submit's configuration, as is everything else that is not named here.
    """
    local = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    avro = (f"-D{name}={most}" for name, most in AVRO_LIMITS.items())
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # On Kubernetes Spark would wait half a minute for executors before anything else, deaf to a stop; tasks wait
        # for them anyway.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        **(local if master is not None and master.startswith("local") else {}),
        **conf,
        **REQUIRED_CONF,
        # The manifest's come last, and so count.
        EXECUTORS_JAVA_OPTIONS: java_options(*avro, conf.get(EXECUTORS_JAVA_OPTIONS)),
        **({} if master is None else {"spark.master": with_task_attempts(master)}),
        "spark.task.maxFailures": str(_MAX_TASK_ATTEMPTS),
        # A second copy of a task would be fenced by the first, and fence it.
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.python.daemon.module": "sinkpipeline.spark.daemon",
        # Checkpoints are of one query start, and never resumed from.
        "spark.sql.streaming.minBatchesToRetain": "2",
        CHECKPOINT_FILES: plain_files(pyspark.__version__),
        "spark.sql.streaming.stopTimeout": "30000",
    }


def conf_of(spark: Spark) -> dict[str, str]:
    """Spark's configuration as a manifest has it, with the sizes of its driver and executors."""
    return {
        RESULT_SIZE: _RESULT_BYTES,
        **spark.conf,
        "spark.driver.cores": str(spark.driver.cores),
        "spark.driver.memory": spark.driver.memory,
        "spark.executor.instances": str(spark.executor.instances),
        "spark.executor.cores": str(spark.executor.cores),
        "spark.executor.memory": spark.executor.memory,
    }


def with_jars(conf: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    """Spark's configuration with more classes for driver and executors. What it has already comes first."""
    return {**conf, **({"spark.jars": ",".join(jars)} if jars else {})}


def _log_lines(conf: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """What makes the logs of executors and Python workers those of this driver, for programs."""
    theirs = java_options(f"-Dlog4j2.configurationFile=file:{_JSON_LINES}", conf.get(EXECUTORS_JAVA_OPTIONS))
    told = {f"spark.executorEnv.{each}": environment[each] for each in (FORMAT, PIPELINE, RUN) if each in environment}
    return {**told, EXECUTORS_JAVA_OPTIONS: theirs}


def _settings(
    name: str, master: str | None, conf: Mapping[str, str], directory: Path, *, json_lines: bool
) -> dict[str, str]:
    """The same, and what is of one session only."""
    log4j = _JSON_LINES
    if not json_lines:
        log4j = directory / "log4j2.properties"
        log4j.write_text(_LOG4J)
    # Spark leaves folders in the JVM's temporary one; in ours they go when we do.
    ours = f"-Dlog4j2.configurationFile=file:{log4j} -Dsinkpipeline.log.level=warn -Djava.io.tmpdir={directory}"
    local = {"spark.local.dir": str(directory)} if master is not None and master.startswith("local") else {}
    whole = session_conf(master, conf)
    return {
        **local,
        **whole,
        **(_log_lines(whole, os.environ) if json_lines else {}),
        "spark.app.name": name,
        JAVA_OPTIONS: java_options(conf.get(JAVA_OPTIONS), ours),
    }


@contextlib.contextmanager
def spark_session(
    name: str, master: str | None, conf: Mapping[str, str], log_file: Path | None, *, exit_s: float = _JVM_EXIT_S
) -> Iterator[SparkSession]:
    """A session whose own output, and that of its workers, goes to `log_file`, or to stderr where there is none.

    Its JVM has `exit_s` to end, and is killed then.

    Raises:
        SinkPipelineError: SparkFailed.
    """
    # spark-submit's first JVM only puts together the command of the second one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="sinkpipeline-spark-") as directory, _log(log_file) as log:
        log_begin = 0 if log_file is None else log.tell()
        settings = SparkConf(loadDefaults=False)
        # A log file is read by people.
        json_lines = log_file is None and is_json(os.environ)
        whole = _settings(name, master, with_archive(conf), Path(directory), json_lines=json_lines)
        for key, value in whole.items():
            settings.set(key, value)
        interrupt = signal.getsignal(signal.SIGINT)
        gateway = None
        try:
            # A session of its own: a signal to our process group would end the JVM in the middle of a batch.
            how = {"stdout": log, "stderr": log, "start_new_session": True}
            gateway = launch_gateway(settings, how)  # type: ignore[no-untyped-call]
            context = SparkContext(gateway=gateway, conf=settings)
            session = SparkSession(context)
        except (Py4JError, PySparkException, OSError, RuntimeError) as error:
            _end(gateway, exit_s)
            raise not_started(error, master, log_file, log_begin, os.environ) from error
        if threading.current_thread() is threading.main_thread():
            # SparkContext takes Ctrl-C for itself, and would cancel the batch that a stop lets finish.
            signal.signal(signal.SIGINT, interrupt)
        try:
            yield session
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.stop()
            _end(gateway, exit_s)


def jvm_is_gone(spark: SparkSession) -> bool:
    """Whether the session's JVM has ended, or Spark in it, as after an OutOfMemoryError of a thread of Spark's own."""
    context: Any = spark.sparkContext
    gateway = context._gateway  # noqa: SLF001 - there is no other way to know
    if gateway is None or (gateway.proc is not None and gateway.proc.poll() is not None):
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001 - likewise
    except (Py4JNetworkError, OSError):
        # It has died, and nobody has waited for its process yet.
        return True
    except Py4JError:
        return False


@contextlib.contextmanager
def _log(log_file: Path | None) -> Iterator[IO[bytes]]:
    if log_file is None:
        yield sys.stderr.buffer
        return
    with log_file.open("ab") as log:
        yield log


def _end(gateway: Any, exit_s: float) -> None:
    """Ends the JVM, which also ends when its standard input does; one that started us goes its own way."""
    if gateway is not None:
        with contextlib.suppress(Py4JError, OSError):
            gateway.shutdown()
    if gateway is not None and gateway.proc is not None:
        with contextlib.suppress(OSError):
            gateway.proc.stdin.close()
        try:
            gateway.proc.wait(exit_s)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
    # Else the next session of this process would talk to a JVM that is gone.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
