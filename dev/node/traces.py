"""What a node could leave of itself on this machine, and whether it did.

Only containerd's images may stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from typing_extensions import Self

_PROC: Final = Path("/proc")
_PR_SET_CHILD_SUBREAPER: Final = 36
_SHOWN: Final = 120
_GROUPS: Final = ("sinkpipeline-*", "*/sinkpipeline-*")
"""Of version 2 and 1."""
_SETTINGS: Final = [
    "vm/*",
    "kernel/panic*",
    "kernel/keys/*",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/*/*",
    "net/bridge/*",
]
"""What a kubelet, kube-proxy and their plugins set."""


@dataclass(frozen=True)
class Machine:
    """As it was, or is."""

    links: tuple[str, ...]
    """Cables and bridges."""
    mounts: tuple[str, ...]
    filters: tuple[str, ...]
    """Of packets: tables of nftables, those of iptables too."""
    groups: tuple[str, ...]
    """Control groups of nodes."""
    settings: Mapping[str, str]

    @classmethod
    def look(cls) -> Self:
        return cls(
            links=tuple(sorted(each.name for each in Path("/sys/class/net").iterdir())),
            mounts=tuple(sorted(line.split()[1] for line in (_PROC / "self/mounts").read_text().splitlines())),
            filters=_filters(),
            groups=tuple(sorted({each.name for pattern in _GROUPS for each in Path("/sys/fs/cgroup").glob(pattern)})),
            settings=dict(_settings()),
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        stored: dict[str, Any] = json.loads(path.read_text())
        settings = stored.pop("settings")
        return cls(**{key: tuple(value) for key, value in stored.items()}, settings=settings)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))


def changes(before: Machine, now: Machine) -> list[str]:
    """What is there now that was not, and what is set otherwise; pure."""
    told = [
        f"{what} {each}"
        for what, was, found in (
            ("the network device", before.links, now.links),
            ("the mount", before.mounts, now.mounts),
            ("the table of packet filters", before.filters, now.filters),
            ("the control group", before.groups, now.groups),
        )
        for each in sorted(set(found) - set(was))
    ]
    told += [
        f"the setting {name}: {was} before, {now.settings[name]} now"
        for name, was in sorted(before.settings.items())
        if name in now.settings and now.settings[name] != was
    ]
    return told


def namespace_of(pid: int) -> int | None:
    """Of its processes; None where it runs no more, or nobody may look."""
    try:
        return (_PROC / str(pid) / "ns/pid").stat().st_ino
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return None


def processes_in(namespace: int) -> list[str]:
    """That still run, each with its number and its command."""
    return [_told(number) for number in psutil.pids() if namespace_of(number) == namespace]


def adopt_orphans() -> None:
    """From now on what a child leaves running is a child of this process. Only Linux can do that."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process can't be a subreaper")


def children() -> list[str]:
    """Of this process, that still run, each with its number and its command; those that have ended are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    return [_told(each.pid) for each in psutil.Process().children()]


def _told(number: int) -> str:
    command = "it has just ended"
    with contextlib.suppress(psutil.Error):
        command = " ".join(psutil.Process(number).cmdline())[:_SHOWN]
    return f"the process {number}: {command}"


def _filters() -> tuple[str, ...]:
    if shutil.which("nft") is None:
        return ()
    result = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False)
    return tuple(sorted(result.stdout.splitlines()))


def _settings() -> Iterator[tuple[str, str]]:
    top = _PROC / "sys"
    for pattern in _SETTINGS:
        for path in sorted(top.glob(pattern)):
            try:
                yield str(path.relative_to(top)), path.read_text().strip()
            # A few can only be written.
            except (OSError, ValueError):
                continue
