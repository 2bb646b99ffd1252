"""A program of this machine that ends with this process, however that ends; and ports for such programs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HOST: Final = "127.0.0.1"
LOG_TAIL_LINES: Final = 30

# Below the range systems give to outgoing connections (32768 on Linux, 49152 on macOS): while a program is down, no
# connection can take its port, not even that of a client which tries to reach this very port.
PORTS: Final = range(20_000, 32_000)


class LocalProcess:
    """A program in a process group of its own, with its output in `log`.

    What it starts dies with it: its group is killed once it has ended.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        """`identity`: as whom it runs, by the words of `subprocess.Popen`; as we do where nothing is said."""
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                cwd=cwd,
                process_group=0,
                **(identity or {}),
            )
        self._watcher = _watcher(self._process.pid)
        self._lock = threading.Lock()
        self._group_killed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; as a shell and a container runtime tell it: 128 + signal for a killed one."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def terminate(self) -> None:
        """SIGTERM for the program alone, as a container runtime sends it."""
        self._process.terminate()
        # A stopped process would not see the signal.
        self._process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it ended within that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(None if seconds is None else max(0.0, seconds))
        return self._process.returncode is not None

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL for all that is left of its group after that time."""
        if self._process.poll() is None:
            self.terminate()
            self.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        with self._lock:
            if not self._group_killed:
                # Once: what is left of the group keeps its id from other programs, afterwards nothing does.
                self._group_killed = True
                # macOS does not permit it for a group of zombies.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._watcher.kill()
            with self._watcher:
                self._process.wait()

    def log_tail(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        return ""


def end_all(processes: Sequence[LocalProcess], grace_s: float) -> None:
    """Ends them one after the other, within one grace period for all."""
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.end(deadline - time.monotonic())


def _watcher(group: int) -> subprocess.Popen[bytes]:
    """Kills a process group when this process is gone: then its end of the pipe closes."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -KILL "-$1"', "sh", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Ports that nobody listens at, and that nobody else who asks this way is given before they are bound."""
    candidates = secrets.SystemRandom().sample(PORTS, len(PORTS))
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        with socket.socket() as probe:
            # Otherwise a port with connections in TIME_WAIT counts as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((host, port))
                _claim(port)
                ports.append(port)
    return ports


_claims: deque[int] = deque()
"""Descriptors that hold the locks of ports, the newest of this process."""
_MAX_CLAIMS: Final = 60


def _claim(port: int) -> None:
    """Takes a port among all processes of ours, as a server binds it only seconds later.

    Raises:
        OSError: another process has it.
    """
    directory = cache_directory() / "ports"
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    _claims.append(descriptor)
    if len(_claims) > _MAX_CLAIMS:
        # Long since bound.
        os.close(_claims.popleft())


def libraries_beside(root: Path, program: Path) -> list[str]:
    """The directories of the libraries that were unpacked below `root` with a program.

    None where the program is installed, or is told of them itself (`bring_libraries` of dev/install.sh).
    """
    if root == Path("/") or program.with_name(f"{program.name}.program").exists():
        return []
    return [str(each) for part in ("usr/lib", "lib") for each in root.glob(f"{part}/*-linux-gnu*")]


def cache_directory() -> Path:
    """Where `dev/install.sh` keeps what is slow to fetch or to build."""
    environ = os.environ
    return Path(
        environ.get("SINKPIPELINE_CACHE")
        or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sinkpipeline")
    )
