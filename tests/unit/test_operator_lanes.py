"""That nobody's work takes all threads: of clusters that are silent, and of drivers."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from servers.waiting import crowding
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.lanes import Lanes
from sinkpipeline_operator.observe.driver_client import NO_NEWS, Answer
from sinkpipeline_operator.observe.kafka_clients import KafkaClients
from sinkpipeline_operator.observe.kafka_view import Question
from sinkpipeline_operator.observe.secret_files import SecretFiles
from sinkpipeline_operator.observe.switchboard import Line, Switchboard
from support.resource.manifests import KAFKA as KAFKA_SOURCE
from support.resource.manifests import TOKENS, changed, smallest, tokens
from support.waiting import wait_until

THREADS = 4


class Work:
    """Pieces that last until they are let go."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.over = threading.Event()
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: list[str] = []
        self._lock = threading.Lock()

    def submit(self, lane: str, *, lasts: bool = True) -> None:
        def work() -> None:
            with self._lock:
                self.under_way[lane] += 1
                self.most[lane] = max(self.most[lane], self.under_way[lane])
            if lasts:
                assert self.over.wait(10)
            with self._lock:
                self.under_way[lane] -= 1
                self.done.append(lane)

        self.lanes.submit(lane, work)


@pytest.fixture
def make() -> Iterator[Callable[..., Work]]:
    made: list[Work] = []

    def make(**options: Any) -> Work:
        made.append(Work(Lanes("test", threads=THREADS, each=2, **options)))
        return made[-1]

    yield make
    for each in made:
        each.over.set()
        each.lanes.close()


def test_one_lane_does_not_take_all_threads(make: Callable[..., Work]) -> None:
    work = make()
    for _ in range(20):
        work.submit("silent")
    wait_until(lambda: work.under_way["silent"] == 2, "two of them are under way")
    work.submit("healthy", lasts=False)
    wait_until(lambda: work.done == ["healthy"], "the other lane gets on")
    work.over.set()
    wait_until(lambda: len(work.done) == 21, "all is done in the end")
    assert work.most["silent"] == 2


def test_many_silent_lanes_do_not_take_all_threads(make: Callable[..., Work]) -> None:
    clock = SimpleNamespace(now=0.0)
    work = make(slow_s=1.0, clock=lambda: clock.now)
    for number in range(2):
        work.submit(f"silent-{number}")
        work.submit(f"silent-{number}")
    wait_until(lambda: sum(work.under_way.values()) == THREADS, "nobody knows yet")
    clock.now = 5.0
    work.over.set()
    wait_until(lambda: len(work.done) == THREADS, "they were slow")
    work.over.clear()
    for number in range(2):
        work.submit(f"silent-{number}")
        work.submit(f"silent-{number}")
    wait_until(lambda: sum(work.under_way.values()) == THREADS // 2, "half of the threads are theirs")
    work.submit("healthy", lasts=False)
    wait_until(lambda: "healthy" in work.done, "it has the others")


def test_work_that_raises_ends_no_lane(make: Callable[..., Work]) -> None:
    work = make()

    def breaks() -> None:
        raise RuntimeError

    for _ in range(THREADS):
        work.lanes.submit("a", breaks)
    work.submit("a", lasts=False)
    wait_until(lambda: work.done == ["a"], "the next is done")


def test_a_token_endpoint_that_hangs_holds_up_no_other_pipeline_of_the_same_brokers() -> None:
    def lane(endpoint: str) -> object:
        sasl = tokens(oauthbearer={**TOKENS, "tokenEndpointUrl": endpoint})
        pipeline = parse_manifest(changed(smallest(), ((*KAFKA_SOURCE, "auth"), {"sasl": sasl})))
        question = Question(
            ref=Ref("shop", "orders"), pipeline=pipeline, config_hash="", status={}, secrets={}, cluster=""
        )
        return question.lane

    assert lane("https://hangs/token") != lane("https://idp/token")
    assert lane("https://idp/token") == lane("https://idp/token")


# --- clusters ---


KAFKA = Connection(bootstrap_servers="kafka:9092")
NOWHERE = Connection(bootstrap_servers="127.0.0.1:1")
NO_ANSWER = SinkPipelineError(Reason.BROKER_UNREACHABLE, "no answer", "wait")


class Cluster:
    """How one answers, and how often it was asked."""

    def __init__(self) -> None:
        self.error: SinkPipelineError | None = NO_ANSWER
        self.clients = self.asked = 0
        self.now = 0.0
        self.ours = KafkaClients(self._make, clock=lambda: self.now)

    def _make(self, _: Connection) -> Admin:
        self.clients += 1
        return cast(Admin, SimpleNamespace(connection=NOWHERE, cluster=self._cluster))

    def _cluster(self, _: float, *, why: object) -> int:  # noqa: ARG002 - it does not answer, or refuses
        self.asked += 1
        if self.error is not None:
            raise self.error
        return 1

    def answers(self) -> bool:
        try:
            self.ours.check(KAFKA)
        except SinkPipelineError:
            return False
        return True


def test_a_silent_cluster_is_asked_once_for_all_and_less_and_less_often() -> None:
    cluster = Cluster()
    assert not any(cluster.answers() for _ in range(300))
    assert cluster.asked == 1
    for second in range(1, 121):
        cluster.now = float(second)
        assert not any(cluster.answers() for _ in range(5))
    assert 4 <= cluster.asked <= 8
    cluster.error, cluster.now = None, 200.0
    assert cluster.answers()
    assert cluster.answers()


def test_a_refused_log_in_opens_no_circuit() -> None:
    cluster = Cluster()
    cluster.error = SinkPipelineError(Reason.AUTHENTICATION_FAILED, "no", "log in")
    assert not any(cluster.answers() for _ in range(3))
    cluster.error = None
    assert cluster.answers()


def test_clients_are_shared_bounded_and_go() -> None:
    cluster = Cluster()
    cluster.error = None
    assert all(cluster.answers() for _ in range(10))
    assert cluster.clients == 1
    for number in range(100):
        cluster.ours.admin(Connection(bootstrap_servers=f"{number}:9092"))
    assert len(cluster.ours._admins) <= 32
    cluster.now = 1000.0
    cluster.ours.admin(KAFKA)
    assert len(cluster.ours._admins) == 1


# --- files of Secrets ---


def test_secrets_that_nobody_has_any_more_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = SecretFiles()
    assert list(tmp_path.iterdir()) == [], "who needs no Secret leaves nothing, however it ends"
    first, second = Ref("shop", "a"), Ref("shop", "b")
    old, new = {"s": {"k": "b2xk"}}, {"s": {"k": "bmV3"}}
    try:
        with files.written(first, old) as there, files.written(second, old) as shared:
            assert there == shared
            assert (there / "s" / "k").read_bytes() == b"old"
        assert there.exists(), "the next look finds it, and so its client"
        with files.written(first, new):
            assert there.exists(), "the other one has it"
        with files.written(second, old), files.written(second, new):
            assert there.exists(), "it is used"
        assert not there.exists()
        for each in (first, second):
            files.forget(each)
        assert list(there.parent.iterdir()) == []
    finally:
        files.close()
    assert list(tmp_path.iterdir()) == []


# --- drivers ---


GOOD = Answer(document={"sinks": []})
SILENT = Answer(trouble="timed out")


class Driver:
    """Answers, or keeps everybody waiting until it is let go."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.silent: set[str] = set()
        self.over = threading.Event()

    def ask(self, line: Line) -> Answer:
        self.asked[line.ip] += 1
        if line.ip in self.silent:
            self.over.wait(0.4)
            return SILENT
        return GOOD


def line(ip: str) -> Line:
    return Line(ip=ip, token="t", identity="i", config_hash="h")


def test_a_driver_that_answers_is_heard_at_once_and_a_silence_is_told_once() -> None:
    driver, ref = Driver(), Ref("shop", "a")
    with Switchboard(driver.ask, patience_s=0.05) as board:
        assert [board.ask(ref, line("1")) for _ in range(3)] == [GOOD] * 3
        driver.silent.add("1")
        told = [board.ask(ref, line("1"))]
        wait_until(lambda: told.append(board.ask(ref, line("1"))) or told[-1] is SILENT, "it is told that it is silent")
        assert set(told[:-1]) == {NO_NEWS}
        assert board.ask(ref, line("1")) is NO_NEWS, "it is not asked again at once"
        assert driver.asked["1"] == 4
        assert board.ask(ref, line("2")) is GOOD, "the next driver is another one"


def test_many_silent_drivers_hold_up_no_look() -> None:
    driver = Driver()
    driver.silent = {f"silent-{number}" for number in range(200)}
    with Switchboard(driver.ask, patience_s=0.01) as board, ThreadPoolExecutor(8) as looks:
        for _ in range(3):
            began = time.monotonic()
            list(looks.map(lambda ip: board.ask(Ref("shop", ip), line(ip)), sorted(driver.silent)))
            assert time.monotonic() - began < 4 * crowding(), (
                "200 silences one after the other, by eight, are ten seconds"
            )
        wait_until(lambda: board.ask(Ref("shop", "a"), line("a")) is GOOD, "one that answers is heard")


def test_one_that_refuses_at_once_is_asked_at_each_look() -> None:
    driver = Driver()
    with Switchboard(lambda _: SILENT) as board:
        assert [board.ask(Ref("shop", "a"), line("1")) for _ in range(5)] == [SILENT] * 5
    assert driver.asked.total() == 0
