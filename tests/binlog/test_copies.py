"""What a snapshot says of a row, and what the log says of it, is the same: values, texts of any character set, keys."""

from __future__ import annotations

import json
import random
import uuid
from contextlib import closing, suppress
from ipaddress import ip_address
from typing import Any

import pymysql
import pytest

from sinkpipeline.changes import kinds
from sinkpipeline.changes.binlog.copying import Exported
from support.changes.binlog import BOTH, ORDERS, BinlogLab
from support.changes.binlog_load import insert

pytestmark = pytest.mark.kafka


def copied(lab: BinlogLab) -> list[dict[str, Any]]:
    """What a snapshot has of the first table: documents, each with its record's key."""
    database = lab.settings().database
    with closing(kinds.of(database).connect(database)) as reader, closing(Exported(reader)) as found:
        found.open()
        changes = [each for chunk in found.read(0, found.start, 0) for each in chunk or ()]
    return [{**json.loads(each.value), "at": each.key} for each in changes]


def logged(lab: BinlogLab) -> list[dict[str, Any]]:
    return [{**each.record.document, "at": each.record.key} for each in lab.found()]


def alike(lab: BinlogLab) -> list[dict[str, Any]]:
    """The rows, which are so in both."""
    lab.live()
    found, read = logged(lab), copied(lab)
    for name in ("after", "at"):
        assert [each[name] for each in read] == [each[name] for each in found]
    return [each["after"] for each in found]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("x int, a int NOT NULL, b int, UNIQUE KEY (a)", ["a"]),
        *(
            pytest.param(columns, key, marks=pytest.mark.thorough("other keys"))
            for columns, key in (
                ("x int, a int NOT NULL, b int NOT NULL, UNIQUE KEY (b), UNIQUE KEY (a)", ["b"]),
                ("x int, a int, b int NOT NULL, UNIQUE KEY (a), UNIQUE KEY (b)", ["b"]),
                ("x int, a varchar(20) NOT NULL, b int NOT NULL, UNIQUE KEY (a(3)), UNIQUE KEY n (b, x)", None),
                ("x int, a varchar(20) NOT NULL, b int NOT NULL, PRIMARY KEY (b, a(3)), UNIQUE KEY (a)", ["b", "a"]),
                ("x int, a int, b int, KEY (a)", None),
            )
        ),
    ],
)
@BOTH
@pytest.mark.thorough("another kind of key")
def test_a_key_that_the_server_takes_for_the_primary_one(lab: BinlogLab, columns: str, key: list[str] | None) -> None:
    lab.tables = ("keyed",)
    lab.sql(f"CREATE TABLE keyed ({columns})")
    lab.live()
    lab.sql("INSERT INTO keyed VALUES (0, 1, 2)")
    alike(lab)
    found = logged(lab)[0]["at"]
    assert [*(json.loads(found)["key"] or ())] == (key or [])


CHARACTERS = (
    "CREATE TABLE texts (id int PRIMARY KEY, {}, g geometry, one varchar(10) CHARACTER SET latin1, two varchar(10))"
)


@BOTH
def test_every_character_set(lab: BinlogLab) -> None:
    """All bytes of those of one byte; of others, some of which Python has its own idea."""
    sets = lab.sql("SELECT character_set_name, maxlen FROM information_schema.character_sets WHERE maxlen > 0")
    names = [name for name, _ in sets]
    lab.tables = ("texts",)
    columns = ", ".join(f"c_{name} varchar(256) CHARACTER SET {name}" for name in names)
    lab.sql(CHARACTERS.format(columns))
    lab.live()
    chosen = {
        "sjis": "815f", "cp932": "8160", "euckr": "8141b0a2", "gb18030": "8135f437a8bc", "big5": "a15af9d6",
        "gbk": "a1a4", "gb2312": "b0a1", "ujis": "a1c0", "eucjpms": "ada1a1c1", "ucs2": "00e920ac", "utf16": "d83dde00",
        "utf16le": "3dd800de", "utf32": "0001f600", "utf8mb3": "c3a9", "utf8mb4": "f09f9880", "binary": "00ff",
    }  # fmt: skip
    every = bytes(each for each in range(1, 256)).hex()
    with lab.connected() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        values = [f"x'{chosen[name]}'" if int(size) > 1 or name == "binary" else f"x'{every}'" for name, size in sets]
        texts = ", ".join(
            value if name == "binary" else f"CONVERT({value} USING {name})"
            for name, value in zip(names, values, strict=True)
        )
        cursor.execute(f"INSERT INTO texts VALUES (1, {texts}, ST_GeomFromText('POINT(1 2)'), 'é', 'ü')")
    [row] = alike(lab)
    assert (row["one"], row["two"]) == ("é", "ü"), "a spatial column before them"
    assert len(row["c_greek"]) == len(row["c_cp1251"]) == 255
    assert row["c_euckr"] == "갂각"
    assert row["c_koi8u"].count("•") == 1


@pytest.mark.thorough("values of every type are in test_stage")
@BOTH
def test_values_that_are_spelled_in_two_ways(lab: BinlogLab) -> None:
    lab.tables = ("spelled",)
    lab.sql("CREATE TABLE spelled (id int PRIMARY KEY, d double(30,5), s set('a','b') CHARACTER SET binary, j json)")
    lab.live()
    opaque = "JSON_ARRAY(CAST(REPEAT('a', 100) AS BINARY))" if lab.kind == "mysql" else "'[]'"
    lab.sql(f"INSERT INTO spelled VALUES (1, -0.00001, 'a,b', {opaque}), (2, 12345.678, '', '{{}}')")
    alike(lab)


@pytest.mark.thorough("MySQL 9 alone has the type")
@pytest.mark.parametrize("kind", [pytest.param("mysql", id="")], indirect=True)
def test_vectors(lab: BinlogLab) -> None:
    if lab.sql("SELECT version()")[0][0] < "9":
        pytest.skip("it has no vectors")
    lab.tables = ("vectors",)
    columns = "s0 varchar(20), v vector(3), s varchar(20) CHARACTER SET latin1, s3 varchar(10)"
    lab.sql(f"CREATE TABLE vectors (id int PRIMARY KEY, {columns})")
    lab.live()
    lab.sql("INSERT INTO vectors VALUES (1, 'é', TO_VECTOR('[1,2,3]'), 'é', 'é')")
    [row] = alike(lab)
    assert (row["s0"], row["s"], row["s3"]) == ("é", "é", "é")


@pytest.mark.thorough("another kind of key")
@pytest.mark.parametrize("kind", [pytest.param("mysql", id="")], indirect=True)
def test_a_primary_key_that_the_server_has_made(own: BinlogLab) -> None:
    own.sql("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    own.tables = ("keyless",)
    with own.connected() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE keyless (x int)")
    own.live()
    own.sql("INSERT INTO keyless VALUES (7), (8)")
    assert alike(own) == [{"my_row_id": 1, "x": 7}, {"my_row_id": 2, "x": 8}]


@pytest.mark.thorough("another way to store a column")
@pytest.mark.parametrize("kind", [pytest.param("mariadb", id="")], indirect=True)
def test_columns_that_are_compressed(own: BinlogLab) -> None:
    """Short ones and long ones, in another character set and in bytes, with each way to do it."""
    own.tables = ("packed",)
    own.sql(
        "CREATE TABLE packed (id int PRIMARY KEY, s varchar(50) COMPRESSED, l varchar(9000) COMPRESSED CHARACTER SET"
        " latin1, v varbinary(3000) COMPRESSED, t text COMPRESSED, m mediumtext COMPRESSED, b longblob COMPRESSED,"
        " plain varchar(20) CHARACTER SET latin2)"
    )
    own.live()
    with own.connected() as session, session.cursor() as cursor:
        for number, (count, level, wrap) in enumerate(((0, 6, 0), (1, 6, 0), (40, 6, 0), (40, 1, 1), (40, 0, 0))):
            cursor.execute(f"SET SESSION column_compression_zlib_level = {level}")
            cursor.execute(f"SET SESSION column_compression_zlib_wrap = {wrap}")
            many = f"REPEAT('é', {count * 200})"
            cursor.execute(
                f"INSERT INTO packed VALUES ({number}, REPEAT('é', {count}), {many},"
                f" UNHEX(REPEAT('00ff', {count * 30})), {many}, REPEAT('ü', {count * 3000}),"
                f" UNHEX(REPEAT('0102fe', {count * 1000})), 'ř')"
            )
        cursor.execute("INSERT INTO packed (id) VALUES (9)")
    found = alike(own)
    assert [len(each["m"] or "") for each in found] == [0, 3000, 120_000, 120_000, 120_000, 0]
    assert [each["plain"] for each in found] == [*"řřřřř", None]


@BOTH
@pytest.mark.thorough("what a server may be told to say")
def test_what_a_server_says_to_each_session_is_not_said_to_ours(own: BinlogLab) -> None:
    """A snapshot of the first rows alone would be complete for all that anybody can see."""
    lab = BinlogLab(own.server, own.servers, own.directory)
    lab.sql(ORDERS)
    insert(lab, 0, 1_000)
    limits = ["sql_select_limit = 10", "max_join_size = 100"]
    limits.append("max_execution_time = 1" if lab.kind == "mysql" else "max_statement_time = 0.001")
    with lab.connected() as session, session.cursor() as cursor:
        for each in limits:
            cursor.execute(f"SET GLOBAL {each}")
    lab.live(database={"snapshot": True})
    assert len(lab.found()) == 1_000


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
@pytest.mark.thorough("values of every type are in test_stage")
def test_types_that_are_logged_as_bytes(lab: BinlogLab) -> None:
    lab.tables = ("special",)
    lab.sql("CREATE TABLE special (id int PRIMARY KEY, u uuid, i inet6)")
    lab.sql(
        "INSERT INTO special VALUES (1, '320c3d4d-cc00-875b-8ec9-32d5f69181c0', '::131.113.0.0')",
        "INSERT INTO special VALUES (2, '00000000-0000-0000-0000-000000000000', '::1')",
        "INSERT INTO special VALUES (3, 'ffffffff-ffff-ffff-ffff-ffffffffffff', '::1.2.3.4')",
        "INSERT INTO special VALUES (4, '017f22e2-79b0-7cc3-98c4-dc0c0c07398f', '::ffff:0:0')",
    )
    with lab.connected() as session, session.cursor() as cursor:
        for number in range(5, 300):
            with suppress(pymysql.Error):
                # Not every text of a UUID is one to the server.
                chance = random.Random(number)
                cursor.execute(
                    "INSERT INTO special VALUES (%s, %s, %s)",
                    (
                        number,
                        str(uuid.UUID(int=chance.getrandbits(128))),
                        ip_address(chance.getrandbits(128)).compressed,
                    ),
                )
        session.commit()
    lab.sql("CREATE TABLE rows_of AS SELECT * FROM special", "DELETE FROM special")
    lab.live()
    lab.sql("INSERT INTO special SELECT * FROM rows_of")
    assert len(alike(lab)) > 100


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
@pytest.mark.thorough("an edit of a table while it is read; tests/binlog/test_snapshot has another")
def test_a_column_that_becomes_a_uuid_while_it_is_read(lab: BinlogLab) -> None:
    lab.tables = ("special",)
    lab.sql("CREATE TABLE special (id int PRIMARY KEY, u binary(16))")
    stage = lab.start()
    stage.wait_for("claimed")
    lab.sql("INSERT INTO special VALUES (1, x'000102030405060708090a0b0c0d0e0f')")
    lab.caught_up()
    lab.sql(
        "ALTER TABLE special MODIFY u uuid", "INSERT INTO special VALUES (2, '320c3d4d-cc00-875b-8ec9-32d5f69181c0')"
    )
    lab.caught_up()
    assert stage.end() == 0
    assert [each["after"]["u"] for each in logged(lab)] == [
        "AAECAwQFBgcICQoLDA0ODw==",
        "320c3d4d-cc00-875b-8ec9-32d5f69181c0",
    ]


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
@pytest.mark.parametrize("columns", ["a text NOT NULL, UNIQUE (a)", "a varchar(50) NOT NULL, UNIQUE (a) USING HASH"])
@pytest.mark.thorough("another kind of key")
def test_a_key_that_is_a_hash_is_none(lab: BinlogLab, columns: str) -> None:
    lab.tables = ("hashed",)
    lab.sql(f"CREATE TABLE hashed (x int, {columns})")
    lab.live()
    lab.sql("INSERT INTO hashed VALUES (1, 'x'), (2, 'y')", "UPDATE hashed SET x = 3 WHERE a = 'x'")
    lab.live()
    assert [each["after"] for each in logged(lab)] == [{"x": 1, "a": "x"}, {"x": 2, "a": "y"}, {"x": 3, "a": "x"}]
    assert {each["at"] for each in [*logged(lab), *copied(lab)]} == {
        f'{{"table":"{lab.name}.hashed","key":null}}'.encode()
    }
