"""A stage on real servers: what is in the topic is what the server itself decodes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sinkpipeline.changes import life as changes_life
from sinkpipeline.changes.settings import CUTS
from sinkpipeline.changes.stage import Stage
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.partitioner import partition_of_key
from support.changes.lab import CUT_AT_ONE, Lab, Life
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
    "CREATE TABLE lines (id int, part int, doc text, PRIMARY KEY (id, part))",
    "ALTER TABLE lines ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE wide (id int PRIMARY KEY, doc text)",
    "ALTER TABLE wide REPLICA IDENTITY FULL, ALTER doc SET STORAGE EXTERNAL",
)


def some_of_everything(lab: Lab) -> None:
    """Transactions that run at once, savepoints, rollbacks, a COPY, large columns, keys that change, other columns."""
    with lab.connected(autocommit=False) as one, lab.connected(autocommit=False) as two:
        one.execute("INSERT INTO orders SELECT g, 'one' FROM generate_series(1, 5) AS g")
        two.execute("INSERT INTO orders SELECT g, 'two' FROM generate_series(100, 104) AS g")
        one.execute("SAVEPOINT s")
        one.execute("INSERT INTO orders VALUES (50, 'never')")
        one.execute("ROLLBACK TO s")
        one.execute("UPDATE orders SET note = 'o''ne' WHERE id = 2")
        two.execute("DELETE FROM orders WHERE id = 100")
        two.commit()
        one.execute("SAVEPOINT t")
        one.execute("INSERT INTO orders VALUES (60, NULL)")
        one.execute("RELEASE t")
        one.commit()
        one.execute("INSERT INTO orders VALUES (70, 'never')")
        one.rollback()
        with one.cursor() as cursor, cursor.copy("COPY orders FROM STDIN") as copy:
            copy.write("".join(f"{1000 + row}\tcopied\n" for row in range(50)))
        one.commit()
    lab.sql(
        "INSERT INTO lines VALUES (1, 1, repeat('x', 9000)), (1, 2, 'short')",
        "UPDATE lines SET part = 3 WHERE part = 1",
        "UPDATE lines SET doc = 'new' WHERE part = 2",
        "INSERT INTO wide VALUES (1, repeat('y', 9000))",
        "UPDATE wide SET id = 2",
        "DELETE FROM wide",
        "ALTER TABLE orders ADD more text DEFAULT 'd'",
        "UPDATE orders SET more = 'm' WHERE id = 1",
        "TRUNCATE orders, lines",
        "INSERT INTO orders VALUES (1, 'again', NULL)",
    )


def test_the_topic_has_what_the_server_decodes(lab: Lab) -> None:
    lab.sql(*TABLES)
    lab.watch()
    stage = lab.start(cuts=CutPolicy(rows=7, bytes=1 << 20, seconds=0.1))
    stage.wait_for("claimed")
    some_of_everything(lab)
    lab.caught_up()
    assert stage.end() == 0

    assert lab.check() == 76
    assert stage.receipts[-1]["event"] == "ended"
    committed = stage.of("committed")
    assert [each["next"] for each in committed] == sorted(each["next"] for each in committed)
    assert committed[-1]["rows"] == 76
    assert len(committed) > 10
    truncated = [each for each in lab.found() if each.told.op == "t"]
    assert {each.told.table for each in truncated} == {"public.orders", "public.lines"}
    for each in lab.found():
        assert each.record.partition == partition_of_key(each.record.key, 3), (
            "as any client finds the partition of a key"
        )
    full = [each.record.document for each in lab.found() if each.told.table == "public.wide"]
    assert [len((each["before"] or {"doc": ""})["doc"]) for each in full] == [0, 9000, 0, 9000]
    halves = [each.place for each in lab.found() if each.told.table == "public.wide"][1:3]
    assert [place[2] for place in halves] == [0, 1]
    assert halves[0][:2] == halves[1][:2]


def test_a_transaction_is_cut_where_it_has_enough_bytes(lab: Lab) -> None:
    """And a slot that holds more than `maxRetained` is told."""
    lab.sql(*TABLES)
    lab.watch()
    lab.live()
    lab.sql("INSERT INTO orders SELECT g, repeat('x', 100) FROM generate_series(1, 200) AS g")
    life = lab.live(cuts=CutPolicy(rows=1_000_000, bytes=10_000, seconds=20), database={"max_retained": 1})
    assert lab.check() == 200
    within = [each["position"][1] for each in life.told if each["event"] == "committed" and each["position"][1]]
    assert len(within) >= 5
    assert within[0] < 100, "each commit has some 10 kB"
    [first, *_] = [each for each in life.told if each["event"] == "state"]
    assert "limits.maxRetained" in first["atRisk"]


@pytest.mark.thorough("lives one after the other; tests of kills show that too")
def test_a_life_goes_on_where_the_one_before_was(lab: Lab) -> None:
    lab.sql(*TABLES)
    lab.watch()
    first = lab.live()
    [claimed] = [each for each in first.told if each["event"] == "claimed"]
    assert claimed["next"] == 0
    some_of_everything(lab)
    second = lab.live(cuts=CUTS)
    third = lab.live()

    assert lab.check() == 76
    assert {each["skipped"] for each in second.told if "skipped" in each} == {0}
    assert next(each["rows"] for each in third.told if each["event"] == "claimed") == 76


@pytest.mark.thorough("a slot of a database in which only others write")
def test_the_slot_follows_while_only_others_write(lab: Lab) -> None:
    lab.sql("CREATE TABLE ours (id int PRIMARY KEY)", "CREATE TABLE theirs (id int)")
    publication = lab.settings().database.publication
    stage = lab.start(database={"publication": replace(publication, tables=("public.ours",))})
    stage.wait_for("claimed")
    before = lab.slot_lsn()
    lab.sql("INSERT INTO theirs SELECT generate_series(1, 10000)")
    target = lab.end_of_log()
    wait_until(lambda: lab.slot_lsn() >= target, "the slot has followed")
    assert before < target
    lab.check_slot()
    lab.sql("INSERT INTO ours VALUES (1)")
    lab.caught_up()
    assert stage.end() == 0
    [only] = lab.found()
    assert only.told.row == (("id", 1),)
    states = stage.of("state")
    assert states[0]["slot"] == lab.slot
    assert states[0]["atRisk"] is None


def test_the_lag_is_told_by_the_clock_of_the_server(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.sql("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz)")
    lab.live()
    lab.sql("INSERT INTO orders VALUES (1, now())")
    is_old = "SELECT clock_timestamp() - at > interval '2 seconds' FROM orders"
    wait_until(lambda: lab.sql(is_old) == [(True,)], "it has waited for 2 s")
    lab.sql("INSERT INTO orders VALUES (2, now())")
    # At each commit and each pause.
    monkeypatch.setattr(changes_life, "_TOLD_EVERY_S", -1.0)
    told: list[int | None] = []

    def until_nothing_is_missing(receipt: dict[str, Any]) -> None:
        if receipt["event"] == "state":
            told.append(receipt["lagSeconds"])
            if told[-1] == 0:
                life.set()

    life = Life(until_nothing_is_missing)
    Stage(lab.settings(cuts=CUT_AT_ONE), life.say, life).run()
    assert told[0] is None, "nothing was seen yet"
    assert max(each or 0 for each in told) in range(3, 120), "the second one waited while the first one was written"
    assert told[-1] == 0
    assert [each.told.row[1][1] for each in lab.found()] == [1, 2]


@pytest.mark.thorough("the order of commits, which the whole of test_the_topic_has shows too")
def test_positions_are_in_the_order_of_commits(lab: Lab) -> None:
    lab.sql(*TABLES)
    lab.live()
    with lab.connected(autocommit=False) as one, lab.connected(autocommit=False) as two:
        for row in range(5):
            one.execute("INSERT INTO orders VALUES (%s, 'one')", (row,))
            two.execute("INSERT INTO orders VALUES (%s, 'two')", (row + 10,))
        two.commit()
        one.commit()
    lab.live()
    found = lab.found()
    assert [each.told.row[0][1] for each in found] == [10, 11, 12, 13, 14, 0, 1, 2, 3, 4]
    assert [each.place[1] for each in found] == [0, 1, 2, 3, 4] * 2
    assert all(one.place < two.place for one, two in pairwise(found))
    assert json.loads(found[0].record.key or b"") == {"table": "public.orders", "key": {"id": 10}}


@pytest.mark.thorough("tables that change, of which test_the_topic_has reads one")
def test_changes_are_read_as_their_tables_were(lab: Lab) -> None:
    """A connection that was asked something before it streams knows tables as they are now, and decodes by that."""
    lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    lab.live()
    lab.watch()
    lab.sql(
        "INSERT INTO orders VALUES (1, 'before')",
        "ALTER TABLE orders RENAME note TO remark",
        "INSERT INTO orders VALUES (2, 'between')",
        "ALTER TABLE orders DROP remark",
        "INSERT INTO orders VALUES (3)",
        "ALTER TABLE orders RENAME TO others",
        "INSERT INTO others VALUES (4)",
    )
    lab.live()
    assert lab.check() == 4
    assert [(each.told.table, dict(each.told.row)) for each in lab.found()] == [
        ("public.orders", {"id": 1, "note": "before"}),
        ("public.orders", {"id": 2, "remark": "between"}),
        ("public.orders", {"id": 3}),
        ("public.others", {"id": 4}),
    ]


@pytest.mark.thorough("tables of another kind")
def test_a_partitioned_table_is_one_table(lab: Lab) -> None:
    lab.sql(
        "CREATE TABLE parted (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)",
    )
    lab.live()
    lab.sql("INSERT INTO parted VALUES (1, 1), (2, 2)", "UPDATE parted SET part = 2 WHERE id = 1")
    lab.live()
    told = [(each.told.op, each.told.table, dict(each.told.row)) for each in lab.found()]
    # A row that goes into another partition is deleted in one and inserted in the other.
    assert told == [
        ("c", "public.parted", {"id": 1, "part": 1}),
        ("c", "public.parted", {"id": 2, "part": 2}),
        ("d", "public.parted", {"id": 1, "part": 1}),
        ("c", "public.parted", {"id": 1, "part": 2}),
    ]


@pytest.mark.thorough("transactions that are not cut")
def test_whole_transactions_are_seen_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    whole = {"whole_transactions": True}
    small = CutPolicy(rows=10, bytes=1 << 20, seconds=0.01)
    lab.live(database=whole)
    lab.watch()
    for first in (0, 1000):
        lab.sql(f"INSERT INTO orders SELECT generate_series({first}, {first + 99})")
    life = lab.live(database=whole, cuts=small)
    assert lab.check() == 200
    assert [each["transactions"] for each in life.told if each["event"] == "committed"][:2] == [[100], [100]]
    monkeypatch.setattr(changes_life, "_WHOLE_S", 0.0)
    lab.sql("INSERT INTO orders SELECT generate_series(5000, 9000)")
    assert lab.refusal(database=whole, cuts=small).reason is Reason.TRANSACTION_TOO_LARGE
    assert len(lab.found()) == 200
    lab.live(cuts=small)
    assert lab.check() == 4201


@pytest.mark.thorough("tables whose rows nothing tells apart but their whole")
def test_a_full_identity_without_a_key(lab: Lab) -> None:
    lab.sql("CREATE TABLE bag (id int, note text)", "ALTER TABLE bag REPLICA IDENTITY FULL")
    lab.live()
    lab.watch()
    lab.sql("INSERT INTO bag VALUES (1, 'a'), (1, 'a')", "UPDATE bag SET note = 'b'", "DELETE FROM bag")
    lab.live()
    found = lab.found()
    assert [each.told.op for each in found] == ["c", "c", "u", "u", "d", "d"]
    assert len({each.record.partition for each in found}) == 1
    assert [dict(each.told.row) for each in found[-2:]] == [{"id": 1, "note": "b"}] * 2
