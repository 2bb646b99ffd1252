"""A stage on a real MariaDB server: what is in the topic is what the server's own program prints of its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

import pytest

from sinkpipeline.changes import kinds
from sinkpipeline.changes.binlog.copying import Exported
from sinkpipeline.core.cuts import CutPolicy
from support.changes.binlog import BOTH, BinlogLab
from support.changes.lab import CUT_AT_ONE
from support.waiting import wait_until

pytestmark = pytest.mark.kafka


def some_of_everything(lab: BinlogLab) -> None:
    """Transactions that run at once, savepoints, rollbacks, many rows, keys that change, other tables."""
    with lab.connected(autocommit=False) as one, lab.connected(autocommit=False) as two:
        first, second = one.cursor(), two.cursor()
        first.executemany("INSERT INTO orders VALUES (%s, 'one')", [(each,) for each in range(5)])
        second.executemany("INSERT INTO orders VALUES (%s, 'two')", [(each,) for each in range(100, 105)])
        first.execute("SAVEPOINT s")
        first.execute("INSERT INTO orders VALUES (50, 'never')")
        first.execute("ROLLBACK TO s")
        first.execute("INSERT INTO others VALUES (1)")
        first.execute("UPDATE orders SET note = 'o''ne \\\\ \\n ä €' WHERE id = 2")
        second.execute("DELETE FROM orders WHERE id = 100")
        two.commit()
        first.execute("INSERT INTO orders VALUES (60, NULL)")
        one.commit()
        first.execute("INSERT INTO orders VALUES (70, 'never')")
        one.rollback()
    lab.sql(
        "INSERT INTO orders SELECT 1000 + seq, repeat('x', 100) FROM seq_1_to_500",
        "UPDATE orders SET id = -id WHERE id BETWEEN 1000 AND 1020",
        "INSERT INTO others VALUES (2)",
        "INSERT INTO bare VALUES (1, 'no key'), (1, 'no key')",
        "UPDATE bare SET note = 'changed' LIMIT 1",
        "DELETE FROM bare LIMIT 1",
        "INSERT INTO orders VALUES (1, 'replaced') ON DUPLICATE KEY UPDATE note = 'duplicate'",
        "REPLACE INTO orders VALUES (1, 'replaced')",
        "/* why */ TRUNCATE TABLE orders",
        "FLUSH BINARY LOGS",
        "INSERT INTO orders VALUES (1, 'again')",
    )


def prepare(lab: BinlogLab) -> None:
    lab.tables = ("orders", "bare")
    lab.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(200))",
        "CREATE TABLE bare (id int, note varchar(20))",
        "CREATE TABLE others (id int)",
    )


@BOTH
def test_the_topic_has_what_the_server_prints(lab: BinlogLab) -> None:
    prepare(lab)
    stage = lab.start(cuts=CutPolicy(rows=7, bytes=1 << 20, seconds=0.1))
    stage.wait_for("claimed")
    some_of_everything(lab)
    lab.caught_up()
    assert stage.end() == 0

    assert lab.check() > 550
    assert stage.receipts[-1]["event"] == "ended"
    committed = stage.of("committed")
    assert [each["next"] for each in committed] == sorted(each["next"] for each in committed)
    assert len(committed) > 10, "it was cut inside transactions"
    state = stage.of("state")[-1]
    assert state["lagSeconds"] == 0
    assert state["lagBytes"] >= 0
    assert f"{lab.server.log}.0" in state["serverEnd"]


@pytest.mark.thorough("tests/unit has the partition of a row")
def test_a_row_stays_in_its_partition_and_in_order(lab: BinlogLab) -> None:
    prepare(lab)
    lab.live()
    lab.sql(*(f"INSERT INTO orders VALUES ({each}, 'first')" for each in range(20)))
    lab.sql(*("UPDATE orders SET note = concat(note, '+')" for _ in range(3)))
    lab.live()
    by_key: dict[bytes, list[Any]] = {}
    for each in lab.found():
        by_key.setdefault(each.record.key or b"", []).append(each)
    assert len(by_key) == 20
    for changes in by_key.values():
        assert len({each.record.partition for each in changes}) == 1
        assert [len(dict(each.told.row)["note"]) for each in changes] == [5, 6, 7, 8]
    assert len({each.record.partition for each in lab.found()}) == 3


_TYPES = """id int PRIMARY KEY, yr year, large bigint unsigned, small smallint, medium mediumint unsigned,
  tiny tinyint(1), filled int(6) zerofill, fl float, db double, de decimal(10,2), wide decimal(60,10),
  whole decimal(5,0),
  da date, dt datetime, dt3 datetime(3), dt6 datetime(6), ts timestamp NULL, ts6 timestamp(6) NULL, tm time,
  tm1 time(1), tm3 time(3), tm6 time(6), ch char(10), vc varchar(100), latin varchar(1000) CHARACTER SET latin1,
  utf16 varchar(20) CHARACTER SET utf16, long_ch char(200), tx text, lt longtext, bin binary(5), vb varbinary(300),
  bl blob, en enum('a','ü','c,d'), latin_en enum('a','ü') CHARACTER SET latin1, se set('x','y','z'), bi1 bit(1),
  bi17 bit(17), js json, geo point, virt int AS (id + 1) VIRTUAL, kept int AS (id + 2) STORED,
  hidden int INVISIBLE DEFAULT 7, uca varchar(10) COLLATE {uca}, uu {uuid}, i6 {inet6}, i4 {inet4}"""
EVERY_TYPE: Final[Mapping[str, str]] = {
    "mariadb": _TYPES.format(uca="utf8mb4_uca1400_ai_ci", uuid="uuid", inet6="inet6", inet4="inet4"),
    # What these are a text of; and what only MySQL has: an index that is a column, and one of many values of JSON.
    "mysql": _TYPES.format(uca="utf8mb4_0900_ai_ci", uuid="varchar(40)", inet6="varchar(40)", inet4="varchar(40)")
    + ", INDEX ((tiny + 1)), INDEX ((CAST(js->'$.b' AS signed ARRAY))), INDEX ((lower(vc)))",
}
_NAMES = (
    "yr, large, small, medium, tiny, filled, fl, db, de, wide, whole, da, dt, dt3, dt6, ts, ts6, tm, tm1, tm3, tm6, ch,"
    " vc, latin, utf16, long_ch, tx, lt, bin, vb, bl, en, latin_en, se, bi1, bi17, js, geo, hidden, uca, uu, i6, i4"
)
ROWS = (
    (
        "1, 2024, 18446744073709551615, -32768, 16777215, 1, 42, 0.1, 0.1, -12345678.90,"
        " 12345678901234567890123456789012345678901234567890.1234567890, -99999, '2024-02-29',"
        " '1969-12-31 23:59:59', '1000-01-01 00:00:00.5', '2024-02-29 12:34:56.789012',"
        " '2024-02-29 12:34:56', '2024-02-29 12:34:56.789012', '-838:59:59', '-00:00:00.5',"
        " '12:34:56.789', '-12:34:56.000001', 'char  ', 'varchar €', 'latin ü€', 'utf16 €',"
        " 'long', 'text \\t\\n\\\\\"', 'long', x'0102', x'00ff5c', x'', 'ü', 'ü', 'x,z', 1,"
        " b'10101010101010101', '{\"a\": [1, null], \"b\": [1, 2]}', point(1, 2), 5, 'é',"
        " 'f47ac10b-58cc-4372-a567-0e02b2c3d479', 'fe80::1', '1.2.3.4'"
    ),
    (
        "2, 0, 0, 0, 0, 0, 0, 1e20, 1e-300, 0, -0.0000000001, 0, '0000-00-00',"
        " '0000-00-00 00:00:00', '2024-00-00', '9999-12-31 23:59:59.999999',"
        " '0000-00-00 00:00:00', '1970-01-01 00:00:01.000001', '838:59:59', '00:00:00',"
        " '-838:59:59.0', '838:59:58.999999', '', '', '', '', '', '', '', '', '', '', '', 'a',"
        " '', 0, 0, '[]', NULL, 0, '', '0188d5d8-7b1e-7c3a-9c2b-111111111111', '::ffff:1.2.3.4', '0.0.0.0'"
    ),
    "3" + ", NULL" * 43,
    (
        "4, 1901, 9007199254740993, 1, 1, -128, 1, 3.4028235e38, 1.7976931348623157e308, 0.01, 1,"
        " 1, '0001-01-01', '0001-01-01', '2024-01-01', '2024-01-01 00:00:00.000001',"
        " '2038-01-19 03:14:07', '2038-01-19 03:14:07.999999', '00:00:01', '00:00:00.1',"
        " '-00:00:00.001', '-00:00:00.000001', 'a', 'a', 'é', 'x', 'y', 'z', 'z',  x'0000000000',"
        " x'00', x'ff00', 'c,d', 'ü', 'y', 0, 1, '{}', NULL, 1, 'x', 'a8b591fd-ea3e-11f1-997d-02fc00000001',"
        " '::', '255.255.255.255'"
    ),
)


@BOTH
def test_values_of_every_type_are_alike_in_the_log_and_in_the_table(lab: BinlogLab) -> None:
    lab.tables = ("everything",)
    lab.sql(f"CREATE TABLE everything ({EVERY_TYPE[lab.kind]})")
    lab.live()
    with lab.connected() as session, session.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        for row in ROWS:
            cursor.execute(f"INSERT INTO everything (id, {_NAMES}) VALUES ({row})")
    lab.live()
    logged = {each.record.document["after"]["id"]: each.record.document["after"] for each in lab.found()}
    assert len(logged) == len(ROWS)

    database = lab.settings().database
    with closing(kinds.of(database).connect(database)) as connected, closing(Exported(connected)) as copied:
        copied.open()
        read = [json.loads(each.value)["after"] for chunk in copied.read(0, copied.start, 0) for each in chunk or ()]
    assert {each["id"]: each for each in read} == logged

    first = logged[1]
    assert (first["large"], first["wide"]) == (
        "18446744073709551615",
        "12345678901234567890123456789012345678901234567890.1234567890",
    )
    assert (first["fl"], first["db"], first["filled"], first["yr"]) == (0.1, 0.1, 42, 2024)
    assert (first["ts"], first["dt"], first["tm"]) == ("2024-02-29 12:34:56+00", "1969-12-31 23:59:59", "-838:59:59")
    assert (first["bin"], first["bi17"], first["se"]) == ("AQIAAAA=", "10101010101010101", "x,z")
    assert (first["latin"], first["latin_en"], first["en"]) == ("latin ü€", "ü", "ü")
    assert (first["uu"], first["i6"], first["i4"]) == ("f47ac10b-58cc-4372-a567-0e02b2c3d479", "fe80::1", "1.2.3.4")
    assert (logged[2]["da"], logged[2]["ts"]) == ("0000-00-00", "0000-00-00 00:00:00"), "a zero date is no null"
    assert {value for name, value in logged[3].items() if name not in ("id", "virt", "kept")} == {None}


@BOTH
@pytest.mark.thorough("tests/unit/test_binlog has it")
def test_a_table_that_is_altered_is_read_as_it_was(lab: BinlogLab) -> None:
    prepare(lab)
    lab.live()
    lab.sql(
        "INSERT INTO orders VALUES (1, 'before')",
        "ALTER TABLE orders ADD more int UNSIGNED DEFAULT 4000000000 FIRST",
        "INSERT INTO orders (id, note) VALUES (2, 'between')",
        "ALTER TABLE orders DROP note, MODIFY id bigint UNSIGNED",
        "INSERT INTO orders (id) VALUES (18446744073709551615)",
        "RENAME TABLE orders TO elsewhere",
        "CREATE TABLE orders (other int PRIMARY KEY)",
        "INSERT INTO orders VALUES (5)",
    )
    lab.live()
    assert [each.record.document["after"] for each in lab.found()] == [
        {"id": 1, "note": "before"},
        {"more": 4000000000, "id": 2, "note": "between"},
        {"more": 4000000000, "id": "18446744073709551615"},
        {"other": 5},
    ]


@pytest.mark.parametrize(
    "format_", ["CRC32", pytest.param("NONE", marks=pytest.mark.thorough("the default is in every other test"))]
)
@BOTH
@pytest.mark.thorough("the default is in every other test")
def test_a_log_with_and_without_checksums_and_compression(lab: BinlogLab, format_: str) -> None:
    prepare(lab)
    before = lab.sql("SELECT @@global.binlog_checksum")[0][0]
    compression = "binlog_transaction_compression" if lab.kind == "mysql" else "log_bin_compress"
    lab.sql(f"SET GLOBAL binlog_checksum = '{format_}'", f"SET GLOBAL {compression} = ON")
    try:
        lab.live()
        some_of_everything(lab)
        lab.live(cuts=CUT_AT_ONE)
        assert lab.check() > 550
    finally:
        lab.sql(f"SET GLOBAL binlog_checksum = '{before}'", f"SET GLOBAL {compression} = OFF")


@pytest.mark.thorough("the log without a pause is followed in make test")
def test_while_only_other_tables_change_the_position_follows(lab: BinlogLab) -> None:
    prepare(lab)
    stage = lab.start()
    stage.wait_for("claimed")
    lab.sql(*("INSERT INTO others VALUES (1)" for _ in range(10)))
    lab.caught_up()
    lab.sql("FLUSH BINARY LOGS")
    lab.caught_up()
    assert stage.end() == 0
    assert lab.found() == []


def test_a_log_without_changes_of_ours_is_followed_without_a_pause(lab: BinlogLab) -> None:
    """Else a start after a long stretch of it would begin before that again."""
    prepare(lab)
    lab.live()
    lab.sql(*("INSERT INTO others VALUES (1)" for _ in range(30)))
    life = lab.live(database={"idle_advance_s": 0.0})
    assert len([each for each in life.told if each["event"] == "committed"]) > 20


@pytest.mark.thorough("tests/changes has it: the same code")
def test_a_transaction_is_whole_if_it_is_asked_for(lab: BinlogLab) -> None:
    prepare(lab)
    lab.live()
    with lab.connected(autocommit=False) as session, session.cursor() as cursor:
        for _ in range(3):
            cursor.execute("INSERT INTO orders SELECT max(id) + seq, 'x' FROM orders, seq_1_to_50 GROUP BY seq")
            cursor.execute("INSERT INTO orders SELECT coalesce(max(id), 0) + 1, 'x' FROM orders")
        session.commit()
    life = lab.live(cuts=CUT_AT_ONE, database={"whole_transactions": True})
    sizes = [each["transactions"] for each in life.told if each["event"] == "committed" and each["transactions"]]
    assert [len(each) for each in sizes] == [1]
    assert lab.check() == sum(sizes[0])


@pytest.mark.thorough("waits for its second look")
def test_an_idle_stage_says_how_it_stands(lab: BinlogLab) -> None:
    prepare(lab)
    stage = lab.start()
    stage.wait_for("claimed")
    wait_until(lambda: len(stage.of("state")) > 1, "it has told twice how it stands", 30)
    lags = [each["lagSeconds"] for each in stage.of("state")]
    assert lags[-1] == 0
    assert all(one["serverEnd"] <= two["serverEnd"] for one, two in pairwise(stage.of("state")))
    assert stage.end() == 0
