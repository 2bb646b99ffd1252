"""Protobuf, decoded for Spark: columns for expressions, bad values, frames with paths, and the schemas they name."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.rowplan import RowExplode, RowPlan, RowSelect
from sinkpipeline.core.schemas import HEADER, Known, pending
from sinkpipeline.kafka.registry import Found
from sinkpipeline.kafka.settings import RegistrySettings
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.schemas import Schemas
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import COUNTED_ROW_BYTES, to_wire
from support import avro
from support.protobuf import ORDERS, body, path
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)
ORDER = {"id": 1, "note": "a", "lines": [{"sku": "x", "n": 2}], "tags": {"k": 5}, "at": "2024-05-06T07:08:09Z"}
JSON_OF_ALL = RowSelect(value="to_json(struct(id, note, status, lines, tags, at, large, first))")
AS_JSON = {
    "id": 1,
    "note": "a",
    "status": "NEW",
    "lines": [{"sku": "x", "n": 2, "flags": []}],
    "tags": {"k": 5},
    "at": "2024-05-06T07:08:09.000Z",
    "large": 0,
}


def source(spark: SparkSession, values: list[bytes | None], headers: dict[int, bytes] | None = None) -> DataFrame:
    """`headers`: what stands in the header of schemas, by the value's place."""
    of = {at: [(HEADER, bytearray(content))] for at, content in (headers or {}).items()}
    rows = [
        (b"k", None if value is None else bytearray(value), "orders", 0, offset, AT, 0, of.get(offset))
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def rows(spark: SparkSession, plan: RowPlan, values: list[bytes | None]) -> list[Row]:
    analyse(spark, plan)
    return output_rows(source(spark, values), plan).collect()


def word(row: Row) -> str | None:
    return None if row.error is None else row.error.partition(":")[0]


def test_one_schema_for_all_values(spark: SparkSession) -> None:
    good = body(ORDERS, ORDER)
    plan = RowPlan("protobuf", ORDERS, select=JSON_OF_ALL, where="id < 10 AND size(lines) < 5")
    found = rows(spark, plan, [good, body(ORDERS, {"id": 11}), good[:-1], None, b""])
    assert [word(each) for each in found] == [None, "MalformedProtobuf", "NullValue", None]
    assert json.loads(bytes(found[0].value)) == AS_JSON
    assert bytes(found[1].value) == good[:-1]


@pytest.mark.thorough("test_explode has rows of an array")
def test_rows_of_a_repeated_field(spark: SparkSession) -> None:
    plan = RowPlan(
        "protobuf", ORDERS, explode=RowExplode("words", "w"), message="shop.Order", select=RowSelect(value="w")
    )
    found = rows(spark, plan, [body(ORDERS, {"words": ["a", "b"]}), b"\x12"])
    assert [(bytes(each.value), each.row, word(each)) for each in found] == [
        (b"a", 0, None),
        (b"b", 1, None),
        (b"\x12", 0, "MalformedProtobuf"),
    ]


@pytest.mark.thorough("a limit")
def test_a_value_that_is_too_large_to_count_is_not_decoded(spark: SparkSession) -> None:
    """Thousands of them would not fit into a worker. The wire marks it, and the sink starts again without the bound."""
    plan = RowPlan("protobuf", ORDERS, select=RowSelect(value="'x'"))
    large = body(ORDERS, {"note": "x" * COUNTED_ROW_BYTES})
    values: list[bytes | None] = [large, body(ORDERS, {"id": 1})]
    counted = output_rows(source(spark, values), replace(plan, largest=COUNTED_ROW_BYTES))
    told = [each.notes for each in to_wire(counted, counted=True).collect()]
    assert told == ['{"oversized":true}', None]
    assert [word(each) for each in rows(spark, plan, values)] == [None, None]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("message", "line 1:8: "),
        ('syntax = "proto3"; message M { M m = 1; }', "message M holds itself"),
        ('syntax = "proto3"; message M { int32 kafka = 1; }', "kafka is the source record"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 A = 2; }', "columns a and A have the same name"),
    ],
)
def test_a_schema_that_has_no_columns_is_refused(spark: SparkSession, schema: str, words: str) -> None:
    with pytest.raises(SinkPipelineError, match=words) as caught:
        analyse(spark, RowPlan("protobuf", schema))
    assert caught.value.reason is Reason.EXPRESSION_INVALID
    assert str(caught.value).startswith("ExpressionInvalid: spec.decode.schema: ")


# With a registry.

NEWER = ORDERS.replace("uint64 large = 11;", "uint64 large = 11; string more = 14;")
OTHER_TYPE = ORDERS.replace("int64 id = 1;\n  optional", "string id = 1;\n  optional")
GUID = b"\x01" + bytes(range(16))
OTHER_MESSAGE = 'syntax = "proto3"; message A { int32 a = 1; }'
MOVED = ORDERS.replace("message Order {", "message Before { int32 x = 1; }\nmessage Order {", 1)
SETTINGS = RegistrySettings(url="", subject="orders-value", version="7", decode_format="protobuf", message="shop.Order")


def test_each_value_names_its_schema_and_its_message(spark: SparkSession) -> None:
    texts = {
        1: ORDERS,
        2: NEWER,
        3: MOVED,
        4: OTHER_TYPE,
        6: "message",
        7: 'syntax = "proto3"; message A { int32 a = 1; }',
    }
    schemas_found = {avro.frame(number): Found(text, "PROTOBUF") for number, text in texts.items()}
    schemas_found[avro.frame(5)] = Found("{}", "AVRO")
    schemas_found[GUID] = Found(ORDERS, "PROTOBUF")
    fake = avro.Registry(schemas_found, latest=None, reader_found=Found(ORDERS, "PROTOBUF"))
    schemas = Schemas(spark, fake, SETTINGS)
    plan = RowPlan("protobuf", select=JSON_OF_ALL, known=Known())
    schemas.analyse([plan])
    order = body(ORDERS, ORDER)
    cases: list[tuple[bytes | None, str | None]] = [
        (avro.frame(1) + path(0) + order, None),
        (avro.frame(2) + path(0) + body(NEWER, {**ORDER, "more": "x"}), None),
        (avro.frame(3) + path(1) + order, None),
        (avro.frame(1) + path(1) + body(ORDERS, {"id": 1}, "shop.Refund"), "IncompatibleSchema"),
        (avro.frame(3) + path(0) + order, "IncompatibleSchema"),
        (avro.frame(4) + path(0) + order, "IncompatibleSchema"),
        (avro.frame(5) + path(0) + order, "IncompatibleSchema"),
        (avro.frame(6) + path(0) + order, "IncompatibleSchema"),
        (avro.frame(7) + path(0) + order, "IncompatibleSchema"),
        (avro.frame(9) + path(0) + order, "UnknownSchema"),
        (avro.frame(1), "MalformedProtobuf"),
        (avro.frame(1) + path(0) + order[:-1], "MalformedProtobuf"),
        (b"\0\0", "ShortFrame"),
        (order, "WrongMagicByte"),
        (None, "NullValue"),
    ]
    values = [value for value, _ in cases]
    before = output_rows(source(spark, values), schemas.plan(plan)).collect()
    schemas.learn([GUID, *(frame for each in before if (frame := pending(each.error)))])
    found = output_rows(source(spark, values), schemas.plan(plan)).collect()
    assert [word(each) for each in found] == [kind for _, kind in cases]
    # Newer serializers put frame and path into a header.
    in_headers = [
        (order, GUID + path(0), None),
        (order, GUID + path(1), "IncompatibleSchema"),
        (order, GUID[:9], "ShortFrame"),
    ]
    told = output_rows(
        source(spark, [each for each, _, _ in in_headers], dict(enumerate(header for _, header, _ in in_headers))),
        schemas.plan(plan),
    ).collect()
    assert [word(each) for each in told] == [kind for _, _, kind in in_headers]
    assert json.loads(bytes(told[0].value)) == AS_JSON
    assert [json.loads(bytes(each.value)) for each in found[:3]] == [AS_JSON] * 3
    assert "field id is string there, and int64 here" in found[5].error


@pytest.mark.parametrize(
    ("found", "message", "words"),
    [
        (Found(avro.text(avro.record(("id", "long"))), "AVRO"), None, "it is AVRO, and not Protobuf"),
        (Found(ORDERS, "PROTOBUF"), "shop.Nothing", "has no message shop.Nothing; it has shop.Order, "),
        (Found('import "a.proto";', "PROTOBUF"), None, "a.proto"),
    ],
)
def test_a_readers_schema_without_the_message_is_refused(
    spark: SparkSession, found: Found, message: str | None, words: str
) -> None:
    with pytest.raises(SinkPipelineError, match=words) as caught:
        Schemas(spark, avro.Registry({}, latest=None, reader_found=found), replace(SETTINGS, message=message))
    assert caught.value.reason is Reason.SCHEMA_UNSUPPORTED
