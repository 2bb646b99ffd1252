"""A real MariaDB server on this machine, for tests: the PATH's, or Debian's, unpacked by `dev/install.sh mariadb`."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pymysql
from typing_extensions import override

from servers.local_process import HOST, LocalProcess, cache_directory, libraries_beside
from servers.local_server import LocalServer
from servers.waiting import wait_for

START_DEADLINE_S: Final = 60.0
SUPERUSER: Final = "root"
LOG: Final = "mariadb-bin"
BINLOG: Final[dict[str, str]] = {
    "log-bin": LOG,
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "server-id": "1",
}
"""What a server needs whose changes are read."""
# What is not needed for a few rows, and is slow to make.
_QUICKLY: Final[dict[str, str]] = {
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "32M",
    "skip-name-resolve": "1",
    "max-connections": "60",
}


def root_directory() -> Path | None:
    """Below which a server's programs are, as SINKPIPELINE_MARIADB may say; None where there are none."""
    named = os.environ.get("SINKPIPELINE_MARIADB")
    if named:
        return Path(named)
    on_path = shutil.which("mariadbd")
    if on_path is not None and shutil.which("mariadb-install-db") is not None:
        return Path("/")
    unpacked = cache_directory() / "mariadb-debian"
    return unpacked if (unpacked / "usr/sbin/mariadbd").exists() else None


class LocalMariadb(LocalServer):
    """One server with an empty database; when this process dies, in whatever way, it is killed.

    It listens at the loopback address only, where root needs no password.
    """

    def __init__(self, *, settings: dict[str, str] | None = None) -> None:
        """`settings`: as options of the server, beside those of a binary log that can be read."""
        found = root_directory()
        if found is None:
            raise FileNotFoundError("no MariaDB: make mariadb, or apt-get install mariadb-server")
        self._root = found
        super().__init__("mariadb")
        self._data = self.directory / "data"
        # A server that starts removes all files of its kind here; another one that uses them crashes.
        self._temporary = self.directory / "tmp"
        self._settings = {**_QUICKLY, **BINLOG, **(settings or {})}

    @override
    def prepare(self) -> None:
        self._temporary.mkdir()
        install = self._program("mariadb-install-db")
        argv = [install, *self._where, "--auth-root-authentication-method=normal", f"--user={getpass.getuser()}"]
        done = subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db ended with {done.returncode}: {done.stdout} {done.stderr}")

    @override
    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        argv = [
            self._program("mariadbd"),
            *self._where,
            f"--port={self.port}",
            f"--bind-address={HOST}",
            f"--socket={self.directory}/socket",
            f"--user={getpass.getuser()}",
            f"--lc-messages-dir={self._root}/usr/share/mysql",
            *options,
        ]
        self._process = LocalProcess(argv, self.directory / "log", env=self._environment, cwd=self.directory)
        wait_for(self._answers, "MariaDB answers", START_DEADLINE_S)

    @contextlib.contextmanager
    def connected(self, database: str | None = None, **how: Any) -> Iterator[pymysql.connections.Connection[Any]]:
        """A connection that commits by itself, unless `how` says otherwise.

        Raises:
            RuntimeError: the server has ended, and not by `kill`; with what it said last.
        """
        self._check()
        given = {"host": HOST, "port": self.port, "user": SUPERUSER, "database": database, "autocommit": True, **how}
        connection = pymysql.connect(**given)
        try:
            yield connection
        finally:
            with contextlib.suppress(pymysql.Error):
                connection.close()

    def run(self, program: str, *arguments: str) -> str:
        """What a program of MariaDB prints."""
        argv = [self._program(program), "--no-defaults", *arguments]
        done = subprocess.run(argv, env=self._environment, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="surrogateescape")

    def _program(self, name: str) -> str:
        for folder in ("usr/sbin", "usr/bin"):
            if (self._root / folder / name).exists():
                return str(self._root / folder / name)
        found = shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"no program {name}: make mariadb")
        return found

    @property
    def _where(self) -> list[str]:
        return ["--no-defaults", f"--basedir={self._root}/usr", f"--datadir={self._data}"]

    @property
    def _environment(self) -> dict[str, str]:
        """With the libraries that were unpacked beside it."""
        paths = os.pathsep.join(libraries_beside(self._root, self._root / "usr/sbin/mariadbd"))
        own = {"TZ": "UTC", "TMPDIR": str(self._temporary)}
        return {**os.environ, **own, **({"LD_LIBRARY_PATH": paths} if paths else {})}

    def _check(self) -> None:
        if self._process is not None and self._process.exit_code is not None:
            raise RuntimeError(f"MariaDB ended with {self._process.exit_code}: {self._process.log_tail()}")

    def _answers(self) -> bool:
        self._check()
        try:
            # It greets whoever connects.
            with socket.create_connection((HOST, self.port), timeout=5) as stream:
                return len(stream.recv(1)) == 1
        except OSError:
            return False
