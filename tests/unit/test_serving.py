"""How an HTTP server of ours ends: at once, with its thread, and without a word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from sinkpipeline.serving import Serving
from sinkpipeline_operator.report.metrics import Metrics
from sinkpipeline_operator.report.web import Web

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HOST = "127.0.0.1"


def nothing(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("204 No Content", [])
    return []


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What ended a thread."""
    found: list[object] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def test_an_end_leaves_neither_a_thread_nor_a_connection(raised: list[object]) -> None:
    for _ in range(20):
        serving = Serving(nothing, HOST, 0, name="ending", threads=1)
        with socket.create_connection((HOST, serving.port), 5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 204")
            serving.close()
            assert client.recv(100) == b""
        serving.close()
    assert not [each for each in threading.enumerate() if each.name == "ending"]
    assert raised == []


def test_the_operators_ends_like_a_drivers(raised: list[object]) -> None:
    with Web(HOST, 0, is_alive=str, is_ready=str, metrics=Metrics()):
        pass
    assert not [each for each in threading.enumerate() if each.name == "web"]
    assert raised == []
