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


def squeeze(container: str, headroom: int) -> None:
    """Leaves a container of a pod no more memory than it has now, and that many bytes."""
    # Of version 1 and 2.
    for limit, usage in (("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")):
        for hierarchy in _hierarchies():
            for directory in hierarchy.glob(f"*/kubepods/**/{container}"):
                if (directory / limit).exists():
                    (directory / limit).write_text(str(int((directory / usage).read_text()) + headroom))
                    return
    raise LookupError(f"no control group limits the memory of {container}")


def resident_bytes(pod: str) -> int:
    """The memory that the processes of a pod hold, without the files that the kernel keeps for them."""
    for hierarchy in _hierarchies():
        for directory in hierarchy.glob(f"*/kubepods/**/pod{pod}"):
            if (directory / "memory.stat").exists():
                stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
                # Of version 1, all below included, and 2.
                return int(stat.get("total_rss") or stat["anon"])
    raise LookupError(f"no control group counts the memory of pod {pod}")


def _hierarchies() -> Iterator[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        yield _ROOT
        return
    # Some are links to others that hold two controllers.
    yield from {each.resolve() for each in _ROOT.iterdir() if each.is_dir()}
