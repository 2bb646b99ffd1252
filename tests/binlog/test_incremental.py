"""Rows that are read while the stream goes on: each as it is just there, none lost, whatever ends the stage."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.changes import incremental, table_reading
from sinkpipeline.changes.binlog import beside
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.errors import Reason
from support.changes.beside import (
    BESIDE,
    emptied_while_it_is_read,
    first_life_is_killed,
    keys_read,
    killed_again_and_again,
    killed_half_way_and_altered,
    lives_until_all_is_read,
)
from support.changes.binlog import BOTH, ORDERS, BinlogLab
from support.changes.binlog_load import SMALL, Load, insert, troubled
from support.changes.oracle import check_rows
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, note varchar(200))"


def check(lab: BinlogLab, *tables: str) -> int:
    """How many rows were read beside the stream."""
    read = check_rows(lab.expected(), lab.found())
    lab.check_tables(*(tables or ("orders",)))
    assert lab.left() is None
    return read


@BOTH
@pytest.mark.thorough("the other server: the same code", after=1)
def test_rows_beside_a_stream(lab: BinlogLab) -> None:
    lab.sql(ORDERS)
    insert(lab, 10_000_000, 3_000)
    stage = lab.start(database=BESIDE, cuts=SMALL)
    stage.wait_for("claimed")
    with Load(lab, rows=2_000, seed=3) as load:
        load.join()
    lab.rows_read()
    assert stage.end() == 0, stage.log
    assert 500 < check(lab) <= 3_000
    told = [each["incrementalSnapshot"] for each in stage.receipts if each.get("incrementalSnapshot")]
    assert told[0]["table"] == f"{lab.name}.orders"
    assert told[0]["tablesWaiting"] == 1
    assert [each for each in stage.receipts if "incrementalSnapshot" in each][-1]["incrementalSnapshot"] is None


@pytest.mark.parametrize("point", ["after-commit", "incremental-after-opening", "after-rows-before-progress"])
@pytest.mark.thorough("tests/changes/test_incremental has it: the same code")
def test_one_that_is_killed_goes_on_behind_its_last_row(lab: BinlogLab, point: str) -> None:
    lab.sql(ORDERS)
    insert(lab, 0, 5_000)
    killed_again_and_again(lab, point, SMALL)
    lab.live(database=BESIDE)
    assert check(lab) >= 4_994
    # A row that was changed while nobody read may come by the stream, and once more as it is then.
    assert max(keys_read(lab).values()) == 1


def test_a_table_that_is_added_later_comes_with_its_rows(lab: BinlogLab) -> None:
    lab.sql(ORDERS, ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    insert(lab, 0, 50)
    lab.live(database={"snapshot": True})
    lab.sql("UPDATE items SET note = 'before it was added' WHERE id = 2")
    lab.tables = ("orders", "items")
    lab.live(database={"snapshot": True})
    lab.sql("DELETE FROM items WHERE id = 1", "INSERT INTO orders VALUES (1000, 'z')")
    lab.live(database={"snapshot": True})
    lab.check_tables("orders", "items")
    assert sum(keys_read(lab).values()) == 52, "what the stream has changed is not read; nor is the first table again"
    assert max(keys_read(lab).values()) == 1


@pytest.mark.parametrize("how", [{"snapshot": True}, BESIDE], ids=["Snapshot", "IncrementalSnapshot"])
@pytest.mark.thorough("tests/unit has positions")
def test_positions_ascend_where_nothing_is_logged_between_two_tables(lab: BinlogLab, how: dict[str, Any]) -> None:
    lab.sql(ORDERS, ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    insert(lab, 0, 50)
    lab.live(database=how)
    lab.tables = ("orders", "items")
    lab.live(database=how)
    # It looks at the positions, too.
    found = lab.found()
    assert [each.told.table.split(".")[1] for each in found] == ["orders"] * 50 + ["items"] * 3


@pytest.mark.thorough("a rare transaction")
def test_a_table_waits_for_xa_that_was_prepared_before_it_was_added(own: BinlogLab) -> None:
    """Its rows were passed over then, and its commit says nothing of them."""
    own.sql(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    own.live(database=BESIDE)
    with own.connected() as session, session.cursor() as cursor:
        for each in ("XA BEGIN 'x'", "INSERT INTO items VALUES (2, 'x')", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(each)
    own.live(database=BESIDE)
    own.tables = ("orders", "items")
    stage = own.start(database=BESIDE)
    stage.wait_for("claimed")
    insert(own, 0, 5)
    own.caught_up()
    wait_until(
        lambda: any("waitsFor" in (each.get("incrementalSnapshot") or {}) for each in stage.receipts), "it is told", 60
    )
    own.sql("XA COMMIT 'x'")
    own.rows_read()
    assert stage.end() == 0, stage.log
    own.check_tables("items")


@pytest.mark.thorough("tests/changes/test_incremental has it")
def test_with_now_a_table_that_is_added_comes_without_its_rows(lab: BinlogLab) -> None:
    lab.sql(ORDERS, ITEMS, "INSERT INTO items VALUES (1, 'a')")
    lab.live()
    lab.tables = ("orders", "items")
    lab.live()
    lab.sql("INSERT INTO items VALUES (2, 'b')")
    lab.live(database={"snapshot": True})
    assert [each.told.op for each in lab.found()] == ["c"], "it was added before rows were asked for"


@pytest.mark.thorough("tests/changes/test_incremental has it")
def test_a_table_that_is_not_there_yet_has_no_rows_to_read(lab: BinlogLab) -> None:
    lab.sql(ORDERS)
    lab.live(database=BESIDE)
    lab.tables = ("orders", "items")
    lab.live(database=BESIDE)
    lab.sql(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    lab.live(database=BESIDE)
    assert [each.told.op for each in lab.found()] == ["c"]


@pytest.mark.thorough("another thing that a user may not see")
def test_a_table_that_the_user_may_not_see_yet_comes_with_its_rows_when_it_may(lab: BinlogLab, tmp_path: Path) -> None:
    name = lab.name[:30]
    (tmp_path / "password").write_text("secret")
    lab.sql(ORDERS, ITEMS, "INSERT INTO items VALUES (1, 'a')", f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'")
    lab.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{name}'@'%'")
    lab.sql(f"GRANT SELECT ON orders TO '{name}'@'%'", f"GRANT LOCK TABLES ON {lab.name}.* TO '{name}'@'%'")
    connection = BinlogConnection(server=lab.server.address, user=name, password_file=str(tmp_path / "password"))
    how = {**BESIDE, "connection": connection}
    lab.live(database=how)
    lab.tables = ("orders", "items")
    lab.live(database=how)
    assert lab.found() == []
    lab.sql(f"GRANT SELECT ON items TO '{name}'@'%'")
    lab.live(database=how)
    assert [(each.told.op, each.told.table) for each in lab.found()] == [("r", f"{lab.name}.items")]
    lab.sql(f"DROP USER '{name}'@'%'")


def test_what_leaves_a_table_unread_is_told(lab: BinlogLab) -> None:
    lab.tables = ("bare",)
    lab.sql("CREATE TABLE bare (id int, note varchar(20))")
    error = lab.refusal(database=BESIDE)
    assert error.reason is Reason.SOURCE_UNSUITABLE
    assert "no primary key" in error.message
    lab.sql("ALTER TABLE bare ADD PRIMARY KEY (id)")
    lab.live(database=BESIDE)


@pytest.mark.thorough("rows beside a stream are in make test")
def test_a_table_that_is_not_wanted_any_more_is_not_waited_for(lab: BinlogLab) -> None:
    lab.sql(ORDERS, ITEMS, "INSERT INTO items VALUES (1, 'a')")
    insert(lab, 0, 100)
    lab.tables = ("orders", "items")
    stage = lab.start("incremental-after-opening", database=BESIDE)
    stage.wait_at("incremental-after-opening")
    stage.kill()
    lab.sql("DROP TABLE orders")
    lab.live(database=BESIDE)
    assert [each.told.table for each in lab.found()] == [f"{lab.name}.items"]


_KEYS = (
    ("bigint", "-5, 0, 7, 9223372036854775807"),
    ("bigint unsigned", "0, 18446744073709551615, 9223372036854775808, 3"),
    ("enum('z', 'b', 'a', 'y')", "'a', 'z', 'y', 'b'"),
    ("set('z', 'b', 'a')", "'', 'a', 'z', 'z,a', 'b', 'z,b,a'"),
    ("bit(12)", "b'0', b'1', b'101', b'111111111111'"),
    ("varbinary(20)", "x'', x'00', x'27', x'5c', x'ff00', x'80'"),
    ("binary(3)", "'a', 'b', x'5c2700', x'000000'"),
    ("decimal(20, 6)", "-1.5, 0, 0.000001, 99999999999999.999999"),
    ("double", "-1e300, 0.1, 1e-300, 3, 1e22"),
    ("float", "0.1, 0.2, 16777216, 3.4e38, -0.3"),
    ("date", "'0000-00-00', '2024-02-29', '1000-01-01', '9999-12-31'"),
    (
        "datetime(6)",
        "'0000-00-00 00:00:00', '2024-02-29 12:00:00.000001', '2024-02-29 12:00:00', '9999-12-31 23:59:59'",
    ),
    ("timestamp(3)", "'2024-02-29 12:00:00.001', '1970-01-02 00:00:00', '2038-01-01 00:00:00', '2024-10-27 02:30:00'"),
    ("time(2)", "'-838:59:59', '838:59:59', '00:00:00.01', '-00:00:00.01'"),
    ("year", "1901, 2155, 0, 2024"),
    ("varchar(20) CHARACTER SET latin1", "'', 'a', 'B', 'c', 0xE9, 'it''s', 'back\\\\slash'"),
    ("varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "'', 'a', 'B', 'ä', '😀', '%', '\"', 'z '"),
    ("varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "'', 'ö', 'B', 'Z', '😀', 'p'"),
    ("char(5) CHARACTER SET ucs2", "'', 'a', 'B', 'ö'"),
)


@pytest.mark.parametrize("composite", [True, pytest.param(False, marks=pytest.mark.thorough("simpler"))])
@pytest.mark.thorough("one key is in make test")
def test_keys_of_every_type_are_read_in_chunks(
    lab: BinlogLab, composite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "CHUNK", 2)
    names = [f"k{number}" for number in range(len(_KEYS))]
    counts = {}
    for name, (kind, values) in zip(names, _KEYS, strict=True):
        more, key = ("a int, c int, ", "(a, k, c)") if composite else ("", "(k)")
        lab.sql(f"CREATE TABLE {name} ({more}k {kind}, PRIMARY KEY {key})")
        with lab.connected() as session, session.cursor() as cursor:
            cursor.execute("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'")
            rows = [f"({each})" for each in values.split(", ")]
            if composite:
                rows = [f"({a}, {each[1:-1]}, {c})" for a in (1, 2) for each in rows for c in (-1, 5, 6)]
            cursor.execute(f"INSERT INTO {name} ({'a, k, c' if composite else 'k'}) VALUES {', '.join(rows)}")
            session.commit()
        counts[name] = len(rows)
    lab.tables = tuple(names)
    lab.live(database=BESIDE)
    found = Counter(each.told.table.split(".")[1] for each in lab.found())
    assert dict(found) == counts
    assert max(keys_read(lab).values()) == 1
    if lab.kind == "mariadb":
        lab.sql("CREATE TABLE u (k uuid PRIMARY KEY)", "INSERT INTO u SELECT uuid() FROM seq_1_to_9")
        lab.tables = (*names, "u")
        lab.live(database=BESIDE)
        assert sum(each.told.table.endswith(".u") for each in lab.found()) == 9


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough("other chances"))])
@pytest.mark.thorough("tests/model has it in make test")
def test_under_load_with_ends_at_any_commit(lab: BinlogLab, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, snapshots of a moment, and few keys that are remembered."""
    monkeypatch.setattr(beside, "CHUNK", 100)
    monkeypatch.setattr(table_reading, "SITTING_S", 0.3)
    monkeypatch.setattr(incremental, "MOST_TOUCHED", 1_000)
    chance = random.Random(seed)
    lab.sql(ORDERS, ITEMS)
    lab.tables = ("orders", "items")
    insert(lab, 10_000_000, 2_000)
    lab.sql("INSERT INTO items SELECT id, 'i' FROM orders WHERE id < 10000500")

    first_life_is_killed(lab, SMALL)
    with Load(lab, rows=3_000, seed=seed, pause_s=0.01):
        lives_until_all_is_read(lab, chance, SMALL)
    lab.live(database=BESIDE, cuts=SMALL)
    assert check(lab, "orders", "items") > 500


@pytest.mark.thorough("tests/changes/test_incremental has it; the server's lock is waited for, which takes long")
@pytest.mark.thorough("of two servers that the same code reads one", after=1)
@BOTH
def test_a_transaction_that_is_open_is_waited_for_and_the_stream_goes_on(lab: BinlogLab) -> None:
    lab.sql(ORDERS)
    insert(lab, 0, 100)
    with lab.connected(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute("UPDATE orders SET note = 'open' WHERE id = 5")
        stage = lab.start(database=BESIDE)
        stage.wait_for("claimed")
        insert(lab, 500, 3)
        lab.caught_up()
        if lab.kind == "mysql":
            wait_until(
                lambda: any("waitsFor" in (each.get("incrementalSnapshot") or {}) for each in stage.receipts),
                "it is told what it waits for",
            )
            assert lab.left() is not None
        session.commit()
    lab.rows_read()
    assert stage.end() == 0, stage.log
    assert check(lab) >= 99


_OTHER_KEYS = [
    ["ALTER TABLE orders DROP PRIMARY KEY, DROP COLUMN id, ADD id bigint AUTO_INCREMENT PRIMARY KEY FIRST"],
    [
        "CREATE TABLE other LIKE orders",
        "INSERT INTO other SELECT id - 1000000, note FROM orders",
        "RENAME TABLE orders TO old, other TO orders",
    ],
    [
        "ALTER TABLE orders ADD other int DEFAULT 1, DROP PRIMARY KEY, ADD PRIMARY KEY (other, id)",
        "UPDATE orders SET id = id - 1000000",
    ],
]


@pytest.mark.parametrize("change", _OTHER_KEYS)
@pytest.mark.thorough("another way", after=2)
@BOTH
@pytest.mark.thorough("tests/changes/test_incremental has it: the same code")
def test_a_key_that_becomes_another_one_half_way(lab: BinlogLab, change: list[str]) -> None:
    lab.sql(ORDERS)
    insert(lab, 1_000_000, 3_000)
    killed_half_way_and_altered(lab, change, SMALL)


@pytest.mark.thorough("of two servers that the same code reads one", after=1)
@BOTH
@pytest.mark.thorough("rows beside a stream are in make test")
def test_a_table_that_is_emptied_while_its_rows_are_read(lab: BinlogLab) -> None:
    """The server would wait with that, but somebody has ended the session; what it has sent is not right any more."""
    lab.sql(ORDERS)
    insert(lab, 0, 15_000)
    emptied_while_it_is_read(
        lab,
        "SELECT concat('KILL ', id) FROM information_schema.processlist WHERE command IN ('Sleep', 'Query')"
        " AND id <> connection_id() ORDER BY id DESC LIMIT 1",
        SMALL,
    )
    assert check(lab) < 15_000


@pytest.mark.thorough("test_under_load_with_ends_at_any_commit")
@pytest.mark.thorough("of two servers that the same code reads one", after=1)
@BOTH
def test_under_load_while_stages_and_the_server_are_killed(own: BinlogLab) -> None:
    own.sql("DELETE FROM orders")
    insert(own, 10_000_000, 20_000)
    own.live()
    own.sql(ITEMS, "INSERT INTO items SELECT id, 'i' FROM orders")
    own.tables = ("orders", "items")
    chance = random.Random(5)
    how: dict[str, Any] = {"database": BESIDE}
    stage = own.start(cuts=SMALL, **how)
    with Load(own, rows=20_000, seed=5, pause_s=0.02):
        stage = troubled(own, chance, stage, 8, **how)
    own.rows_read()
    assert stage.end() == 0, stage.log
    own.check_tables("orders", "items")
