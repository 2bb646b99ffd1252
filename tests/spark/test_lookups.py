"""Records that are looked up in a small table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.lookups import TableText
from sinkpipeline.core.rowplan import RowExplode, RowLookup, RowPlan, RowSelect
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.expressions import ExpressionsInvalid
from sinkpipeline.spark.lookups import load
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import to_wire
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
VARIANTS = pytest.mark.thorough("each is a plan of its own; what a lookup gives is shown by the first tests")

CUSTOMERS = b"""\
id,name,tier,since
1,"Ada, Ltd",gold,2024-05-06
2,Bob,,2025-01-01

3,,silver,
"""
COUNTRIES = b'{"code": "NL", "names": ["Nederland"], "in": {"eu": true}}\r\n{"code": "NO", "in": {"eu": false}}'


def table(content: bytes, schema: str, key: str = "id", form: str = "csv", **more: Any) -> TableText:
    return TableText(format=form, schema=schema, key=key, origin="key t of ConfigMap c", content=content, **more)


def lookup(name: str, equals: str, of: TableText) -> RowLookup:
    return RowLookup(name, equals, of, "spec.transform.lookups[0]")


CUSTOMER = lookup(
    "customer", "customer_id", table(CUSTOMERS, "id INT NOT NULL, name STRING, tier STRING, since DATE", header=True)
)
COUNTRY = lookup(
    "country",
    "code",
    table(COUNTRIES, "code STRING NOT NULL, names ARRAY<STRING>, `in` STRUCT<eu: BOOLEAN>", "CODE", "json"),
)
SEEN = "to_json(struct(id, customer, country), map('ignoreNullFields', 'false'))"
PLAN = RowPlan(
    "json",
    schema="id BIGINT NOT NULL, customer_id BIGINT, code STRING, items ARRAY<STRING>",
    lookups=(CUSTOMER, COUNTRY),
    select=RowSelect(key="customer.name", value=SEEN),
)


def source(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [
        (b"k", None if value is None else bytearray(value), "orders", 0, offset, None, 0, None)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def rows(spark: SparkSession, plan: RowPlan, *values: bytes | None) -> list[tuple[int, Any, Any, str | None]]:
    """Offset, key, value and error of each row, as they come."""
    analyse(spark, plan)
    load(spark, [plan])
    found = output_rows(source(spark, *values), plan).collect()
    return [(row.offset, _text(row.key), _text(row.value), row.error) for row in found]


def _text(content: bytearray | None) -> str | None:
    return None if content is None else content.decode()


def refused(spark: SparkSession, plan: RowPlan) -> SinkPipelineError:
    def start() -> None:
        analyse(spark, plan)
        load(spark, [plan])

    with pytest.raises(SinkPipelineError) as caught:
        start()
    assert caught.value.remedy
    return caught.value


def test_a_record_finds_a_row_or_none_and_stays_one_record(spark: SparkSession) -> None:
    found = rows(
        spark,
        PLAN,
        b'{"id":0,"customer_id":2,"code":"NO"}',
        b'{"id":1,"customer_id":1,"code":"NL"}',
        b'{"id":2,"customer_id":4294967297,"code":"no"}',
        b'{"id":3}',
        b"no json",
        b'{"id":5,"customer_id":3,"code":"NL"}',
        b'{"id":6,"customer_id":1,"code":"XX"}',
    )
    assert [each[0] for each in found] == list(range(7)), "each once, in its order"
    assert [each[3] is None for each in found] == [True, True, True, True, False, True, True]
    ada = {"id": 1, "name": "Ada, Ltd", "tier": "gold", "since": "2024-05-06"}
    netherlands = {"code": "NL", "names": ["Nederland"], "in": {"eu": True}}
    assert [(key, json.loads(value)) for _, key, value, error in found if error is None] == [
        (
            "Bob",
            {
                "id": 0,
                "customer": {"id": 2, "name": "Bob", "tier": None, "since": "2025-01-01"},
                "country": {"code": "NO", "names": None, "in": {"eu": False}},
            },
        ),
        ("Ada, Ltd", {"id": 1, "customer": ada, "country": netherlands}),
        (None, {"id": 2, "customer": None, "country": None}),
        (None, {"id": 3, "customer": None, "country": None}),
        (None, {"id": 5, "customer": {"id": 3, "name": None, "tier": "silver", "since": None}, "country": netherlands}),
        ("Ada, Ltd", {"id": 6, "customer": ada, "country": None}),
    ]
    assert found[4][1:3] == ("k", "no json"), "a dead letter is the record as it is"


def test_where_sees_what_was_found_and_nothing_is_shuffled(spark: SparkSession) -> None:
    plan = replace(PLAN, where="customer.tier = 'gold' OR customer IS NULL", select=RowSelect(value="customer.name"))
    values = [b'{"id":%d,"customer_id":%d}' % (each, each % 5) for each in range(1_000)]
    found = rows(spark, plan, *values)
    assert [each[0] for each in found] == [each for each in range(1_000) if each % 5 in (0, 1, 4)]
    wire = to_wire(output_rows(source(spark, *values), plan))
    executed = str(wire._jdf.queryExecution().executedPlan().toString())
    assert "Join" not in executed
    assert "Exchange" not in executed
    assert "Ada" not in executed, "what is in a table stands in no plan"


@pytest.mark.thorough("two lookups in a row")
def test_one_lookup_goes_on_from_another_and_each_row_of_a_record_finds_its_own(spark: SparkSession) -> None:
    items = lookup("item", "sku", table(b"a;1\nb;2\nc;9", "sku STRING, owner INT", "sku", delimiter=";"))
    plan = replace(
        PLAN,
        explode=RowExplode("items", "sku", "pos"),
        lookups=(items, replace(CUSTOMER, equals="CAST(item.owner AS SMALLINT)")),
        where="pos < 3",
        select=RowSelect(key="sku", value="coalesce(customer.name, 'nobody')"),
    )
    found = rows(spark, plan, b'{"id":1,"items":["b","c","a","a"]}', b'{"id":2,"items":[]}', b'{"id":3,"items":["x"]}')
    assert found == [
        (0, "b", "Bob", None),
        (0, "c", "nobody", None),
        (0, "a", "Ada, Ltd", None),
        (2, "x", "nobody", None),
    ]


@VARIANTS
def test_what_is_looked_for_may_fail_for_a_record(spark: SparkSession) -> None:
    cast = replace(CUSTOMER, equals="CAST(code AS INT)", at="spec.sinks[1].transform.lookups[3]")
    plan = replace(PLAN, lookups=(cast,), select=RowSelect(value="customer.name"))
    [good, bad] = rows(spark, plan, b'{"id":1,"code":"1"}', b'{"id":2,"code":"one"}')
    assert good == (0, "k", "Ada, Ltd", None)
    assert bad[2] == '{"id":2,"code":"one"}'
    assert str(bad[3]).startswith("EvaluationFailed: transform.lookups[3].equals has no value for it")


@VARIANTS
def test_what_the_log_of_a_server_was_without_is_not_looked_for(spark: SparkSession) -> None:
    plan = RowPlan(
        "debezium",
        schema="id INT, code STRING",
        on_null="Skip",
        lookups=(replace(COUNTRY, equals="after.code"),),
        select=RowSelect(key="string(after.id)", value="string(country.in.eu)"),
    )
    changes = [
        b'{"before":null,"after":{"id":%d,"code":"%s"},"op":"u","source":{},"ts_ms":1}' % (number, code)
        for number, code in enumerate((b"NL", b"__debezium_unavailable_value", b"XX"))
    ]
    found, lacking, unknown = rows(spark, plan, *changes, None)
    assert (found[1:], unknown[1:]) == (("0", "true", None), ("2", None, None))
    assert str(lacking[3]).startswith("UnavailableValue: transform.lookups[0].equals reads after.code")


@VARIANTS
def test_a_tombstone_is_looked_up_by_what_it_has(spark: SparkSession) -> None:
    by_key = lookup("found", "CAST(kafka.key AS STRING)", table(b"k,1", "key STRING, n INT", "key"))
    plan = replace(
        PLAN, on_null="PassThrough", lookups=(by_key, CUSTOMER), where="false", select=RowSelect(key="string(found.n)")
    )
    assert rows(spark, plan, None) == [(0, "1", None, None)]


@VARIANTS
@pytest.mark.parametrize(
    ("kind", "equals", "content"),
    [
        ("TINYINT", "CAST(customer_id AS TINYINT)", b"1"),
        ("BIGINT", "customer_id", b"1"),
        ("DATE", "date_add(DATE '2024-12-31', int(customer_id))", b"2025-01-01"),
        ("STRING", "string(customer_id)", b'"1"'),
    ],
)
def test_what_a_key_can_be(spark: SparkSession, kind: str, equals: str, content: bytes) -> None:
    of = table(content + b",yes", f"id {kind}, x STRING")
    plan = replace(PLAN, lookups=(lookup("t", equals, of),), select=RowSelect(value="t.x"))
    assert [each[2] for each in rows(spark, plan, b'{"id":1,"customer_id":1}', b'{"id":1,"customer_id":2}')] == [
        "yes",
        None,
    ]


TWO = "id INT NOT NULL, name STRING"


def test_a_key_that_is_there_twice_is_refused_with_its_lines(spark: SparkSession) -> None:
    twice = lookup("t", "customer_id", table(b"1,a\n2,b\n1,c", TWO))
    error = refused(spark, replace(PLAN, lookups=(twice,), select=RowSelect()))
    assert error.reason is Reason.LOOKUP_NOT_UNIQUE
    assert "id 1 stands in lines 1 and 3" in error.message


@VARIANTS
@pytest.mark.parametrize(
    ("of", "reason", "told"),
    [
        (table(b"id,name\n1,a\n\n1,c", TWO, header=True), Reason.LOOKUP_NOT_UNIQUE, "id 1 stands in lines 2 and 4"),
        (table(b"1,a\n2", TWO), Reason.LOOKUP_INVALID, "line 2: MalformedCsv"),
        (table(b"1,a\nx,b", TWO), Reason.LOOKUP_INVALID, "line 2: MalformedCsv"),
        (table(b",a", TWO), Reason.LOOKUP_INVALID, "line 1: MissingField"),
        (table(b"1,a\n,b", "id INT, name STRING"), Reason.LOOKUP_INVALID, "line 2: id, the key, is null"),
        (table(b"name,id\n1,a", TWO, header=True), Reason.LOOKUP_INVALID, "does not name the columns id,name"),
        (table(b'{"id":1}\n{"id":2', TWO, form="json"), Reason.LOOKUP_INVALID, "line 2: MalformedJson"),
        (table(b'{"id":"x"}', TWO, form="json"), Reason.LOOKUP_INVALID, "line 1: WrongType: id is not int"),
    ],
)
def test_a_table_that_is_none_is_refused(spark: SparkSession, of: TableText, reason: Reason, told: str) -> None:
    error = refused(spark, replace(PLAN, lookups=(lookup("t", "customer_id", of),), select=RowSelect()))
    assert error.reason is reason
    assert "spec.transform.lookups[0]: key t of ConfigMap c" in error.message
    assert told in error.message


def test_a_table_is_read_where_there_is_no_executor_yet(spark: SparkSession) -> None:
    spark.sparkContext.setJobGroup("tables", "none is wanted")
    try:
        load(spark, [replace(PLAN, lookups=(lookup("t", "customer_id", table(b"7,x\n8,y", TWO)),))])
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("tables")) == []


@VARIANTS
def test_a_table_without_rows_finds_nothing(spark: SparkSession) -> None:
    plan = replace(PLAN, lookups=(lookup("t", "customer_id", table(b"\n", TWO)),), select=RowSelect(value="t.name"))
    assert rows(spark, plan, b'{"id":1,"customer_id":1}') == [(0, "k", None, None)]


@VARIANTS
@pytest.mark.parametrize(
    ("wrong", "path", "told"),
    [
        (lookup("t", "customer_id", table(b"", "id INTT")), "schema", "INTT"),
        (lookup("t", "customer_id", table(b"", TWO, "nr")), "key", "no column nr in schema; there are id, name"),
        (lookup("t", "customer_id", table(b"", "id DOUBLE")), "key", "is DOUBLE, which can be no key"),
        (lookup("t", "customer_id", table(b"", "id STRING COLLATE UNICODE_CI")), "key", "can be no key"),
        (lookup("t", "code", table(b"", TWO)), "equals", "must be an integer, as the key is, is STRING"),
        (lookup("t", "customer_id", table(b"", "id STRING")), "equals", "must be STRING, as the key is, is BIGINT"),
        (lookup("t", "rand()", table(b"", TWO)), "equals", "is not deterministic"),
        (lookup("ID", "customer_id", table(b"", TWO)), "name", "there is a column id already"),
    ],
)
def test_a_lookup_that_means_nothing_is_refused_where_it_stands(
    spark: SparkSession, wrong: RowLookup, path: str, told: str
) -> None:
    error = refused(spark, replace(PLAN, lookups=(wrong,), select=RowSelect()))
    assert isinstance(error, ExpressionsInvalid)
    assert [each.path for each in error.problems] == [f"spec.transform.lookups[0].{path}"]
    assert told in error.message


@VARIANTS
def test_expressions_are_checked_without_the_table(spark: SparkSession) -> None:
    unread = replace(CUSTOMER, table=replace(CUSTOMER.table, content=None))
    analyse(spark, replace(PLAN, lookups=(unread, COUNTRY)))
    with pytest.raises(ExpressionsInvalid, match="No such struct field `size`"):
        analyse(spark, replace(PLAN, lookups=(unread, COUNTRY), where="customer.size > 1"))


@VARIANTS
def test_a_sink_sees_its_own_tables(spark: SparkSession) -> None:
    own = replace(PLAN, lookups=(), select=RowSelect(value="customer.name"), select_at="spec.sinks[1].transform")
    with pytest.raises(ExpressionsInvalid) as caught:
        analyse(spark, PLAN, own)
    [problem] = caught.value.problems
    assert problem.path == "spec.sinks[1].transform.select.value"
