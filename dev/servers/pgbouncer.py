"""PgBouncer before a PostgreSQL server on this machine, for tests: from the PATH, or Debian's.

Debian's may be installed, or unpacked into the cache by `dev/install.sh postgresql`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import psycopg
from typing_extensions import override

from servers.local_process import HOST, LocalProcess, cache_directory
from servers.local_server import LocalServer
from servers.postgresql import SUPERUSER, listens, unprivileged, within_reach
from servers.waiting import wait_for

_START_DEADLINE_S: Final = 20.0


def program() -> Path | None:
    """None where there is none."""
    on_path = shutil.which("pgbouncer")
    places = [Path("/usr/sbin/pgbouncer"), _unpacked() / "usr/sbin/pgbouncer"]
    found = [Path(on_path)] if on_path else [each for each in places if each.exists()]
    return found[0] if found else None


def _unpacked() -> Path:
    return cache_directory() / "pgbouncer-debian"


class LocalPgBouncer(LocalServer):
    """A pooler before the server at a port, which `lead_to` changes; when this process dies, it is killed."""

    def __init__(self, target: int, mode: str, **settings: str) -> None:
        found = program()
        if found is None:
            raise FileNotFoundError("no PgBouncer: make postgresql, or apt-get install pgbouncer")
        self._program = found
        super().__init__("pgbouncer")
        self._target = target
        self._settings = {"pool_mode": mode, **settings}
        self._identity: dict[str, Any] = {}

    @override
    def prepare(self) -> None:
        self._identity = unprivileged(self.directory)
        if self._identity:
            self._program = within_reach(self._program, _unpacked(), self.directory)

    @override
    def start(self) -> None:
        """Also again, after a `kill`."""
        self._configure()
        (self.directory / "users.txt").write_text(f'"{SUPERUSER}" ""\n')
        libraries = [str(each) for each in self._program.parents[1].glob("lib/*-linux-gnu*")]
        before = os.environ.get("LD_LIBRARY_PATH")
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *([before] if before else [])])}
        self._process = LocalProcess(
            [str(self._program), str(self.directory / "pgbouncer.ini")],
            self.directory / "log",
            env=environment,
            cwd=self.directory,
            identity=self._identity,
        )
        wait_for(lambda: listens(self.port), "PgBouncer answers", _START_DEADLINE_S, check=self._check_alive)

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
            "auth_file": str(self.directory / "users.txt"),
            "admin_users": SUPERUSER,
            "server_login_retry": "1",
            **self._settings,
        }
        # Clients of `any` are not told apart, so the pool says as whom it comes.
        database = f"* = host={HOST} port={self._target} user={SUPERUSER}"
        lines = ["[databases]", database, "[pgbouncer]", *(f"{name} = {value}" for name, value in ours.items()), ""]
        (self.directory / "pgbouncer.ini").write_text("\n".join(lines))

    def _check_alive(self) -> None:
        if self._process is None or self._process.exit_code is not None:
            raise RuntimeError("PgBouncer ended" + (f": {self._process.log_tail()}" if self._process else ""))
