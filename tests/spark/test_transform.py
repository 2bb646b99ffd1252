from __future__ import annotations

import datetime as dt
import json
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.expressions import ExpressionsInvalid
from sinkpipeline.spark.transform import output_rows
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

OUTPUT = [
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("key", "binary"),
    ("value", "binary"),
    ("target_partition", "int"),
    ("timestamp_ms", "bigint"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("error", "string"),
]
AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=dt.timezone.utc)
AT_MS = 1_714_979_289_123
HEADERS = [("trace", b"\x00\xff"), ("trace", None)]
SCHEMA = (
    "id BIGINT NOT NULL, amount DOUBLE, country STRING, price DECIMAL(4,2), at TIMESTAMP, day DATE, flag BOOLEAN, "
    "data BINARY, tags ARRAY<INT>, "
    "by_name MAP<STRING, INT>, item STRUCT<sku: STRING NOT NULL, size: INT>, "
    "lines ARRAY<STRUCT<sku: STRING NOT NULL, parts: ARRAY<STRUCT<n: INT NOT NULL>>>>, "
    "books MAP<STRING, STRUCT<isbn: STRING NOT NULL>>"
)


def source(spark: SparkSession, *values: bytes | None, key: bytes | None = b"k\xff") -> DataFrame:
    rows = [
        (key, None if value is None else bytearray(value), "orders", 3, offset, AT, 0, HEADERS)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def rows(df: DataFrame, plan: RowPlan) -> list[Row]:
    analyse(df.sparkSession, plan)
    output = output_rows(df, plan)
    assert output.dtypes == OUTPUT
    return output.collect()


def one(spark: SparkSession, value: bytes | None, plan: RowPlan) -> Row:
    (row,) = rows(source(spark, value), plan)
    return row


def problem(spark: SparkSession, plan: RowPlan) -> SinkPipelineError:
    with pytest.raises(SinkPipelineError) as caught:
        analyse(spark, plan)
    assert caught.value.reason is Reason.EXPRESSION_INVALID
    text = str(caught.value)
    assert "\n" not in text
    assert "SQLSTATE" not in text
    assert caught.value.remedy
    return caught.value


# Decoding.

MALFORMED = [
    b"",
    b" \t\r\n ",
    b"null",
    b"true",
    b"5",
    b'"text"',
    b'""',
    b"[]",
    b'[{"id":1}]',
    b'[[{"id":1}]]',
    b'{"id":1} x',
    b'{"id":1}x',
    b'{"id":1}}',
    b'{"id":1}]',
    b'{"id":1},',
    b'{"id":1}{"id":2}',
    b'{"id":1}\n{"id":2}',
    b'{"id":1} {"id":2}',
    b'{"id":1},{"id":2}',
    b'{"id":1},"w":2',
    b'{"id":1}] x',
    b'{"id":1}} x}',
    # What would satisfy a check that wraps the value in brackets or braces of its own:
    b'{"id":1},0] {}',
    b'{"id":1},"x"] {}',
    b'{"id":1}],[{}',
    b'{"id":1}, "w": {"id":2}',
    b'{"id":1},"xxxxxxxxxxxxxxxxxxxx"] {}',
    b'{"id":1},{"e":"xxxxxxxxxxxxxxx"}]} {}',
    b'{"id":1},"' + b"x" * 40 + b'"] ' + b"}" * 3,
    b'{"id":1} // }',
    b'{"id":1} /* } */',
    b'{"id":1}\x00',
    b'\x00{"id":1}',
    b'{"id":1',
    b'{"id":1,}',
    b'{"id":1,"amount":}',
    b'{"id" 1}',
    b"{id:1}",
    b"{'id':1}",
    b'{"id":01}',
    b'{"id":+1}',
    b'{"id":1,"amount":NaN}',
    b'{"id":1,"amount":Infinity}',
    b'{"id":1,"amount":.5}',
    b'{"id":1,"unknown":[1,{]}',
    b'{"id":1,"country":"a\x01b"}',
    b'{"id":1,"country":"a\nb"}',
    b'{"id":1,"country":"\\x"}',
    b'{"id":1,"country":"open}',
    b'\xef\xbb\xbf{"id":1}',
    b'{"id":1,"unknown":' + b"[" * 5000 + b"]" * 5000 + b"}",
]

INVALID_UTF8 = [
    b"\xff",
    b'{"id":1,"country":"\xff"}',
    b'{"id":1,"country":"\xc3"}',
    b'{"id":1,"country":"\xc0\xaf"}',
    b'{"id":1,"country":"\xed\xa0\x80"}',
    b'{"id":1,"country":"\xf5\x80\x80\x80"}',
    b'{"id":1,"unknown":"\xff"}',
    b'{"id":1,"country":"caf\\ud83d"}',
    b'{"id":1,"country":"\\uDE00 caf"}',
    b'{"id":1,"item":{"sku":"\\uD83d\\uD83d\\ude00"}}',
    b'{"id":1} \xff',
    '{"id":1}'.encode("utf-16"),
]

WRONG_TYPE = [
    (b'{"id":"1"}', "id"),
    (b'{"id":""}', "id"),
    (b'{"id":1.0}', "id"),
    (b'{"id":1e3}', "id"),
    (b'{"id":true}', "id"),
    (b'{"id":[1]}', "id"),
    (b'{"id":{}}', "id"),
    (b'{"id":9223372036854775808}', "id"),
    (b'{"id":"x","id":2}', None),
    (b'{"amount":"1.5","id":1}', "amount"),
    (b'{"amount":"NaN","id":1}', "amount"),
    (b'{"amount":"","id":1}', "amount"),
    (b'{"id":1,"price":123.45}', "price"),
    (b'{"id":1,"price":"cheap"}', "price"),
    (b'{"id":1,"at":"yesterday"}', "at"),
    (b'{"id":1,"day":"2024-13-01"}', "day"),
    (b'{"id":1,"day":"now"}', "day"),
    (b'{"id":1,"flag":1}', "flag"),
    (b'{"id":1,"flag":"true"}', "flag"),
    (b'{"id":1,"data":5}', "data"),
    (b'{"id":1,"tags":1}', "tags"),
    (b'{"id":1,"tags":[1,"x"]}', None),
    (b'{"id":1,"by_name":{"a":"x"}}', None),
    (b'{"id":1,"item":5}', "item"),
    (b'{"id":1,"item":[]}', "item"),
    (b'{"id":1,"item":{"sku":"a","size":"big"}}', None),
    (b'{"id":1,"lines":[{"sku":"a","parts":[{"n":"x"}]}]}', None),
    (b'{"id":1,"lines":[[{"sku":"a"}]]}', None),
    (b'{"id":1,"books":{"a":{"isbn":"1"},"b":5}}', None),
    # What Spark reads as something else.
    (b'{"id":1,"price":"12,50"}', "price"),
    (b'{"id":1,"price":1.005}', "price"),
    (b'{"id":1,"price":"1.005"}', "price"),
    (b'{"id":1,"price":1.5e-3}', "price"),
    (b'{"id":1,"at":1714979289}', "at"),
    (b'{"id":1,"at":1714979289123}', "at"),
    (b'{"id":1,"at":1714979289123456}', "at"),
    (b'{"id":1,"at":"07:08:09"}', "at"),
    (b'{"id":1,"at":"T07:08:09Z"}', "at"),
    (b'{"id":1,"at":"2024"}', "at"),
    (b'{"id":1,"day":"20240506"}', "day"),
    (b'{"id":1,"day":"202405"}', "day"),
    (b'{"id":1,"day":"45421"}', "day"),
    (b'{"id":1,"day":"2024-05-06Tgarbage"}', "day"),
    (b'{"id":1,"day":"2024-05"}', "day"),
    (b'{"id":1,"amount":1e400}', "amount"),
    (b'{"id":1,"amount":-1e400}', "amount"),
]

MISSING_FIELD = [
    (b"{}", "id"),
    (b'{"id":null}', "id"),
    (b'{"ID":1}', "id"),
    (b'{"id":1,"item":{}}', "item.sku"),
    (b'{"id":1,"item":{"sku":null}}', "item.sku"),
    (b'{"id":1,"lines":[{"sku":"a"},{}]}', "lines[].sku"),
    (b'{"id":1,"lines":[{"sku":"a","parts":[{"n":1},{"n":null}]}]}', "lines[].parts[].n"),
    (b'{"id":1,"books":{"a":{"isbn":"1"},"b":{}}}', "books{}.isbn"),
]

GOOD = [
    b'{"id":1}',
    b' \t\r\n{"id":1} \t\r\n',
    b'{"id":1,"id":2}',
    b'{"id":1,"unknown":{"a":[{}]},"other":"}"}',
    b'{"id":1,"country":"} ] x"}',
    b'{"id":1,"country":"\\"}"}',
    '{"id":1,"country":"\u00e9\u4e2d\U0001f600}"}'.encode(),
    b'{"id":1,"country":"\\u00e9"}',
    b'{"id":1,"amount":5,"price":1.5,"at":"2024-05-06T07:08:09Z","day":"2024-05-06","flag":true,"data":"AP8="}',
    b'{"id":1,"item":null,"lines":null,"books":null,"tags":null}',
    b'{"id":1,"item":{"sku":"a"},"lines":[],"books":{},"tags":[1,null]}',
    b'{"id":1,"lines":[null,{"sku":"a","parts":[null,{"n":1}]}]}',
    b'{"id":1,"books":{"a":null}}',
    b'{"id":-9223372036854775808}',
    b'{"id":1,"e":"mine","v":2,"__sinkpipeline_corrupt":"no","kafka":3}',
    b'{"id":1,"country":"' + b"x}" * 100_000 + b'"}',
    b'{"id":1,"price":"12.50"}',
    b'{"id":1,"price":12.5000}',
    b'{"id":1,"price":1.2e1}',
    b'{"id":1,"price":0.0012e4}',
    b'{"id":1,"price":-3}',
    b'{"id":1,"at":"2024-5-6 7:08"}',
    b'{"id":1,"at":"2024-05-06T07:08:09.123456789+02:00"}',
    b'{"id":1,"at":"2024-05-06 07:08:09 Europe/Paris"}',
    b'{"id":1,"at":"2024-05-06"}',
    b'{"id":1,"day":"2024-05-06T23:59:59.5+02:00"}',
    b'{"id":1,"day":"2024-5-6"}',
    b'{"id":1,"country":"\\ud83d\\ude00?"}',
    b'{"id":1,"country":"\\\\ud83d?"}',
    b'{"id":1,"other":"\\ud83d"}',
]


@pytest.mark.parametrize("where", [None, "id IS NOT NULL AND id < -1"])
def test_decoding_is_strict(spark: SparkSession, where: str | None) -> None:
    expected = (
        [(value, ErrorClass.MALFORMED_JSON, None) for value in MALFORMED]
        + [(value, ErrorClass.INVALID_UTF8, None) for value in INVALID_UTF8]
        + [(value, ErrorClass.WRONG_TYPE, name) for value, name in WRONG_TYPE]
        + [(value, ErrorClass.MISSING_FIELD, name) for value, name in MISSING_FIELD]
        + [(None, ErrorClass.NULL_VALUE, None)]
    )
    select = RowSelect(
        key="'selected'", value="'selected'", headers="map('a', 'b')", timestamp="0L", partition="CAST(7 AS INT)"
    )
    result = rows(source(spark, *(each[0] for each in expected)), RowPlan("json", SCHEMA, where=where, select=select))
    wrong = [
        (value, row.error)
        for (value, kind, name), row in zip(expected, result, strict=True)
        if row.error is None
        or Verdict.of(row.error).error_class is not kind
        or (name is not None and not row.error.startswith(f"{kind.value}: {name} is "))
    ]
    assert wrong == []
    for (value, _, _), row in zip(expected, result, strict=True):
        assert (row.key, row.value) == (b"k\xff", value)
        assert (row.target_partition, row.timestamp_ms, row.headers) == (None, AT_MS, HEADERS)


def test_what_fits_has_no_error(spark: SparkSession) -> None:
    result = rows(source(spark, *GOOD), RowPlan("json", SCHEMA, where="id IS NOT NULL"))
    assert [(value, row.error) for value, row in zip(GOOD, result, strict=True) if row.error is not None] == []
    assert [row.value for row in result] == GOOD


def test_an_error_holds_nothing_of_the_record(spark: SparkSession) -> None:
    values = [
        b"secret",
        b'{"id":"secret"}',
        b'{"id":1,"secret":"\xff"}',
        b'{"secret":1}',
        b'{"id":1,"tags":["secret"]}',
    ]
    for row in rows(source(spark, *values), RowPlan("json", SCHEMA)):
        assert "secret" not in row.error
        assert len(row.error) < 100


def test_the_last_of_two_equal_keys_wins(spark: SparkSession) -> None:
    assert one(spark, b'{"id":1,"id":2}', id_as_key()).key == b"2"


def id_as_key(schema: str = "id BIGINT", **more: Any) -> RowPlan:
    return RowPlan("json", schema, select=RowSelect(key="CAST(id AS STRING)"), **more)


@pytest.mark.parametrize(
    "name",
    ["__sinkpipeline_error", "__sinkpipeline_parsed", "__SINKPIPELINE_CORRUPT", "_corrupt_record", "a.b`c", "key"],
)
@pytest.mark.thorough("further names", after=2)
@pytest.mark.long("further names", after=3)
def test_a_field_may_have_any_other_name(spark: SparkSession, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    plan = RowPlan(
        "json", f"{quoted} INT NOT NULL", where=f"{quoted} > 0", select=RowSelect(key=f"CAST({quoted} AS STRING)")
    )
    good, bad, absent = rows(
        source(spark, json.dumps({name: 5}).encode(), json.dumps({name: "x"}).encode(), b"{}"), plan
    )
    assert (good.key, good.error) == (b"5", None)
    assert bad.error == f"WrongType: {name} is not int"
    assert absent.error == f"MissingField: {name} is null or absent"


def test_a_tinyint_does_not_wrap(spark: SparkSession) -> None:
    """Spark's parser takes 200 for a byte without a sign, and makes -56 of it."""
    kind = "STRUCT<b: ARRAY<TINYINT>, c: MAP<STRING, TINYINT>>"
    plan = RowPlan("json", f"a TINYINT, n {kind}", on_null="PassThrough")
    good = {"a": -128, "n": {"b": [127, -1, None], "c": {"x": -1}}}
    numbers = [128, -129, 200, 255, 256]
    alone = [{"a": each} for each in numbers]
    inside = [{"n": inner} for each in numbers for inner in ({"b": [1, each]}, {"c": {"x": each}})]
    errors = [
        each.error
        for each in rows(source(spark, *(json.dumps(each).encode() for each in [good, *alone, *inside])), plan)
    ]
    assert errors[: 1 + len(alone)] == [None, *["WrongType: a is not tinyint"] * len(alone)]
    assert [str(each).partition(" ")[0] for each in errors[1 + len(alone) :]] == ["WrongType:"] * len(inside)


def test_what_is_nested_is_read_as_it_is_written(spark: SparkSession) -> None:
    plan = RowPlan(
        "json",
        "lines ARRAY<STRUCT<price: DECIMAL(38, 18), `at`: TIMESTAMP>>, days MAP<STRING, DATE>, n STRUCT<f: FLOAT>",
        on_null="PassThrough",
    )
    good = [
        b'{"lines":[{"price":12345678901234567890.123456789012345678,"at":"2024-05-06T07:08:09"},{"price":null},null]}',
        b'{"lines":[],"days":{"a":"2024-05-06","b":null},"n":{"f":1e38}}',
    ]
    bad = [
        (b'{"lines":[{"price":1},{"price":"1,5"}]}', "lines[].price is not decimal(38,18) to its last digit"),
        (b'{"lines":[{"price":0.1234567890123456789}]}', "lines[].price is not decimal(38,18) to its last digit"),
        (b'{"lines":[{"at":"07:08"}]}', "lines[].at is not a time such as 2024-05-06T07:08:09Z"),
        (b'{"days":{"a":"2024-05-06","b":"20240506"}}', "days{} is not a date such as 2024-05-06"),
        (b'{"n":{"f":1e39}}', "n.f is not float: it is too large"),
    ]
    errors = [each.error for each in rows(source(spark, *good, *(value for value, _ in bad)), plan)]
    assert errors == [None, None, *(f"WrongType: {told}" for _, told in bad)]


def test_a_text_field_takes_any_json_as_its_text(spark: SparkSession) -> None:
    plan = RowPlan("json", "doc STRING", select=RowSelect(value="doc"))
    values = [row.value for row in rows(source(spark, b'{"doc":{"a":[1]}}', b'{"doc":5}', b'{"doc":"5"}'), plan)]
    assert values == [b'{"a":[1]}', b"5", b"5"]


def test_times_without_a_zone_are_utc_whatever_the_session_says(spark: SparkSession) -> None:
    plan = RowPlan("json", "at TIMESTAMP", select=RowSelect(timestamp="at"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert one(spark, b'{"at":"2024-05-06T07:08:09.123"}', plan).timestamp_ms == AT_MS
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# Tombstones.


def test_a_tombstone_passes_where_and_stays_one(spark: SparkSession) -> None:
    select = RowSelect(
        key="concat('k', coalesce(CAST(id AS STRING), '-'))",
        value="'not null'",
        headers="map('a', 'b')",
        timestamp="coalesce(id, 5L)",
        partition="CAST(2 AS INT)",
    )
    plan = RowPlan("json", "id BIGINT NOT NULL", "PassThrough", where="id > 100", select=select)
    (row,) = rows(source(spark, None, b'{"id":1}'), plan)
    assert (row.key, row.value, row.headers, row.timestamp_ms, row.target_partition, row.error) == (
        b"k-", None, [("a", b"b")], 5, 2, None,
    )  # fmt: skip


@pytest.mark.parametrize("plan", [RowPlan("raw"), RowPlan("raw", where="false"), id_as_key(where="false")])
def test_a_tombstone_is_an_error_unless_it_is_passed_through(spark: SparkSession, plan: RowPlan) -> None:
    row = one(spark, None, plan)
    assert (row.key, row.value, row.error) == (b"k\xff", None, "NullValue: the value is null")


def test_raw_tombstones_pass_too(spark: SparkSession) -> None:
    plan = RowPlan("raw", on_null="PassThrough", where="false", select=RowSelect(value="'x'"))
    (row,) = rows(source(spark, None, b"a"), plan)
    assert (row.offset, row.value, row.error) == (0, None, None)


def test_a_selected_value_may_be_a_tombstone(spark: SparkSession) -> None:
    plan = RowPlan("raw", select=RowSelect(key="CAST(NULL AS STRING)", value="CAST(NULL AS BINARY)"))
    row = one(spark, b"x", plan)
    assert (row.key, row.value, row.error) == (None, None, None)


# Selecting.


@pytest.mark.parametrize("value", [b"", b"\x00\xff", b"not json"])
def test_raw_passes_everything_through_byte_for_byte(spark: SparkSession, value: bytes) -> None:
    row = one(spark, value, RowPlan("raw"))
    assert tuple(row) == ("orders", 3, 0, b"k\xff", value, None, AT_MS, HEADERS, None)


def test_json_without_a_selection_passes_everything_through(spark: SparkSession) -> None:
    row = one(spark, b' {"id": 1, "x": 2}', RowPlan("json", "id INT"))
    assert tuple(row) == ("orders", 3, 0, b"k\xff", b' {"id": 1, "x": 2}', None, AT_MS, HEADERS, None)


@pytest.mark.parametrize("plan", [RowPlan("raw"), RowPlan("json", "id INT")])
def test_a_record_may_have_no_key_and_no_headers(spark: SparkSession, plan: RowPlan) -> None:
    df = spark.createDataFrame([(None, bytearray(b"{}"), "orders", 0, 0, AT, 0, None)], SOURCE)
    (row,) = rows(df, plan)
    assert (row.key, row.value, row.headers, row.error) == (None, b"{}", None, None)


def test_expressions_see_the_fields_and_the_source_record(spark: SparkSession) -> None:
    select = RowSelect(
        key="concat(kafka.topic, '/', kafka.partition, '/', kafka.offset, '/', id)",
        value="kafka.key",
        headers="kafka.headers",
        timestamp="kafka.timestamp + INTERVAL 1 SECOND",
        partition="kafka.partition + 1",
    )
    row = one(spark, b'{"id":9}', RowPlan("json", "id BIGINT", where="kafka.value IS NOT NULL", select=select))
    assert (row.key, row.value, row.headers) == (b"orders/3/0/9", b"k\xff", HEADERS)
    assert (row.timestamp_ms, row.target_partition, row.topic, row.partition) == (AT_MS + 1000, 4, "orders", 3)


def test_raw_expressions_see_key_and_value(spark: SparkSession) -> None:
    plan = RowPlan("raw", where="octet_length(value) = 2", select=RowSelect(key="value", value="key"))
    (row,) = rows(source(spark, b"a", b"ab"), plan)
    assert (row.key, row.value, row.offset) == (b"ab", b"k\xff", 1)


def test_an_alias_is_harmless(spark: SparkSession) -> None:
    plan = RowPlan(
        "raw", where="kafka.offset = 0 AS a", select=RowSelect(key="'x' AS error", partition="CAST(1 AS INT) p")
    )
    (row,) = rows(source(spark, b"a", b"b"), plan)
    assert (row.key, row.target_partition, row.error) == (b"x", 1, None)


def test_texts_become_utf8(spark: SparkSession) -> None:
    plan = RowPlan("json", "s STRING", select=RowSelect(key="s", value="CAST(s AS BINARY)", headers="map(s, s)"))
    row = one(spark, '{"s":"\u00e9"}'.encode(), plan)
    assert (row.key, row.value, row.headers) == (b"\xc3\xa9", b"\xc3\xa9", [("\u00e9", b"\xc3\xa9")])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("map('a', 'x', 'b', CAST(NULL AS STRING))", [("a", b"x"), ("b", None)]),
        ("map('a', X'00FF')", [("a", b"\x00\xff")]),
        ("array(named_struct('key', 'a', 'value', 'x'))", [("a", b"x")]),
        ("array(struct('a' AS Key, X'FF' AS VALUE))", [("a", b"\xff")]),
        ("array(CASE WHEN kafka.offset > 5 THEN struct('a' AS key, 'x' AS value) END)", []),
        ("concat(kafka.headers, array(struct('a' AS key, X'01' AS value)))", [*HEADERS, ("a", b"\x01")]),
        ("filter(kafka.headers, h -> h.value IS NOT NULL)", HEADERS[:1]),
        ("CAST(NULL AS MAP<STRING, STRING>)", None),
        ("CAST(NULL AS ARRAY<STRUCT<key: STRING, value: STRING>>)", None),
    ],
)
@pytest.mark.thorough("each shape", after=4)
def test_shapes_of_headers(spark: SparkSession, headers: str, expected: list[Any] | None) -> None:
    assert one(spark, b"x", RowPlan("raw", select=RowSelect(headers=headers))).headers == expected


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("1234L", 1234),
        ("TIMESTAMP '1970-01-01 00:00:01.5Z'", 1500),
        ("CAST(NULL AS TIMESTAMP)", AT_MS),
        ("CAST(NULL AS BIGINT)", AT_MS),
        ("kafka.timestamp", AT_MS),
    ],
)
def test_timestamps(spark: SparkSession, timestamp: str, expected: int) -> None:
    assert one(spark, b"x", RowPlan("raw", select=RowSelect(timestamp=timestamp))).timestamp_ms == expected


@pytest.mark.parametrize(
    ("partition", "expected"), [("1", 1), ("CAST(1 AS TINYINT)", 1), ("1S", 1), ("CAST(NULL AS INT)", None)]
)
def test_partitions(spark: SparkSession, partition: str, expected: int | None) -> None:
    assert one(spark, b"x", RowPlan("raw", select=RowSelect(partition=partition))).target_partition == expected


@pytest.mark.parametrize("where", ["id > 1", "CASE WHEN id > 1 THEN true END", "id > CAST(1 AS INT) AND true"])
def test_where_drops_what_is_false_or_unknown(spark: SparkSession, where: str) -> None:
    values = [b'{"id":1}', b'{"id":2}', b"{}"]
    assert [row.offset for row in rows(source(spark, *values), RowPlan("json", "id INT", where=where))] == [1]


def test_no_expression_is_evaluated_for_a_row_with_an_error(spark: SparkSession) -> None:
    throws = "assert_true({}, 'evaluated') IS NULL"
    select = RowSelect(
        key="CASE WHEN id IS NULL OR name IS NULL THEN raise_error('evaluated') ELSE 'k' END",
        value="CASE WHEN id IS NULL OR name IS NULL THEN raise_error('evaluated') ELSE 'v' END",
    )
    plan = RowPlan(
        "json", "id INT, name STRING", where=throws.format("id IS NOT NULL AND name IS NOT NULL"), select=select
    )
    bad, good = rows(source(spark, b'{"id":"x","name":"n"}', b'{"id":1,"name":"n"}'), plan)
    assert (bad.error, bad.value) == ("WrongType: id is not int", b'{"id":"x","name":"n"}')
    assert (good.error, good.key, good.value) == (None, b"k", b"v")


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("where", "100 / id > 1"),
        ("key", "CAST(name AS INT)"),
        ("value", "CAST(id * 9223372036854775807 AS STRING)"),
        ("headers", "map('h', CAST(CAST(name AS DATE) AS STRING))"),
        ("timestamp", "CAST(name AS TIMESTAMP)"),
        ("partition", "CAST(id AS INT) + 2147483645"),
    ],
)
@pytest.mark.thorough("each place of an expression", after=2)
def test_an_expression_that_fails_is_an_error_of_its_row_alone(spark: SparkSession, name: str, expression: str) -> None:
    """Spark's ANSI mode would fail the whole task."""
    fails, fits = {
        "where": (b'{"id":0,"name":"n"}', b'{"id":2,"name":"n"}'),
        "key": (b'{"id":1,"name":"x"}', b'{"id":1,"name":"7"}'),
        "value": (b'{"id":2,"name":"n"}', b'{"id":1,"name":"n"}'),
        "headers": (b'{"id":1,"name":"x"}', b'{"id":1,"name":"2024-05-06"}'),
        "timestamp": (b'{"id":1,"name":"x"}', b'{"id":1,"name":"2024-05-06 07:08:09"}'),
        "partition": (b'{"id":3,"name":"n"}', b'{"id":2,"name":"n"}'),
    }[name]
    others = {"key": "'k'", "value": "'v'"}
    where, select = (expression, others) if name == "where" else (None, {**others, name: expression})
    if name == "key":
        select["key"] = f"CAST({expression} AS STRING)"
    plan = RowPlan("json", "id BIGINT, name STRING", where=where, select=RowSelect(**select))
    found = rows(source(spark, fits, fails, b"nonsense", fits), plan)
    assert [row.offset for row in found] == [0, 1, 2, 3]
    good, bad, nonsense, last = found
    verdict = Verdict.of(bad.error)
    assert verdict.error_class is ErrorClass.EVALUATION_FAILED
    assert f"transform.{'' if name == 'where' else 'select.'}{name} " in verdict.text
    # What goes to the dead-letter topic is the source's own.
    assert (bad.key, bad.value, bad.timestamp_ms, bad.target_partition) == (b"k\xff", fails, AT_MS, None)
    assert [tuple(each) for each in bad.headers] == HEADERS
    assert Verdict.of(nonsense.error).error_class is ErrorClass.MALFORMED_JSON
    assert (good.error, last.error, good.value is not None) == (None, None, True)
    assert good.value != fits


def test_where_is_not_evaluated_for_a_tombstone(spark: SparkSession) -> None:
    plan = RowPlan("raw", on_null="PassThrough", where="assert_true(value IS NOT NULL) IS NULL")
    assert [row.value for row in rows(source(spark, None, b"x"), plan)] == [None, b"x"]


def test_nothing_is_decoded_twice(spark: SparkSession) -> None:
    plan = RowPlan(
        "json",
        "id INT NOT NULL, amount DOUBLE",
        where="amount > 0 AND id > 0",
        select=RowSelect(key="to_json(struct(id))"),
    )
    frame: Any = output_rows(source(spark, b"{}"), plan).where("error IS NULL")
    physical = frame._jdf.queryExecution().executedPlan().toString()
    # Spark prints the struct parser once for every operator that runs it; the map parser is for bad rows only.
    assert len(re.findall(r"from_json\(StructField", physical)) == 1


def test_to_json_leaves_out_what_is_null_unless_it_is_told_not_to(spark: SparkSession) -> None:
    written = {"to_json(struct(id, amount))": b'{"id":1}'}
    written["to_json(struct(id, amount), map('ignoreNullFields', 'false'))"] = b'{"id":1,"amount":null}'
    for expression, value in written.items():
        plan = RowPlan("json", "id INT NOT NULL, amount DOUBLE", select=RowSelect(value=expression))
        assert [row.value for row in rows(source(spark, b'{"id":1}'), plan)] == [value]


def test_rows_keep_the_order_and_the_partitions_of_the_source(spark: SparkSession) -> None:
    df = source(spark, *(b'{"id":%d}' % each for each in range(20))).repartition(3)
    output = output_rows(df, id_as_key(where="id % 2 = 0"))
    assert output.rdd.getNumPartitions() == 3
    plan: Any = output
    assert "Exchange" not in plan._jdf.queryExecution().executedPlan().toString().replace("Exchange RoundRobin", "")


def test_a_stream_is_accepted(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    df = stream.selectExpr(
        "CAST(NULL AS BINARY) AS key",
        """CAST(concat('{"id":', value, '}') AS BINARY) AS value""",
        "'orders' AS topic",
        "0 AS partition",
        "value AS offset",
        "timestamp",
        "0 AS timestampType",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )
    output = output_rows(df, id_as_key(where="id >= 0"))
    assert output.isStreaming
    assert output.dtypes == OUTPUT
    query = output.writeStream.format("memory").queryName("streamed").trigger(once=True).start()
    try:
        assert query.awaitTermination(60)
        assert query.exception() is None
    finally:
        query.stop()


@pytest.mark.parametrize("on_null", ["PassThrough", "Skip"])
def test_what_two_expressions_share_fails_for_its_row_alone(spark: SparkSession, on_null: str) -> None:
    """Spark computes once what they share, before either of them, and outside of what is tried."""
    number = "CAST(CAST(value AS STRING) AS BIGINT)"
    select = RowSelect(key=f"CAST({number} AS STRING)", partition=f"CAST(pmod({number}, 12) AS INT)")
    good, bad = rows(source(spark, b"15", b"x"), RowPlan("raw", on_null=on_null, select=select))
    assert (good.error, good.key, good.target_partition) == (None, b"15", 3)
    assert Verdict.of(bad.error).error_class is ErrorClass.EVALUATION_FAILED


def test_nothing_of_the_session_is_written_into_an_expression(spark: SparkSession) -> None:
    plan = RowPlan("raw", select=RowSelect(value="'${env:PATH} ${spark.app.id}'"))
    assert one(spark, b"x", plan).value == b"${env:PATH} ${spark.app.id}"


# What is refused.


@pytest.mark.parametrize(
    ("expression", "fact"),
    [
        ("count(*) > 0", "aggregate functions are refused"),
        ("*", "stars are refused"),
        ("kafka.*", "stars are refused"),
        ("struct(*) IS NULL", "stars are refused"),
        ("sum(id) > 0", "aggregate functions are refused"),
        ("first(id) = 1", "aggregate functions are refused"),
        ("max(id) OVER (PARTITION BY country) > 1", "window functions are refused"),
        ("row_number() OVER (ORDER BY id) = 1", "window functions are refused"),
        ("explode(array(true))", "generators such as explode are refused"),
        ("posexplode(array(true))", "generators such as explode are refused"),
        ("inline(array(struct(true)))", "generators such as explode are refused"),
        ("stack(2, true, false)", "generators such as explode are refused"),
        ("window(kafka.timestamp, '1 day') IS NULL", "is more than an expression of one row"),
        ("(SELECT true)", "subqueries are refused"),
        ("EXISTS (SELECT 1)", "subqueries are refused"),
        ("id IN (SELECT 1)", "subqueries are refused"),
        ("rand() > 0.5", "is not deterministic (rand)"),
        ("rand(1) > 0.5", "is not deterministic (rand)"),
        ("uuid() IS NULL", "is not deterministic (uuid)"),
        ("shuffle(array(1)) IS NULL", "is not deterministic (shuffle)"),
        ("monotonically_increasing_id() > 1", "is not deterministic (monotonically_increasing_id)"),
        ("spark_partition_id() = 1", "is not deterministic (spark_partition_id)"),
        ("input_file_name() = ''", "is not deterministic (input_file_name)"),
        ("exists(array(1), x -> rand() > x)", "is not deterministic (rand)"),
        ("java_method('java.lang.Math', 'abs', 1) = '1'", "is not deterministic (java_method)"),
        ("current_timestamp() IS NULL", "reads the clock"),
        ("current_timestamp > kafka.timestamp", "reads the clock"),
        ("now() IS NULL", "reads the clock"),
        ("current_date IS NULL", "reads the clock"),
        ("curdate() IS NULL", "reads the clock"),
        ("localtimestamp() IS NULL", "reads the clock"),
        ("unix_timestamp() > 1", "reads the clock"),
        ("TIMESTAMP 'now' > kafka.timestamp", "reads the clock"),
        ("DATE' Today ' IS NULL", "reads the clock"),
        ("kafka.timestamp > 'now'", "reads the clock"),
        ("CAST('tomorrow UTC' AS DATE) IS NULL", "reads the clock"),
        ("kafka.timestamp >= '08:00'", "reads the clock"),
        ("CAST(concat('T8', ':30') AS TIMESTAMP) IS NULL", "reads the clock"),
        ("TIMESTAMP '08:00:00' IS NULL", "reads the clock"),
        ("aes_encrypt('a', '0000111122223333') IS NULL", "is not deterministic (aes_encrypt"),
        ("aes_encrypt('a', '0000111122223333', 'CBC') IS NULL", "is not deterministic (aes_encrypt"),
        ("to_date(concat('to', 'day')) IS NULL", "reads the clock"),
        ("current_user() = 'root'", "depends on the session (current_user)"),
        ("current_database() = 'default'", "depends on the session (current_schema)"),
        ("current_timezone() = 'UTC'", "depends on the session (current_timezone)"),
        ("true, false", "Syntax error at or near ','."),
        ("true AS a, false AS b", "Syntax error at or near ','."),
        ("true AS (a, b)", 'Multi part aliasing (a, b) is not supported with "true"'),
        ("true; DROP TABLE x", "Syntax error at or near ';'."),
        ("", "Syntax error, unexpected empty statement."),
        ("id >", "Syntax error at or near end of input."),
        ("nope > 1", "there is no column `nope`; available: id, country, kafka"),
        ("value IS NULL", "there is no column `value`; available: id, country, kafka"),
        ("__sinkpipeline_error IS NULL", "there is no column `__sinkpipeline_error`"),
        ("kafka.timestampType = 0", "No such struct field `timestampType`"),
        ("nope(id)", "Cannot resolve routine `nope`"),
        ("upper(1, 2)", "The `upper` requires 1 parameters but the actual number is 2."),
        ("id > array(1)", 'Cannot resolve "(id > array(1))" due to data type mismatch'),
        ("CAST(CAST(1 / 0 AS STRING) AS TIMESTAMP)", "must be BOOLEAN, is TIMESTAMP"),
    ],
)
@pytest.mark.thorough("each expression that sees more than its row", after=8)
@pytest.mark.long("each place of an expression", after=12)
def test_an_expression_sees_one_row_and_nothing_else(spark: SparkSession, expression: str, fact: str) -> None:
    error = problem(spark, RowPlan("json", "id BIGINT, country STRING", where=expression))
    assert error.message.startswith(f"spec.transform.where: {fact}")


@pytest.mark.parametrize(
    "expression",
    [
        "country = 'TIMESTAMP' OR country = 'now'",
        "kafka.timestamp > TIMESTAMP '2024-01-01'",
        "aes_encrypt('a', '0000111122223333', 'ECB') IS NOT NULL",
        "aes_encrypt('a', '0000111122223333', 'GCM', 'DEFAULT', to_binary('000000000000000000000000', 'hex')) IS NULL",
        "aes_encrypt('a', '0000111122223333', 'CBC', 'DEFAULT', unhex('00000000000000000000000000000000')) IS NOT NULL",
        "to_date(country) IS NULL",
        "unix_timestamp(kafka.timestamp) > 1",
        "exists(array(1, 2), x -> x = id)",
        "xxhash64(id) % 2 = 0",
        "id IN (1, 2)",
        "named_struct('a', id).a = 1 -- a comment",
    ],
)
def test_what_looks_similar_is_fine(spark: SparkSession, expression: str) -> None:
    analyse(spark, RowPlan("json", "id BIGINT, country STRING", where=expression))


@pytest.mark.parametrize(
    ("name", "expression", "fact"),
    [
        ("key", "1", "must be STRING or BINARY, is INT"),
        ("key", "NULL", "must be STRING or BINARY, is VOID"),
        ("value", "struct(kafka.offset)", "must be STRING or BINARY, is struct<offset:bigint>"),
        ("value", "true", "must be STRING or BINARY, is BOOLEAN"),
        ("headers", "'a'", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("headers", "map('a', 1)", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("headers", "map(1, 'a')", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("headers", "array('a')", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("headers", "array(struct('a' AS name, 'b' AS value))", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("headers", "array(struct('a' AS key))", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("headers", "array(struct(X'00' AS key, 'b' AS value))", "must be MAP<STRING, STRING|BINARY> or ARRAY"),
        ("timestamp", "1", "must be TIMESTAMP or BIGINT (milliseconds), is INT"),
        ("timestamp", "'2024-01-01'", "must be TIMESTAMP or BIGINT (milliseconds), is STRING"),
        ("timestamp", "DATE '2024-01-01'", "must be TIMESTAMP or BIGINT (milliseconds), is DATE"),
        ("timestamp", "TIMESTAMP_NTZ '2024-01-01'", "must be TIMESTAMP or BIGINT (milliseconds), is TIMESTAMP_NTZ"),
        ("partition", "kafka.offset", "must be INT, is BIGINT"),
        ("partition", "'1'", "must be INT, is STRING"),
    ],
)
def test_nothing_is_cast_silently(spark: SparkSession, name: str, expression: str, fact: str) -> None:
    error = problem(spark, RowPlan("raw", select=RowSelect(**{name: expression})))
    assert error.message.startswith(f"spec.transform.select.{name}: {fact}")
    if name != "headers":
        assert "CAST(" in error.remedy


def test_where_is_boolean(spark: SparkSession) -> None:
    error = problem(spark, RowPlan("raw", where="octet_length(value)"))
    assert error.message == "spec.transform.where: must be BOOLEAN, is INT"


def test_problems_of_several_sinks_are_reported_once_each(spark: SparkSession) -> None:
    shared = RowPlan("raw", where="nope")
    own = replace(shared, select=RowSelect(key="1"), select_at="spec.sinks[1].transform")
    with pytest.raises(ExpressionsInvalid) as caught:
        analyse(spark, shared, own, shared)
    assert [each.path for each in caught.value.problems] == [
        "spec.transform.where",
        "spec.sinks[1].transform.select.key",
    ]


def test_all_problems_are_reported(spark: SparkSession) -> None:
    plan = RowPlan("raw", where="nope", select=RowSelect(key="1", value="now()", partition="kafka.offset"))
    message = problem(spark, plan).message
    assert [each.partition(":")[0] for each in message.split("; ") if each.startswith("spec.")] == [
        "spec.transform.where",
        "spec.transform.select.key",
        "spec.transform.select.value",
        "spec.transform.select.partition",
    ]


@pytest.mark.parametrize(
    ("schema", "fact"),
    [
        ("kafka INT", "a column can't be called kafka"),
        ("id INT, KAFKA STRUCT<a: INT>", "a column can't be called KAFKA"),
        ("id INT, Id STRING", "columns id and Id have the same name"),
        ("id INT, id INT", "columns id and id have the same name"),
        ("id", "Syntax error"),
        ("id: INT", "Syntax error"),
        ("STRUCT<id: INT>", "Syntax error"),
        ("", "Syntax error"),
        ("id NUMBER", 'Unsupported data type "NUMBER"'),
        ("id VARCHAR(3)", "The char/varchar type can't be used"),
        ("m MAP<INT, STRING>", 'Cannot resolve "from_json'),
    ],
)
def test_schemas_that_are_refused(spark: SparkSession, schema: str, fact: str) -> None:
    error = problem(spark, RowPlan("json", schema, where="there_is_no_such_column"))
    assert error.message.startswith(f"spec.decode.schema: {fact}")
    assert "spec.transform" not in error.message


def test_a_nested_field_may_be_called_kafka(spark: SparkSession) -> None:
    analyse(spark, RowPlan("json", "a STRUCT<kafka: INT>", where="a.kafka > 1"))


def test_answers_leave_no_stack_trace(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    problem(spark, RowPlan("raw", where="nope > 1", select=RowSelect(key="1 +")))
    captured = capfd.readouterr()
    assert "org.apache.spark" not in captured.out + captured.err
    assert not logging.getLogger("SQLQueryContextLogger").disabled
