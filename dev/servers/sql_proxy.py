"""A TCP proxy before PostgreSQL, which loses one request, or the answer to one, with the connection.

It knows no more of the protocol than that a client waits for the answer to what it has sent: a short request stands
in one piece. TLS is not understood.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import socketserver
import threading
from typing import Final, Self

from typing_extensions import override

from servers.local_process import HOST

_PIECE: Final = 64 * 1024


class Loss(enum.Enum):
    REQUEST = "request"
    """The server never sees it."""
    ANSWER = "answer"
    """The server has answered, and the client never sees that."""


class SqlProxy:
    """Listens until `close`; `target` is the server's port."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._trap: tuple[bytes, Loss] | None = None
        self._after = b""
        self._links: set[tuple[socket.socket, socket.socket]] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self.caught = 0
        """How often something was lost."""
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            @override
            def handle(self) -> None:
                proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            # A connection ends with its two ends, which `close` cuts.
            block_on_close = True

        self._server = Server((HOST, 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        # First: what is held must not pass now.
        self.cut()
        self.heal()
        self.cut()
        self._server.server_close()
        self._thread.join()

    def cut(self) -> None:
        """Ends every connection; new ones are welcome."""
        with self._lock:
            links = list(self._links)
        for link in links:
            _end(link)

    def lose(self, containing: bytes, loss: Loss, *, after: bytes = b"") -> None:
        """The next request that contains these bytes, or its answer, is lost, and its connection ends.

        `after`: the next one behind a request that contains these.
        """
        with self._lock:
            self._trap = containing, loss
            self._after = after

    def leads_to(self, target: int) -> None:
        """New connections are to this port; those that are there stay."""
        self._target = target

    def hold(self) -> None:
        """Nothing passes, either way, until `heal`."""
        self._flowing.clear()

    def heal(self) -> None:
        """Everything passes, and nothing is lost that was not lost yet."""
        with self._lock:
            self._trap = None
            self._after = b""
        self._flowing.set()

    def _sprung(self, piece: bytes) -> Loss | None:
        with self._lock:
            if self._trap is None:
                return None
            if self._after:
                self._after = b"" if self._after in piece else self._after
                return None
            if self._trap[0] not in piece:
                return None
            loss, self._trap = self._trap[1], None
            self.caught += 1
            return loss

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self._target))
        except OSError:
            return
        link = (client, server)
        with self._lock:
            self._links.add(link)
        deaf = threading.Event()
        answers = threading.Thread(target=_answers, args=(link, deaf, self._flowing), daemon=True)
        answers.start()
        with contextlib.suppress(OSError):
            while piece := client.recv(_PIECE):
                loss = self._sprung(piece)
                if loss is Loss.REQUEST:
                    break
                if loss is Loss.ANSWER:
                    deaf.set()
                self._flowing.wait()
                server.sendall(piece)
        if not deaf.is_set():
            _end(link)
        answers.join()
        with self._lock:
            self._links.discard(link)
        server.close()


def _answers(link: tuple[socket.socket, socket.socket], deaf: threading.Event, flowing: threading.Event) -> None:
    client, server = link
    with contextlib.suppress(OSError):
        while (piece := server.recv(_PIECE)) and not deaf.is_set():
            flowing.wait()
            client.sendall(piece)
    _end(link)


def _end(link: tuple[socket.socket, socket.socket]) -> None:
    for each in link:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
