"""A worker's connection: what comes through it, and how."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from sinkpipeline.spark import prompt

PIECES = [b"a header", b"x" * 300_000, b"", b"the end"]


Pair = tuple[socket.socket, socket.socket]


def tcp_pair() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname(), timeout=10)
        other, _ = server.accept()
    return one, other


def read_all(pair: Pair) -> tuple[bytes, int]:
    """What a worker's main function reads, and whether its side sends at once."""
    executor, worker = pair

    def main(infile: BinaryIO, _outfile: BinaryIO) -> Any:
        assert prompt.is_guarded()
        head, rest = infile.read(len(PIECES[0])), infile.read(sum(map(len, PIECES[1:])))
        with pytest.raises(ConnectionAbortedError):
            infile.read(1)
        nodelay = worker.family == socket.AF_INET and worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        return head + rest, nodelay

    def send() -> None:
        for piece in PIECES:
            executor.sendall(piece)
        executor.close()

    sender = threading.Thread(target=send)
    sender.start()
    with (
        worker,
        os.fdopen(os.dup(worker.fileno()), "rb") as infile,
        os.fdopen(os.dup(worker.fileno()), "wb") as outfile,
    ):
        found: tuple[bytes, int] = prompt.promptly(main)(infile, outfile)
    sender.join(10)
    return found


def test_everything_comes_through_and_is_sent_at_once() -> None:
    text, nodelay = read_all(tcp_pair())
    assert text == b"".join(PIECES)
    assert nodelay


def test_where_the_system_has_no_quick_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "_QUICKACK", None)
    assert read_all(tcp_pair())[0] == b"".join(PIECES)


def test_a_connection_that_is_no_tcp_is_whole_too() -> None:
    assert read_all(socket.socketpair())[0] == b"".join(PIECES)
    assert not prompt.is_guarded()


@pytest.mark.parametrize("pair", [tcp_pair, socket.socketpair])
def test_arrow_batches_behind_which_the_connection_ends_are_not_all_rows(pair: Callable[[], Pair]) -> None:
    """Arrow itself takes that for the end of its stream."""
    executor, worker = pair()
    batch = pa.RecordBatch.from_pydict({"offset": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, batch.schema)
    writer.write_batch(batch)
    executor.sendall(sink.getvalue())
    executor.close()
    found: list[int] = []

    def main(infile: BinaryIO, _outfile: BinaryIO) -> None:
        found.extend(each.num_rows for each in pa.ipc.open_stream(infile))

    with (
        worker,
        os.fdopen(os.dup(worker.fileno()), "rb") as infile,
        os.fdopen(os.dup(worker.fileno()), "wb") as outfile,
        pytest.raises(ConnectionAbortedError),
    ):
        prompt.promptly(main)(infile, outfile)
    assert found == [3]
