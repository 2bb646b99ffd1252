"""The driver's HTTP service: `GET /status` and `/metrics` for who holds the token, `/healthz` for everybody.

    /status    the status document with configHash, heartbeat, pid and run, at most 256 KiB
    /metrics   Prometheus
    /healthz   200 while the supervising loop goes round, 503 when it hasn't for 30 s

Requests have no body, headers of at most 8 KiB, and ten seconds to come in; 32 connections may be open.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self, override
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, TcpWSGIServer, create_server

from sinkpipeline.cli.pod.bearer import Token
from sinkpipeline.cli.pod.metrics import CONTENT_TYPE, Metrics
from sinkpipeline.cli.pod.vitals import Vitals

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

REQUEST_S = 10
_POLL_S = 0.5
_SETTINGS = {
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
    "ident": None,
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
        token = Token(token_file)
        logging.getLogger("waitress").setLevel(logging.CRITICAL)
        self._sockets: dict[int, Any] = {}
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=32)
        # One socket of one family: waitress would open one for every address of a name.
        settings: dict[str, Any] = {**_SETTINGS, "sockets": [listener]}
        server = create_server(_Application(vitals, token, open_metrics=open_metrics), map=self._sockets, **settings)
        if not isinstance(server, TcpWSGIServer):
            raise TypeError(type(server).__name__)
        server.channel_class = _Channel
        self._server = server
        self.port: int = listener.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the service, and every connection."""
        if self._over.is_set():
            return
        self._over.set()
        self._server.pull_trigger()
        self._thread.join(REQUEST_S)
        # Not by the thread: it could close the trigger before it is pulled.
        self._server.task_dispatcher.shutdown()
        wasyncore.close_all(self._sockets, ignore_all=True)

    def _run(self) -> None:
        while not self._over.is_set():
            # By poll(): select() takes no file descriptor above 1023, and a driver has many connections.
            wasyncore.loop(timeout=_POLL_S, use_poll=True, map=self._sockets, count=1)
