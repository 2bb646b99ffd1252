from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pyspark.util
import pytest
from pyspark.sql import SparkSession

from sinkpipeline.spark.archive import with_archive
from sinkpipeline.spark.java import JAVA_OPTIONS, SHORT_LIVED
from sinkpipeline.spark.required import REQUIRED_CONF
from support.runs.keeper import KEEPER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def closing(connect: Callable[..., Any]) -> Callable[..., Any]:
    """PySpark drops the socket of each `collect()`, a warning. Closed at once, it lives as long as its file."""

    def connect_and_close(*args: Any) -> Any:
        file, sock = connect(*args)
        sock.close()
        return file, sock

    return connect_and_close


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """One small session for all tests with Spark; a test that needs another configuration starts its own process."""
    return KEEPER.get("spark", lambda: session(tmp_path_factory.mktemp("spark")))


@contextlib.contextmanager
def session(directory: Path) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").appName("tests")
    configuration = {
        **REQUIRED_CONF,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "sinkpipeline.spark.daemon",
        JAVA_OPTIONS: SHORT_LIVED,
    }
    for name, value in with_archive(configuration).items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("WARN")
        patch.setattr(pyspark.util, "local_connect_and_auth", closing(pyspark.util.local_connect_and_auth))
        yield spark
    with warnings.catch_warnings():
        # py4j leaves the sockets to its JVM open until they are collected.
        warnings.simplefilter("ignore", ResourceWarning)
        spark.stop()
