"""A real MySQL server on this machine, for tests: the PATH's, or Ubuntu's, unpacked by `dev/install.sh mysql`."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from servers.binlog_server import SUPERUSER, BinlogServer
from servers.local_process import cache_directory

__all__ = ["SUPERUSER", "LocalMysql", "root_directory"]

LOG: Final = "mysql-bin"
_made: Final[dict[Path, Path]] = {}
"""By where its programs are: an empty database that a server of this process was made with."""


def root_directory() -> Path | None:
    """Below which a server's programs are, as SINKPIPELINE_MYSQL may say; None where there are none."""
    named = os.environ.get("SINKPIPELINE_MYSQL")
    if named:
        return Path(named)
    unpacked = cache_directory() / "mysql-8.4"
    if (unpacked / "usr/sbin/mysqld").exists():
        return unpacked
    return Path("/") if _is_mysql(shutil.which("mysqld")) and shutil.which("mysqlbinlog") else None


def _is_mysql(program: str | None) -> bool:
    """MariaDB has a program of this name too."""
    if program is None:
        return False
    told = subprocess.run([program, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    return told.returncode == 0 and "MariaDB" not in told.stdout


class LocalMysql(BinlogServer):
    kind = "mysql"
    title = "MySQL"
    program = "mysqld"
    printer = "mysqlbinlog"
    log = LOG

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: as options of the server, beside those of a binary log that can be read."""
        found = root_directory()
        if found is None:
            raise FileNotFoundError("no MySQL: make mysql, or install mysql-server")
        own = {
            "mysqlx": "OFF",
            "performance-schema": "OFF",
            "secure-file-priv": "",
            "sync-binlog": "0",
            "innodb-redo-log-capacity": "33554432",
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
        }
        super().__init__("mysql", found, {**own, **(settings or {})})

    @override
    def prepare(self) -> None:
        # To make one takes two seconds of a core, to copy one a moment.
        made = _made.get(self._root)
        if made is None:
            super().prepare()
            made = Path(tempfile.mkdtemp(prefix="mysql-"))
            atexit.register(shutil.rmtree, made, ignore_errors=True)
            shutil.copytree(self._data, made / "data")
            # By which a server is told from another one.
            (made / "data/auto.cnf").unlink(missing_ok=True)
            _made[self._root] = made
            return
        self._temporary.mkdir()
        shutil.copytree(made / "data", self._data)

    @override
    def installing(self) -> Sequence[str]:
        # Nobody looks up names here, so root@localhost could come by the socket only.
        first = self.directory / "first.sql"
        first.write_text(f"RENAME USER {SUPERUSER}@localhost TO {SUPERUSER}@'%';\n")
        return [self.path(self.program), *self.where, "--initialize-insecure", f"--init-file={first}"]
