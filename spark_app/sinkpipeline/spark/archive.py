"""The archive of Spark's classes, from which a JVM that starts takes them ready-made (class data sharing).

`archive_making` makes it. It stands in Spark's home, in a directory of its own:

- `classpath.jar` has nothing but a manifest with the names of Spark's jars, and comes first on the class path. Java
  takes an archive only where the class path begins as the archive's own did: with the same jars in the same order,
  which `jars/*` doesn't promise, and without a directory that has files, as `SPARK_CONF_DIR` has.
- `classes.jsa` is the archive.
- `java` names the Java that made it.

A JVM finds out by itself whether an archive fits: the same build of Java, and each jar as it was. It passes over one
that doesn't, in silence.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from sinkpipeline.spark.java import CLASS_PATH, JAVA_OPTIONS, java_of

# Else a JVM says on its standard output that an archive doesn't fit.
_QUIETLY = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")

_OWN_SHARING = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare:")
_OWN_CLASS_PATH = (CLASS_PATH, "--driver-class-path")


@dataclass(frozen=True)
class Archive:
    """The archive of one Spark, whether or not it was made."""

    home: Path
    """SPARK_HOME."""

    @property
    def directory(self) -> Path:
        return self.home / "sinkpipeline"

    @property
    def class_path(self) -> Path:
        return self.directory / "classpath.jar"

    @property
    def classes(self) -> Path:
        return self.directory / "classes.jsa"

    @property
    def java(self) -> Path:
        return self.directory / "java"

    def made_by(self, java: Path | None) -> bool:
        """Whether it is there and that Java made it: another one would start without any archive, its own neither."""
        try:
            return self.classes.is_file() and java is not None and self.java.read_text() == str(java)
        except (OSError, ValueError):
            return False

    def options(self) -> list[str]:
        """For a JVM whose class path begins with `class_path`."""
        return [f"-XX:SharedArchiveFile={self.classes}", *_QUIETLY]


def with_archive(
    conf: Mapping[str, str], home: str | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The configuration of a driver, with the archive where there is one.

    Who has a class path or sharing options of his own keeps them, and starts without ours.
    """
    environment = os.environ if environment is None else environment
    archive = Archive(Path(home or spark_home()))
    options = conf.get(JAVA_OPTIONS, "")
    own_class_path = CLASS_PATH in conf or any(
        each in text for text in _told_to_submit(archive.home, environment) for each in _OWN_CLASS_PATH
    )
    # Spark splits the options at white space.
    unspeakable = any(each.isspace() for each in str(archive.classes))
    own_sharing = any(each in options for each in _OWN_SHARING)
    if own_class_path or own_sharing or unspeakable or not archive.made_by(java_of(environment)):
        return dict(conf)
    # Ours first: what the user says of the same thing comes later, and counts.
    java_options = " ".join([*archive.options(), options]).strip()
    return {**conf, CLASS_PATH: str(archive.class_path), JAVA_OPTIONS: java_options}


def spark_home() -> str:
    """As pyspark finds it."""
    return str(_find_spark_home())  # type: ignore[no-untyped-call]


def _told_to_submit(home: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """What spark-submit is told beside a configuration of ours, which would hide it."""
    arguments = environment.get("PYSPARK_SUBMIT_ARGS", "")
    yield arguments
    words = shlex.split(arguments)
    files = [Path(words[at + 1]) for at, word in enumerate(words[:-1]) if word == "--properties-file"]
    directory = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    for file in files or [directory / "spark-defaults.conf"]:
        with contextlib.suppress(OSError, ValueError):
            yield file.read_text()
