"""Protobuf without Spark: what protoc is given, columns, what fits, and values of all kinds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.protobuf import reading
from sinkpipeline.protobuf.compiler import NotProtobuf, compiled
from sinkpipeline.protobuf.messages import Message, columns_of, message_of, misfit, paths_of
from sinkpipeline.protobuf.reading import Reader
from support.protobuf import ORDERS, body, path

P3 = 'syntax = "proto3"; '


def message(text: str, name: str | None = None) -> Message:
    return message_of(compiled(text), name)


def read(text: str, *bodies: bytes | None, name: str | None = None) -> list[tuple[Any, str | None]]:
    found = Reader(message(text, name))([None] * len(bodies), bodies)
    return [(each["result"], each["error"]) for each in found.to_pylist()]


def test_every_kind_of_field_is_a_column() -> None:
    assert columns_of(message(ORDERS)) == (
        "`id` BIGINT, `note` STRING, `amount` DOUBLE, `status` STRING, "
        "`lines` ARRAY<STRUCT<`sku`: STRING, `n`: BIGINT, `flags`: ARRAY<BOOLEAN>>>, `tags` MAP<STRING, INT>, "
        "`at` TIMESTAMP, `nick` STRING, `card` STRING, `cash` BINARY, `large` DECIMAL(20, 0), "
        "`first` STRUCT<`sku`: STRING, `n`: BIGINT, `flags`: ARRAY<BOOLEAN>>, `words` ARRAY<STRING>"
    )


def test_values_of_every_kind() -> None:
    value = {
        "id": 7,
        "note": "",
        "amount": 1.5,
        "status": "SENT",
        "lines": [{"sku": "a", "n": 4_000_000_000, "flags": [True, False]}, {}],
        "tags": {"b": 2, "a": 1},
        "at": "2024-05-06T07:08:09.000001999Z",
        "nick": "x",
        "cash": "AAE=",
        "large": 2**64 - 1,
        "words": ["x", "y"],
    }
    (full, error), (empty, _) = read(ORDERS, body(ORDERS, value), b"")
    assert error is None
    assert full == {
        **value,
        "lines": [{"sku": "a", "n": 4_000_000_000, "flags": [True, False]}, {"sku": "", "n": 0, "flags": []}],
        "tags": [("a", 1), ("b", 2)],
        "at": dt.datetime(2024, 5, 6, 7, 8, 9, 1, tzinfo=dt.timezone.utc),
        "card": None,
        "cash": b"\0\1",
        "large": Decimal(2**64 - 1),
        "first": None,
    }
    # Protobuf writes no default: what has no presence has it, the rest is null.
    assert empty == {
        **dict.fromkeys(("note", "at", "nick", "card", "cash", "first")),
        "id": 0,
        "amount": 0.0,
        "status": "NEW",
        "lines": [],
        "tags": [],
        "large": Decimal(0),
        "words": [],
    }


def test_what_is_no_message_is_told_of_its_row_alone() -> None:
    good = body(ORDERS, {"id": 1})
    late = body(ORDERS, {"at": "2024-05-06T07:08:09Z"})[:-6] + b"\xff\xff\xff\xff\xff\x7f"
    found = read(ORDERS, good, good[:-1], b"\x12\x01\xff", None, late, good)
    assert [None if error is None else error.partition(":")[0] for _, error in found] == [
        None,
        "MalformedProtobuf",
        "MalformedProtobuf",
        None,
        "MalformedProtobuf",
        None,
    ]
    assert [result if result is None else result["id"] for result, _ in found] == [1, None, None, None, None, 1]


def test_a_number_without_a_name_is_its_digits() -> None:
    newer = P3 + "package shop; message Order { int64 status = 4; }"
    [(found, _)] = read(ORDERS, body(newer, {"status": 5}))
    assert found["status"] == "5"


def test_a_required_field_that_is_absent() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; optional int32 b = 2 [default = 5]; }'
    (_, missing), (found, _) = read(text, b"", body(text, {"a": 1}))
    assert missing == "MissingField: required, and absent: a"
    assert found == {"a": 1, "b": None}


def test_many_bytes_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 10)
    found = read(ORDERS, *(body(ORDERS, {"id": number, "words": ["x" * 8]}) for number in range(5)), None)
    assert [result and result["id"] for result, _ in found] == [0, 1, 2, 3, 4, None]
    assert read(ORDERS) == []


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (path(0), None),
        (b"\x02\x00", None),
        (path(1), "IncompatibleSchema"),
        (path(0, 0), "IncompatibleSchema"),
        (b"", "MalformedProtobuf"),
        (b"\x04\x00", "MalformedProtobuf"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "MalformedProtobuf"),
        (b"\x01", "MalformedProtobuf"),
    ],
)
def test_the_path_of_the_message(steps: bytes, error: str | None) -> None:
    reader = Reader(message(ORDERS), {b"f": frozenset({(0,)})})
    whole = steps + (body(ORDERS, {"id": 1}) if error != "MalformedProtobuf" else b"")
    [found] = reader([b"f"], [whole]).to_pylist()
    assert (found["error"] or "").partition(":")[0] == (error or "")
    assert (found["result"] is None) == (error is not None)


def test_messages_of_a_file_and_where_they_stand() -> None:
    # The map of an order has a hidden message, which some serializers count.
    line = frozenset({(0, 0), (0, 1)})
    assert paths_of(compiled(ORDERS)) == {"shop.Order": {(0,)}, "shop.Order.Line": line, "shop.Refund": {(1,)}}
    assert message(ORDERS).name == "shop.Order"
    assert columns_of(message(ORDERS, "shop.Refund")) == "`id` BIGINT"
    assert Message.from_text(message(ORDERS).to_text()) == message(ORDERS)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x", None, "line 1:1: "),
        (P3 + "message M { int32 a = 1; }", "N", "the schema has no message N; it has M"),
        (P3, None, "the schema has no message"),
        (P3 + 'import "other.proto"; message M { int32 a = 1; }', None, "other.proto"),
        (P3 + 'import "/etc/hostname"; message M { int32 a = 1; }', None, "hostname"),
        (P3 + "message M { M m = 1; }", None, "message M holds itself, in message M"),
        (P3 + "message M { repeated N n = 1; } message N { map<int32, M> m = 1; }", None, "message M holds itself"),
        (P3 + "message M { int32 HasField = 1; }", None, "has a field HasField, a name that Python's"),
        (P3 + "message M {}", None, "message M has no field"),
        (P3 + "message M { N n = 1; } message N {}", None, "message N, of field n, has no field"),
    ],
)
def test_what_has_no_columns(text: str, name: str | None, words: str) -> None:
    with pytest.raises(NotProtobuf, match=words):
        columns_of(message(text, name))


def test_what_a_schema_imports_by_its_names() -> None:
    item = P3 + "package a; message Item { string sku = 1; }"
    text = P3 + 'import "a/item.proto"; message M { a.Item item = 1; }'
    found = message_of(compiled(text, {"a/item.proto": item}), None)
    assert (found.name, columns_of(found)) == ("M", "`item` STRUCT<`sku`: STRING>")


@pytest.mark.parametrize(
    "name", ["../x.proto", "/x.proto", "", ".", "a/../../x.proto", "x\0.proto", "grpc_tools.py", "grpc_tools/protoc.py"]
)
def test_a_name_that_leads_elsewhere_is_none(name: str) -> None:
    with pytest.raises(NotProtobuf, match="no name of a file"):
        compiled(P3 + "message M { int32 a = 1; }", {name: P3})


def test_no_file_of_a_registry_is_a_module_or_the_schema_itself(tmp_path: Path) -> None:
    """The compiler is a module of Python, which looks for modules where it runs."""
    witness = tmp_path / "ran"
    text = f'syntax = "proto3" // open({str(witness)!r}, "w") \\\n;'
    compiled(P3 + "message M { int32 a = 1; }", {"grpc_tools.proto": text, "grpc_tools/x.proto": text})
    assert not witness.exists()
    with pytest.raises(NotProtobuf, match="no file that can be imported"):
        compiled(P3 + "message M { int32 a = 1; }", {"sinkpipeline.value.proto": P3})


def test_few_lines_with_millions_of_columns_are_refused() -> None:
    twice = "".join(f"message M{each} {{ M{each + 1} a = 1; M{each + 1} b = 2; }} " for each in range(30))
    with pytest.raises(NotProtobuf, match="more than 10000 fields"):
        columns_of(message(P3 + twice + "message M30 { int32 a = 1; }"))


@pytest.mark.parametrize("levels", [101, 3000])
def test_messages_on_very_many_levels_are_refused(levels: int) -> None:
    chain = "".join(f"message M{each} {{ M{each + 1} a = 1; }} " for each in range(levels))
    with pytest.raises(NotProtobuf, match="more than 100 levels"):
        columns_of(message(f"{P3}{chain}message M{levels} {{ int32 a = 1; }}"))


def test_an_enum_of_proto2_keeps_numbers_that_it_does_not_know() -> None:
    fields = "repeated E e = 1; optional E f = 2; map<int32, E> m = 3;"
    older = f'syntax = "proto2"; message M {{ {fields} }} enum E {{ A = 0; B = 1; }}'
    newer = older.replace("B = 1;", "B = 1; C = 2;")
    value = body(newer, {"e": ["A", "C", "B"], "f": "C", "m": {1: "C"}})
    [(found, error)] = read(older, value)
    assert error is None
    assert found == {"e": ["A", "2", "B"], "f": "2", "m": [(1, "2")]}


def test_a_small_value_of_very_many_columns_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_CELLS", 100)
    large, small = body(ORDERS, {"lines": [{}] * 40}), body(ORDERS, {"id": 1, "lines": [{}] * 20})
    found = read(ORDERS, small, large, small, small)
    assert [error and error.partition(":")[0] for _, error in found] == [None, "MalformedProtobuf", None, None]
    assert [len(result["lines"]) for result, error in found if error is None] == [20, 20, 20]


def test_messages_of_a_schemas_own_by_googles_names() -> None:
    own = P3 + "package google.protobuf; message M { Timestamp t = 1; Int64Value v = 2; } "
    own += "message Timestamp { int64 seconds = 1; } message Int64Value { int64 other = 1; }"
    [(found, error)] = read(own, b"\x0a\x02\x08\x05\x12\x02\x08\x06")
    assert (found, error) == ({"t": {"seconds": 5}, "v": {"other": 6}}, None)
    root = P3 + "package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }"
    [(found, _)] = read(root, b"\x08\x05")
    assert found == {"seconds": 5, "nanos": 0}


def test_a_path_that_means_two_messages_is_none() -> None:
    text = P3 + "message M { map<int32, int32> m = 1; message A { int32 a = 1; } message B { int32 b = 1; } }"
    assert paths_of(compiled(text)) == {"M": {(0,)}, "M.A": {(0, 0)}, "M.B": {(0, 2)}}


READER = """
message M { int64 a = 1; N n = 2; string s = 3; E e = 4; }
message N { bytes b = 1; }
enum E { X = 0; Y = 1; }
"""


@pytest.mark.parametrize(
    ("writer", "why"),
    [
        ("message M { int32 a = 1; }", None),
        ("message M { int64 renamed = 1; string more = 9; }", None),
        ("message M { sint64 a = 1; }", "field a is sint64 there, and int64 here"),
        ("message M { string a = 1; }", "field a is string there, and int64 here"),
        ("message M { uint64 a = 1; }", "field a is uint64 there, and int64 here"),
        ("message M { repeated int64 a = 1; }", "field a is repeated there, and one value here"),
        ("message M { K n = 2; } message K { string b = 1; }", None),
        ("message M { K n = 2; } message K { int32 b = 1; }", "field n.b is int32 there, and bytes here"),
        ("message M { bytes n = 2; }", "field n is bytes there, and N here"),
        ("message M { E e = 4; } enum E { X = 0; Y = 1; Z = 2; }", None),
        ("message M { E e = 4; } enum E { Y = 0; X = 1; }", "field e: 0 is Y there, and X here"),
        ("message M { E e = 4; } enum E { option allow_alias = true; X = 0; NONE = 0; Y = 1; }", None),
    ],
)
def test_which_writers_fit(writer: str, why: str | None) -> None:
    assert misfit(message(P3 + READER), message(P3 + writer)) == why


GROUP = "optional group G = 1 { optional int32 a = 1; }"


def test_a_group_is_no_message() -> None:
    nested = "optional G g = 1; message G { optional int32 a = 1; }"
    group, other = (f'syntax = "proto2"; message M {{ {each} }}' for each in (GROUP, nested))
    assert misfit(message(other), message(group)) == "field g is group M.G there, and M.G here"
    assert misfit(message(group), message(group)) is None


def test_a_group_is_not_counted_by_all() -> None:
    text = f'syntax = "proto2"; message O {{ {GROUP} message B {{ optional int32 b = 1; }} }}'
    assert paths_of(compiled(text)) == {"O": {(0,)}, "O.G": frozenset(), "O.B": {(0, 1)}}
