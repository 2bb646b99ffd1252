"""A snapshot on real servers: what the topic says of a table is what it is, and the stream begins where it ends."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sinkpipeline.changes.postgresql import rows as reading
from sinkpipeline.changes.settings import Publication, Slot
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SinkId
from support.changes.lab import Lab
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

SNAPSHOT: dict[str, Any] = {"snapshot": True}
SMALL = CutPolicy(rows=150, bytes=1 << 20, seconds=0.2)
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"


def fill(lab: Lab, rows: int, first: int = 1) -> None:
    lab.sql(f"INSERT INTO orders SELECT g, 'row ' || g FROM generate_series({first}, {first + rows - 1}) AS g")


@pytest.fixture
def prepared(lab: Lab) -> Lab:
    """With rows that were there before anybody has looked, and the oracle's slot."""
    lab.sql(ORDERS)
    fill(lab, 1000)
    lab.watch()
    return lab


@contextmanager
def writing(lab: Lab, *, pause_s: float = 0.004) -> Iterator[list[int]]:
    """Some 200 inserts, updates and deletions a second, until the end; yields how many there were, at [0]."""
    stopping, done = threading.Event(), [0]

    def write() -> None:
        chance = random.Random(4)
        with lab.connected() as session:
            while not stopping.wait(pause_s):
                key, new = chance.randrange(1, 3000), 10_000 + done[0]
                what = chance.randrange(4)
                if what == 0:
                    session.execute("INSERT INTO orders VALUES (%s, 'new')", (new,))
                elif what == 1:
                    session.execute("UPDATE orders SET note = note || '+' WHERE id = %s", (key,))
                elif what == 2:
                    session.execute("DELETE FROM orders WHERE id = %s", (key,))
                else:
                    session.execute("UPDATE orders SET id = %s WHERE id = %s", (-new, key))
                done[0] += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stopping.set()
        thread.join()


def ops(lab: Lab) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in lab.found():
        found[each.told.op] = found.get(each.told.op, 0) + 1
    return found


def test_tables_of_every_kind(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 7)
    lab.sql(
        ORDERS,
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE lines (part text, id int, doc text, PRIMARY KEY (id, part))",
        "CREATE TABLE bag (id int, note text)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        'CREATE TABLE "Odd ""Name" ("Key" int PRIMARY KEY, "a b" text)',
        "CREATE TABLE parted (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO lines SELECT p, g, E'tab\\t, line\\n, back\\\\slash \\\\N' FROM generate_series(1, 12) AS g,"
        " unnest(ARRAY['a', 'b''\\c', 'Z']) AS p",
        "INSERT INTO lines VALUES ('null', 1, NULL)",
        "INSERT INTO bag VALUES (1, 'a'), (1, 'a'), (2, NULL)",
        """INSERT INTO "Odd ""Name" SELECT g, '\\N' FROM generate_series(1, 20) AS g""",
        "INSERT INTO parted SELECT g, 1 + g % 2 FROM generate_series(1, 15) AS g",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2)",
    )
    fill(lab, 22)
    lab.watch()
    life = lab.live(database=SNAPSHOT)
    lab.sql("UPDATE lines SET doc = 'new' WHERE id = 3", "DELETE FROM bag WHERE id = 1", "INSERT INTO empty VALUES (1)")
    lab.live(database=SNAPSHOT)

    tables = ("orders", "empty", "lines", "bag", '"Odd ""Name"', "parted", "parent", "child")
    rows = {"parent": "ONLY parent"}
    found = {table: lab.sql(f"SELECT count(*) FROM {rows.get(table, table)}")[0][0] for table in tables}
    assert found["parent"] == 1
    names = [table for table in tables if table not in ("parent", '"Odd ""Name"')]
    assert lab.check_copy(*[f"public.{table}" for table in names]) == 6
    odd = [each for each in lab.found() if each.told.table == 'public.Odd "Name']
    assert [dict(each.told.row) for each in odd] == [{"Key": g, "a b": "\\N"} for g in range(1, 21)]
    assert len([each for each in lab.found() if each.told.table == "public.parent"]) == 1
    told = [each["snapshot"] for each in life.told if each.get("snapshot") and each["event"] == "state"]
    assert told[0]["tables"] == 8
    completed = [each for each in life.told if each["event"] == "committed" and each.get("snapshot", 0) is None]
    assert len(completed) == 1
    assert completed[0]["rows"] == 22 + 37 + 3 + 20 + 15 + 2


@pytest.mark.thorough("tests/model has it in make test")
def test_under_load(prepared: Lab) -> None:
    fill(prepared, 9000, first=1001)
    with writing(prepared) as done:
        stage = prepared.start(database=SNAPSHOT, cuts=SMALL)
        stage.wait_for("claimed")
        wait_until(lambda: any(each.get("snapshot", 0) is None for each in stage.of("committed")), "it is complete")
        at = done[0]
        wait_until(lambda: done[0] > at + 50, "it goes on")
    prepared.caught_up()
    assert stage.end() == 0
    assert prepared.check_copy("public.orders") > 30
    assert ops(prepared)["r"] >= 9000


POINTS = (
    "stage-after-meta",
    "stage-after-creation",
    "snapshot-after-epoch",
    "snapshot-after-opening",
    "after-progress-before-commit",
    "snapshot-before-complete",
    "snapshot-after-complete",
)
OTHER_POINTS = ("stage-after-claim", "after-rows-before-progress", "stage-after-slot")
BEHIND_A_COMMIT = ("after-commit", "snapshot-before-complete")
COMPLETE = ("snapshot-after-complete", "stage-after-slot")


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(each, marks=pytest.mark.thorough("another point of the same snapshot")) for each in POINTS),
        *(pytest.param(each, marks=pytest.mark.long("a point of a start, or of a commit")) for each in OTHER_POINTS),
        "after-commit",
    ],
)
def test_killed_at_a_point(prepared: Lab, point: str) -> None:
    stage = prepared.start(point, cuts=SMALL, database=SNAPSHOT)
    stage.wait_at(point)
    stage.kill()
    # They are in what was given up, and must not stay.
    prepared.sql("DELETE FROM orders WHERE id % 10 = 3", "UPDATE orders SET note = 'u' WHERE id % 10 = 4")
    fill(prepared, 5, first=5000)
    prepared.live(cuts=SMALL, database=SNAPSHOT)
    prepared.check_copy("public.orders")
    found = ops(prepared)
    assert ("d" in found) == (point in (*BEHIND_A_COMMIT, *COMPLETE))
    if point in COMPLETE:
        assert found["r"] == 1000, "what is complete does not begin anew"


def test_what_others_have_written_before_is_not_taken_back(prepared: Lab) -> None:
    """A stage of another identity goes on in a topic with rows of a table that it does not read."""
    prepared.sql("CREATE TABLE others (id int PRIMARY KEY)", "INSERT INTO others SELECT generate_series(1, 10)")
    prepared.live(cuts=SMALL, database=SNAPSHOT)
    name = f"{prepared.name}_2"
    prepared.sql(f"CREATE PUBLICATION {name} FOR TABLE orders")
    database = {**SNAPSHOT, "slot": Slot(name=name), "publication": Publication(name=name, create=False)}
    another: dict[str, Any] = {"id": SinkId(name, "changes"), "refuse_existing_data": False, "database": database}
    stage = prepared.start("after-commit", cuts=SMALL, **another)
    stage.wait_at("after-commit")
    stage.kill()
    prepared.live(cuts=SMALL, **another)
    keys = [(each.told.op, each.record.document["table"].removeprefix("public.")) for each in prepared.found()]
    assert keys.count(("r", "others")) == 10
    assert ("d", "others") not in keys
    # Its own rows, of what it had given up.
    assert keys.count(("r", "orders")) - keys.count(("d", "orders")) == 2000


@pytest.mark.thorough("points of a snapshot that begins anew")
@pytest.mark.parametrize(
    "point",
    [
        "after-commit",
        "snapshot-after-drop",
        *(
            pytest.param(each, marks=pytest.mark.long("another point of the same"))
            for each in ("snapshot-taken-back", "stage-after-creation", "snapshot-after-epoch")
        ),
    ],
)
def test_killed_while_it_begins_anew(prepared: Lab, point: str) -> None:
    for first in ("snapshot-before-complete", point, "snapshot-after-epoch"):
        stage = prepared.start(first, cuts=SMALL, database=SNAPSHOT)
        stage.wait_at(first)
        stage.kill()
        prepared.sql("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)")
    prepared.live(cuts=SMALL, database=SNAPSHOT)
    prepared.check_copy("public.orders")
    deleted = [each.record.key for each in prepared.found() if each.told.op == "d"]
    read = [each.record.key for each in prepared.found() if each.told.op == "r"]
    assert len(read) - len(deleted) == 997, "each row of an epoch that was given up is taken back once"


@pytest.mark.thorough("kills at any time, under load")
def test_killed_at_random(prepared: Lab) -> None:
    fill(prepared, 4000, first=1001)
    chance = random.Random(7)
    with writing(prepared):
        for _ in range(6):
            stage = prepared.start(cuts=SMALL, database=SNAPSHOT)
            commits = chance.randrange(12)
            wait_until(lambda s=stage, n=commits: len(s.of("committed")) >= n, "it has come so far", poll_s=0.005)
            stage.kill()
    prepared.live(cuts=SMALL, database=SNAPSHOT)
    prepared.check_copy("public.orders")


@pytest.mark.thorough("a rival, and one that was frozen and wakes up")
@pytest.mark.parametrize(
    "point",
    [
        "snapshot-after-opening",
        "stage-after-creation",
        pytest.param("after-rows-before-progress", marks=pytest.mark.long("another point of the same")),
    ],
)
def test_a_rival_begins_anew(prepared: Lab, point: str) -> None:
    frozen = prepared.start(point, cuts=SMALL, database=SNAPSHOT)
    frozen.wait_at(point)
    frozen.signal(signal.SIGSTOP)
    second = prepared.start("snapshot-before-complete", cuts=SMALL, database=SNAPSHOT)
    second.wait_at("snapshot-before-complete")
    frozen.release(point)
    frozen.signal(signal.SIGCONT)
    assert frozen.wait() == 4
    assert frozen.error["reason"] == "Superseded"
    prepared.sql("DELETE FROM orders WHERE id = 1")
    second.release("snapshot-before-complete")
    prepared.caught_up()
    assert second.end() == 0
    prepared.check_copy("public.orders")


@pytest.mark.thorough("a frozen one that would drop the slot of its rival")
def test_a_late_drop_finds_another_slot(prepared: Lab) -> None:
    first = prepared.start("after-commit", cuts=SMALL, database=SNAPSHOT)
    first.wait_at("after-commit")
    first.kill()
    # It has looked at the slot, and would drop it.
    late = prepared.start("snapshot-taken-back", cuts=SMALL, database=SNAPSHOT)
    late.wait_at("snapshot-taken-back")
    second = prepared.start("snapshot-before-complete", cuts=SMALL, database=SNAPSHOT)
    second.wait_at("snapshot-before-complete")
    late.release("snapshot-taken-back")
    assert late.wait() in (1, 4)
    second.release("snapshot-before-complete")
    prepared.caught_up()
    assert second.end() == 0
    prepared.check_copy("public.orders")


def begin_waiting(lab: Lab, statement: str) -> threading.Thread:
    def run() -> None:
        lab.sql(statement)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.thorough("schema changes: after the locks, and before them")
def test_a_schema_change_meanwhile(prepared: Lab) -> None:
    stage = prepared.start("snapshot-after-opening", cuts=SMALL, database=SNAPSHOT)
    stage.wait_at("snapshot-after-opening")
    waiting = begin_waiting(prepared, "ALTER TABLE orders ADD more int DEFAULT 7")
    stuck = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    wait_until(lambda: prepared.sql(stuck) == [(1,)], "the schema change waits")
    stage.release("snapshot-after-opening")
    waiting.join()
    prepared.sql("UPDATE orders SET more = 8 WHERE id = 2", "INSERT INTO orders VALUES (2000, 'n', 1)")
    prepared.caught_up()
    assert stage.end() == 0
    stream = [dict(each.told.row) for each in prepared.found() if each.told.op in "cu"]
    assert stream == [{"id": 2, "note": "row 2", "more": 8}, {"id": 2000, "note": "n", "more": 1}]
    assert ops(prepared)["r"] == 1000


@pytest.mark.thorough("schema changes: after the locks, and before them")
@pytest.mark.parametrize("statement", ["ALTER TABLE orders ALTER id TYPE numeric", "TRUNCATE orders"])
def test_a_table_that_is_written_anew_before_it_is_locked(prepared: Lab, statement: str) -> None:
    """To the snapshot it is empty: PostgreSQL says nothing of it."""
    stage = prepared.start("snapshot-after-epoch", cuts=SMALL, database=SNAPSHOT)
    stage.wait_at("snapshot-after-epoch")
    prepared.sql(statement)
    stage.release("snapshot-after-epoch")
    assert stage.wait() == 1
    assert stage.error["message"].endswith(
        "table public.orders was written anew or emptied while the snapshot of the tables was made"
    )
    prepared.live(cuts=SMALL, database=SNAPSHOT)
    [(rows,)] = prepared.sql("SELECT count(*) FROM orders")
    assert ops(prepared).get("r", 0) == rows


@pytest.mark.thorough("somebody touches the slot meanwhile")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT pg_drop_replication_slot(current_database())", "SlotLost"),
        ("SELECT pg_replication_slot_advance(current_database()::name, pg_current_wal_flush_lsn())", "SourceDataLost"),
    ],
)
def test_a_slot_that_is_touched(prepared: Lab, statement: str, reason: str) -> None:
    stage = prepared.start("snapshot-before-complete", cuts=SMALL, database=SNAPSHOT)
    stage.wait_at("snapshot-before-complete")
    prepared.sql("INSERT INTO orders VALUES (7000, 'between')", statement)
    stage.release("snapshot-before-complete")
    assert stage.wait() == 3
    assert stage.error["reason"] == reason
    prepared.live(cuts=SMALL, database=SNAPSHOT)
    prepared.check_copy("public.orders")


@pytest.mark.thorough("what a start refuses")
def test_what_a_start_refuses(prepared: Lab) -> None:
    prepared.sql(f"SELECT pg_create_logical_replication_slot('{prepared.slot}', 'pgoutput')")
    told = prepared.refusal(database=SNAPSHOT)
    assert told.reason is Reason.SOURCE_UNSUITABLE
    assert "somebody else's" in told.message
    prepared.drop_slot()
    role = prepared.name
    prepared.sql(f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT CONNECT ON DATABASE {prepared.name} TO {role}")
    connection = prepared.settings().database.connection
    of_role = {**SNAPSHOT, "connection": replace(connection, user=role)}
    told = prepared.refusal(database=of_role)
    assert told.reason is Reason.SOURCE_UNSUITABLE
    assert told.remedy == (
        f'run GRANT USAGE ON SCHEMA "public" TO "{role}"; GRANT SELECT ON "public"."orders" TO "{role}"'
    )
    prepared.sql(told.remedy.removeprefix("run "), "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    # Rows that a policy hides are not left out in silence.
    told = prepared.refusal(database=of_role)
    assert "row-level security" in told.message
    prepared.sql("ALTER TABLE orders DISABLE ROW LEVEL SECURITY")
    prepared.live(database=of_role)
    prepared.check_copy("public.orders")
    prepared.sql(f"REVOKE ALL ON orders FROM {role}", f"REVOKE ALL ON DATABASE {prepared.name} FROM {role}")
    prepared.released()
    prepared.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
