"""A real PostgreSQL server on this machine, for tests: initdb and postgres from the PATH, or Debian's.

Debian's may be installed, or unpacked into the cache by `dev/install.sh postgresql`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from servers.local_process import HOST, LocalProcess, cache_directory, libraries_beside
from servers.local_server import LocalServer
from servers.waiting import wait_for

START_DEADLINE_S: Final = 30.0
SUPERUSER: Final = "postgres"
DATABASE: Final = "postgres"
HBA: Final = f"host all +asked {HOST}/32 scram-sha-256\nhost all all {HOST}/32 trust"
_OURS: Final = f"host all {SUPERUSER} {HOST}/32 trust\nhost replication {SUPERUSER} {HOST}/32 trust\n"
_QUICKLY: Final = ("--no-locale", "--no-sync")
_DEBIAN: Final = "usr/lib/postgresql/*/bin"
_NAMED: Final = "SINKPIPELINE_POSTGRESQL"
_UNPRIVILEGED: Final = ("postgres", "nobody")
"""Who runs it where we are root, which it refuses to be."""
# SSLRequest of the protocol: whoever answers it with one letter listens, and its start-up is not asked for.
_SSL_REQUEST: Final = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


def bin_directory() -> Path | None:
    """Where the newest server's programs are, or those of SINKPIPELINE_POSTGRESQL; None where there are none."""
    if os.environ.get(_NAMED):
        return next(_unpacked().glob(_DEBIAN), None)
    on_path = shutil.which("postgres")
    if on_path is not None and Path(on_path).resolve().with_name("initdb").exists():
        return Path(on_path).resolve().parent
    for root in (Path("/"), _unpacked()):
        found = sorted(root.glob(_DEBIAN + "/postgres"), key=lambda each: int(each.parts[-3]))
        if found:
            return found[-1].parent
    return None


def major_version() -> int:
    """Of the server that would be started; 0 where there is none, or where its folder doesn't say."""
    found = bin_directory()
    return int(found.parent.name) if found is not None and found.parent.name.isdecimal() else 0


def _unpacked() -> Path:
    return Path(os.environ.get(_NAMED) or cache_directory() / "postgresql-debian")


class LocalPostgresql(LocalServer):
    """One server with an empty database; when this process dies, in whatever way, it is killed.

    It listens at the loopback address only, and trusts whoever comes from there, but where `hba` says otherwise: by
    default it asks members of the role `asked` for their password.
    """

    def __init__(
        self, *, settings: dict[str, str] | None = None, hba: str = HBA, files: dict[str, bytes] | None = None
    ) -> None:
        """`files`: what settings name, by their names; they are beside the data."""
        found = bin_directory()
        if found is None:
            raise FileNotFoundError("no PostgreSQL server: make postgresql, or apt-get install postgresql")
        self._bin = found
        super().__init__("postgresql")
        self._data = self.directory / "data"
        self._settings = settings or {}
        self._hba = hba
        self._files = files or {}
        self._identity: dict[str, Any] = {}

    @override
    def prepare(self) -> None:
        self._identity = unprivileged(self.directory)
        if self._identity:
            self._bin = within_reach(self._bin, _unpacked(), self.directory)
        self._initialize()

    @override
    def start(self) -> None:
        """Again, after a `kill`: the memory of its last life may be in use until all of that has ended."""
        wait_for(self._try_to_start, "PostgreSQL answers", START_DEADLINE_S)

    @override
    def kill(self) -> None:
        """SIGKILL for all of it: what it has not written to its log is gone."""
        if self._process is None:
            return
        children = self._children()
        self._process.kill()
        # Sessions have process groups of their own.
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process = None

    @override
    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        # It first: then no session comes that is not among its children.
        os.kill(self._process.pid, number)
        for pid in self._children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _try_to_start(self) -> bool:
        if self._process is not None and self._process.exit_code is not None:
            self._process.kill()
            self._process = None
        if self._process is None:
            argv = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port)]
            self._process = LocalProcess(
                argv, self.directory / "log", env=self._environment, cwd=self.directory, identity=self._identity
            )
        return self._process.exit_code is None and self._answers()

    def run(self, program: str, *arguments: str) -> str:
        """What a program of PostgreSQL prints, as whom the server runs."""
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            env=self._environment,
            **self._identity,
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr}")
        return str(done.stdout)

    def _initialize(self) -> None:
        self.run("initdb", "-D", str(self._data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", *_QUICKLY)
        ours = {"listen_addresses": HOST, "unix_socket_directories": "", "max_connections": "50", **self._settings}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in ours.items())
        (self._data / "pg_hba.conf").write_text(_OURS + self._hba + "\n")
        for name, content in self._files.items():
            path = self._data / name
            path.touch(mode=0o600)
            path.write_bytes(content)
            if self._identity:
                os.chown(path, self._identity["user"], self._identity["group"])

    @property
    def _environment(self) -> dict[str, str]:
        """With the libraries that were unpacked beside it."""
        unpacked = libraries_beside(self._bin.parents[4], self._bin / "postgres")
        before = os.environ.get("LD_LIBRARY_PATH")
        paths = [*unpacked, *([before] if before else [])]
        return {**os.environ, **({"LD_LIBRARY_PATH": os.pathsep.join(paths)} if paths else {})}

    def _answers(self) -> bool:
        if not listens(self.port):
            return False
        log = (self.directory / "log").read_text(errors="replace")
        # A standby accepts read-only ones.
        return "ready to accept " in log.rpartition("starting PostgreSQL")[2]

    def _children(self) -> list[int]:
        if self._process is None:
            return []
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def listens(port: int) -> bool:
    """Whether who is there speaks PostgreSQL's protocol."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as stream:
            stream.sendall(_SSL_REQUEST)
            return stream.recv(1) in (b"S", b"N")
    except OSError:
        return False


def within_reach(program: Path, unpacked: Path, directory: Path) -> Path:
    """As somebody else can run it, who may not look into our cache: with all that was unpacked with it."""
    if not program.is_relative_to(unpacked):
        return program
    there = directory / "unpacked"
    shutil.copytree(unpacked, there, symlinks=True)
    return there / program.relative_to(unpacked)


def unprivileged(directory: Path) -> dict[str, Any]:
    """As whom a program runs that refuses to be root, by the words of `subprocess.Popen`; the directory is its own.

    Nothing where we are not root.
    """
    if os.geteuid() != 0:
        return {}
    account = next(each for name in _UNPRIVILEGED if (each := _account(name)) is not None)
    os.chown(directory, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
