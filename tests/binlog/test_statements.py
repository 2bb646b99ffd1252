"""Whatever changes rows: who applies the changes has what the table is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from support.changes.binlog import ORDERS, BinlogLab

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
