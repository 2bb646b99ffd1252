"""Events of a binary log, and what is decided by positions in one; tests/binlog has a server's own."""

from __future__ import annotations

import contextlib
import re
import struct
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sinkpipeline.changes.binlog.payload import expanded
from sinkpipeline.core.changes import binlog, binlog_events, binlog_rows, binlog_statements, binlog_status
from sinkpipeline.core.changes.binlog_beginning import (
    Identity,
    LogFile,
    Seen,
    at_risk,
    check_going_on,
    files_of,
    identity_of,
    is_known,
)
from sinkpipeline.core.changes.binlog_json import json_text
from sinkpipeline.core.changes.binlog_kinds import MARIADB, MYSQL, BinlogKind
from sinkpipeline.core.changes.binlog_suitable import Facts, unsuitable
from sinkpipeline.core.changes.binlog_values import SPECIAL, LoggedColumn, NotServed, decoder, reader, shortest
from sinkpipeline.core.changes.checkpoints import CheckpointError, binlog_from_debezium, from_binlog
from sinkpipeline.core.changes.pgoutput import NotUnderstood
from sinkpipeline.core.changes.positions import (
    BinlogPosition,
    LogPosition,
    binlog_commit,
    from_record,
    is_earlier,
    noted,
    parse_binlog,
)
from sinkpipeline.core.documents import PLACE
from sinkpipeline.core.errors import Reason, SinkPipelineError

HERE = "here"


def event(kind: int, body: bytes, *, end: int = 1000, flags: int = 0, checksum: bool = False) -> bytes:
    size = 19 + len(body) + (4 if checksum else 0)
    data = struct.pack("<IBIIIH", 7, kind, 1, size, end, flags) + body
    return data + (zlib.crc32(data).to_bytes(4, "little") if checksum else b"")


def parsed(data: bytes, *, checksums: bool = False) -> Any:
    return binlog.parse(data, binlog.head(data), has_checksums=checksums)


NOTES = ["", "0-1-7", "0-1-7,1-2-9", noted("0-1-7", 3, 1_795_772_231), noted("0-1-7", 3, 17, "0-1-7,1-2-9", "0-1-7")]


@st.composite
def positions(draw: st.DrawFn) -> BinlogPosition:
    """Also of a server that has taken over, and with a count."""
    number, offset, shift = draw(st.integers(0, 2**31)), draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**30))
    index, note = draw(st.integers(0, 2**50)), draw(st.sampled_from(NOTES))
    place = BinlogPosition(binlog_commit(number, offset), 0, "mariadb-bin").shifted(shift)
    return place.moved(place.commit, index, note, draw(st.integers(0, 2**40)))


POSITIONS = positions()


@given(POSITIONS)
def test_a_position_is_read_back(at: BinlogPosition) -> None:
    found = from_record(at.to_record())
    assert found == at
    assert isinstance(found, BinlogPosition)
    assert (found.note, found.place, found.shift, found.inside) == (at.note, at.place, at.shift, at.inside)
    assert re.fullmatch(PLACE, at.place), "the status may have it"


@given(POSITIONS, POSITIONS)
def test_the_order_of_positions(one: BinlogPosition, other: BinlogPosition) -> None:
    """By file, place and index; the GTID is no part of it."""
    files = [each.number + each.shift for each in (one, other)]
    assert is_earlier(one, other) == ((files[0], one.offset, one.index) < (files[1], other.offset, other.index))


def test_positions_of_two_kinds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="of two kinds"):
        is_earlier(LogPosition(1), BinlogPosition(2))
    with pytest.raises(TypeError):
        assert LogPosition(1) < BinlogPosition(2)  # type: ignore[operator]


@pytest.mark.parametrize(
    "value",
    [["a.1:4", 0], ["a.000001", 0], ["a.000001:4", 0, 7], ["0/1", 0, "0-1-1"], ["a.000001:99999999999", 0]],
)
def test_what_is_no_position(value: object) -> None:
    with pytest.raises(ValueError, match="no "):
        from_record(value)


def test_a_file_that_was_begun_at_another_time_is_another_one() -> None:
    place = BinlogPosition(4, note=noted("0-1-7", 3, 100))
    assert place.gtids == "0-1-7"
    assert place.is_born(3, 100)
    assert not place.is_born(3, 101)
    assert place.is_born(4, 101), "of that one nothing is known"
    assert BinlogPosition(4, note="0-1-7").is_born(3, 100)


def test_a_file_name_may_have_points() -> None:
    at = parse_binlog("db.example.org-bin.1000000:4")
    assert (at.log, at.number, at.offset, at.file) == ("db.example.org-bin", 1_000_000, 4, "db.example.org-bin.1000000")


def test_a_checksum_is_compared() -> None:
    good = event(16, b"12345678", checksum=True)
    assert isinstance(parsed(good, checksums=True), binlog_events.Xid)
    with pytest.raises(NotUnderstood, match="checksum is wrong"):
        parsed(good[:20] + b"x" + good[21:], checksums=True)


def test_a_kind_that_is_not_known_is_not_passed_over() -> None:
    with pytest.raises(NotUnderstood, match="kind 99"):
        parsed(event(99, b""))


def test_a_kind_that_its_server_calls_ignorable_is_passed_over() -> None:
    assert parsed(event(99, b"", flags=0x80)) == binlog_events.IGNORED
    # Of one that is known it is no reason to.
    assert isinstance(parsed(event(16, b"12345678", flags=0x80)), binlog_events.Xid)


KINDS = (2, 4, 15, 18, 19, 23, 24, 25, 27, 30, 31, 33, 34, 39, 40, 42, 162, 165, 166, 167)


@given(st.sampled_from(KINDS), st.binary(max_size=60))
@example(23, b"\0" * 8 + b"\xff")
@example(42, b"\xff" * 60)
def test_no_event_breaks_it(kind: int, body: bytes) -> None:
    with contextlib.suppress(NotUnderstood):
        parsed(event(kind, body))


@given(st.binary(max_size=80))
def test_no_table_breaks_it(body: bytes) -> None:
    for head in (b"", b"\x01d\0\x01t\0"):
        with contextlib.suppress(NotUnderstood, NotServed):
            binlog_rows.parse_table(head + body, MYSQL.characters)


# As MySQL 8.4.8 has sent it.
JSON = bytes.fromhex(
    "00020037001200010013000100021400002b006162030017000501000b0d000c150000000000000004c0017801000c000b00010004000063"
)


def test_a_document_is_what_the_server_prints() -> None:
    assert json_text(JSON) == '{"a": [1, -2.5, "x"], "b": {"c": null}}'


@given(st.binary(max_size=60), st.sampled_from(range(16)))
@example(b"", 0)
def test_no_document_breaks_it(body: bytes, kind: int) -> None:
    for data in (bytes([kind]) + body, JSON[:7] + body, JSON[:25] + body):
        with contextlib.suppress(NotUnderstood, IndexError, struct.error, ValueError):
            json_text(data)


@given(st.binary(max_size=80), st.booleans())
def test_no_transaction_that_is_compressed_breaks_it(data: bytes, is_compressed: bool) -> None:
    with contextlib.suppress(NotUnderstood):
        list(expanded(binlog_events.Payload(data, is_compressed)))


def test_a_transaction_that_is_compressed_is_its_events() -> None:
    events = [event(16, bytes([number]) * 8) for number in range(5)]
    plain = b"".join(events)
    assert list(expanded(binlog_events.Payload(plain, False))) == events
    packed = pa.Codec("zstd").compress(plain, asbytes=True)
    assert list(expanded(binlog_events.Payload(packed, True))) == events
    with pytest.raises(NotUnderstood, match="cut off"):
        list(expanded(binlog_events.Payload(plain[:-1], False)))


@pytest.mark.parametrize(
    ("sent", "gtid", "committed_us"),
    [
        (
            (
                "95260a6b21010000004d0000009b010000000001726a9e36eac611f1a10e02fc0000000102000000000000000201000000000000000200"
                "000000000000338d40a34b6106cb183a0100e62d70c2"
            ),
            "726a9e36-eac6-11f1-a10e-02fc00000001:2",
            1_795_827_349_622_067,
        ),
        (
            (
                "95260a6b2a010000004e000000bb0300000000026e00000002e4d479026ca903190322c50385021c04f10300000002040406067461670808"
                "0a100c7f719240a34b6106105d0412c3d009651e79bd"
            ),
            "726a9e36-eac6-11f1-a10e-02fc00000001:tag:1",
            1_795_827_349_623_409,
        ),
    ],
)
def test_gtids_of_mysql(sent: str, gtid: str, committed_us: int) -> None:
    """As MySQL 8.4.8 has sent them, with a tag and without."""
    found = parsed(bytes.fromhex(sent), checksums=True)
    assert found == binlog_events.Gtid(gtid, None, False, committed_us)
    assert found.mark(4711) == f"{gtid} {committed_us} 4711"


def test_a_transaction_of_mysql_without_a_gtid() -> None:
    body = b"\0" + bytes(16) + bytes(8) + b"\2" + bytes(16) + (7_000_001 | 1 << 55).to_bytes(7, "little") + bytes(7)
    found = parsed(event(34, body))
    assert (found.gtid, found.committed_us) == (None, 7_000_001), "when another server has committed it, it is told too"
    assert found.mark(4) == "ANONYMOUS 7000001 4"


COLUMNS = st.builds(
    LoggedColumn,
    name=st.just("a"),
    type=st.integers(0, 255),
    meta=st.integers(0, 0xFFFF),
    unsigned=st.booleans(),
    members=st.lists(st.binary(max_size=4), max_size=4).map(tuple),
)


@given(COLUMNS, st.sampled_from(["utf-8", "", "cp1252"]), st.sampled_from(["", *SPECIAL]), st.binary(max_size=60))
@example(LoggedColumn(name="a", type=246, meta=0), "utf-8", "", b"")
@example(LoggedColumn(name="a", type=247, meta=1, members=(b"\x80",)), "utf-8", "", b"\x00\x01")
def test_no_row_breaks_it(column: LoggedColumn, codec: str, special: str, data: bytes) -> None:
    with contextlib.suppress(NotUnderstood, NotServed):
        read, _ = reader(column, lambda _: decoder(codec) if codec else None, special)
        list(binlog_rows.rows(binlog_events.Rows(1, "u", 1, b"\x01", b"\x01", data), [read]))


def query(text: str, database: str = "shop") -> binlog_events.Query:
    body = struct.pack("<IIBHH", 1, 0, len(database), 0, 3) + b"var" + database.encode() + b"\0" + text.encode()
    found = parsed(event(2, body))
    assert isinstance(found, binlog_events.Query)
    return found


@pytest.mark.parametrize(
    ("text", "emptied"),
    [
        ("TRUNCATE orders", ("shop", "orders")),
        ("truncate table `or``ders`", ("shop", "or`ders")),
        ("/* a */ -- b\n# c\n TRUNCATE TABLE other . `orders` ;", ("other", "orders")),
        ("TRUNCATE TABLE orders WAIT 5", ("shop", "orders")),
        ("TRUNCATE TABLE orders NOWAIT", ("shop", "orders")),
        ("ALTER TABLE orders TRUNCATE PARTITION p", None),
        ("CREATE TABLE truncate (a int)", None),
        ("TRUNCATE /* app */ TABLE orders /* trace */", ("shop", "orders")),
        ("TRUNCATE TABLE orders -- x", ("shop", "orders")),
        ("TRUNCATE orders # x", ("shop", "orders")),
        ("--\nTRUNCATE TABLE orders", ("shop", "orders")),
        ("/*!50000 TRUNCATE TABLE orders */", ("shop", "orders")),
        ("/*M! TRUNCATE */ TABLE /*!50000 orders */", ("shop", "orders")),
        ('TRUNCATE TABLE "or""ders"', ("shop", 'or"ders')),
        ("TRUNCATE TABLE orders REUSE STORAGE", ("shop", "orders")),
        ("TRUNCATE TABLE `a/*b*/c`", ("shop", "a/*b*/c")),
        ("SELECT 'TRUNCATE TABLE orders'", None),
    ],
)
def test_what_a_statement_empties(text: str, emptied: tuple[str, str] | None) -> None:
    assert binlog_statements.emptied(query(text)) == emptied


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("INSERT INTO a VALUES (1)", True),
        ("/* x */ update a set b = 1", True),
        ("WITH x AS (SELECT 1) DELETE FROM a", True),
        ("LOAD DATA INFILE 'x' INTO TABLE a", True),
        ("CREATE TABLE inserts (a int)", False),
        ("INSERTED", False),
        ("/*!40000 ALTER TABLE a DISABLE KEYS */", False),
        ("/*!50000 INSERT INTO a VALUES (1) */", True),
        ("SET STATEMENT max_statement_time = 5, sql_mode = 'FOR' FOR DELETE FROM a", True),
        ("ANALYZE FORMAT=JSON UPDATE a SET b = 1", True),
        ("ANALYZE TABLE a", False),
        ("--\x01 x\nDELETE FROM a", True),
        ("CREATE TABLE a AS SELECT 1", False),
        ("CREATE VIEW a AS SELECT 1", False),
    ],
)
def test_which_statements_change_rows(text: str, changes: bool) -> None:
    assert binlog_statements.changes_rows(query(text)) == changes


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("CREATE TABLE a AS SELECT 1", ("shop", "a")),
        ("CREATE TABLE IF NOT EXISTS b.a (c int) IGNORE (SELECT 1 AS c)", ("b", "a")),
        ("CREATE OR REPLACE TABLE a (c int) TABLE d", ("shop", "a")),
        ("CREATE TABLE a (c int, d int) AS VALUES (1, 2)", ("shop", "a")),
        ("CREATE TABLE a (b int) START TRANSACTION", None),
        ("CREATE TABLE a (kind enum('text', 'select'), `select` int COMMENT 'values, table')", None),
        ("CREATE TABLE a (b int) PARTITION BY LIST (b) (PARTITION p VALUES IN (1))", None),
        ("CREATE TABLE a (b int) PARTITION BY RANGE (b) (PARTITION p VALUES LESS THAN (5))", None),
        ("CREATE TABLE a LIKE b", None),
        ("CREATE TEMPORARY TABLE a AS SELECT 1", None),
    ],
)
def test_which_tables_are_made_with_rows(text: str, made: tuple[str, str] | None) -> None:
    assert binlog_statements.filled(query(text)) == made


def test_which_tables_a_statement_makes_alters_and_drops() -> None:
    assert binlog_statements.altered(query("ALTER ONLINE TABLE IF EXISTS `a`.`b` ADD c int")) == ("a", "b")
    assert binlog_statements.altered(query("CREATE TABLE b (c int)")) == ("shop", "b")
    assert binlog_statements.altered(query("ALTER DATABASE b")) is None
    assert binlog_statements.made_temporary(query("CREATE TEMPORARY TABLE IF NOT EXISTS t (a int)")) == ("shop", "t")
    assert binlog_statements.made_temporary(query("CREATE TABLE t (a int)")) is None
    dropped = [("shop", "t"), ("a", "u"), ("shop", "v")]
    assert binlog_statements.dropped(query("DROP TEMPORARY TABLE IF EXISTS t, `a`.u , v")) == dropped
    assert binlog_statements.dropped(query("DROP VIEW t")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FOREIGN KEY (a) REFERENCES b (c) ON DELETE /* x */ CASCADE", "ON DELETE CASCADE"),
        ("FOREIGN KEY (a) REFERENCES b (c) ON UPDATE  set null", "ON UPDATE SET NULL"),
        ("a int COMMENT 'rows go ON DELETE CASCADE of x', `ON DELETE CASCADE` int", None),
        ("FOREIGN KEY (a) REFERENCES b (c) ON DELETE RESTRICT", None),
    ],
)
def test_what_a_foreign_key_does_by_itself(text: str, found: str | None) -> None:
    assert binlog_statements.cascade(f"CREATE TABLE t ({text})") == found


def test_what_a_session_says_before_its_statement() -> None:
    mysql = bytes.fromhex("0000000000012000a04500000000060373746404ff00ff00ff0011190000000000000012ff00")
    assert binlog_status.collation_of(mysql) == 255
    mariadb = bytes.fromhex("00000000010100002054000000000603737464042d002d000800")
    assert binlog_status.collation_of(mariadb) == 45
    behind = bytes.fromhex("0b016101620c016462000c02610062000dffffff04070008000900")
    assert binlog_status.collation_of(behind) == 7
    assert binlog_status.collation_of(b"\xfe\x04") is None, "what is not known ends it"


def test_a_statement_of_another_character_set_has_its_names() -> None:
    body = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0TRUNCATE TABLE `\xfc`"
    assert binlog_statements.emptied(parsed(event(2, body))) == ("d", "ü")


def test_how_a_transaction_begins() -> None:
    told = {
        "BEGIN": "BEGIN",
        "/* a */ begin": "BEGIN",
        "XA START X'78',X'',1": "XA",
        "CREATE TABLE begin (a int)": None,
    }
    assert {text: binlog_statements.opens(query(text)) for text in told} == told


def test_how_a_transaction_ends() -> None:
    told = {"COMMIT": "COMMIT", "rollback": "ROLLBACK", "ROLLBACK TO `s`": "SAVEPOINT", "SAVEPOINT `s`": None}
    assert {text: binlog_statements.ends(query(text)) for text in told} == told


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_has_no_more_digits_than_it_needs(value: float) -> None:
    text = shortest(value)
    assert struct.unpack("<f", struct.pack("<f", float(text)))[0] == value
    assert len(text.replace("-", "").partition("e")[0].replace(".", "").strip("0")) <= 9


KNOWN = Identity(server="1", log="b", options=MARIADB.options)


def seen(*sizes: int, first: int = 3, gtids: str | None = "0-1-7", server: str = "1", log: str = "b") -> Seen:
    files = tuple(LogFile(number=first + at, size=size) for at, size in enumerate(sizes))
    return Seen(
        kind=MARIADB, identity=Identity(server=server, log=log, options=MARIADB.options), files=files, gtids=gtids
    )


def at(number: int, offset: int, index: int = 0, gtid: str = "0-1-7") -> BinlogPosition:
    return BinlogPosition(binlog_commit(number, offset), index, "b", gtid)


@pytest.mark.parametrize(
    ("place", "found", "reason"),
    [
        (at(3, 50), seen(100, 100), None),
        (at(4, 100), seen(100, 100), None),
        (at(4, 101), seen(100, 100), Reason.SOURCE_ROLLED_BACK),
        (at(4, 99, 1), seen(100, 100), None),
        (at(4, 100, 1), seen(100, 100, 50), Reason.SOURCE_ROLLED_BACK),
        (at(5, 4), seen(100, 100), Reason.SOURCE_ROLLED_BACK),
        (at(2, 4), seen(100, 100), Reason.SOURCE_DATA_LOST),
        (at(3, 50), seen(100, gtids="0-1-8"), Reason.SOURCE_RECREATED),
        (at(3, 50), seen(100, gtids=None), Reason.SOURCE_RECREATED),
        (at(3, 50), seen(100, gtids="1-2-9,0-1-7"), None),
        (at(3, 50, 7), seen(100, gtids="0-1-6"), None),
        (at(3, 50), seen(100, server="2"), Reason.SOURCE_RECREATED),
        (at(3, 50), seen(100, log="c"), Reason.SOURCE_RECREATED),
    ],
)
def test_where_it_may_go_on(place: BinlogPosition, found: Seen, reason: Reason | None) -> None:
    if reason is None:
        check_going_on(KNOWN, place, found, HERE)
        return
    with pytest.raises(SinkPipelineError) as caught:
        check_going_on(KNOWN, place, found, HERE)
    assert caught.value.reason is reason


def test_how_much_is_behind() -> None:
    assert seen(100, 200, 300).behind(at(4, 50)) == 450
    assert seen(100, 200, 300).behind(at(5, 300)) == 0


def test_gtids_that_are_noted_are_there() -> None:
    assert is_known("", "")
    assert is_known("", "0-1-1")
    assert not is_known("0-1-1", "")
    assert not is_known("", None)


def test_an_identity_is_read_back() -> None:
    assert identity_of(KNOWN.to_meta()) == KNOWN
    with pytest.raises(ValueError, match="are not"):
        identity_of({"server": "1"})


def test_files_of_a_server() -> None:
    assert files_of([("b.000003", 10), ("b.000004", 5)], HERE)[1][1] == LogFile(number=4, size=5)
    with pytest.raises(SinkPipelineError):
        files_of([], HERE)


def test_when_a_log_is_at_risk() -> None:
    assert at_risk(10, 100, 160, 100) is not None
    assert at_risk(10, 100, 140, 100) is None
    assert at_risk(0, 100, 160, 100) is None
    assert at_risk(10, 100, 160, 0) is None
    assert at_risk(10, None, 160, 100) is None


def facts(version: str, kind: BinlogKind) -> Facts:
    return Facts(kind=kind, version=version, has_log=True, format="ROW", image="full", metadata="FULL", engines={})


@pytest.mark.parametrize(
    ("kind", "version", "says"),
    [
        (MARIADB, "10.5.1-MariaDB", ""),
        (MARIADB, "11.8.2-MariaDB-log", ""),
        (MARIADB, "10.4.9-MariaDB", "10.5 or newer"),
        (MARIADB, "8.4.0", "write spec.source.mysql instead of spec.source.mariadb"),
        (MYSQL, "8.4.8-0ubuntu1", ""),
        (MYSQL, "8.0.36", ""),
        (MYSQL, "9.7.0", ""),
        (MYSQL, "5.7.44-log", "8.0 or newer"),
        (MYSQL, "10.11.6-MariaDB", "write spec.source.mariadb instead of spec.source.mysql"),
    ],
)
def test_which_versions_are_read(kind: BinlogKind, version: str, says: str) -> None:
    found = " ".join(map(str, unsuitable(facts(version, kind), HERE)))
    assert says in found
    assert bool(found) == bool(says)


def test_what_debezium_has_read() -> None:
    whole = binlog_from_debezium('{"file":"b.000003","pos":4711,"gtids":"0-1-7"}')
    assert (whole.at, whole.overlap) == (from_binlog("b.000003:4711").at, "")
    part = binlog_from_debezium('{"offsets":[{"partition":{},"offset":{"file":"b.000003","pos":4,"row":3,"event":2}}]}')
    assert "comes again" in part.overlap


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "no JSON"),
        ('{"lsn":7}', "no offset of Debezium's connector for MariaDB"),
        ('{"file":"b.000003","pos":"4"}', "no place"),
        ('{"file":"b","pos":4}', "no place"),
        ('{"file":"b.000003","pos":4,"snapshot":true}', "not completed"),
    ],
)
def test_what_is_no_offset_of_debezium(text: str, says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        binlog_from_debezium(text)
