"""A stage that is killed, frozen, or has a rival, and a server that is: the topic has each change once, in order."""

from __future__ import annotations

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from servers.sql_proxy import SqlProxy
from sinkpipeline.changes.binlog import stream
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.errors import Reason
from support.changes.binlog import BOTH, ORDERS, BinlogLab
from support.changes.binlog_load import INSERT, SMALL, Load, claimed, insert, troubled
from support.changes.lab import CUT_AT_ONE, Killed, Life
from support.waiting import result_of, wait_until

pytestmark = pytest.mark.kafka


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
def test_killed_at_a_point(prepared: BinlogLab, point: str) -> None:
    insert(prepared, 0, 300, 190)
    for _ in range(2):
        stage = prepared.start(point, cuts=SMALL)
        stage.wait_at(point)
        stage.kill()
    prepared.live(cuts=SMALL)
    assert prepared.check() == 300


@pytest.mark.thorough("points of a first start, at each of which the next one goes on")
@pytest.mark.parametrize("point", ["stage-after-claim", "stage-after-meta", "stage-after-slot"])
def test_a_first_start_that_is_killed(lab: BinlogLab, point: str) -> None:
    lab.sql(ORDERS)
    stage = lab.start(point)
    stage.wait_at(point)
    stage.kill()
    lab.live()
    insert(lab, 0, 10)
    lab.live()
    assert lab.check() == 10


OF_MARIADB = pytest.mark.parametrize("kind", [pytest.param("mariadb", id="")], indirect=True)
"""MySQL cuts off what it has not written to its end."""


class _CutAt:
    """Ends a life in this process at its first commit behind the start."""

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "committed" and event["rows"]:
            raise Killed


CAN_WAIT = pytest.mark.thorough("another row of the same transaction")


@pytest.mark.parametrize(
    "index",
    [
        7,
        *(pytest.param(each, marks=CAN_WAIT) for each in (1, 50)),
        *(pytest.param(each, marks=(CAN_WAIT, CAN_WAIT)) for each in (37, 38, 99)),
    ],
)
@BOTH
def test_a_transaction_is_cut_at_any_row(prepared: BinlogLab, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A life that goes on there begins at the GTID event: behind it, nobody says what the rows are of."""
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    prepared.sql("CREATE TABLE others (id int PRIMARY KEY, note varchar(200))")
    with prepared.connected(autocommit=False) as session, session.cursor() as cursor:
        for first in (0, 1000):
            cursor.execute(INSERT.format(first=first, count=50, size=190))
            cursor.execute(INSERT.format(first=first, count=60, size=190).replace("orders", "others"))
        session.commit()
    prepared.live(Life(_CutAt()), cuts=replace(CUT_AT_ONE, rows=index))
    assert prepared.progress()[1] > 0, "it was cut inside the transaction"
    assert len(prepared.found()) == index
    second = prepared.live()
    assert prepared.check() == 100
    assert max(each["skipped"] for each in second.told if "skipped" in each) == index


@pytest.mark.thorough("another use of the same numbers")
def test_tables_that_are_added_move_no_position(prepared: BinlogLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in a transaction has its number, whoever reads it."""
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    prepared.sql("CREATE TABLE bare (id bigint, note varchar(200))")
    with prepared.connected(autocommit=False) as session, session.cursor() as cursor:
        for first in (0, 1000):
            cursor.execute(INSERT.format(first=first, count=20, size=190).replace("orders", "bare"))
            cursor.execute(INSERT.format(first=first, count=20, size=190))
        session.commit()
    prepared.live(Life(_CutAt()), cuts=replace(CUT_AT_ONE, rows=30))
    prepared.tables = ("orders", "bare")
    prepared.live()
    orders = [each.told for each in prepared.found() if each.told.table.endswith(".orders")]
    assert [dict(each.row)["id"] for each in orders] == [*range(1, 21), *range(1001, 1021)]


@pytest.mark.thorough("tests/changes/test_kills has it: the same code")
def test_a_rival_takes_over(prepared: BinlogLab) -> None:
    first = prepared.start(cuts=SMALL)
    first.wait_for("claimed")
    insert(prepared, 0, 60)
    second = prepared.start(cuts=SMALL)
    second.wait_for("claimed")
    insert(prepared, 1000, 60)
    assert first.wait() in (1, 4)
    prepared.caught_up()
    assert second.end() == 0
    assert prepared.check() == 120


@pytest.mark.thorough("a rival beside a reader that is frozen; the load with kills in test-all has it too")
def test_a_frozen_stage_wakes_up(prepared: BinlogLab) -> None:
    first = prepared.start("after-rows-before-progress", cuts=SMALL)
    insert(prepared, 0, 60)
    first.wait_at("after-rows-before-progress")
    first.signal(signal.SIGSTOP)
    second = prepared.start(cuts=SMALL)
    second.wait_for("claimed")
    insert(prepared, 1000, 60)
    prepared.caught_up()
    first.signal(signal.SIGCONT)
    first.release("after-rows-before-progress")
    assert first.wait() in (1, 4)
    assert second.end() == 0
    assert prepared.check() == 120


@pytest.mark.parametrize(
    ("rounds", "rows"),
    [(4, 6_000), pytest.param(16, 60_000, marks=pytest.mark.thorough("more of the same, with more changes"))],
)
@pytest.mark.thorough("a kill at a point is in make test")
def test_a_load_with_kills_of_the_stage_and_the_server(own: BinlogLab, rounds: int, rows: int) -> None:
    with Load(own, rows=rows, seed=rounds, pause_s=0.02) as load:
        stage = troubled(own, random.Random(rounds), own.start(cuts=SMALL), rounds)
        load.join()
        assert not load.is_running
    stage = claimed(own, stage)
    own.caught_up()
    assert stage.end() == 0
    assert own.check() > rows // 3


@OF_MARIADB
@pytest.mark.thorough("a file that is cut off is in make test")
def test_a_server_that_is_killed_as_it_writes_a_transaction(own: BinlogLab) -> None:
    """It rolls that back, also where its log has half of it."""
    insert(own, 0, 10)
    own.live()
    insert(own, 20, 10)
    written, rows = own.server.written(), "SELECT seq, REPEAT('x', 190) FROM seq_1001_to_300000"
    with ThreadPoolExecutor(1) as pool:
        inserted = pool.submit(own.sql, f"INSERT INTO orders {rows}")
        wait_until(lambda: written.stat().st_size > 2 << 20, "it is being written", poll_s=0)
        own.server.kill()
        with pytest.raises(pymysql.Error):
            result_of(inserted)
    own.server.start()
    assert own.sql("SELECT count(*) FROM orders") == [(20,)]
    insert(own, 40, 10)
    own.live(cuts=SMALL)
    assert [dict(each.told.row)["id"] for each in own.found()] == [*range(1, 11), *range(21, 31), *range(41, 51)]
    insert(own, 60, 10)
    own.live()
    own.check_tables("orders")


@OF_MARIADB
@pytest.mark.parametrize(
    "kept",
    [
        -31,
        *(pytest.param(each, marks=pytest.mark.thorough("another place of the same file")) for each in (-30, 10, 42)),
    ],
)
def test_a_file_that_ends_in_a_transaction(own: BinlogLab, kept: int) -> None:
    """Behind any byte of it. Its first event has 42 bytes, and its last one has 31."""
    insert(own, 0, 10)
    file, begin = own.server.end()
    insert(own, 20, 1)
    assert own.server.end()[0] == file
    own.live(Life(_CutAt()), cuts=CUT_AT_ONE)
    written = own.server.written()
    own.server.kill()
    os.truncate(written, kept + (begin if kept > 0 else written.stat().st_size))
    own.server.start()
    insert(own, 40, 10)
    for cuts in (CUT_AT_ONE, SMALL):
        own.live(cuts=cuts)
    assert [dict(each.told.row)["id"] for each in own.found()] == [*range(1, 11), *range(41, 51)]


@pytest.mark.thorough("what a network does")
def test_a_connection_that_is_cut_and_one_that_says_nothing(own: BinlogLab) -> None:
    with SqlProxy(own.server.port) as proxy:
        through = {"connection": BinlogConnection(server=proxy.address, user="root")}
        stage = own.start(cuts=SMALL, database=through)
        stage.wait_for("claimed")
        insert(own, 0, 100)
        wait_until(own.found, "it writes")
        proxy.cut()
        assert stage.wait() == 1
        assert stage.error["reason"] == Reason.SOURCE_UNREACHABLE.value
    own.live()
    assert own.check() == 100
