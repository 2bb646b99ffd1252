"""A real schema registry on this machine, for tests: Apicurio's, by the interface that Confluent documents."""

from __future__ import annotations

import json
import os
import signal
import ssl
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from servers.java import FAST_START, java_executable, pinned
from servers.local_process import HOST, LocalProcess, cache_directory, free_ports
from servers.waiting import wait_for

if TYPE_CHECKING:
    from types import TracebackType

START_DEADLINE_S: Final = 60.0
_CONTENT = "application/vnd.schemaregistry.v1+json"


class LocalRegistry:
    """One registry with an empty memory; when this process dies, in whatever way, it is killed."""

    def __init__(self) -> None:
        [self._port] = free_ports(1)
        self._scratch = tempfile.TemporaryDirectory(prefix="local-registry-")
        self._process: LocalProcess | None = None
        self._headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None
        """How this process itself asks it."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        log = Path(self._scratch.name) / "registry.log"
        settings = {"quarkus.http.host": HOST, "quarkus.http.port": self._port, "java.io.tmpdir": self._scratch.name}
        options = [f"-D{name}={value}" for name, value in {**settings, **self._settings()}.items()]
        argv = [java_executable(), *FAST_START, "-Xmx256m", *options, "-jar", str(_jar())]
        self._process = LocalProcess(argv, log, cwd=Path(self._scratch.name))
        try:
            wait_for(self._answers, "the registry answers", START_DEADLINE_S, check=self._check_alive)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _settings(self) -> dict[str, str]:
        """What it is told beyond its address."""
        return {}

    def stop(self) -> None:
        """It no longer answers, and forgets nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `stop`."""
        self._signal(signal.SIGCONT)

    def register(self, subject: str, schema: Any, *, kind: str = "AVRO", references: Any = ()) -> int:
        """The schema's id; one that was registered already has the one that it has."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        found = self._ask(f"/subjects/{subject}/versions", body)
        return int(found["id"])

    def compatibility(self, subject: str, level: str) -> None:
        """Which versions a subject takes from now on; Apicurio takes all, unless it is told."""
        self._ask(f"/config/{subject}", {"compatibility": level}, "PUT")

    def _signal(self, which: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, which)

    def _answers(self) -> bool:
        try:
            self._ask("/subjects")
        except OSError:
            return False
        return True

    def _check_alive(self) -> None:
        if self._process is None or self._process.exit_code is not None:
            raise RuntimeError("the registry ended" + (f": {self._process.log_tail()}" if self._process else ""))

    def _ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": _CONTENT, **self._headers}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:  # noqa: S310 - likewise
            return json.load(answer)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._scratch.cleanup()


def _jar() -> Path:
    """Where `dev/install.sh` has unpacked it."""
    version = pinned("registry", "registry.version")
    return cache_directory() / f"registry-{version}" / f"apicurio-registry-app-{version}-runner.jar"
