"""A worker's connection to its executor: whole, and without waiting for acknowledgements.

*Whole*: where a read of the source fails, or a task is killed, Spark closes the connection, always between two Arrow
messages. Arrow takes that for the end of the rows (its format lets a stream end so), and so would a task: it would
count what it was never given. Spark ends what is whole in another way, so here the end of a connection is an error.

*Prompt*: Spark 4.0 writes to a worker in small pieces and leaves Nagle's algorithm on: each piece waits for the one
before to be acknowledged, and Linux takes 40 ms to acknowledge what isn't answered. A task of a few rows met that two
or three times.
"""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from typing_extensions import Buffer, override

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux only, and not lasting: it is asked for before every read."""


class _Worker:
    """This process."""

    is_guarded = False


def is_guarded() -> bool:
    """Whether the input of this process' tasks comes by a connection whose end is an error."""
    return _Worker.is_guarded


class _Connection(io.RawIOBase):
    """Raises ConnectionAbortedError at its end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
        if self._is_tcp:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @override
    def readable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return self._connection.fileno()

    @override
    def readinto(self, buffer: Buffer) -> int:
        if self._is_tcp and _QUICKACK is not None:
            self._connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        count = self._connection.recv_into(buffer)
        if not count:
            raise ConnectionAbortedError("the executor has closed the connection: what was read is not the whole input")
        return count

    @override
    def close(self) -> None:
        self._connection.close()
        super().close()


def promptly(worker_main: Callable[[BinaryIO, BinaryIO], Any]) -> Callable[[BinaryIO, BinaryIO], Any]:
    """A worker's main function, on such a connection.

    It is called when nothing was read ahead of it: the executor waits for the worker before it sends more.
    """

    def main(infile: BinaryIO, outfile: BinaryIO) -> Any:
        connection = _Connection(socket.socket(fileno=os.dup(infile.fileno())))
        with io.BufferedReader(connection, io.DEFAULT_BUFFER_SIZE * 8) as guarded:
            _Worker.is_guarded = True
            try:
                return worker_main(cast("BinaryIO", guarded), outfile)
            finally:
                _Worker.is_guarded = False

    return main
