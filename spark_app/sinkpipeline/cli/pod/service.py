"""The driver's HTTP service: `GET /status` and `/metrics` for who holds the token, `/healthz` for everybody.

    /status    the status document with configHash, heartbeat, pid and run, at most 256 KiB
    /metrics   Prometheus
    /healthz   200 while the supervising loop goes round, 503 when it hasn't for 30 s

Requests have no body, headers of at most 8 KiB, and ten seconds to come in; 32 connections may be open.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self, override
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer

from sinkpipeline.cli.pod.bearer import Token
from sinkpipeline.cli.pod.metrics import CONTENT_TYPE, Metrics
from sinkpipeline.cli.pod.vitals import Vitals
from sinkpipeline.serving import Serving

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

REQUEST_S = 10
_SETTINGS: dict[str, Any] = {
    "threads": 2,
    "connection_limit": 32,
    "backlog": 32,
    "channel_timeout": REQUEST_S,
    "cleanup_interval": 1,
    "max_request_header_size": 8 * 1024,
    "max_request_body_size": 1,
    "inbuf_overflow": 16 * 1024,
    # Never a temporary file: /status has its own limit.
    "outbuf_overflow": 1024 * 1024,
    "expose_tracebacks": False,
    "log_untrusted_proxy_headers": False,
}

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class _Application:
    """WSGI."""

    def __init__(self, vitals: Vitals, token: Token, *, open_metrics: bool) -> None:
        self._vitals = vitals
        self._metrics = Metrics(vitals)
        self._token = token
        self._open_metrics = open_metrics

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body, more = self._answer(environ)
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *more,
        ]
        start_response(status, headers)
        return [body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, str, bytes, list[tuple[str, str]]]:
        if environ["REQUEST_METHOD"] != "GET":
            return "405 Method Not Allowed", _TEXT, b"only GET\n", [("Allow", "GET")]
        path = environ["PATH_INFO"]
        if path == "/healthz":
            alive = self._vitals.alive
            return ("200 OK", _TEXT, b"ok\n", []) if alive else ("503 Service Unavailable", _TEXT, b"silent\n", [])
        is_open = self._open_metrics and path == "/metrics"
        if not is_open and not self._is_authorised(environ.get("HTTP_AUTHORIZATION", "")):
            return "401 Unauthorized", _TEXT, b"a bearer token is needed\n", [("WWW-Authenticate", "Bearer")]
        if path == "/status":
            return "200 OK", _JSON, self._vitals.body(), []
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE, self._metrics.render(), []
        return "404 Not Found", _TEXT, b"there are /status, /metrics and /healthz\n", []

    def _is_authorised(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        # WSGI's strings are Latin-1.
        given = token.strip().encode("latin-1", "replace")
        return scheme.lower() == "bearer" and self._token.is_that(given)


class _Channel(HTTPChannel):
    """A part of a request is no activity: who drips one is cut off as who is silent."""

    def __init__(
        self,
        server: BaseWSGIServer,
        sock: socket.socket,
        addr: Any,
        adj: Adjustments,
        map: Any = None,  # noqa: A002 - waitress passes it by name
    ) -> None:
        super().__init__(server, sock, addr, adj, map)
        self._whole_at = self.last_activity

    @override
    def received(self, data: bytes) -> bool:
        took = super().received(data)
        if self.request is None:
            self._whole_at = self.last_activity
        else:
            self.last_activity = self._whole_at
        return took


class Service:
    """Serves from its making until it is closed, in a thread of its own; use it in a `with`.

    Args:
        vitals: what is told.
        host: a name or an address.
        port: 0 for any that is free.
        token_file: holds what a request must bear; read again for a request that bears something else.
        open_metrics: whether `/metrics` is answered without it.

    Raises:
        OSError: the address can't be listened on.
        SinkPipelineError: SecretInvalid.
    """

    def __init__(self, vitals: Vitals, host: str, port: int, token_file: Path, *, open_metrics: bool = False) -> None:
        application = _Application(vitals, Token(token_file), open_metrics=open_metrics)
        self._serving = Serving(application, host, port, name="service", channel=_Channel, **_SETTINGS)

    @property
    def port(self) -> int:
        return self._serving.port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the service, and every connection."""
        self._serving.close()
