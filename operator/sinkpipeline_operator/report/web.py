"""/healthz, /readyz and /metrics of the operator."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from typing_extensions import Self
from waitress.server import create_server

from sinkpipeline_operator.report.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_TEXT = "text/plain; charset=utf-8"


class Web:
    """Serves from its making until it is closed.

    Args:
        host, port: where; port 0 for any that is free.
        is_alive: whether this process still does its work.
        is_ready: whether it has begun to.
        metrics: what /metrics shows.

    Raises:
        OSError: the address can't be listened on.
    """

    def __init__(
        self, host: str, port: int, *, is_alive: Callable[[], str], is_ready: Callable[[], str], metrics: Metrics
    ) -> None:
        logging.getLogger("waitress").setLevel(logging.CRITICAL)
        self._probes = {"/healthz": is_alive, "/readyz": is_ready}
        self._metrics = metrics
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family)
        self.port: int = listener.getsockname()[1]
        self._server = create_server(self._answer, sockets=[listener], threads=2, ident=None, connection_limit=64)
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        status, kind, body = "404 Not Found", _TEXT, b"there are /healthz, /readyz and /metrics\n"
        if environ["REQUEST_METHOD"] != "GET":
            status, body = "405 Method Not Allowed", b"only GET\n"
        elif path == "/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE, self._metrics.render()
        elif path in self._probes:
            trouble = self._probes[path]()
            status = "503 Service Unavailable" if trouble else "200 OK"
            body = f"{trouble or 'ok'}\n".encode()
        start_response(
            status, [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        )
        return [body]
