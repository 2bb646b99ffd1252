"""What is told of a Spark that doesn't start: each remedy is of the cause that there was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

_START = """\
import sys
from pathlib import Path
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.spark.session import spark_session

try:
    with spark_session("none", "local[1]", {}, Path(sys.argv[1]) if sys.argv[1:] else None):
        pass
except SinkPipelineError as error:
    print(error.reason.value, error.message, error.remedy, sep="\\n")
"""


def _java(home: Path, version: str, then: str) -> Path:
    """A program in `home` that says its version as Java does, and else does `then`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025\' >&2; exit; fi\n{then}\n'
    )
    java.chmod(0o755)
    return java


def _told(home: Path, *arguments: str) -> list[str]:
    """Reason, fact and remedy of a start with the Java in `home`."""
    env = {**os.environ, "JAVA_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _START, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("to_a_file", [True, False])
def test_a_jvm_that_was_killed_in_its_start(tmp_path: Path, to_a_file: bool) -> None:
    """The Java is as it must be: nobody is sent to install one."""
    java = _java(tmp_path / "jdk", "17.0.15", "kill -9 $$")
    log = tmp_path / "log"
    reason, fact, remedy = _told(tmp_path / "jdk", *([str(log)] if to_a_file else []))
    assert (reason, fact.partition(":")[0]) == ("SparkFailed", "Spark did not start with master local[1]")
    assert f"{java} is Java 17, as it must be" in remedy
    assert "start it again" in remedy
    assert remedy.endswith(f"the log is {log if to_a_file else 'on stderr'}")


@pytest.mark.parametrize(("version", "told"), [("11.0.2", 11), ("1.8.0_402", 8)])
def test_a_java_that_is_too_old(tmp_path: Path, version: str, told: int) -> None:
    error = "Error: A JNI error has occurred, please check your installation and try again"
    java = _java(tmp_path / "jdk", version, f"echo '{error}' >&2; exit 1")
    _, fact, remedy = _told(tmp_path / "jdk", str(tmp_path / "log"))
    assert error in fact
    assert remedy.startswith(f"{java} is Java {told}: install Java 17, and set JAVA_HOME to it")


def test_a_java_that_does_not_say_its_version(tmp_path: Path) -> None:
    java = _java(tmp_path / "jdk", "", "exit 1")
    _, _, remedy = _told(tmp_path / "jdk")
    assert remedy.startswith(f"run {java} -version")


def test_no_java(tmp_path: Path) -> None:
    _, _, remedy = _told(tmp_path / "none")
    assert remedy.startswith(f"there is no java (JAVA_HOME is {tmp_path}/none): install Java 17")


def test_a_java_that_says_what_it_is_about(tmp_path: Path) -> None:
    error = "Error: Could not find or load main class org.apache.spark.launcher.Main"
    _java(tmp_path / "jdk", "21.0.1", f"echo '{error}' >&2; exit 1")
    log = tmp_path / "log"
    log.write_text("java.lang.Error: of an earlier run\n")
    _, fact, remedy = _told(tmp_path / "jdk", str(log))
    assert fact.endswith(error)
    assert remedy == f"the log has the whole of it; the log is {log}"
