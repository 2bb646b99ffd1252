"""How an HTTP server of ours ends: at once, with its thread, and without a word."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline import serving as serving_module
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


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_all_addresses_are_those_of_both_families(host: str, family: socket.AddressFamily, address: str) -> None:
    """A kubelet asks at the pod's first address, which is one of IPv6 in some clusters."""
    if family is socket.AF_INET6 and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    serving = Serving(nothing, host, 0, name="everywhere", threads=1)
    try:
        with socket.create_connection((address, serving.port), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert connection.recv(12).startswith(b"HTTP/1.")
    finally:
        serving.close()


def test_a_machine_without_ipv6_is_served_at_the_addresses_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def without(address: tuple[str, int], **how: Any) -> socket.socket:
        if how["family"] is socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "address family not supported")
        return create(address, **how)

    monkeypatch.setattr(serving_module.socket, "create_server", without)
    serving = Serving(nothing, "0.0.0.0", 0, name="ipv4", threads=1)
    try:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=10):
            pass
    finally:
        serving.close()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
