"""The archive of Spark's classes that `make install` makes: a start uses it, and one that doesn't fit is no harm."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from sinkpipeline.spark.archive import Archive, spark_home
from sinkpipeline.spark.java import java_of
from support.app.command import App, manifest

pytestmark = pytest.mark.spark

ARCHIVE = Archive(Path(spark_home()))
MAIN = "org.apache.spark.deploy.SparkSubmit"


def test_a_start_takes_its_classes_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a directory of configuration that has files, as in a pod: Java takes no archive behind such a one."""
    assert ARCHIVE.classes.exists(), "make install has said why there is none"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark.properties").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    # Of the launcher's JVM and of the driver's.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xlog:class+load:file={tmp_path}/%p.classes")
    done = App(tmp_path / "app", manifest("nobody:9092", "archive", ["in"])).call(
        "validate", "--offline", "-f", "sinkpipeline.yaml"
    )
    assert done.returncode == 0, done.stderr
    logs = [file.read_text().splitlines() for file in tmp_path.glob("*.classes")]
    [loaded] = [lines for lines in logs if any(f" {MAIN} source: " in line for line in lines)]
    spark = [line for line in loaded if " org.apache.spark." in line and "Lambda" not in line]
    archived = [line for line in spark if line.endswith("source: shared objects file (top)")]
    assert len(archived) > 0.95 * len(spark) > 1000


class Launcher:
    """A small program of Spark's, with an archive of its own, and options as a driver has them."""

    def __init__(self, directory: Path) -> None:
        jars = ARCHIVE.home / "jars"
        self.jars = [next(jars.glob(f"{name}_*.jar")) for name in ("spark-launcher", "spark-common-utils")]
        self.archive = Archive(directory)
        self.archive.directory.mkdir()
        self.run(f"-XX:ArchiveClassesAtExit={self.archive.classes}")
        self.archive.classes.chmod(0o644)

    def run(self, *options: str, jars: Sequence[Path] = ()) -> tuple[int, str]:
        """The exit code, and all that it says."""
        command = [str(java_of(os.environ)), *options, "-cp", os.pathsep.join(map(str, jars or self.jars))]
        arguments = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "--version"]
        env = {**os.environ, "SPARK_HOME": str(ARCHIVE.home), "SPARK_SCALA_VERSION": "2.13"}
        done = subprocess.run([*command, *arguments], env=env, stdout=PIPE, stderr=STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def silent(self, jars: Sequence[Path] = ()) -> bool:
        """Whether it says what it says without an archive, and no more."""
        without, found = self.run(jars=jars), self.run(*self.archive.options(), jars=jars)
        assert without[0] == 0, without
        return found == without

    def uses(self, jars: Sequence[Path] = ()) -> bool:
        _, said = self.run(*self.archive.options(), "-Xlog:class+load", jars=jars)
        assert "org.apache.spark.launcher.Main source: " in said
        return "org.apache.spark.launcher.Main source: shared objects file (top)" in said


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("launcher"))


def test_an_archive_that_fits_is_used(launcher: Launcher) -> None:
    assert launcher.silent()
    assert launcher.uses()
    assert launcher.uses([*launcher.jars, ARCHIVE.class_path])


def test_an_archive_of_another_class_path_is_passed_over_in_silence(launcher: Launcher, tmp_path: Path) -> None:
    copies = [Path(shutil.copy(jar, tmp_path)) for jar in launcher.jars]
    for jars in (launcher.jars[::-1], [tmp_path, *launcher.jars], copies):
        assert launcher.silent(jars)
        assert not launcher.uses(jars)


def test_an_archive_of_another_java_or_none_is_passed_over_in_silence(launcher: Launcher) -> None:
    whole = launcher.archive.classes.read_bytes()
    other_java = whole[:4096].replace(b"64-Bit", b"65-Bit")
    assert other_java != whole[:4096]
    try:
        for classes in (other_java + whole[4096:], b"", b"no archive" * 1000):
            launcher.archive.classes.write_bytes(classes)
            assert launcher.silent()
            assert not launcher.uses()
        launcher.archive.classes.unlink()
        assert launcher.silent()
    finally:
        launcher.archive.classes.write_bytes(whole)
