"""What a Spark that did not start says: Java's own word where there is one, and what to do about it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.spark.java import java_of

_TELLING = re.compile(r"^(Exception in thread|Error:|.*(Exception|Error): |.*JAVA_HOME|.*: No such file)")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
"""Java 8 calls itself 1.8."""
_OLDEST_JAVA = 17
_VERSION_S = 10.0


def not_started(
    error: Exception, master: str | None, log_file: Path | None, log_begin: int, environment: Mapping[str, str]
) -> SinkPipelineError:
    """The error of a start, whose output stands in `log_file` from byte `log_begin` on, or on stderr without one."""
    said = _said(log_file, log_begin)
    return SinkPipelineError(
        Reason.SPARK_FAILED,
        f"Spark did not start with {'what spark-submit gave' if master is None else f'master {master}'}: "
        f"{said or _first_line(error)}",
        f"{_remedy(environment, said)}; the log is {'on stderr' if log_file is None else log_file}",
    )


def _remedy(environment: Mapping[str, str], said: str | None) -> str:
    java = java_of(environment)
    if java is None:
        where = f"JAVA_HOME is {environment['JAVA_HOME']}" if environment.get("JAVA_HOME") else "the PATH has none"
        return f"there is no java ({where}): install Java {_OLDEST_JAVA}, and set JAVA_HOME to it"
    version = _version(java)
    if version is None:
        return f"run {java} -version, which says nothing here: it must be Java {_OLDEST_JAVA} or newer"
    if version < _OLDEST_JAVA:
        return f"{java} is Java {version}: install Java {_OLDEST_JAVA}, and set JAVA_HOME to it"
    if said is not None:
        return "the log has the whole of it"
    # A JVM that is killed leaves no word, and PySpark does not hand out its exit code.
    return (
        f"{java} is Java {version}, as it must be. Where the log names no cause, the JVM was killed while it started: "
        "start it again, with more memory if it ends so each time"
    )


def _version(java: Path) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, timeout=_VERSION_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search((told.stderr + told.stdout).decode(errors="replace"))
    return None if found is None else int(found[1])


def _said(log_file: Path | None, log_begin: int) -> str | None:
    """Java's own last word, not that of an earlier run."""
    with contextlib.suppress(OSError):
        text = "" if log_file is None else log_file.read_bytes()[log_begin:].decode(errors="replace")
        said = [line for line in text.splitlines()[-50:] if _TELLING.search(line)]
        if said:
            return said[-1].strip()[:300]
    return None


def _first_line(error: Exception) -> str:
    try:
        return str(error).splitlines()[0][:300]
    except Exception:  # noqa: BLE001 - py4j asks a JVM that may be gone for the text
        return type(error).__name__
