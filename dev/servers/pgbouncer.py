"""PgBouncer before a PostgreSQL server on this machine, for tests: from the PATH, or Debian's.

Debian's may be installed, or unpacked into the cache by `dev/install.sh postgresql`.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg

from servers.local_process import HOST, LocalProcess, cache_directory, free_ports
from servers.postgresql import SUPERUSER, unprivileged
from servers.waiting import wait_for

if TYPE_CHECKING:
    from types import TracebackType

_START_DEADLINE_S: Final = 20.0
_SSL_REQUEST: Final = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


def program() -> Path | None:
    """None where there is none."""
    on_path = shutil.which("pgbouncer")
    places = [Path("/usr/sbin/pgbouncer"), _unpacked() / "usr/sbin/pgbouncer"]
    found = [Path(on_path)] if on_path else [each for each in places if each.exists()]
    return found[0] if found else None


def _unpacked() -> Path:
    return cache_directory() / "pgbouncer-debian"


class LocalPgBouncer:
    """A pooler before the server at a port, which `lead_to` changes; when this process dies, it is killed."""

    def __init__(self, target: int, mode: str, **settings: str) -> None:
        found = program()
        if found is None:
            raise FileNotFoundError("no PgBouncer: make postgresql, or apt-get install pgbouncer")
        self._program = found
        [self.port] = free_ports(1)
        self._scratch = tempfile.TemporaryDirectory(prefix="local-pgbouncer-")
        self._directory = Path(self._scratch.name)
        self._target = target
        self._settings = {"pool_mode": mode, **settings}
        self._process: LocalProcess | None = None
        self._identity: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._identity = unprivileged(self._directory)
        if self._identity and self._program.is_relative_to(_unpacked()):
            # Who runs it may not look into our cache.
            there = self._directory / "unpacked"
            shutil.copytree(_unpacked(), there, symlinks=True)
            self._program = there / self._program.relative_to(_unpacked())
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._scratch.cleanup()

    def start(self) -> None:
        """Also again, after a `kill`."""
        self._configure()
        (self._directory / "users.txt").write_text(f'"{SUPERUSER}" ""\n')
        libraries = [str(each) for each in self._program.parents[1].glob("lib/*-linux-gnu*")]
        before = os.environ.get("LD_LIBRARY_PATH")
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *([before] if before else [])])}
        self._process = LocalProcess(
            [str(self._program), str(self._directory / "pgbouncer.ini")],
            self._directory / "log",
            env=environment,
            cwd=self._directory,
            identity=self._identity,
        )
        wait_for(self._answers, "PgBouncer answers", _START_DEADLINE_S, check=self._check_alive)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def lead_to(self, target: int) -> None:
        """From now on, without ending the connections of clients: as who fails over behind a pooler does."""
        self._target = target
        self._configure()
        with psycopg.connect(host=HOST, port=self.port, user=SUPERUSER, dbname="pgbouncer", autocommit=True) as admin:
            admin.execute("RELOAD")
            admin.execute("RECONNECT")

    def _configure(self) -> None:
        ours = {
            "listen_addr": HOST,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "auth_file": str(self._directory / "users.txt"),
            "admin_users": SUPERUSER,
            "server_login_retry": "1",
            **self._settings,
        }
        # Clients of `any` are not told apart, so the pool says as whom it comes.
        database = f"* = host={HOST} port={self._target} user={SUPERUSER}"
        lines = ["[databases]", database, "[pgbouncer]", *(f"{name} = {value}" for name, value in ours.items()), ""]
        (self._directory / "pgbouncer.ini").write_text("\n".join(lines))

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as stream:
                stream.sendall(_SSL_REQUEST)
                return stream.recv(1) in (b"S", b"N")
        except OSError:
            return False

    def _check_alive(self) -> None:
        if self._process is None or self._process.exit_code is not None:
            raise RuntimeError("PgBouncer ended" + (f": {self._process.log_tail()}" if self._process else ""))
