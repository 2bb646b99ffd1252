"""A worker's connection to its executor, without waiting for acknowledgements.

Spark 4.0 writes to a worker in small pieces and leaves Nagle's algorithm on: each piece waits for the one before to be
acknowledged, and Linux takes 40 ms to acknowledge what isn't answered. A task of a few rows met that two or three
times.
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


class _Prompt(io.RawIOBase):
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @override
    def readable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return self._connection.fileno()

    @override
    def readinto(self, buffer: Buffer) -> int:
        if _QUICKACK is not None:
            self._connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        return self._connection.recv_into(buffer)

    @override
    def close(self) -> None:
        self._connection.close()
        super().close()


def promptly(worker_main: Callable[[BinaryIO, BinaryIO], Any]) -> Callable[[BinaryIO, BinaryIO], Any]:
    """A worker's main function, on a connection that acknowledges and sends at once.

    It is called when nothing was read ahead of it: the executor waits for the worker before it sends more.
    """

    def main(infile: BinaryIO, outfile: BinaryIO) -> Any:
        connection = socket.socket(fileno=os.dup(infile.fileno()))
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            connection.close()
            return worker_main(infile, outfile)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with io.BufferedReader(_Prompt(connection), io.DEFAULT_BUFFER_SIZE * 8) as prompt:
            return worker_main(cast("BinaryIO", prompt), outfile)

    return main
