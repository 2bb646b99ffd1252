"""A stage that is killed, frozen, or has a rival, and a server that is: the topic has each change once, in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from servers.sql_proxy import SqlProxy
from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from sinkpipeline.postgresql.settings import Connection as Database
from support.changes.lab import CUT_AT_ONE, LOGICAL, Killed, Lab, Life, StageProcess
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
SMALL = CutPolicy(rows=40, bytes=1 << 20, seconds=0.2)


def copy(lab: Lab, first: int, count: int) -> None:
    """One COPY, whose rows have one LSN where they fit into one page."""
    with lab.connected() as session, session.cursor() as cursor, cursor.copy("COPY orders FROM STDIN") as rows:
        rows.write("".join(f"{first + row}\tcopied\n" for row in range(count)))


@pytest.fixture
def prepared(lab: Lab) -> Lab:
    """With a table, both slots, and a first start behind it."""
    lab.sql(TABLE)
    lab.watch()
    lab.live()
    return lab


@pytest.mark.parametrize(
    "point",
    [
        "after-commit",
        pytest.param("after-progress-before-commit", marks=pytest.mark.thorough("another point of the same commit")),
        pytest.param("after-rows-before-progress", marks=pytest.mark.thorough("another point of the same commit")),
        pytest.param("stage-after-claim", marks=pytest.mark.thorough("another point of a start")),
        pytest.param("stage-after-meta", marks=pytest.mark.thorough("another point of a start")),
        pytest.param("stage-after-slot", marks=pytest.mark.thorough("another point of a start")),
    ],
)
def test_killed_at_a_point(prepared: Lab, point: str) -> None:
    copy(prepared, 0, 100)
    for _ in range(2):
        stage = prepared.start(point, cuts=SMALL)
        stage.wait_at(point)
        stage.kill()
    prepared.live(cuts=SMALL)
    assert prepared.check() == 100


@pytest.mark.thorough("points of a first start, at each of which the next one goes on")
@pytest.mark.parametrize("point", ["stage-after-claim", "stage-after-meta", "stage-after-creation", "stage-after-slot"])
def test_a_first_start_that_is_killed(lab: Lab, point: str) -> None:
    lab.sql(TABLE)
    stage = lab.start(point)
    stage.wait_at(point)
    stage.kill()
    lab.live()
    lab.watch()
    copy(lab, 0, 10)
    lab.live()
    assert lab.check() == 10


class _Cut:
    """Ends a life in this process at the nth commit: before the server is told of it, or after."""

    def __init__(self, commits: int, *, told: bool) -> None:
        self._left = commits
        self._told = told

    def __call__(self, event: dict[str, Any]) -> None:
        if self._told and event["event"] == "committed":
            self.count()

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Killed


@pytest.mark.parametrize(
    "index",
    [
        1,
        *(pytest.param(each, marks=pytest.mark.thorough("another index of the same COPY")) for each in range(2, 50)),
    ],
)
@pytest.mark.long("each index of the same COPY", after=6)
def test_a_copy_is_cut_at_each_index(prepared: Lab, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    copy(prepared, 0, 50)
    cut = _Cut(1, told=index % 2 == 0)
    with monkeypatch.context() as patch:
        confirm = Reader.confirm

        def untold(reader: Reader, upto: int) -> None:
            # The first one is of the start.
            if index % 2 and any(each["event"] == "state" for each in life.told):
                cut.count()
            confirm(reader, upto)

        life = Life(cut)
        patch.setattr(Reader, "confirm", untold)
        prepared.live(life, cuts=replace(CUT_AT_ONE, rows=index))
    assert prepared.progress()[1] == index, "it was cut inside the COPY"
    assert len(prepared.found()) == index
    second = prepared.live()
    assert prepared.check() == 50
    assert max(each["skipped"] for each in second.told if "skipped" in each) == index


@pytest.mark.thorough("a rival beside a reader that is not frozen")
def test_a_rival_takes_over(prepared: Lab) -> None:
    first = prepared.start(cuts=SMALL)
    first.wait_for("claimed")
    copy(prepared, 0, 60)
    second = prepared.start(cuts=SMALL)
    second.wait_for("claimed")
    copy(prepared, 1000, 60)
    # Its reader was ended; its driver begins another life of it, which finds whose the stage is now.
    assert first.wait() in (1, 4)
    told = prepared.refusal(run=_run_of(first), takes_over=False)
    assert told.reason is Reason.SUPERSEDED
    prepared.caught_up()
    assert second.end() == 0
    assert prepared.check() == 120


def _run_of(stage: StageProcess) -> str:
    return str(stage.of("claimed")[0]["run"])


@pytest.mark.thorough("tests/kafka/test_zombies has a frozen task, fenced in the same way")
def test_a_frozen_reader_wakes_up_and_does_nothing(prepared: Lab) -> None:
    frozen = prepared.start("after-rows-before-progress", cuts=SMALL)
    frozen.wait_for("claimed")
    copy(prepared, 0, 60)
    frozen.wait_at("after-rows-before-progress")
    frozen.signal(signal.SIGSTOP)
    second = prepared.start(cuts=SMALL)
    second.wait_for("claimed")
    prepared.caught_up()
    copy(prepared, 1000, 60)
    frozen.release("after-rows-before-progress")
    frozen.signal(signal.SIGCONT)
    assert frozen.wait() == 4
    assert frozen.error["reason"] == "Superseded"
    prepared.caught_up()
    assert second.end() == 0
    assert prepared.check() == 120


@pytest.fixture
def own(kafka: LocalKafka, tmp_path: Any) -> Iterator[Lab]:
    """On a server of its own, which may be killed."""
    with LocalPostgresql(settings=LOGICAL) as server:
        lab = Lab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(TABLE)
        lab.watch()
        lab.live()
        yield lab
        lab.close()


@pytest.mark.thorough("a server that is killed: the slot goes back, and the position is the topic's")
def test_a_postmaster_that_is_killed(own: Lab) -> None:
    for kill in range(3):
        stage = own.start(cuts=SMALL)
        copy(own, 1000 * kill, 200)
        wait_until(lambda stage=stage: len(stage.of("committed")) >= 2, "it has committed something")
        own.server.kill()
        assert stage.wait() == 1
        assert stage.error["reason"] == "SourceUnreachable"
        own.server.start()
    own.live()
    assert own.check() == 600


@pytest.mark.thorough("a connection that is cut: as one that is ended by a rival")
def test_a_connection_that_is_cut(prepared: Lab) -> None:
    with SqlProxy(prepared.server.port) as proxy:
        there = Database(servers=proxy.address, database=prepared.name, user="postgres")
        for cut in range(3):
            stage = prepared.start(cuts=SMALL, database={"connection": there})
            stage.wait_for("claimed")
            copy(prepared, 1000 * cut, 200)
            wait_until(lambda stage=stage: len(stage.of("committed")) >= 2, "it has committed something")
            proxy.cut()
            assert stage.wait() == 1
            assert stage.error["reason"] == "SourceUnreachable"
    prepared.live()
    assert prepared.check() == 600


@pytest.mark.thorough("a server that says nothing: noticed after seconds, and waited for")
def test_a_server_that_is_frozen(own: Lab) -> None:
    stage = own.start(cuts=SMALL)
    stage.wait_for("claimed")
    own.server.pause()
    try:
        assert stage.wait() == 1
        assert stage.error["reason"] == "SourceUnreachable"
    finally:
        own.server.resume()
    copy(own, 0, 10)
    own.live()
    assert own.check() == 10
