"""A record becomes a row of a table: every value arrives in PostgreSQL as it is."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.rowplan import RowColumn, RowPlan, TableRow
from sinkpipeline.postgresql.lines import text
from sinkpipeline.spark.analysis import analyse, order_kind
from sinkpipeline.spark.transform import output_rows
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=dt.timezone.utc)
HARD = "tab\t nl\n cr\r back\\slash \\N \\. ünï ✓ 'quote' \"\""
SCHEMA = (
    "id BIGINT NOT NULL, words STRING, price DECIMAL(12,4), ratio DOUBLE, flag BOOLEAN, data BINARY, day DATE, "
    "at TIMESTAMP, item STRUCT<sku: STRING>, `a.b``c` STRING, op STRING, version INT"
)
COLUMNS = {
    "id": ("id", "bigint"),
    "words": ("words", "text"),
    "price": ("price", "numeric(12,4)"),
    "ratio": ("CASE id WHEN 3 THEN DOUBLE('-Infinity') WHEN 1 THEN ratio ELSE DOUBLE('NaN') END", "double precision"),
    "flag": ("flag", "boolean"),
    "data": ("data", "bytea"),
    "day": ("day", "date"),
    "at": ("at", "timestamp with time zone"),
    "at_local": ("at", "timestamp"),
    "item": ("to_json(item)", "jsonb"),
    "a.b`c": ("`a.b``c`", "text"),
    "nothing": ("NULL", "text"),
    "where": ("kafka.offset", "integer"),
}
FAR = {
    "far": ("CASE id WHEN 1 THEN DATE'+12024-02-29' WHEN 3 THEN DATE'-0044-03-15' ELSE DATE'0000-12-31' END", "date"),
    "far_at": (
        "CAST(CASE id WHEN 3 THEN '-0044-03-15 01:02:03.4' ELSE '+12024-02-29' END AS TIMESTAMP)",
        "timestamptz",
    ),
    "far_local": ("CAST('-0044-03-15 01:02:03.4' AS TIMESTAMP_NTZ)", "timestamp"),
}
"""What Python has no type for."""


def plan(*, deletes: str | None = None, order: str | None = None, **changes: Any) -> RowPlan:
    columns = [
        RowColumn(
            expression,
            f"spec.sinks[0].transform.select.columns.{name}",
            takes="bytes" if kind == "bytea" else "anything",
        )
        for name, (expression, kind) in (COLUMNS | FAR).items()
    ]
    row = TableRow(
        columns=tuple(columns),
        deletes=None if deletes is None else RowColumn(deletes, "spec.sinks[0].postgresql.deleteWhen"),
        order=None if order is None else RowColumn(order, "spec.sinks[0].postgresql.orderBy"),
    )
    return RowPlan(decode_format="json", schema=SCHEMA, table=row, **changes)


def rows(spark: SparkSession, plan: RowPlan, *documents: Any) -> list[Row]:
    found = [
        (
            b"k",
            None if each is None else bytearray(json.dumps(each).encode()),
            "orders",
            0,
            offset,
            AT,
            0,
            [("h", b"1")],
        )
        for offset, each in enumerate(documents)
    ]
    analyse(spark, plan)
    return output_rows(spark.createDataFrame(found, SOURCE).coalesce(1), plan).collect()


BYTES = "spec.sinks[0].postgresql.table.columns.data"
DOCUMENTS = [
    {
        "id": 1,
        "words": HARD,
        "price": "12345678.9012",
        "ratio": 0.1,
        "flag": True,
        "data": "AP/cXG4=",
        "op": "u",
        "day": "2024-02-29",
        "at": "2024-05-06T07:08:09.123456Z",
        "item": {"sku": 'x"\\y'},
        "a.b`c": "dotted",
    },
    {"id": -(2**63), "words": "", "flag": False, "at": "0001-01-01T00:00:00Z"},
    {"id": 3, "words": "\\N"},
]


def test_every_value_arrives_as_it_is(spark: SparkSession, postgresql: LocalPostgresql) -> None:
    found = rows(spark, plan(), *DOCUMENTS)
    assert [each.error for each in found] == [None] * len(DOCUMENTS)
    assert [(each.key, each.headers, each.target_partition) for each in found] == [(None,) * 3] * len(DOCUMENTS)
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    types = ", ".join(f'"{name}" {kind}' for name, (_, kind) in (COLUMNS | FAR).items())
    far = ", ".join(FAR)
    lines = text([(bytes(each.value), None, -1, 0, None) for each in found], numbered=False)
    with psycopg.connect(host="127.0.0.1", port=postgresql.port, user=SUPERUSER, dbname=DATABASE) as session:
        # A zone of the server's own changes nothing.
        session.execute("SET TimeZone = 'Asia/Tokyo'")
        session.execute(f"CREATE TEMPORARY TABLE found ({types})".encode())
        with session.cursor().copy(f"COPY found ({names}, {far}) FROM STDIN".encode()) as copy:
            copy.write(lines)
        session.execute("SET TimeZone = 'UTC'")
        first, second, third = session.execute(f"SELECT {names} FROM found ORDER BY 13".encode()).fetchall()
        texts = ", ".join(f"{name}::text" for name in FAR)
        beyond = session.execute(f'SELECT {texts} FROM found ORDER BY "where"'.encode()).fetchall()
    of_caesar = "0045-03-15 01:02:03.4"
    assert beyond == [
        ("12024-02-29", "12024-02-29 00:00:00+00", f"{of_caesar} BC"),
        ("0001-12-31 BC", "12024-02-29 00:00:00+00", f"{of_caesar} BC"),
        ("0045-03-15 BC", f"{of_caesar}+00 BC", f"{of_caesar} BC"),
    ]
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123_456)  # noqa: DTZ001 - a column without a zone
    assert first == (
        *(1, HARD, Decimal("12345678.9012"), 0.1, True, b"\x00\xff\xdc\\n", dt.date(2024, 2, 29)),
        *(at.replace(tzinfo=dt.timezone.utc), at, {"sku": 'x"\\y'}, "dotted", None, 0),
    )
    assert second[:2] == (-(2**63), "")
    assert str(second[3]) == "nan"
    assert second[8] == dt.datetime(1, 1, 1)  # noqa: DTZ001 - a column without a zone
    assert third[1:4] == ("\\N", None, float("-inf"))


def test_deletions_and_what_orders_changes(spark: SparkSession) -> None:
    by_version = rows(spark, plan(deletes="op = 'd'", order="version"), {"id": 1, "op": "d", "version": 7}, {"id": 2})
    assert [bytes(each.value).split(b"\t")[-2:] for each in by_version] == [[b"t", b"7"], [b"f", b"\\N"]]
    [by_time] = rows(spark, plan(order="at"), {"id": 1, "at": "1970-01-01T00:00:01.000002Z"})
    assert bytes(by_time.value).split(b"\t")[-1] == b"1000002"


def test_a_tombstone_deletes_by_the_key_of_the_record(spark: SparkSession) -> None:
    tombstone = plan(deletes="kafka.value IS NULL", on_null="PassThrough")
    [gone] = rows(spark, tombstone, None)
    assert gone.error is None
    assert bytes(gone.value).split(b"\t")[-1] == b"t"


def test_what_fails_for_a_record_is_that_record_as_it_was(spark: SparkSession) -> None:
    columns = (RowColumn("1 div id", "spec.sinks[0].transform.select.columns.x"),)
    found = rows(spark, RowPlan(decode_format="json", schema=SCHEMA, table=TableRow(columns)), {"id": 0}, {"id": 1})
    bad, good = found
    verdict = Verdict.of(bad.error)
    assert verdict.error_class is ErrorClass.EVALUATION_FAILED
    assert verdict.text.startswith("transform.select.columns.x has no value")
    assert (bytes(bad.key), json.loads(bad.value), len(bad.headers)) == (b"k", {"id": 0}, 1)
    assert (good.error, bytes(good.value)) == (None, b"1")


def test_what_no_column_takes_is_told_with_its_place(spark: SparkSession) -> None:
    parts = {
        "spec.sinks[0].transform.select.columns.item": ("item", "to_json"),
        "spec.sinks[0].transform.select.columns.key": (
            "kafka.key",
            "must be of a type that the column takes, is BINARY",
        ),
        "spec.sinks[0].postgresql.table.columns.where": ("`where`", "there is no column `where`"),
        "spec.sinks[0].postgresql.deleteWhen": ("op", "must be BOOLEAN, is STRING"),
        "spec.sinks[0].postgresql.orderBy": ("price", "must be BIGINT or TIMESTAMP"),
    }
    parts[BYTES] = ("op", "must be BINARY, as the column is a bytea, is STRING")
    *columns, deletes, order, data = (
        RowColumn(expression, at, takes="bytes" if at == BYTES else "anything") for at, (expression, _) in parts.items()
    )
    row = TableRow((*columns, data), deletes, order)
    with pytest.raises(SinkPipelineError) as told:
        analyse(spark, RowPlan(decode_format="json", schema=SCHEMA, table=row))
    for at, (_, what) in parts.items():
        assert at in told.value.message
        assert what in str(told.value)


@pytest.mark.parametrize("expression", ["ratio", "price", "flag", "day", "CAST(id AS FLOAT)"])
@pytest.mark.thorough("each type", after=1)
def test_a_column_of_integers_is_given_no_fraction(spark: SparkSession, expression: str) -> None:
    """The server refuses the text of 1.0 for every row."""
    at = "spec.sinks[0].transform.select.columns.n"
    with pytest.raises(SinkPipelineError, match=r"columns\.n: must be of an integer type, or STRING.*CAST"):
        analyse(spark, of_integers(at, expression))


def of_integers(at: str, expression: str) -> RowPlan:
    row = TableRow((RowColumn(expression, at, takes="integers"),))
    return RowPlan(decode_format="json", schema=SCHEMA, table=row)


@pytest.mark.thorough("each value")
def test_a_column_of_integers_takes_what_is_integral_or_a_text(spark: SparkSession) -> None:
    for expression in ("id", "version", "CAST(price AS DECIMAL(9,0))", "words", "NULL"):
        analyse(spark, of_integers("spec.sinks[0].transform.select.columns.n", expression))


@pytest.mark.parametrize(("order", "kind"), [("version", "number"), ("at", "time"), (None, None)])
def test_what_orders_changes_is_a_number_or_a_time(spark: SparkSession, order: str | None, kind: str | None) -> None:
    assert order_kind(spark, plan(order=order)) == kind
