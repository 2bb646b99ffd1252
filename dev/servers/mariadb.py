"""A real MariaDB server on this machine, for tests: the PATH's, or Debian's, unpacked by `dev/install.sh mariadb`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from servers.binlog_server import SUPERUSER, BinlogServer
from servers.local_process import cache_directory

__all__ = ["SUPERUSER", "LocalMariadb", "root_directory"]

LOG: Final = "mariadb-bin"


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


class LocalMariadb(BinlogServer):
    kind = "mariadb"
    title = "MariaDB"
    program = "mariadbd"
    printer = "mariadb-binlog"
    log = LOG

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: as options of the server, beside those of a binary log that can be read."""
        found = root_directory()
        if found is None:
            raise FileNotFoundError("no MariaDB: make mariadb, or apt-get install mariadb-server")
        super().__init__("mariadb", found, {"innodb-log-file-size": "32M", **(settings or {})})

    @override
    def installing(self) -> Sequence[str]:
        return [self.path("mariadb-install-db"), *self.where, "--auth-root-authentication-method=normal"]
