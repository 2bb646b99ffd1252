"""What an API server asks of a kubelet for a person: the log of a container, and a program that is run in it.

The stand-in for a node runs the containers; this answers `kubectl logs` and `kubectl exec` for them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme
from typing_extensions import Self, override

from kubeflow.pods import NODE
from servers.kube_api import ConflictError, KubeApi
from servers.local_process import HOST

Log = Callable[[str, str], str]
"""Of a pod, by namespace and name."""
Run = Callable[[Sequence[str]], tuple[int, str, str]]
"""Of a program's arguments: its exit code, stdout and stderr."""

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455."""
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_BINARY, _CLOSE = 0x82, 0x88
_PIECE = 32_767
"""Bytes; letters of several bytes come in two of them, now and then."""


def _runs_nothing(_: Sequence[str]) -> tuple[int, str, str]:
    return 126, "", "nothing is run here"


class Kubelet:
    """Of the stand-in's node, or of another one for pods that nobody runs; use it in a `with`."""

    def __init__(self, kubeconfig: Path, log: Log, run: Run = _runs_nothing, *, node: str = NODE) -> None:
        self._api = KubeApi(kubeconfig)
        self._node = node
        handler = type("Handler", (_Handler,), {"log_of": staticmethod(log), "run_in": staticmethod(run)})
        self._server = ThreadingHTTPServer((HOST, 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert(HOST).configure_cert(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        status = {
            "addresses": [{"type": "InternalIP", "address": HOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
        }
        with contextlib.suppress(ConflictError):
            self._api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node}})
        self._api.merge(f"/api/v1/nodes/{self._node}/status", {"status": status})
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._api.close()


class _Handler(BaseHTTPRequestHandler):
    log_of: Log
    run_in: Run
    protocol_version = "HTTP/1.1"

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        kind, namespace, pod, _container = url.path.strip("/").split("/")
        query = parse_qs(url.query)
        self.close_connection = True
        if kind == "containerLogs":
            lines = self.log_of(namespace, pod).splitlines(keepends=True)
            tail = query.get("tailLines")
            body = "".join(lines[-int(tail[0]) :] if tail else lines).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self._upgrade()
        code, printed, told = self.run_in(query["command"])
        for channel, text in ((_STDOUT, printed), (_STDERR, told), (_ERROR, json.dumps(_verdict(code)))):
            whole = text.encode()
            for at in range(0, len(whole), _PIECE):
                self._frame(_BINARY, bytes([channel]) + whole[at : at + _PIECE])
        self._frame(_CLOSE, struct.pack("!H", 1000))

    def _upgrade(self) -> None:
        key = self.headers["Sec-WebSocket-Key"] + _GUID
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"].split(",")[0].strip())
        self.end_headers()

    def _frame(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size)
        self.wfile.write(bytes([kind]) + length + payload)
        self.wfile.flush()


def _verdict(code: int) -> dict[str, Any]:
    """As a kubelet says it: apimachinery's Status, with the exit code among its causes."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": {"causes": causes}}
