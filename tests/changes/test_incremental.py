"""Rows that are read while the stream goes on: each as it is just there, none lost, whatever ends the stage."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from sinkpipeline.changes import incremental, life, table_reading
from sinkpipeline.changes.postgresql import beside, copying
from sinkpipeline.changes.postgresql import rows as reading
from sinkpipeline.changes.postgresql.foreseen import foresee
from sinkpipeline.changes.postgresql.wire import SqlFault
from sinkpipeline.changes.settings import Publication
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason
from support.changes.beside import (
    BESIDE,
    emptied_while_it_is_read,
    first_life_is_killed,
    keys_read,
    killed_again_and_again,
    killed_half_way,
    killed_half_way_and_altered,
    lives_until_all_is_read,
)
from support.changes.lab import Killed, Lab, Life
from support.changes.load import Load
from support.changes.oracle import check_rows, folded
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, note text)"
SMALL = CutPolicy(rows=40, bytes=1 << 20, seconds=0.2)


def insert(lab: Lab, first: int, count: int, table: str = "orders") -> None:
    lab.sql(f"INSERT INTO {table} SELECT g, 'x' FROM generate_series({first + 1}, {first + count}) AS g")


def until_it_waits(lab: Lab, monkeypatch: pytest.MonkeyPatch, database: dict[str, Any], *, changes: int = 0) -> str:
    """What a life says that its rows wait for; it is killed then, with so many changes in the topic."""
    told: list[str] = []

    def end(receipt: dict[str, Any]) -> None:
        told.append((receipt.get("incrementalSnapshot") or {}).get("waitsFor", ""))
        if told[-1] and receipt["next"] >= changes:
            raise Killed

    monkeypatch.setattr(life, "_TOLD_EVERY_S", 0.1)
    lab.live(Life(end), database=database)
    return told[-1]


def check(lab: Lab) -> int:
    """How many rows were read beside the stream; the oracle has seen all that was ever written."""
    read = check_rows(lab.expected(), lab.found())
    lab.check_slot()
    assert lab.left() is None
    assert lab.sql("SELECT count(*) FROM pg_replication_slots WHERE temporary") == [(0,)]
    return read


def test_rows_beside_a_stream(lab: Lab) -> None:
    lab.sql(ORDERS)
    lab.watch()
    insert(lab, 10_000_000, 3_000)
    stage = lab.start(database=BESIDE, cuts=SMALL)
    stage.wait_for("claimed")
    with Load(lab, rows=2_000, seed=3) as load:
        load.join()
    lab.rows_read()
    assert stage.end() == 0, stage.log
    assert 500 < check(lab) <= 3_000
    told = [each["incrementalSnapshot"] for each in stage.receipts if each.get("incrementalSnapshot")]
    assert (told[0]["table"], told[0]["tablesWaiting"]) == ("public.orders", 1)
    assert [each for each in stage.receipts if "incrementalSnapshot" in each][-1]["incrementalSnapshot"] is None


@pytest.mark.parametrize("point", ["after-commit", "incremental-after-opening", "after-rows-before-progress"])
@pytest.mark.thorough("another point", after=1)
def test_one_that_is_killed_goes_on_behind_its_last_row(lab: Lab, point: str) -> None:
    lab.sql(ORDERS)
    lab.watch()
    insert(lab, 0, 5_000)
    killed_again_and_again(lab, point, SMALL)
    lab.live(database=BESIDE)
    assert check(lab) >= 4_994
    assert max(keys_read(lab).values()) == 1


def test_a_table_that_is_added_later_comes_with_its_rows(lab: Lab) -> None:
    wanted = {"publication": Publication(name=lab.name, tables=("public.orders",)), "snapshot": True}
    lab.sql(ORDERS, ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    insert(lab, 0, 50)
    lab.live(database=wanted)
    lab.sql("CREATE TABLE parts (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)")
    lab.sql("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (10)", "INSERT INTO parts VALUES (7, 1)")
    lab.sql(f"ALTER PUBLICATION {lab.name} ADD TABLE items, parts", "UPDATE items SET note = 'u' WHERE id = 2")
    told = foresee(lab.settings(database=wanted)).told
    assert told[-1] == "reads the rows of public.items, public.parts while the stream goes on"
    lab.live(database=wanted)
    lab.sql("DELETE FROM items WHERE id = 1")
    insert(lab, 1_000, 1)
    lab.sql("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)", "INSERT INTO parts VALUES (8, 11)")
    lab.live(database=wanted)
    read = Counter(each.told.table for each in lab.found() if each.told.op == "r")
    # What the stream has changed is not read; nor is the first table again.
    assert read == {"public.orders": 50, "public.items": 2, "public.parts": 1}
    copy = folded(lab.found())
    assert copy["public.items"] == ['{"id": 2, "note": "u"}', '{"id": 3, "note": "c"}']
    assert copy["public.parts"] == ['{"at": 1, "id": 7}', '{"at": 11, "id": 8}']


@pytest.mark.thorough("a table that is added is in make test")
def test_a_table_that_is_made_anew_between_two_starts_comes_with_its_rows(lab: Lab) -> None:
    """A publication loses a table that is dropped; what is written before it has it again, the stream does not tell."""
    wanted = {"publication": Publication(name=lab.name, tables=("public.orders", "public.items")), **BESIDE}
    lab.sql(ORDERS, ITEMS)
    lab.live(database=wanted)
    lab.sql("DROP TABLE items", ITEMS)
    insert(lab, 0, 3, "items")
    lab.sql(f"ALTER PUBLICATION {lab.name} ADD TABLE items")
    insert(lab, 3, 1, "items")
    assert "reads the rows of public.items while" in foresee(lab.settings(database=wanted)).told[-1]
    lab.live(database=wanted)
    assert len(folded(lab.found())["public.items"]) == 4
    lab.live(database=wanted)
    assert sum(each.told.op == "r" for each in lab.found()) in (3, 4), "they are read once"


@pytest.mark.thorough("PostgreSQL 15 and later")
def test_a_schema_that_is_added_comes_with_the_rows_of_its_tables(lab: Lab) -> None:
    [(version,)] = lab.sql("SHOW server_version_num")
    if int(version) < 150000:
        pytest.skip("PostgreSQL before 15 has no publications of schemas")
    wanted = {"publication": Publication(name=lab.name, tables=("public.orders",)), **BESIDE}
    lab.sql(
        ORDERS,
        "CREATE SCHEMA more",
        "CREATE TABLE more.items (id int PRIMARY KEY)",
        "INSERT INTO more.items VALUES (1)",
    )
    lab.live(database=wanted)
    lab.sql(f"ALTER PUBLICATION {lab.name} ADD TABLES IN SCHEMA more")
    lab.live(database=wanted)
    lab.sql("CREATE TABLE more.late (id int PRIMARY KEY)", "INSERT INTO more.late VALUES (1)")
    lab.live(database=wanted)
    assert [(each.told.op, each.told.table) for each in lab.found()] == [("r", "more.items"), ("c", "more.late")]


@pytest.mark.thorough("another publication")
def test_a_table_of_a_publication_for_all_has_come_by_the_stream(lab: Lab) -> None:
    lab.sql(ORDERS)
    lab.live(database=BESIDE)
    lab.sql(ITEMS)
    insert(lab, 0, 3, "items")
    lab.live(database=BESIDE)
    assert [each.told.op for each in lab.found()] == ["c"] * 3


def test_what_leaves_a_table_unread_is_told(lab: Lab) -> None:
    lab.sql("CREATE TABLE bare (id int, note text)", "ALTER TABLE bare REPLICA IDENTITY FULL")
    [foreseen] = foresee(lab.settings(database=BESIDE)).errors
    error = lab.refusal(database=BESIDE)
    assert str(error) == str(foreseen)
    assert error.reason is Reason.SOURCE_UNSUITABLE
    assert "no primary key" in error.message
    lab.sql("ALTER TABLE bare ADD PRIMARY KEY (id)")
    lab.live(database=BESIDE)


@pytest.mark.thorough("one key is in make test")
def test_keys_of_every_type_are_read_in_chunks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 2)
    kinds = {
        "numeric": "(-1), ('NaN'), (0.000001), (1e30)",
        "text": "(''), ('a'), ('B'), ('ä'), (E'back\\\\slash'), (E'tab\\t'), ('it''s'), ('\\N')",
        "bytea": "(''), ('\\x00'), ('\\xff'), ('\\x5c')",
        "float8": "('-Infinity'), (0.1), (1e-300), ('NaN'), ('Infinity')",
        "float4": "(0.1), (0.2), (16777216), (3.4e38)",
        "timestamptz": "('-infinity'), ('2024-02-29 12:00:00.000001+00'), ('infinity'), ('4713-01-01 BC')",
        "uuid": "(gen_random_uuid()), (gen_random_uuid()), (gen_random_uuid())",
        "int[]": "('{}'), ('{1,2}'), ('{NULL}'), ('{3}')",
        "boolean": "(true), (false)",
        "inet": "('10.0.0.1'), ('::1'), ('10.0.0.0/8')",
        "interval": "('1 day'), ('-1 month'), ('00:00:01')",
    }
    for number, (kind, values) in enumerate(kinds.items()):
        lab.sql(f"CREATE TABLE k{number} (k {kind}, n int DEFAULT 1, PRIMARY KEY (n, k))")
        lab.sql(f"INSERT INTO k{number} (k) VALUES {values}", f"INSERT INTO k{number} SELECT k, 2 FROM k{number}")
    lab.live(database=BESIDE)
    counts = {f"public.k{n}": lab.sql(f"SELECT count(*) FROM k{n}")[0][0] for n in range(len(kinds))}
    assert Counter(each.told.table for each in lab.found()) == counts
    assert max(keys_read(lab).values()) == 1


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough("other chances"))])
@pytest.mark.thorough("tests/model has it in make test")
def test_under_load_with_ends_at_any_commit(lab: Lab, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, snapshots of a moment, and few keys that are remembered."""
    monkeypatch.setattr(reading, "CHUNK", 100)
    monkeypatch.setattr(table_reading, "SITTING_S", 0.3)
    monkeypatch.setattr(incremental, "MOST_TOUCHED", 1_000)
    chance = random.Random(seed)
    lab.sql(ORDERS, ITEMS)
    lab.watch()
    insert(lab, 10_000_000, 2_000)
    insert(lab, 0, 500, "items")

    first_life_is_killed(lab, SMALL)
    with Load(lab, rows=3_000, seed=seed, pause_s=0.01):
        lives_until_all_is_read(lab, chance, SMALL)
    lab.live(database=BESIDE, cuts=SMALL)
    assert check(lab) > 500


_OTHER_KEYS = [
    ["ALTER TABLE orders DROP id, ADD id int PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY"],
    ["ALTER TABLE orders ALTER id TYPE bigint USING id - 1000000"],
    ["ALTER TABLE orders ALTER id TYPE text USING id - 1000000"],
    [
        "ALTER TABLE orders ADD other int DEFAULT 1, DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (other, id)",
        "ALTER TABLE orders ALTER id TYPE bigint USING id - 1000000",
    ],
]


@pytest.mark.parametrize("change", _OTHER_KEYS)
@pytest.mark.thorough("another way", after=2)
@pytest.mark.thorough("rows beside a stream are in make test")
def test_a_key_that_becomes_another_one_half_way(lab: Lab, change: list[str]) -> None:
    """What was noted of the last row means nothing then: the table is read from its beginning."""
    lab.sql(ORDERS)
    insert(lab, 1_000_000, 3_000)
    killed_half_way_and_altered(lab, change, SMALL)


@pytest.mark.thorough("tests/unit/test_incremental has it")
def test_a_row_that_was_changed_before_its_table_got_other_keys(lab: Lab) -> None:
    """Another one has its key since."""
    lab.sql(ORDERS, "INSERT INTO orders SELECT g, 'row ' || g FROM generate_series(1, 3000) AS g")
    killed_half_way(lab, SMALL)
    lab.sql("UPDATE orders SET note = 'u' WHERE id = 2500", "ALTER TABLE orders ALTER id TYPE bigint USING 5001 - id")
    lab.live(database=BESIDE)
    last = {each["after"]["id"]: each["after"]["note"] for each in (one.record.document for one in lab.found())}
    there = lab.sql("SELECT id, note FROM orders")
    assert [(key, last[key]) for key, _ in there] == there


@pytest.mark.thorough("another thing that happens to a table")
def test_a_table_without_its_key_waits_and_says_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.sql(ORDERS)
    insert(lab, 0, 3_000)
    killed_half_way(lab, SMALL)
    lab.sql("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    told = until_it_waits(lab, monkeypatch, BESIDE)
    assert "no primary key" in told
    assert "ALTER TABLE public.orders ADD PRIMARY KEY" in told
    lab.sql("ALTER TABLE orders ADD PRIMARY KEY (id)")
    lab.live(database=BESIDE)
    assert len(keys_read(lab)) == 3_000


@pytest.mark.parametrize("published", ["FOR ALL TABLES", "FOR TABLE orders"])
@pytest.mark.thorough("another thing that happens to a table")
def test_a_table_that_gets_another_name(lab: Lab, published: str) -> None:
    lab.sql(ORDERS, f"CREATE PUBLICATION {lab.name} {published}")
    insert(lab, 0, 3_000)
    killed_half_way(lab, SMALL)
    lab.sql("ALTER TABLE orders RENAME TO purchases")
    assert "reads the rows of public.purchases while" in foresee(lab.settings(database=BESIDE)).told[-1]
    lab.live(database=BESIDE)
    found = [each for each in lab.found() if each.told.op == "r"]
    assert len(found) == 3_000
    assert {each.told.table for each in found} == {"public.orders", "public.purchases"}


@pytest.mark.thorough("rows beside a stream are in make test")
def test_a_table_that_is_emptied_while_its_rows_are_read(lab: Lab) -> None:
    """The server would wait with that, but somebody has ended the session; what it has sent is not right any more."""
    lab.sql(ORDERS)
    lab.watch()
    insert(lab, 0, 15_000)
    emptied_while_it_is_read(
        lab,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT%orders%'",
        SMALL,
    )
    assert check(lab) < 15_000


@pytest.mark.thorough("a rare statement")
def test_a_partition_that_is_attached_while_its_table_is_read(lab: Lab) -> None:
    """It comes with the next snapshot, whole, as it is from then on."""
    lab.sql("CREATE TABLE parts (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)")
    lab.sql("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (10000)")
    lab.sql("CREATE TABLE parts_2 (id int PRIMARY KEY, note text)", "INSERT INTO parts_2 VALUES (20000, 'before')")
    lab.sql("INSERT INTO parts SELECT g, 'x' FROM generate_series(1, 3000) AS g")
    database = {**BESIDE, "publication": Publication(name=lab.name, tables=("public.parts",))}
    stage = lab.start("incremental-after-opening", database=database, cuts=SMALL)
    stage.wait_at("incremental-after-opening")
    lab.sql("UPDATE parts_2 SET note = 'since'")
    lab.sql("ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10000) TO (30000)")
    stage.kill()
    lab.live(database=database)
    copy = folded(lab.found())["public.parts"]
    assert len(copy) == 3_001
    assert '{"id": 20000, "note": "since"}' in copy


def added(lab: Lab) -> dict[str, Any]:
    """What a stage is told that reads a table, and to which another one with rows was added."""
    wanted = {"publication": Publication(name=lab.name, tables=("public.orders",)), "snapshot": True}
    lab.sql(ORDERS, ITEMS)
    insert(lab, 0, 100, "items")
    lab.live(database=wanted)
    lab.sql(f"ALTER PUBLICATION {lab.name} ADD TABLE items")
    return wanted


@pytest.mark.thorough("waits")
def test_a_transaction_that_is_open_is_waited_for_and_the_stream_goes_on(lab: Lab) -> None:
    wanted = added(lab)
    with lab.connected(autocommit=False) as session:
        session.execute("UPDATE items SET note = 'open' WHERE id = 5")
        stage = lab.start(database=wanted)
        stage.wait_for("claimed")
        insert(lab, 500, 3)
        lab.caught_up()
        left = lab.left()
        assert left is not None
        assert left["rows"] == 0
        session.commit()
    lab.rows_read()
    assert stage.end() == 0, stage.log
    assert '{"id": 5, "note": "open"}' in folded(lab.found())["public.items"]
    assert len(keys_read(lab)) in (99, 100), "that row has come by the stream, or as it is behind it"


@pytest.mark.thorough("another end of a life")
def test_nothing_is_left_of_a_stage_that_ends_while_it_waits_for_a_transaction(lab: Lab) -> None:
    wanted = added(lab)

    def slots() -> int:
        return int(lab.sql("SELECT count(*) FROM pg_replication_slots WHERE temporary")[0][0])

    with lab.connected(autocommit=False) as session:
        session.execute("UPDATE items SET note = 'open' WHERE id = 5")
        stage = lab.start(database=wanted)
        wait_until(lambda: slots() == 1, "the server waits for the transaction")
        assert stage.end() == 0, stage.log
        wait_until(lambda: slots() == 0, "the server was told that nobody waits", 10)
    lab.live(database=wanted)
    assert len(folded(lab.found())["public.items"]) == 100


def test_one_that_is_open_for_long_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_WAIT", "SET lock_timeout = '200ms'")
    wanted = added(lab)
    with lab.connected(autocommit=False) as session:
        session.execute("UPDATE items SET note = 'open' WHERE id = 5")
        told = until_it_waits(lab, monkeypatch, wanted)
    assert "a transaction that has written is open" in told
    lab.live(database=wanted)
    assert len(folded(lab.found())["public.items"]) == 100


@pytest.mark.thorough("rows beside a stream are in make test")
def test_a_large_value_that_was_not_touched_comes_all_the_same(lab: Lab) -> None:
    """Its row is changed, and told without it, while its table is read."""
    lab.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, n int, doc text)",
        "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",
    )
    lab.sql("INSERT INTO orders SELECT g, 0, repeat(g::text, 3000) FROM generate_series(1, 900) AS g")
    stage = lab.start("incremental-after-opening", database=BESIDE, cuts=SMALL)
    stage.wait_at("incremental-after-opening")
    lab.sql("UPDATE orders SET n = 1 WHERE id IN (5, 800)", "UPDATE orders SET id = 0 WHERE id = 700")
    stage.release("incremental-after-opening")
    while lab.left() is not None:
        # One that changes all the time is not waited for.
        lab.sql("UPDATE orders SET n = n + 1 WHERE id = 800")
    assert stage.end() == 0, stage.log
    documents = [each.record.document for each in lab.found()]
    last = {each["after"]["id"]: each["after"] for each in documents if each["after"] and not each["unchanged"]}
    assert set(last) >= {*range(1, 700), *range(701, 901)}
    # The one with another key was read before, or it comes by that.
    assert last[0 if 0 in last else 700]["doc"] == "700" * 3000
    assert last[800]["doc"] == "800" * 3000


@pytest.mark.thorough("another moment at which one is made")
def test_a_table_that_is_made_while_the_slot_is_waited_for(lab: Lab) -> None:
    lab.sql(ORDERS)
    with lab.connected(autocommit=False) as session:
        session.execute("INSERT INTO orders VALUES (1, 'open')")
        stage = lab.start(database=BESIDE)
        wait_until(lambda: lab.sql("SELECT count(*) FROM pg_replication_slots") != [(0,)], "the slot is being made")
        lab.sql(ITEMS)
        insert(lab, 0, 3, "items")
        session.commit()
    stage.wait_for("claimed")
    lab.rows_read()
    assert stage.end() == 0, stage.log
    assert Counter(each.told.table for each in lab.found()) == {"public.orders": 1, "public.items": 3}


@pytest.mark.thorough("a server with too few slots")
def test_without_a_slot_left_the_stream_goes_on(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> Any:
        raise SqlFault("53400", "all replication slots are in use")

    wanted = added(lab)
    with monkeypatch.context() as patch:
        patch.setattr(copying, "export_temporary", none_left)
        insert(lab, 500, 5)
        told = until_it_waits(lab, monkeypatch, wanted, changes=5)
    assert "all replication slots are in use" in told
    lab.live(database=wanted)
    assert len(keys_read(lab)) == 100


@pytest.mark.thorough("PostgreSQL orders by an operator of the type, which is not in everybody's search_path")
def test_a_key_of_a_type_of_another_schema(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 1)
    lab.sql("CREATE SCHEMA ext", "CREATE EXTENSION citext SCHEMA ext")
    lab.sql("CREATE TABLE people (name ext.citext PRIMARY KEY)", "INSERT INTO people VALUES ('a'), ('B'), ('c'), ('D')")
    lab.live(database=BESIDE)
    assert [dict(each.told.row)["name"] for each in lab.found()] == ["a", "B", "c", "D"]


@pytest.mark.thorough("another part of a key that is missing")
def test_a_key_with_a_generated_column_is_none(lab: Lab) -> None:
    lab.sql("CREATE TABLE parts (a int, b int GENERATED ALWAYS AS (c * 2) STORED, c int, PRIMARY KEY (a, b))")
    lab.sql("ALTER TABLE parts REPLICA IDENTITY FULL", "INSERT INTO parts (a, c) VALUES (1, 1), (1, 2), (1, 3)")
    # From 18 on the server would refuse changes of it, too.
    assert "generated" in str(lab.refusal(database=BESIDE))


def test_a_part_of_a_key_is_none(lab: Lab) -> None:
    lab.sql("CREATE TABLE parts (a int, b int, c int NOT NULL UNIQUE, PRIMARY KEY (a, b))")
    lab.sql("ALTER TABLE parts REPLICA IDENTITY USING INDEX parts_c_key")
    [(version,)] = lab.sql("SHOW server_version_num")
    if int(version) < 150000:
        pytest.skip("PostgreSQL before 15 has no lists of columns")
    lab.sql(f"CREATE PUBLICATION {lab.name} FOR TABLE parts (a, c)", "INSERT INTO parts VALUES (1, 1, 1)")
    assert "not all columns of the primary key" in lab.refusal(database=BESIDE).message
