"""An HTTP server in a thread of its own, of a driver or of the operator."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer, create_server

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_ANY = ("0.0.0.0", "::")  # noqa: S104 - of a pod
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Of a machine whose kernel could, and may not."""
_POLL_S = 0.5
_END_S = 10.0


def _listener(host: str, port: int, backlog: int | None) -> socket.socket:
    """In a pod of a cluster that has only IPv6, or prefers it, nobody asks at an address of the other family."""
    if host in _ANY and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
        host = _ANY[0]
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)


class Serving:
    """Serves from its making until it is closed.

    Args:
        application: WSGI.
        host: a name or an address; 0.0.0.0 and :: are all addresses of the machine, of both families.
        port: 0 for any that is free.
        name: of the thread.
        channel: what a connection is.
        settings: waitress' own.

    Raises:
        OSError: the address can't be listened on.
    """

    def __init__(
        self,
        application: WSGIApplication,
        host: str,
        port: int,
        *,
        name: str,
        channel: type[HTTPChannel] = HTTPChannel,
        **settings: Any,
    ) -> None:
        logging.getLogger("waitress").setLevel(logging.CRITICAL)
        self._sockets: dict[int, Any] = {}
        listener = _listener(host, port, settings.get("backlog"))
        # One socket of one family: waitress would open one for every address of a name.
        server = create_server(application, map=self._sockets, sockets=[listener], ident=None, **settings)
        if not isinstance(server, TcpWSGIServer):
            raise TypeError(type(server).__name__)
        server.channel_class = channel
        self._server = server
        self.port: int = listener.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the service, and every connection."""
        if self._over.is_set():
            return
        self._over.set()
        self._server.pull_trigger()
        self._thread.join(_END_S)
        # Not by the thread: it could close the trigger before it is pulled. And not before it has ended: it would wait
        # for sockets that are closed, and end with a traceback.
        self._server.task_dispatcher.shutdown()
        wasyncore.close_all(self._sockets, ignore_all=True)

    def _run(self) -> None:
        while not self._over.is_set():
            # By poll(): select() takes no file descriptor above 1023, and there may be many connections.
            wasyncore.loop(timeout=_POLL_S, use_poll=True, map=self._sockets, count=1)
