"""The Spark session of a driver on this machine or in a pod."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.spark.transform import REQUIRED_CONF

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""

_MAX_TASK_ATTEMPTS = 4


def with_task_attempts(master: str) -> str:
    """A local master that tries a task again as a cluster does: without the number, local Spark gives up at once."""
    if master == "local":
        return f"local[1,{_MAX_TASK_ATTEMPTS}]"
    if master.startswith("local[") and master.endswith("]") and "," not in master:
        return f"{master[:-1]},{_MAX_TASK_ATTEMPTS}]"
    return master


def _settings(name: str, master: str, conf: Mapping[str, str], directory: str, log4j: Path) -> dict[str, str]:
    """Spark's configuration: our defaults, then the manifest's, then what delivery depends on."""
    java_options = filter(None, [conf.get("spark.driver.extraJavaOptions"), f"-Dlog4j2.configurationFile=file:{log4j}"])
    local = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1", "spark.local.dir": directory}
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(local if master.startswith("local") else {}),
        **conf,
        **REQUIRED_CONF,
        "spark.master": with_task_attempts(master),
        "spark.app.name": name,
        "spark.task.maxFailures": str(_MAX_TASK_ATTEMPTS),
        # A second copy of a task would be fenced by the first, and fence it.
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.python.daemon.module": "sinkpipeline.spark.daemon",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        # Checkpoints are of one query start, and never resumed from.
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.stopTimeout": "30000",
    }


@contextlib.contextmanager
def spark_session(name: str, master: str, conf: Mapping[str, str], log_file: Path) -> Iterator[SparkSession]:
    """A session whose own output, and that of its workers, goes to `log_file`.

    Raises:
        SinkPipelineError: SparkFailed.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="sinkpipeline-spark-") as directory, log_file.open("ab") as log:
        log4j = Path(directory) / "log4j2.properties"
        log4j.write_text(_LOG4J)
        settings = SparkConf(loadDefaults=False)
        for key, value in _settings(name, master, conf, directory, log4j).items():
            settings.set(key, value)
        try:
            gateway = launch_gateway(settings, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            context = SparkContext(gateway=gateway, conf=settings)
        except (Py4JError, PySparkException, OSError, RuntimeError) as error:
            raise SinkPipelineError(
                Reason.SPARK_FAILED, f"Spark did not start: {error}", f"Java 17 is needed; the log is {log_file}"
            ) from error
        try:
            yield SparkSession(context)
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.stop()
            gateway.shutdown()
            with contextlib.suppress(OSError):
                gateway.proc.stdin.close()
            gateway.proc.wait(30)
            # Else the next session of this process would talk to a JVM that is gone.
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
