"""The tables as they were at one moment, then the stream: nothing twice, nothing lost, whatever ends the stage."""

from __future__ import annotations

import json
import random
from typing import Any

import pymysql
import pytest

from sinkpipeline.changes.binlog import copying
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from support.changes.binlog import BOTH, ORDERS, BinlogLab
from support.changes.binlog_load import SMALL, Load, claimed, insert, troubled
from support.changes.lab import Killed, Life
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

SNAPSHOT: dict[str, Any] = {"snapshot": True}


@BOTH
def test_the_tables_and_what_comes_behind_them(lab: BinlogLab) -> None:
    lab.tables = ("orders", "bare")
    lab.sql(ORDERS, "CREATE TABLE bare (id int, note varchar(20))")
    insert(lab, 0, 1_200)
    lab.sql("INSERT INTO bare VALUES (1, 'a'), (1, 'a'), (2, NULL)", "DELETE FROM orders WHERE id > 1195")
    stage = lab.start(database=SNAPSHOT, cuts=SMALL)
    stage.wait_for("claimed")
    lab.sql(
        "UPDATE orders SET note = 'u' WHERE id < 10",
        "DELETE FROM bare LIMIT 1",
        "UPDATE orders SET id = -5 WHERE id = 5",
    )
    insert(lab, 5_000, 20)
    lab.caught_up()
    assert stage.end() == 0
    assert lab.check_copy("orders", "bare") >= 31
    told = [each["snapshot"] for each in stage.receipts if each.get("snapshot")]
    assert told[-1]["tables"] == 2
    assert max(each["rows"] for each in told if "rows" in each) == 1_198
    assert {each.record.document["op"] for each in lab.found()} == {"r", "u", "d", "c"}


@pytest.mark.parametrize(
    "point",
    [
        "snapshot-before-complete",
        "stage-after-meta",
        "stage-after-creation",
        "snapshot-after-epoch",
        "snapshot-after-opening",
        "after-commit",
        "snapshot-after-complete",
    ],
)
@pytest.mark.parametrize("writes", [True, pytest.param(False, marks=pytest.mark.thorough("nothing moves the log"))])
@pytest.mark.thorough("a stage that is killed is in make test, and a snapshot of PostgreSQL that is")
def test_one_that_is_killed_begins_anew(lab: BinlogLab, point: str, writes: bool) -> None:
    lab.sql(ORDERS)
    insert(lab, 0, 700)
    for number in range(2):
        stage = lab.start(point, database=SNAPSHOT, cuts=SMALL)
        stage.wait_at(point)
        if writes:
            lab.sql(
                f"DELETE FROM orders WHERE id = {number + 1}", f"UPDATE orders SET note = 'x' WHERE id = {number + 5}"
            )
        stage.kill()
        if stage.of("claimed") and point == "snapshot-after-complete":
            break
    lab.live(database=SNAPSHOT)
    insert(lab, 5_000, 10)
    lab.live(database=SNAPSHOT)
    assert lab.check_copy("orders") >= 10
    start = lab.stream_start()
    taken_back = [each for each in lab.found() if each.told.op == "d" and each.place[0] < start]
    assert bool(taken_back) == (point in ("snapshot-before-complete", "after-commit"))


@pytest.mark.thorough("a snapshot is in make test")
def test_a_table_that_is_altered_meanwhile(lab: BinlogLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rewrite has left can't be read by a snapshot: the server says so, and it begins anew."""
    lab.sql(ORDERS)
    insert(lab, 0, 100)
    opened = copying.Exported.open

    def altered(self: copying.Exported) -> None:
        # A snapshot has the tables from its beginning on; here somebody has ended it.
        self._wire.rows("COMMIT")
        self._wire.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        lab.sql("ALTER TABLE orders ADD more int, ALGORITHM = COPY")
        opened(self)

    with monkeypatch.context() as patch:
        patch.setattr(copying.Exported, "open", altered)
        refusal = lab.refusal(database=SNAPSHOT)
    assert refusal.reason is Reason.SOURCE_UNREACHABLE
    assert "is altered" in str(refusal)
    lab.live(database=SNAPSHOT)
    rows = [each.record.document["after"] for each in lab.found()]
    assert len(rows) == 100
    assert rows[0]["more"] is None


def test_a_table_that_takes_the_name_of_one(lab: BinlogLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that alter a large table by a copy do: what it got before that is logged by its former name."""
    lab.sql(ORDERS, "CREATE TABLE copy LIKE orders")
    lab.sql("INSERT INTO orders VALUES (1, 'a'), (2, 'b')", "INSERT INTO copy VALUES (1, 'a')")
    opened = copying.Exported.open

    def renamed(self: copying.Exported) -> None:
        with lab.connected() as session, session.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1")
            cursor.execute("INSERT INTO copy VALUES (2, 'b')")
            with pytest.raises(pymysql.Error, match="Lock wait timeout"):
                cursor.execute("RENAME TABLE orders TO former, copy TO orders")
        opened(self)

    monkeypatch.setattr(copying.Exported, "open", renamed)
    lab.live(database=SNAPSHOT)
    assert lab.check_copy("orders") == 0
    assert len(lab.found()) == 2


@pytest.mark.thorough("the table that is altered is in make test")
def test_a_table_that_is_emptied_while_it_is_read(lab: BinlogLab) -> None:
    """Who empties it waits until it was read."""
    lab.sql(ORDERS)
    insert(lab, 0, 1_000)
    stage = lab.start("after-commit", database=SNAPSHOT, cuts=SMALL)
    stage.wait_at("after-commit")
    with lab.connected() as session, session.cursor() as cursor:
        cursor.execute("SET lock_wait_timeout = 1")
        with pytest.raises(Exception, match="Lock wait timeout"):
            cursor.execute("TRUNCATE orders")
    stage.release("after-commit")
    wait_until(
        lambda: any(each.get("snapshot") is None and each["rows"] for each in stage.of("committed")), "all is read"
    )
    lab.sql("TRUNCATE orders")
    lab.caught_up()
    assert stage.end() == 0
    assert lab.check_copy("orders") == 1


@pytest.mark.thorough("each point where it can be killed is in test_one_that_is_killed_begins_anew")
@pytest.mark.parametrize("rounds", [12])
def test_a_snapshot_under_a_load_with_kills(own: BinlogLab, rounds: int) -> None:
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS)
    insert(lab, 0, 20_000)
    chance = random.Random(rounds)
    with Load(lab, rows=3_000 * rounds, seed=rounds, pause_s=0.02) as load:
        stage = lab.start(database=SNAPSHOT, cuts=SMALL)
        stage = troubled(lab, chance, stage, rounds, database=SNAPSHOT)
        load.join()
    stage = claimed(lab, stage, database=SNAPSHOT)
    wait_until(lambda: not stage.receipts[-1].get("snapshot"), "the tables are read", 120)
    insert(lab, 5_000_000, 200)
    lab.caught_up()
    assert stage.end() == 0
    assert lab.check_copy("orders") >= 200
    lab.end_stages()


@pytest.mark.thorough("another end of a life")
def test_a_life_that_is_told_to_end_meanwhile(lab: BinlogLab) -> None:
    lab.sql(ORDERS)
    insert(lab, 0, 500)

    def at(event: dict[str, Any]) -> None:
        if event["event"] == "committed":
            raise Killed

    lab.live(Life(at), database=SNAPSHOT, cuts=CutPolicy(rows=100, bytes=1 << 20, seconds=60))
    assert json.loads(lab.found()[0].record.value or b"")["op"] == "r"
    lab.live(database=SNAPSHOT)
    assert lab.check_copy("orders") == 0
