"""The messages of a replication stream, and what becomes of them in the topic."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.changes import pgoutput
from sinkpipeline.core.changes.pgoutput import Begin, Commit, NotUnderstood, Relation, parse
from sinkpipeline.core.changes.values import POSITION_HEADER, Change, Writer

OID = 16_400
INT8, TEXT, NUMERIC, BYTEA, BOOL, FLOAT8, INT4 = 20, 25, 1700, 17, 16, 701, 23
SAME = object()
"""A large value that an update has not touched."""


def string(text: str) -> bytes:
    return text.encode() + b"\0"


def relation(
    *columns: tuple[str, int, bool], identity: str = "d", oid: int = OID, schema: str = "public", name: str = "orders"
) -> bytes:
    head = b"R" + struct.pack(">I", oid) + string(schema) + string(name) + identity.encode()
    each = [bytes([is_key]) + string(column) + struct.pack(">Ii", kind, -1) for column, kind, is_key in columns]
    return head + struct.pack(">H", len(columns)) + b"".join(each)


def row(*values: str | object | None) -> bytes:
    found = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            found += b"n"
        elif isinstance(value, str):
            found += b"t" + struct.pack(">I", len(value.encode())) + value.encode()
        else:
            found += b"u"
    return found


def insert(*values: Any) -> bytes:
    return b"I" + struct.pack(">I", OID) + b"N" + row(*values)


def update(new: tuple[Any, ...], old: tuple[Any, ...] | None = None, kind: bytes = b"K") -> bytes:
    return b"U" + struct.pack(">I", OID) + (b"" if old is None else kind + row(*old)) + b"N" + row(*new)


def delete(*values: Any, kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", OID) + kind + row(*values)


def begin(lsn: int = 0x3_0000_00AB, micros: int = 1_000_000, xid: int = 739) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, micros, xid)


KEYED = (("id", INT8, True), ("note", TEXT, False))


def writer(*columns: tuple[str, int, bool], identity: str = "d", key: tuple[str, ...] = (), **how: Any) -> Writer:
    """In a transaction, of one table."""
    found = Writer(lambda _: key, **how)
    said = parse(relation(*columns, identity=identity))
    assert isinstance(said, Relation)
    found.relation(said)
    start = parse(begin())
    assert isinstance(start, Begin)
    found.begin(start)
    return found


def changes(made: Writer, message: bytes) -> list[Change]:
    said = parse(message)
    assert isinstance(said, pgoutput.Insert | pgoutput.Update | pgoutput.Delete | pgoutput.Truncate)
    return made.changes(said)


def documents(made: Writer, message: bytes) -> list[dict[str, Any]]:
    return [json.loads(each.value) for each in changes(made, message)]


def test_an_insert() -> None:
    [change] = changes(writer(*KEYED), insert("7", 'a "quoted" ü\n\0x'))

    assert json.loads(change.value) == {
        "op": "c",
        "table": "public.orders",
        "pos": ["3/AB", 0],
        "xid": 739,
        "committedAt": 946_684_801_000,
        "before": None,
        "after": {"id": 7, "note": 'a "quoted" ü\n\0x'},
        "unchanged": [],
    }
    assert json.loads(change.key) == {"table": "public.orders", "key": {"id": 7}}
    assert change.headers == [(POSITION_HEADER, b'["3/AB",0]')]
    assert change.at.to_record() == ["3/AB", 0]


def test_indexes_count_changes_and_nothing_else() -> None:
    made = writer(*KEYED)
    said = parse(relation(*KEYED))
    places = []
    for message in (insert("1", None), insert("2", None), update(("2", "x")), delete("1", None)):
        assert isinstance(said, Relation)
        made.relation(said)
        places += [document["pos"] for document in documents(made, message)]
    assert places == [["3/AB", index] for index in range(4)]
    start = parse(begin(lsn=5))
    assert isinstance(start, Begin)
    made.begin(start)
    assert made.place == (5, 0)


def test_what_is_skipped_counts() -> None:
    made = writer(*KEYED)
    said = parse(insert("1", None))
    assert isinstance(said, pgoutput.Insert)
    made.skip(said)
    assert documents(made, insert("2", None))[0]["pos"] == ["3/AB", 1]
    made.skip(pgoutput.Truncate((OID, OID)))
    assert made.place[1] == 4


def test_an_update_leaves_out_what_is_unchanged() -> None:
    [document] = documents(writer(*KEYED), update(("7", SAME)))
    assert (document["op"], document["before"], document["after"]) == ("u", None, {"id": 7})
    assert document["unchanged"] == ["note"]


def test_an_update_of_the_key_is_a_deletion_and_a_creation_at_one_position() -> None:
    made = writer(*KEYED)
    gone, new = changes(made, update(("8", SAME), old=("7", None)))
    assert json.loads(gone.value) | {"xid": 0, "committedAt": 0} == {
        "op": "d",
        "table": "public.orders",
        "pos": ["3/AB", 0, 0],
        "xid": 0,
        "committedAt": 0,
        "before": {"id": 7},
        "after": None,
        "unchanged": [],
    }
    document = json.loads(new.value)
    assert (document["op"], document["pos"], document["after"]) == ("c", ["3/AB", 0, 1], {"id": 8})
    assert document["unchanged"] == ["note"]
    assert (gone.at, new.at) == (gone.at, gone.at)
    assert [json.loads(each.key)["key"] for each in (gone, new)] == [{"id": 7}, {"id": 8}]
    assert documents(made, insert("9", None))[0]["pos"] == ["3/AB", 1]


def test_an_old_key_that_is_sent_but_the_same_is_an_update() -> None:
    # The server sends it too where a key is large.
    [document] = documents(writer(*KEYED), update((SAME, "x"), old=("7", None)))
    assert (document["op"], document["before"]) == ("u", {"id": 7})
    assert document["unchanged"] == ["id"]


def test_a_full_identity_has_the_whole_row_before_and_all_that_is_unchanged() -> None:
    columns = (("id", INT8, True), ("note", TEXT, True))
    made = writer(*columns, identity="f", key=("id",))
    [document] = documents(made, update(("7", SAME), old=("7", "long"), kind=b"O"))
    assert (document["before"], document["after"]) == ({"id": 7, "note": "long"}, {"id": 7, "note": "long"})
    assert document["unchanged"] == []
    [gone] = changes(made, delete("7", "long", kind=b"O"))
    assert json.loads(gone.value)["before"] == {"id": 7, "note": "long"}
    assert json.loads(gone.key)["key"] == {"id": 7}


def test_rows_that_nothing_tells_apart_stay_in_one_partition() -> None:
    made = writer(("id", INT8, True), ("note", TEXT, True), identity="f")
    found = [*changes(made, insert("1", "a")), *changes(made, update(("2", "b"), old=("1", "a"), kind=b"O"))]
    assert [json.loads(each.value)["op"] for each in found] == ["c", "u"]
    assert {each.key for each in found} == {b'{"table":"public.orders","key":null}'}


def test_each_table_of_a_truncate_counts() -> None:
    made = writer(*KEYED)
    other = parse(relation(*KEYED, oid=2, name="lines"))
    assert isinstance(other, Relation)
    made.relation(other)
    found = documents(made, b"T" + struct.pack(">IB", 2, 1) + struct.pack(">II", OID, 2))
    assert [(each["op"], each["table"], each["pos"][1]) for each in found] == [
        ("t", "public.orders", 0),
        ("t", "public.lines", 1),
    ]
    assert documents(made, insert("9", None))[0]["pos"] == ["3/AB", 2]


def test_a_new_column_comes_with_the_relation_that_has_it() -> None:
    made = writer(*KEYED)
    documents(made, insert("1", None))
    said = parse(relation(*KEYED, ("more", BOOL, False)))
    assert isinstance(said, Relation)
    made.relation(said)
    assert documents(made, insert("2", "x", "t"))[0]["after"] == {"id": 2, "note": "x", "more": True}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (INT4, "-7", -7),
        (INT8, "9007199254740992", 9_007_199_254_740_992),
        (INT8, "9007199254740993", "9007199254740993"),
        (INT8, "-9223372036854775808", "-9223372036854775808"),
        (NUMERIC, "10.50", "10.50"),
        (NUMERIC, "NaN", "NaN"),
        (FLOAT8, "1e+20", 1e20),
        (FLOAT8, "-Infinity", "-Infinity"),
        (FLOAT8, "NaN", "NaN"),
        (BOOL, "f", False),
        (BYTEA, "\\x00ff", "AP8="),
        (BYTEA, "\\x", ""),
        (1184, "2026-11-25 17:00:00.5+00", "2026-11-25 17:00:00.5+00"),
        (3802, '{"a": 1}', '{"a": 1}'),
        (1007, "{1,2}", "{1,2}"),
    ],
)
def test_a_value_is_exact_or_a_text(kind: int, text: str, value: object) -> None:
    made = writer(("id", INT8, True), ("v", kind, False))
    [document] = documents(made, insert("1", text))
    assert document["after"]["v"] == value
    assert type(document["after"]["v"]) is type(value)


def test_large_integers_may_stay_numbers() -> None:
    [change] = changes(writer(("id", INT8, True), large_as_text=False), insert("9223372036854775807"))
    assert b'"after":{"id":9223372036854775807}' in change.value


@given(st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"))), min_size=1, max_size=5))
def test_texts_of_any_kind_come_through(values: list[str | None]) -> None:
    made = writer(*((f"c{at}", TEXT, at == 0) for at in range(len(values))))
    [document] = documents(made, insert(*values))
    assert list(document["after"].values()) == values


def test_a_transaction_ends_where_its_record_ends() -> None:
    assert parse(b"C" + struct.pack(">BQQq", 0, 10, 15, 0)) == Commit(lsn=10, end=15)
    assert parse(b"O" + struct.pack(">Q", 1) + b"x\0") is None
    assert parse(b"Y" + struct.pack(">I", 1) + b"a\0b\0") is None
    assert parse(relation(*KEYED, schema="")) == Relation(
        OID, "pg_catalog", "orders", "d", tuple(pgoutput.Column(name, is_key, kind) for name, kind, is_key in KEYED)
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"X",
        b"S\0\0\0\1",
        b"M",
        b"B\0",
        b"C",
        b"I",
        insert("1", "2")[:-1],
        insert("1")[:-3],
        b"I" + struct.pack(">I", OID) + b"K" + row("1"),
        b"I" + struct.pack(">I", OID) + b"N" + struct.pack(">H", 1) + b"b" + struct.pack(">I", 0),
        b"D" + struct.pack(">I", OID) + b"N" + row("1"),
        insert("1")[:8] + b"t" + struct.pack(">I", 1) + b"\xff",
        relation(*KEYED)[:-1],
        b"T" + struct.pack(">IB", 2, 0) + struct.pack(">I", 1),
    ],
)
def test_what_is_not_understood_is_no_change(message: bytes) -> None:
    with pytest.raises(NotUnderstood):
        parse(message)


@given(st.binary(max_size=60))
def test_no_bytes_are_taken_for_something_by_accident(message: bytes) -> None:
    with contextlib.suppress(NotUnderstood):
        parse(message)


def test_a_change_of_what_was_not_said_is_refused() -> None:
    made = Writer(lambda _: ())
    with pytest.raises(NotUnderstood, match="nothing was said"):
        changes(made, insert("1", None))
    made = writer(*KEYED)
    with pytest.raises(NotUnderstood, match="has 1 columns"):
        changes(made, insert("1"))
    made.end()
    with pytest.raises(NotUnderstood, match="outside of a transaction"):
        changes(made, insert("1", None))


def test_an_old_row_that_is_not_whole_though_it_says_so() -> None:
    """As a partition logs it whose REPLICA IDENTITY is the key, of a table whose is FULL."""
    columns = (("id", INT8, True), ("note", TEXT, True), ("doc", TEXT, True))
    made = writer(*columns, identity="f", key=("id",))
    old, new = documents(made, update(("8", "x", SAME), ("7", None, None), kind=b"O"))
    assert (old["op"], old["before"]) == ("d", {"id": 7})
    assert (new["op"], new["after"], new["unchanged"]) == ("c", {"id": 8, "note": "x"}, ["doc"])
    [whole] = documents(made, update(("8", "x", SAME), ("8", None, "large"), kind=b"O"))
    assert (whole["before"], whole["after"]["doc"]) == ({"id": 8, "note": None, "doc": "large"}, "large")
