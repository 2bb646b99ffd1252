"""The node's control groups, below one of its own in every hierarchy, so that all of them can be removed again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_EMPTY_S: Final = 10.0


def make_cgroup(name: str) -> None:
    for hierarchy in _hierarchies():
        directory = hierarchy / name
        directory.mkdir(exist_ok=True)
        # A new group of version 1 has no processors until it is given some.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            with contextlib.suppress(OSError):
                (directory / setting).write_text((hierarchy / setting).read_text())


def remove_cgroup(name: str) -> None:
    """Once nothing runs in it."""
    deadline = time.monotonic() + _EMPTY_S
    for hierarchy in _hierarchies():
        top = hierarchy / name
        while top.exists():
            for directory in sorted((each for each in top.rglob("*") if each.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    directory.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()
            if time.monotonic() > deadline:
                raise OSError(f"{top} can't be removed: processes are in it")


def _hierarchies() -> Iterator[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        yield _ROOT
        return
    # Some are links to others that hold two controllers.
    yield from {each.resolve() for each in _ROOT.iterdir() if each.is_dir()}
