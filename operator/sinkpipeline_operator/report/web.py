"""/healthz, /readyz and /metrics of the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from typing_extensions import Self

from sinkpipeline.serving import Serving
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
        self._probes = {"/healthz": is_alive, "/readyz": is_ready}
        self._metrics = metrics
        self._serving = Serving(self._answer, host, port, name="web", threads=2, connection_limit=64)

    @property
    def port(self) -> int:
        return self._serving.port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.close()

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
