"""JSON as MySQL logs it: in bytes of its own, read to the text that the server itself prints."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from support.changes.binlog import BinlogLab

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.parametrize("kind", [pytest.param("mysql", id="")], indirect=True),
]

DOCUMENTS = (
    *("'null'", "'true'", "'0'", "'-0.0'", "'\"\"'", "'[]'", "'{}'", "NULL", "'1e400'"),
    *("'18446744073709551615'", "'-9223372036854775808'", "'65535'", "'-32768'", "'4294967295'"),
    *(
        "'1e15'",
        "'1e16'",
        "'123456789012345678'",
        "'1.5e-7'",
        "'0.1'",
        "'1e22'",
        "'1.7976931348623157e308'",
        "'5e-324'",
    ),
    *("CAST(12345678901234567890.123456789 AS JSON)", "CAST(-0.5 AS JSON)", "JSON_ARRAY(CAST('9.90' AS decimal(4,2)))"),
    *("CAST(timestamp'2024-02-29 12:34:56.789' AS JSON)", "CAST(date'0001-01-01' AS JSON)"),
    *("CAST(time'-838:59:59' AS JSON)", "CAST(time'12:34:56.000001' AS JSON)", "CAST(x'00ff10' AS JSON)"),
    *("JSON_OBJECT('bit', b'101', 'point', ST_GeomFromText('POINT(1 2)'))", "JSON_ARRAY(CAST('x' AS char(3)))"),
    *("JSON_OBJECT('k', repeat('x', 70000))", "JSON_OBJECT(repeat('k', 300), 70000, 'n', -70000)"),
    *('\'{"ä": "€", "a\\\\u0000": "\\\\"\\\\\\\\ \\\\b\\\\f\\\\n\\\\r\\\\t\\\\u001f\\\\u007f /", "😀": []}\'',),
    *("(SELECT JSON_ARRAYAGG(seq * 1000) FROM test_numbers.numbers)",),
    *("CAST(concat(repeat('[', 99), repeat(']', 99)) AS JSON)",),
)


def value(chance: random.Random, depth: int) -> Any:  # noqa: PLR0911 - a kind each
    match chance.randrange(9 if depth else 6):
        case 0:
            return struct.unpack("<d", struct.pack("<Q", chance.getrandbits(63) % 0x7FF0 << 48 | 1))[0]
        case 1:
            return float(f"{chance.randrange(10 ** chance.randrange(1, 18))}e{chance.randrange(-36, 8)}")
        case 2:
            return chance.randrange(-(1 << chance.randrange(1, 63)), 1 << chance.randrange(1, 64))
        case 3:
            return "".join(
                chr(chance.choice((34, 92, 9, 31, 97, 228, 8364, 128512))) for _ in range(chance.randrange(9))
            )
        case 4:
            return chance.choice((None, True, False))
        case 5:
            return struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64) & ~(0x7FF << 52) | 0x3F0 << 52))[0]
        case 6:
            return [value(chance, depth - 1) for _ in range(chance.choice((0, 1, 3, 40)))]
        case _:
            return {
                f"{number}ö"[chance.randrange(2) :]: value(chance, depth - 1) for number in range(chance.randrange(6))
            }


def check(lab: BinlogLab) -> int:
    """That the topic has what the server prints; of how many rows."""
    printed = dict(lab.sql("SELECT id, CAST(d AS char) FROM documents"))
    told = {each.record.document["after"]["id"]: each.record.document["after"]["d"] for each in lab.found()}
    wrong = [(text, told[number]) for number, text in printed.items() if told[number] != text]
    assert wrong == []
    return len(printed)


@pytest.mark.thorough("tests/unit/test_binlog has documents; test_stage has values of every type")
def test_documents_of_every_kind(lab: BinlogLab) -> None:
    lab.tables = ("documents",)
    lab.sql("CREATE TABLE documents (id int PRIMARY KEY AUTO_INCREMENT, d json)")
    lab.live()
    lab.sql("INSERT INTO documents (d) VALUES ('{\"a\": 1}')")
    for each in DOCUMENTS:
        if each != "'1e400'":
            lab.sql(f"INSERT INTO documents (d) VALUES ({each})")
    lab.sql("INSERT IGNORE INTO documents (d) SELECT NULL")
    lab.live()
    assert check(lab) > len(DOCUMENTS)


@pytest.mark.thorough("documents of every kind are in make test")
def test_documents_by_chance(lab: BinlogLab) -> None:
    lab.tables = ("documents",)
    lab.sql("CREATE TABLE documents (id int PRIMARY KEY AUTO_INCREMENT, d json)")
    lab.live()
    chance = random.Random(26)
    with lab.connected() as session, session.cursor() as cursor:
        documents = [(json.dumps(value(chance, 3), ensure_ascii=False),) for _ in range(2_000)]
        cursor.executemany("INSERT INTO documents (d) VALUES (%s)", documents)
    lab.live()
    assert check(lab) == 2_000
