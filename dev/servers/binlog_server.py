"""A server with a binary log on this machine, for tests: what MariaDB's and MySQL's have in common."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pymysql
from typing_extensions import override

from servers.local_process import HOST, LocalProcess, libraries_beside
from servers.local_server import LocalServer
from servers.waiting import wait_for

START_DEADLINE_S: Final = 60.0
SUPERUSER: Final = "root"
BINLOG: Final[dict[str, str]] = {
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "server-id": "1",
}
"""What a server needs whose changes are read, beside the name of its log."""
# What is not needed for a few rows, and is slow to make.
_QUICKLY: Final[dict[str, str]] = {
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "32M",
    "skip-name-resolve": "1",
    "max-connections": "60",
}


class BinlogServer(LocalServer):
    """One server with an empty database; when this process dies, in whatever way, it is killed.

    It listens at the loopback address only, where root needs no password.
    """

    kind: str
    """As `spec.source` has it."""
    title: str
    """For people."""
    program: str
    """Of the server."""
    printer: str
    """The program that prints its log."""
    log: str
    """The name of its log."""

    def __init__(self, name: str, root: Path, settings: Mapping[str, str]) -> None:
        """Makes one, which does not run.

        Args:
            name: of its directory.
            root: below which its programs are.
            settings: as options of the server, beside those of a binary log that can be read.
        """
        super().__init__(name)
        self._root = root
        self._data = self.directory / "data"
        # A server that starts removes all files of its kind here; another one that uses them crashes.
        self._temporary = self.directory / "tmp"
        self._settings = {"log-bin": self.log, **_QUICKLY, **BINLOG, **settings}

    @abstractmethod
    def installing(self) -> Sequence[str]:
        """The command that makes an empty database."""

    @override
    def prepare(self) -> None:
        self._temporary.mkdir()
        argv = [*self.installing()]
        done = subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stdout} {done.stderr}")

    @override
    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        argv = [
            self.path(self.program),
            *self.where,
            f"--port={self.port}",
            f"--bind-address={HOST}",
            f"--socket={self.directory}/socket",
            *options,
        ]
        self._process = LocalProcess(argv, self.directory / "log", env=self._environment, cwd=self.directory)
        wait_for(self._answers, f"{self.title} answers", START_DEADLINE_S)

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

    def end(self) -> tuple[str, int]:
        """The file and the place in it where its log ends."""
        file, offset, *_ = self.told("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS") or ("", 0)
        return file, offset

    def written(self) -> Path:
        """The file of its log that is written."""
        return self._data / self.end()[0]

    def begin_log_anew(self) -> None:
        """Removes all files of its log.

        The new one is begun in another second than the old one: MariaDB's logs of one second with the same transactions
        can't be told from each other.
        """
        born = self.second()
        wait_for(lambda: self.second() > born, "another second begins", START_DEADLINE_S)
        self.told("RESET BINARY LOGS AND GTIDS", "RESET MASTER")

    def second(self) -> int:
        """By its clock, of Unix."""
        [found] = self.told("SELECT unix_timestamp()") or (0,)
        return int(found)

    def told(self, *spellings: str) -> tuple[Any, ...] | None:
        """The first row that the first statement answers which a server of this release understands."""
        with self.connected() as session, session.cursor() as cursor:
            for each in spellings[:-1]:
                with contextlib.suppress(pymysql.err.ProgrammingError):
                    cursor.execute(each)
                    return next(iter(cursor.fetchall()), None)
            cursor.execute(spellings[-1])
            return next(iter(cursor.fetchall()), None)

    def run(self, program: str, *arguments: str) -> str:
        """What a program beside the server prints."""
        argv = [self.path(program), "--no-defaults", *arguments]
        done = subprocess.run(argv, env=self._environment, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="surrogateescape")

    def path(self, name: str) -> str:
        """Of a program."""
        for folder in ("usr/sbin", "usr/bin"):
            if (self._root / folder / name).exists():
                return str(self._root / folder / name)
        found = shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"no program {name}")
        return found

    @property
    def where(self) -> list[str]:
        """Options of every program that touches the files."""
        return [
            "--no-defaults",
            f"--basedir={self._root}/usr",
            f"--datadir={self._data}",
            f"--lc-messages-dir={self._root}/usr/share/mysql",
            f"--user={getpass.getuser()}",
        ]

    @property
    def _environment(self) -> dict[str, str]:
        """With the libraries that were unpacked beside it."""
        paths = os.pathsep.join(libraries_beside(self._root, Path(self.path(self.program))))
        own = {"TZ": "UTC", "TMPDIR": str(self._temporary)}
        return {**os.environ, **own, **({"LD_LIBRARY_PATH": paths} if paths else {})}

    def _check(self) -> None:
        if self._process is not None and self._process.exit_code is not None:
            raise RuntimeError(f"{self.title} ended with {self._process.exit_code}: {self._process.log_tail()}")

    def _answers(self) -> bool:
        self._check()
        try:
            # It greets whoever connects.
            with socket.create_connection((HOST, self.port), timeout=5) as stream:
                return len(stream.recv(1)) == 1
        except OSError:
            return False
