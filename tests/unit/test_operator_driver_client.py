"""What the operator believes of a driver's answer: within bounds, of the right one, and nothing else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typing_extensions import override

from sinkpipeline.core.served import STARTING, DriverInfo, status_body
from sinkpipeline_operator.observe import driver_client
from sinkpipeline_operator.observe.driver_client import LIMIT_BYTES, TIMEOUT_S, Answer, DriverClient

TOKEN = "a-t0ken"
SINK = {"name": "out", "state": "Running", "guarantee": "ExactlyOnce"}
GOOD = {
    "identity": "shop.orders",
    "configHash": "abc",
    "run": "r",
    "now": "2026-01-01T00:00:00Z",
    "conditions": [],
    "sinks": [SINK],
}


class Driver:
    """How one answers."""

    def __init__(self, body: bytes = b"", *, code: int = 200, drip_s: float = 0.0, **headers: str) -> None:
        self.body = body
        self.code = code
        self.drip_s = drip_s
        self.headers = headers
        self.asked: list[str] = []


@contextmanager
def serving(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            driver.asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(driver.code)
            for name, value in driver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(driver.body)))
            self.end_headers()
            step = 1 if driver.drip_s else len(driver.body) or 1
            try:
                for at in range(0, len(driver.body), step):
                    self.wfile.write(driver.body[at : at + step])
                    time.sleep(driver.drip_s)
            except OSError:
                return  # The client has had enough.

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        monkeypatch.setattr(driver_client, "DRIVER_PORT", server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def ask(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Answer:
    with serving(driver, monkeypatch):
        return DriverClient().ask("127.0.0.1", TOKEN, identity="shop.orders", config_hash="abc")


def document(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_driver_is_asked_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(document())
    assert ask(driver, monkeypatch) == Answer(document=GOOD)
    assert driver.asked == [f"/status Bearer {TOKEN}"]


def test_one_that_has_not_read_its_manifest_yet_knows_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    info = DriverInfo(config_hash="abc", run="r", pid=1)
    answer = ask(Driver(status_body(STARTING, info, 0, supervising=False)), monkeypatch)
    assert answer.document is not None
    assert (answer.document["sinks"], answer.document["supervising"]) == ([], False)


REFUSED = {
    "another identity": (Driver(document(identity="shop.other")), "shop.other"),
    "another configuration": (Driver(document(configHash="old")), "old"),
    "no JSON": (Driver(b"<html>"), "Invalid JSON"),
    "not UTF-8": (Driver(b"\xff\xfe\xff"), "Invalid JSON"),
    "deep": (Driver(b"[" * 100_000), "recursion limit"),
    "no document": (Driver(b"[1]"), "no status document"),
    "sinks without names": (Driver(document(sinks=[{}])), "no status document"),
    "sinks that are none": (Driver(document(sinks=7)), "no status document"),
    "a wrong token": (Driver(b"", code=401), "HTTP 401"),
    "a redirect": (Driver(b"", code=302, Location="http://127.0.0.1:1/"), "HTTP 302"),
    "too much": (Driver(b"[" + b" " * LIMIT_BYTES), f"{LIMIT_BYTES} bytes"),
}


@pytest.mark.parametrize(("driver", "trouble"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_believed(driver: Driver, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(driver, monkeypatch)
    assert answer.document is None
    assert trouble in answer.trouble
    assert TOKEN not in answer.trouble


def test_one_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    answer = ask(Driver(document(), drip_s=0.3), monkeypatch)
    assert (answer.document, "not done within 2 s" in answer.trouble) == (None, True)
    assert time.monotonic() - began < TIMEOUT_S + 10


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_client, "DRIVER_PORT", 1)
    answer = DriverClient().ask("127.0.0.1", TOKEN, identity="shop.orders", config_hash="abc")
    assert (answer.document, "refused" in answer.trouble) == (None, True)
