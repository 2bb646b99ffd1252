"""The environment of an image, copied from the one that runs the tests and pruned as its Dockerfile prunes it."""

from __future__ import annotations

import re
import shutil
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

import prune

ROOT: Final = Path(__file__).parents[2]
_SOURCES: Final = {
    "sinkpipeline": ROOT / "spark_app" / "sinkpipeline",
    "sinkpipeline-operator": ROOT / "operator" / "sinkpipeline_operator",
}
_INSTALLERS: Final = ("pip",)


def make(directory: Path, name: str, extra: str, *unneeded: Path) -> Path:
    """What `pip install NAME[EXTRA]` brings, and pip itself, without what the lists take away; its Python.

    Files are links to those that are installed, where the file system has them.
    """
    venv.create(directory, symlinks=True)
    [site_packages] = directory.glob("lib/python3*/site-packages")
    for dist in sorted({*closure(name, extra), *_INSTALLERS}):
        _copy(distribution(dist), site_packages)
    for each in unneeded:
        prune.prune(site_packages, each.read_text())
    return directory / "bin" / "python"


def closure(name: str, extra: str = "") -> set[str]:
    """The names of a distribution and of all that it asks for."""
    found: set[tuple[str, str]] = set()
    waiting = [(_normal(name), extra)]
    while waiting:
        each, asked = waiting.pop()
        if (each, asked) in found:
            continue
        found.add((each, asked))
        for line in distribution(each).requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": asked}):
                waiting += [(_normal(wanted.name), more) for more in ("", *wanted.extras)]
    return {each for each, _ in found}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy(dist: Distribution, site_packages: Path) -> None:
    source = _SOURCES.get(_normal(dist.name))
    if source is not None:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, site_packages / source.name, ignore=ignored)
        return
    # What stands beside it are programs, and bytecode is made anew.
    files = [file for file in dist.files or () if file.parts[0] != ".." and file.suffix != ".pyc"]
    for file in files:
        _link(Path(str(file.locate())), site_packages / file)
    # Those that `make install` has added, as the image's Dockerfile does.
    for jar in Path(str(dist.locate_file("pyspark/jars"))).glob("*.jar") if _normal(dist.name) == "pyspark" else ():
        _link(jar, site_packages / "pyspark" / "jars" / jar.name)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
