"""The driver's HTTP service, asked over loopback as the operator, Prometheus and the kubelet ask it."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sinkpipeline.cli.pod import bearer
from sinkpipeline.cli.pod import service as service_module
from sinkpipeline.cli.pod.service import Service
from sinkpipeline.cli.pod.vitals import STALE_AFTER_S, START_ALLOWANCE_S, Vitals
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.batch_counts import BatchCounts
from sinkpipeline.core.commit_counts import CommitCounts
from sinkpipeline.core.served import LIMIT_BYTES, DriverInfo, Observation, RunCounts, status_body
from support.waiting import wait_until

TOKEN = "s3cr3t-t0ken"
NOW_MS = 1_700_000_000_000
THEN = "2023-11-14T22:13:20Z"
COSTS = CommitCounts().with_commit(0.02, 100).with_commit(0.2, 5000).with_doubt().with_retry("SinkUnreachable")
TOOK_OVER = Receipt(commits=3, claims=1, claiming_s=0.25, in_doubt=True, costs=COSTS)
BATCHES = (
    BatchCounts()
    .with_batch(1.0, [], CommitCounts().with_commit(0.5, 7))
    .with_batch(1.0, [TOOK_OVER, Receipt(commits=2)])
)
BATCHES += BatchCounts().with_batch(45.0, [Receipt()])
DRIVER = DriverInfo(config_hash="8f14e45f", run="run-1", pid=17)


def sink(name: str = "one", **facts: Any) -> dict[str, Any]:
    return {"name": name, "state": "Running", "guarantee": "ExactlyOnce", **facts}


def document(*sinks: dict[str, Any]) -> dict[str, Any]:
    return {"identity": "shop.orders", "phase": "Running", "conditions": [], "totals": {}, "sinks": list(sinks)}


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def monotonic(self) -> float:
        return self.s

    def wall_ms(self) -> int:
        return NOW_MS + int((self.s - 1000.0) * 1000)


class Asker:
    """A driver that says what the test makes it say, and its service."""

    def __init__(self, directory: Path, *, open_metrics: bool = False) -> None:
        self.clock = Clock()
        self.vitals = Vitals(DRIVER, monotonic=self.clock.monotonic, wall_ms=self.clock.wall_ms)
        self.token_file = directory / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.service = Service(self.vitals, "127.0.0.1", 0, self.token_file, open_metrics=open_metrics)

    def say(self, *sinks: dict[str, Any], supervising: bool = True, **counts: RunCounts) -> None:
        self.vitals.observe(Observation(status=document(*sinks), counts=counts, supervising=supervising))

    def ask(
        self, path: str, *, token: str | None = TOKEN, method: str = "GET", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=10)
        try:
            bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
            connection.request(method, path, headers={**bearer, **(headers or {})})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        text = body + repr(answer.getheaders()).encode()
        assert TOKEN.encode() not in text, "a secret was told"
        return answer.status, body, answer.headers

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        _, body, _ = self.ask("/metrics")
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Asker]:
    asker = Asker(tmp_path)
    yield asker
    asker.service.close()


def test_a_token_that_is_written_anew_is_read_again(driver: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.token_file.write_text("another")
    assert driver.ask("/status", token="another")[0] == 401, "not for each guess"
    monkeypatch.setattr(bearer, "READ_AGAIN_S", 0.0)
    assert driver.ask("/status", token="another")[0] == 200
    assert driver.ask("/status")[0] == 401, "the one before"
    driver.token_file.write_text("")
    assert driver.ask("/status", token="")[0] == 401
    driver.token_file.unlink()
    assert driver.ask("/status", token="a guess")[0] == 401
    assert driver.ask("/status", token="another")[0] == 200, "what was read before goes on"


def test_before_the_manifest_is_read_it_is_starting(driver: Asker) -> None:
    status, body, headers = driver.ask("/status")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {
        "phase": "Starting",
        "conditions": [],
        "totals": {},
        "sinks": [],
        "configHash": "8f14e45f",
        "now": THEN,
        "pid": 17,
        "run": "run-1",
        "supervising": False,
    }
    assert driver.ask("/healthz", token=None)[0] == 200


def test_the_status_is_what_the_driver_last_said_with_when_that_was(driver: Asker) -> None:
    driver.clock.s += 5
    driver.say(sink(lag=3), sink("two", circuit={"openedAt": THEN}))
    driver.clock.s += 5

    found = json.loads(driver.ask("/status")[1])

    assert found["now"] == "2023-11-14T22:13:25Z"
    assert found["sinks"] == [sink(lag=3), sink("two", circuit={"openedAt": THEN, "configHash": "8f14e45f"})]
    assert found["identity"] == "shop.orders"


@pytest.mark.parametrize("path", ["/status", "/metrics", "/nothing", "/"])
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer é"],
)
def test_without_the_token_there_is_no_answer(driver: Asker, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    status, _, told = driver.ask(path, token=None, headers=headers)
    assert status == 401
    assert told["WWW-Authenticate"] == "Bearer"


def test_other_paths_and_methods_are_refused(driver: Asker) -> None:
    assert driver.ask("/nothing")[0] == 404
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        for path in ("/status", "/metrics", "/healthz"):
            assert driver.ask(path, method=method)[0] == 405


def test_health_is_the_supervising_loops(driver: Asker) -> None:
    driver.say(sink(), supervising=False)
    driver.clock.s += START_ALLOWANCE_S - 1
    assert driver.ask("/healthz", token=None)[0] == 200, "Spark may take its time to start"
    driver.clock.s += 2
    assert driver.ask("/healthz", token=None)[0] == 503

    driver.say(sink())
    driver.clock.s += STALE_AFTER_S
    assert driver.ask("/healthz", token=None)[0] == 200
    driver.clock.s += 1
    assert driver.ask("/healthz", token=None)[0] == 503
    assert driver.ask("/status")[0] == 200, "what was last said is still told"

    driver.say(sink())
    assert driver.ask("/healthz", token=None)[0] == 200


def test_metrics_of_a_stage(driver: Asker) -> None:
    driver.say(sink())
    assert not [name for name, _ in driver.metrics() if name.startswith("sinkpipeline_source_")]
    source = {"state": "Running", "slot": "s", "changes": 7, "lagBytes": 64, "lagSeconds": 3, "retainedBytes": 4096}
    status = {**document(sink()), "source": source}
    driver.vitals.observe(Observation(status=status, counts={}, supervising=True))
    found = {name: value for (name, labels), value in driver.metrics().items() if "_source_" in name and not labels}
    assert found == {
        "sinkpipeline_source_lag_bytes": 64,
        "sinkpipeline_source_lag_seconds": 3,
        "sinkpipeline_source_retained_bytes": 4096,
        "sinkpipeline_source_at_risk": 0,
        "sinkpipeline_source_changes_total": 7,
    }, "without what is not known"
    assert driver.metrics()["sinkpipeline_source_state", (("state", "Running"),)] == 1


def test_metrics(driver: Asker) -> None:
    driver.say(
        sink(
            rowsDelivered=110,
            deadLettered=2,
            dropped=1,
            lost=4,
            kind="postgresql",
            lag=9,
            heldBack=5,
            deadLetters=[
                {"class": "RecordTooLarge", "stage": "write", "count": 2, "dropped": 1},
                {"class": "FromTheFuture", "stage": "unknown", "count": 0, "dropped": 7},
            ],
        ),
        sink("two", state="Retrying", kind="kafka"),
        one=RunCounts(rows=7, batches=BATCHES, waits_s=12.5),
        two=RunCounts(failures={"BrokerUnreachable": 2, "BatchFailed": 1}),
    )

    found = driver.metrics()

    one, two = ("sink", "one"), ("sink", "two")
    assert found["sinkpipeline_sink_rows_delivered_total", (one,)] == 110
    assert found["sinkpipeline_sink_dead_lettered_total", (one,)] == 2
    assert found["sinkpipeline_sink_dropped_total", (one,)] == 1
    assert found["sinkpipeline_sink_lost_total", (one,)] == 4
    too_large, unknown = (("class", "RecordTooLarge"), one, ("stage", "write")), (("class", "FromTheFuture"), one)
    assert found["sinkpipeline_dead_letters_total", too_large] == 2
    assert found["sinkpipeline_dropped_records_total", too_large] == 1
    assert found["sinkpipeline_dropped_records_total", (*unknown, ("stage", "unknown"))] == 7
    none_yet = (("class", "WrongType"), one, ("stage", "decode"))
    assert found["sinkpipeline_dead_letters_total", none_yet] == 0, "so that the first one is an increase"
    assert not [labels for name, labels in found if name == "sinkpipeline_dead_letters_total" and two in labels]
    assert found["sinkpipeline_sink_lag_offsets", (one,)] == 9
    assert found["sinkpipeline_sink_lag_seconds", (one,)] == 12.5
    assert found["sinkpipeline_sink_held_back_offsets", (one,)] == 5
    assert found["sinkpipeline_sink_batches_total", (one,)] == 3
    assert found["sinkpipeline_sink_batch_duration_seconds_count", (one,)] == 3
    assert found["sinkpipeline_sink_batch_duration_seconds_sum", (one,)] == 47
    assert found["sinkpipeline_sink_batch_duration_seconds_bucket", (("le", "2.5"), one)] == 2
    assert found["sinkpipeline_sink_batch_duration_seconds_bucket", (("le", "60.0"), one)] == 3
    assert found["sinkpipeline_sink_takeover_duration_seconds_count", (one,)] == 1
    assert found["sinkpipeline_sink_takeover_duration_seconds_sum", (one,)] == 0.25
    kind = ("kind", "postgresql")
    assert found["sinkpipeline_sink_commit_duration_seconds_count", (kind, one)] == 3
    assert found["sinkpipeline_sink_commit_duration_seconds_sum", (kind, one)] == 0.72
    assert found["sinkpipeline_sink_commit_duration_seconds_bucket", (kind, ("le", "0.25"), one)] == 2
    assert found["sinkpipeline_sink_commit_rows_sum", (kind, one)] == 5107
    assert found["sinkpipeline_sink_commit_rows_bucket", (kind, ("le", "100.0"), one)] == 2
    assert found["sinkpipeline_sink_commits_in_doubt_total", (kind, one)] == 1
    assert found["sinkpipeline_sink_retries_total", (kind, ("reason", "SinkUnreachable"), one)] == 1
    assert found["sinkpipeline_sink_retries_total", (("kind", "kafka"), ("reason", "Fenced"), two)] == 0
    assert found["sinkpipeline_sink_commits_total", (kind, one)] == 6, "one for the batch that the driver delivered"
    assert found["sinkpipeline_sink_in_doubt_tasks_total", (one,)] == 1
    assert found["sinkpipeline_sink_in_doubt_tasks_total", (two,)] == 0
    assert found["sinkpipeline_sink_failures_total", (("reason", "BrokerUnreachable"), two)] == 2
    assert found["sinkpipeline_sink_failures_total", (("reason", "BatchFailed"), two)] == 1
    assert found["sinkpipeline_sink_state", (one, ("state", "Running"))] == 1
    assert found["sinkpipeline_sink_state", (two, ("state", "Running"))] == 0
    assert found["sinkpipeline_sink_state", (two, ("state", "Retrying"))] == 1
    assert found["sinkpipeline_driver_heartbeat_timestamp_seconds", ()] == NOW_MS / 1000
    info = (("config_hash", "8f14e45f"), ("identity", "shop.orders"), ("run", "run-1"))
    assert found["sinkpipeline_driver_info", info] == 1
    assert ("sinkpipeline_sink_lag_offsets", (two,)) not in found, "an unknown lag is none"
    assert ("sinkpipeline_sink_held_back_offsets", (two,)) not in found
    assert ("sinkpipeline_sink_rows_delivered_total", (two,)) not in found, "what is unknown is not 0"


def test_a_large_status_loses_frontiers_the_largest_first() -> None:
    def large(name: str, partitions: int) -> dict[str, Any]:
        frontier = [{"topic": "t", "topicId": "id", "next": [10**9 + n for n in range(partitions)]}]
        return sink(name, rowsDelivered=5, frontier=frontier)

    found = served(large("small", 100), large("huge", 30_000), large("medium", 5_000))
    assert found["truncated"] == ["huge"]
    assert ["frontier" in each for each in found["sinks"]] == [True, False, True]
    assert [each["rowsDelivered"] for each in found["sinks"]] == [5, 5, 5]
    assert "truncated" not in served(large("small", 100), large("medium", 5_000))


def test_texts_cannot_make_a_status_too_large() -> None:
    error = {"reason": "KafkaError", "message": "x" * 300_000, "remedy": "y" * 300_000}
    found = served(*(sink(str(number), error=error) for number in range(32)))
    assert found["sinks"][0]["error"]["message"] == "x" * 512


def served(*sinks: dict[str, Any]) -> Any:
    body = status_body(document(*sinks), DRIVER, NOW_MS)
    assert len(body) <= LIMIT_BYTES
    return json.loads(body)


def test_a_large_request_is_refused(driver: Asker) -> None:
    assert driver.ask("/status", headers={"X-Large": "x" * 9000})[0] == 431
    assert driver.ask("/status", method="POST", headers={"Content-Length": "1000000"})[0] == 413
    assert driver.ask("/status")[0] == 200


@pytest.mark.parametrize("dripping", [False, True])
def test_an_unfinished_request_is_cut_off(dripping: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(service_module._SETTINGS, "channel_timeout", 1)
    asker = Asker(tmp_path)
    try:
        with socket.create_connection(("127.0.0.1", asker.service.port), timeout=10) as slow:
            slow.setblocking(False)
            slow.send(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
            began = time.monotonic()
            wait_until(lambda: is_closed(slow, dripping), "the connection is closed", deadline_s=8)
            assert time.monotonic() - began > 0.5
        assert asker.ask("/healthz")[0] == 200
    finally:
        asker.service.close()


def is_closed(connection: socket.socket, dripping: bool) -> bool:
    try:
        if dripping:
            connection.send(b"x")
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except (ConnectionResetError, BrokenPipeError):
        return True


def test_metrics_may_be_open_and_nothing_else_is(tmp_path: Path) -> None:
    asker = Asker(tmp_path, open_metrics=True)
    asker.say(sink())
    try:
        assert asker.ask("/metrics", token=None)[0] == 200
        assert asker.ask("/status", token=None)[0] == 401
        assert asker.ask("/metrics/", token=None)[0] == 401
    finally:
        asker.service.close()


def test_many_idle_connections_do_not_silence_it(driver: Asker) -> None:
    idle = [socket.create_connection(("127.0.0.1", driver.service.port), timeout=10) for _ in range(20)]
    try:
        assert driver.ask("/status")[0] == 200
    finally:
        for connection in idle:
            connection.close()


def test_a_port_in_use_is_told_at_once(driver: Asker) -> None:
    with pytest.raises(OSError, match="in use"):
        Service(driver.vitals, "127.0.0.1", driver.service.port, driver.token_file)


def test_a_closed_service_listens_no_more(tmp_path: Path) -> None:
    asker = Asker(tmp_path)
    asker.ask("/status")
    asker.service.close()
    with pytest.raises(ConnectionRefusedError):
        asker.ask("/status")
    with Service(asker.vitals, "127.0.0.1", asker.service.port, asker.token_file):
        pass
