"""The Java of a driver, and what it is told when it starts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTORS_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options where the second compiler's work would not pay: the JVM ends before."""

AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.string.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.collectionItems.maxLength": 16 * 1024 * 1024,
}
"""System properties of every JVM that decodes.

Avro makes room for the length that a value claims before it reads it. A malformed one claims up to 2 GB, which no JVM
here has room for: the executor would end, and so would the next one. No value in a record of Kafka is as large as this.
"""


def java_options(*options: str | None) -> str:
    """Those that are given, as one text: of two that say the same, the last one counts."""
    return " ".join(filter(None, options))


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the driver's JVM, by its whole name.

    Of a name that is given part by part py4j asks the JVM twice for each part, which costs more than the call itself.
    """
    return getattr(spark._jvm, name)  # noqa: SLF001 - there is no other way to Spark's own classes


def java_of(environment: Mapping[str, str]) -> Path | None:
    """The program that spark-submit starts."""
    home = environment.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java", path=environment.get("PATH"))
    return None if found is None else Path(found).resolve()
