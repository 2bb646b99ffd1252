"""Whatever changes rows: who applies the changes has what the table is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from sinkpipeline.core.errors import Reason
from support.changes.binlog import BOTH, ORDERS, BinlogLab

pytestmark = pytest.mark.kafka

_OTHER = "CREATE TABLE other (id bigint PRIMARY KEY, x int)"
STATEMENTS: Final[Mapping[str, Sequence[str]]] = {
    "several tables at once": (
        _OTHER,
        "INSERT INTO orders SELECT seq, 's' FROM seq_1_to_20",
        "INSERT INTO other SELECT seq, seq FROM seq_1_to_10",
        "UPDATE orders, other SET orders.note = 'm', other.x = 0 WHERE orders.id = other.id",
        "DELETE orders, other FROM orders JOIN other USING (id) WHERE id > 5",
    ),
    "a trigger": (
        _OTHER,
        "CREATE TRIGGER copies AFTER INSERT ON other FOR EACH ROW REPLACE INTO orders VALUES (NEW.id, uuid())",
        "INSERT INTO other SELECT seq, seq FROM seq_1_to_10",
        "REPLACE INTO other VALUES (3, 1)",
    ),
    "a procedure": (
        "CREATE PROCEDURE p() BEGIN INSERT INTO orders VALUES (1, 'p'); UPDATE orders SET note = 'q'; END",
        "CALL p()",
        "PREPARE s FROM 'INSERT INTO orders VALUES (2, ''x'')'",
        "EXECUTE s",
    ),
    "a sequence": ("CREATE SEQUENCE s", *["INSERT INTO orders VALUES (NEXTVAL(s), 'a')"] * 3),
    "CREATE TABLE AS SELECT": (
        "RENAME TABLE orders TO former",
        "CREATE TABLE orders (PRIMARY KEY (id)) AS SELECT seq AS id, 'n' AS note FROM seq_5_to_9",
    ),
    "partitions": (
        "ALTER TABLE orders PARTITION BY HASH(id) PARTITIONS 3",
        "INSERT INTO orders SELECT seq, 's' FROM seq_1_to_20",
        "UPDATE orders SET id = id + 100",
        "ALTER TABLE orders REMOVE PARTITIONING",
        "INSERT IGNORE INTO orders VALUES (101, 'never'), (1, 'x')",
    ),
    "a temporary table": (
        "CREATE TEMPORARY TABLE t AS SELECT seq AS id, 't' AS note FROM seq_1_to_5",
        "INSERT INTO orders SELECT * FROM t",
        "DROP TEMPORARY TABLE t",
    ),
    "a file that is loaded": (
        "SELECT seq, 'f' INTO OUTFILE '{directory}/rows' FROM seq_1_to_9",
        "LOAD DATA INFILE '{directory}/rows' INTO TABLE orders",
    ),
    "MyISAM": (
        "ALTER TABLE orders ENGINE = MyISAM",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
        "UPDATE orders SET note = 'u' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    ),
    "Aria": (
        "ALTER TABLE orders ENGINE = Aria",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (3, 'c')",
    ),
}


OF_MARIADB: Final = ("a sequence", "Aria")


@pytest.mark.thorough("tests/binlog/test_stage has the commonest statements")
@pytest.mark.parametrize("what", STATEMENTS)
def test_a_row_is_changed_by(what: str, lab: BinlogLab) -> None:
    if lab.kind == "mysql" and what in OF_MARIADB:
        pytest.skip("MariaDB alone has it")
    lab.sql(ORDERS)
    lab.live()
    lab.sql(*(each.format(directory=lab.server.directory) for each in STATEMENTS[what]))
    lab.live()
    lab.check_tables("orders")


SESSIONS: Final = (
    "SET @x = CONNECTION_ID();",
    "CREATE TEMPORARY TABLE a (x int); DROP TEMPORARY TABLE a;",
    "DROP TEMPORARY TABLE IF EXISTS nothing;",
)
"""What makes all that follows in a procedure depend on its session, by the log."""


@BOTH
@pytest.mark.thorough("tests/unit/test_binlog has their texts")
def test_a_table_that_is_emptied_in_a_procedure(lab: BinlogLab) -> None:
    lab.sql(ORDERS)
    lab.live()
    for number, before in enumerate(SESSIONS):
        lab.sql(
            f"CREATE PROCEDURE p{number}() BEGIN {before} TRUNCATE TABLE orders; INSERT INTO orders VALUES (1, 'x');"
            " END",
            f"CALL p{number}()",
        )
    lab.live()
    lab.check_tables("orders")
    assert [each.told.op for each in lab.found()] == ["t", "c"] * 3


@BOTH
@pytest.mark.thorough("tests/unit/test_binlog has their texts")
def test_a_temporary_table_of_the_same_name_is_nobodys(lab: BinlogLab) -> None:
    lab.sql(ORDERS, "INSERT INTO orders VALUES (1, 'stays')", "CREATE TABLE source AS SELECT * FROM orders")
    lab.live()
    for how in ("STATEMENT", "MIXED", "ROW"):
        with lab.connected(autocommit=True) as session, session.cursor() as cursor:
            for each in (
                f"SET binlog_format = {how}",
                "CREATE TEMPORARY TABLE orders (id int, note text)",
                "INSERT INTO orders VALUES (5, 'of nobody')",
                "TRUNCATE TABLE orders",
                "INSERT INTO orders SELECT * FROM source",
                "DROP TEMPORARY TABLE orders",
            ):
                cursor.execute(each)
    lab.live()
    assert lab.found() == []
    lab.sql("TRUNCATE orders")
    lab.live()
    assert [each.told.op for each in lab.found()] == ["t"]


@pytest.mark.parametrize(
    "statement", ["TRUNCATE TABLE orders", "SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE orders"]
)
@pytest.mark.thorough("tests/unit/test_binlog has their texts")
def test_what_stands_before_a_statement(lab: BinlogLab, statement: str) -> None:
    if lab.kind == "mysql":
        pytest.skip("MariaDB alone has it")
    lab.sql(ORDERS, "INSERT INTO orders VALUES (1, 'x')")
    lab.live()
    lab.sql(statement)
    lab.live()
    assert [each.told.op for each in lab.found()] == ["t"]


AS_TEXT: Final = (
    "--\x01 x\nDELETE FROM orders",
    "DROP TABLE orders; CREATE TABLE orders (id bigint, note text) {query}",
    "SET STATEMENT lock_wait_timeout = 5 FOR UPDATE orders SET note = 'x'",
    "ANALYZE UPDATE orders SET note = 'x'",
    "ANALYZE FORMAT=JSON DELETE FROM orders",
)


@pytest.mark.parametrize("text", AS_TEXT)
@pytest.mark.thorough("tests/unit/test_binlog has their texts", after=1)
@BOTH
def test_a_statement_as_text_is_noticed(lab: BinlogLab, text: str) -> None:
    if lab.kind == "mysql" and not text.startswith(("--", "DROP")):
        pytest.skip("MariaDB alone has it")
    lab.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a')", "CREATE TABLE source AS SELECT * FROM orders")
    lab.live()
    query = "AS VALUES (1, 'x')" if lab.kind == "mariadb" else "TABLE source"
    lab.sql("SET binlog_format = 'STATEMENT'", *text.format(query=query).split("; "))
    assert lab.refusal().reason is Reason.SOURCE_UNSUITABLE


@BOTH
@pytest.mark.thorough("tests/unit/test_binlog has their texts")
def test_a_statement_that_only_names_a_table_stops_nothing(lab: BinlogLab) -> None:
    lab.sql(ORDERS)
    lab.live()
    lab.sql(
        """CREATE TABLE fields (id bigint, `select` int, kind enum('text', 'select') COMMENT 'insert into orders',
        FOREIGN KEY (id) REFERENCES orders (id))""",
        "DROP TABLE fields",
        "DROP TABLE orders",
        "CREATE TABLE orders (id bigint PRIMARY KEY, note enum('select', 'values', 'table'))",
        "INSERT INTO orders VALUES (1, 'table')",
    )
    lab.live()
    lab.check_tables("orders")


@pytest.mark.thorough("tests/unit/test_binlog has their texts")
def test_statements_are_in_the_character_set_of_their_session(lab: BinlogLab) -> None:
    lab.tables = ("заказы",)
    lab.sql("CREATE TABLE заказы (id int PRIMARY KEY)", "INSERT INTO заказы VALUES (1)")
    lab.live()
    with lab.connected(charset="cp1251") as session, session.cursor() as cursor:
        cursor.execute("TRUNCATE TABLE заказы")
    lab.live()
    assert [each.told.op for each in lab.found()] == ["t"]
    with lab.connected(charset="cp1251") as session, session.cursor() as cursor:
        cursor.execute("SET binlog_format = 'STATEMENT'")
        cursor.execute("INSERT INTO заказы VALUES (5)")
        session.commit()
    assert lab.refusal().reason is Reason.SOURCE_UNSUITABLE


def test_a_cascade_that_is_gone_before_it_is_read(lab: BinlogLab) -> None:
    lab.sql(ORDERS, "CREATE TABLE parents (id bigint PRIMARY KEY)")
    lab.live()
    lab.sql(
        "INSERT INTO parents VALUES (1)",
        "INSERT INTO orders VALUES (1, 'x')",
        "ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE",
        "DELETE FROM parents",
        "ALTER TABLE orders DROP FOREIGN KEY c",
    )
    if lab.sql("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'"):
        lab.live()
        lab.check_tables("orders")
        return
    assert "ON DELETE CASCADE" in str(lab.refusal())


@pytest.mark.thorough("a rare name")
def test_a_database_whose_name_has_a_dot(lab: BinlogLab) -> None:
    lab.sql("CREATE TABLE `my.orders` (id int PRIMARY KEY)", f"CREATE DATABASE `{lab.name}.my`")
    lab.tables = ("my.orders",)
    lab.live()
    try:
        other = f"`{lab.name}.my`.orders"
        lab.sql(f"CREATE TABLE {other} (id int PRIMARY KEY)", f"INSERT INTO {other} VALUES (1)", f"TRUNCATE {other}")
        lab.sql("INSERT INTO `my.orders` VALUES (7)")
        lab.live()
    finally:
        lab.sql(f"DROP DATABASE `{lab.name}.my`")
    assert [each.record.document["after"] for each in lab.found()] == [{"id": 7}]
