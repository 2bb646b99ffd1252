"""A session of Spark for one question on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from sinkpipeline.spark.java import JAVA_OPTIONS, SHORT_LIVED
from sinkpipeline.spark.patience import telling
from sinkpipeline.spark.session import spark_session


@contextmanager
def brief_session(
    name: str, master: str, conf: Mapping[str, str], *, what_for: str, say: Callable[[str], None]
) -> Iterator[SparkSession]:
    """Its log goes with it. That Spark starts, `what_for`, and that this goes on, is said.

    Raises:
        SinkPipelineError: SparkFailed.
    """
    with ExitStack() as stack:
        log_file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sinkpipeline-brief-"))) / "spark.log"
        with telling(f"starting Spark, which {what_for}", say):
            session = stack.enter_context(spark_session(name, master, {JAVA_OPTIONS: SHORT_LIVED, **conf}, log_file))
        yield session
