"""Who starts with the archive of Spark's classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sinkpipeline.spark.archive import Archive, with_archive
from sinkpipeline.spark.java import CLASS_PATH, JAVA_OPTIONS, java_of


class Machine:
    """A Java, and a Spark with an archive that this Java made."""

    def __init__(self, directory: Path) -> None:
        self.java = directory / "jdk" / "bin" / "java"
        self.java.parent.mkdir(parents=True)
        self.java.touch(0o755)
        self.archive = Archive(directory / "spark")
        self.archive.directory.mkdir(parents=True)
        self.archive.classes.touch()
        self.archive.java.write_text(str(self.java))
        self.environment = {"PATH": str(self.java.parent), "SPARK_CONF_DIR": str(directory / "conf")}

    def conf(self, conf: Mapping[str, str] | None = None, **environment: str) -> dict[str, str]:
        return with_archive(conf or {}, str(self.archive.home), self.environment | environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_driver_has_the_archive_and_the_class_path_that_it_is_for(machine: Machine) -> None:
    conf = machine.conf({"spark.ui.enabled": "false"})
    assert conf["spark.ui.enabled"] == "false"
    assert conf[CLASS_PATH] == str(machine.archive.class_path)
    assert conf[JAVA_OPTIONS].split() == machine.archive.options()
    assert f"-XX:SharedArchiveFile={machine.archive.classes}" in machine.archive.options()


def test_what_the_user_says_to_java_comes_later_and_counts(machine: Machine) -> None:
    options = machine.conf({JAVA_OPTIONS: '-Xlog:cds=info -Da="b c"'})[JAVA_OPTIONS]
    assert options == " ".join([*machine.archive.options(), '-Xlog:cds=info -Da="b c"'])


@pytest.mark.parametrize(
    "own",
    [
        {CLASS_PATH: "/own.jar"},
        {JAVA_OPTIONS: "-Da=b -XX:SharedArchiveFile=/own.jsa"},
        {JAVA_OPTIONS: "-XX:ArchiveClassesAtExit=/own.jsa"},
        {JAVA_OPTIONS: "-Xshare:off"},
    ],
)
def test_who_has_a_class_path_or_sharing_of_his_own_keeps_it(machine: Machine, own: Mapping[str, str]) -> None:
    assert machine.conf(own) == own


def test_a_class_path_that_only_spark_submit_is_told_is_kept(machine: Machine, tmp_path: Path) -> None:
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.master k8s://https://api\n")
    with_file = f"--properties-file '{properties}' pyspark-shell"
    assert machine.conf(PYSPARK_SUBMIT_ARGS=with_file)
    assert not machine.conf(PYSPARK_SUBMIT_ARGS="--driver-class-path /own.jar pyspark-shell")
    properties.write_text(f"{CLASS_PATH}=/own.jar\n")
    assert not machine.conf(PYSPARK_SUBMIT_ARGS=with_file)

    defaults = Path(machine.environment["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    assert machine.conf()
    defaults.parent.mkdir()
    defaults.write_text(f"{CLASS_PATH} /own.jar\n")
    assert not machine.conf()


def test_the_archive_is_for_the_java_that_made_it(machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / "other" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.touch(0o755)
    assert java_of(machine.environment) == machine.java
    assert not machine.conf(PATH=str(other.parent))
    assert not machine.conf(JAVA_HOME=str(tmp_path / "other"))
    assert not machine.conf(JAVA_HOME=str(tmp_path / "none"))
    assert not machine.conf(PATH=str(tmp_path))
    assert machine.conf(PATH=str(other.parent), JAVA_HOME=str(tmp_path / "jdk"))

    # As Debian's /usr/bin/java.
    other.unlink()
    other.symlink_to(machine.java)
    assert machine.conf(PATH=str(other.parent))


def test_without_an_archive_nothing_is_said(machine: Machine) -> None:
    machine.archive.classes.unlink()
    assert machine.conf() == {}
    machine.archive.classes.touch()
    machine.archive.java.unlink()
    assert machine.conf() == {}


def test_a_path_that_spark_would_split_is_not_used(tmp_path: Path) -> None:
    assert Machine(tmp_path / "a b").conf() == {}
