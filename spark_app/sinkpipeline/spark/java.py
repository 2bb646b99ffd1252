"""The Java of a driver, and what it is told when it starts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options where the second compiler's work would not pay: the JVM ends before."""


def java_of(environment: Mapping[str, str]) -> Path | None:
    """The program that spark-submit starts."""
    home = environment.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java", path=environment.get("PATH"))
    return None if found is None else Path(found).resolve()
