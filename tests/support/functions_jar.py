"""A jar of functions that expressions may call, compiled from `tests/data/functions`."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from sinkpipeline.spark.archive import spark_home

SOURCES = Path(__file__).parents[1] / "data" / "functions"
MASK, BROKEN, HARD, CATALOG = (f"com.example.{name}" for name in ("Mask", "Broken", "Hard", "Functions"))


def functions_jar(directory: Path, name: str = "functions.jar") -> Path:
    """Skips the test where there is no compiler: to run pipelines, a JRE is enough."""
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which(f"{home}/bin/javac" if home else "javac")
    if javac is None:
        pytest.skip("there is no javac: install a JDK")
    classes = directory / "classes"
    command = [javac, "--release", "17", "-cp", f"{spark_home()}/jars/*", "-d", str(classes)]
    done = subprocess.run([*command, *map(str, SOURCES.rglob("*.java"))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jar = directory / name
    with zipfile.ZipFile(jar, "w") as file:
        for each in classes.rglob("*.class"):
            file.write(each, each.relative_to(classes))
    return jar
