"""Changes of a change topic: each with the values that the database had, or refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.rowplan import RowColumn, RowExplode, RowPlan, RowSelect, TableRow
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.decoding import record_columns, visible_columns
from sinkpipeline.spark.transform import output_rows
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

UTC = dt.timezone.utc
AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
COLUMNS = (
    "id BIGINT NOT NULL, name STRING NOT NULL, small SMALLINT, flag BOOLEAN, ratio DOUBLE, price DECIMAL(10,2), "
    "day DATE, at TIMESTAMP, clock TIMESTAMP_NTZ, raw BINARY, tags STRING, big STRING"
)
ROW: dict[str, Any] = {
    "id": 7,
    "name": 'a "name" \\ ä\n',
    "small": -7,
    "flag": True,
    "ratio": 0.1,
    "price": "-12345678.90",
    "day": "2024-02-29",
    "at": "2024-02-29 12:34:56.789012+02",
    "clock": "1969-12-31 23:59:59.999",
    "raw": "AP9c",
    "tags": '{t,NULL,"a b"}',
    "big": "a value that is stored out of line",
}
"""As a stage writes what PostgreSQL has sent."""


def change(op: str | None = "c", **fields: Any) -> bytes:
    found = {
        "op": op,
        "table": "public.orders",
        "pos": ["0/325D0F70", 467],
        "xid": 739,
        "committedAt": 1763856000123,
        "before": None,
        "after": None,
        "unchanged": [],
        **fields,
    }
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def frame_of(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    found = [
        (b"k", None if each is None else bytearray(each), "t", 0, offset, AT, 0, None)
        for offset, each in enumerate(values)
    ]
    return spark.createDataFrame(found, SOURCE).coalesce(1)


def plan_of(columns: str = COLUMNS, **fields: Any) -> RowPlan:
    return RowPlan("change", columns, on_null="Skip", **fields)


def errors(spark: SparkSession, plan: RowPlan, values: Sequence[bytes | None]) -> list[str | None]:
    return [each.error for each in output_rows(frame_of(spark, values), plan).collect()]


def seen(spark: SparkSession, plan: RowPlan, *values: bytes | None) -> list[Row]:
    """What expressions see of each."""
    assert errors(spark, plan, values) == [None] * len(values)
    return visible_columns(frame_of(spark, values), plan, record_columns(spark, plan)).collect()


def test_a_change_has_the_values_that_the_database_had(spark: SparkSession) -> None:
    plan = plan_of(rowless=True)
    analyse(spark, plan)
    without = {name: value for name, value in ROW.items() if name != "big"}
    created, updated, deleted, half, emptied = seen(
        spark,
        plan,
        change(after=ROW),
        change("u", after={**without, "name": "big is as it was"}, unchanged=["big", "none_of_ours"]),
        change("d", before={"id": 7}, pos=["A/0", 3]),
        change("c", after=ROW, pos=["FF/FFFFFFFF", 1, 1]),
        change("t"),
    )
    after = created.after.asDict()
    assert after["at"].astimezone(UTC) == dt.datetime(2024, 2, 29, 10, 34, 56, 789_012, UTC)
    assert {**after, "at": None, "raw": bytes(after["raw"])} == {
        **ROW,
        "price": Decimal("-12345678.90"),
        "day": dt.date(2024, 2, 29),
        "at": None,
        "clock": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),  # noqa: DTZ001 - it has none
        "raw": b"\0\xff\\",
    }
    assert (created.op, created.table, created.before, created.unchanged) == ("c", "public.orders", None, [])
    assert created.committedAt.astimezone(UTC) == dt.datetime(2025, 11, 23, 0, 0, 0, 123_000, UTC)
    assert created.position.asDict() == {"lsn": 0x325D0F70, "index": 467, "half": 0}
    assert (updated.after.name, updated.after.big, updated.unchanged) == ("big is as it was", None, ["big"])
    assert (deleted.after, deleted.before.id, deleted.before.name) == (None, 7, None)
    assert (deleted.position.lsn, half.position.lsn, half.position.half) == (10 << 32, (1 << 40) - 1, 1)
    assert (emptied.before, emptied.after) == (None, None)


def test_a_place_in_a_binary_log_is_ordered_by_file_also_of_a_server_that_has_taken_over(spark: SparkSession) -> None:
    plan = plan_of(rowless=True)
    analyse(spark, plan)
    places = ["db.example-bin.000007:4711", "mysql-bin.000002+5:4711", "bin.1000000:4"]
    found = seen(spark, plan, *(change(after=ROW, pos=[each, 2_000_000]) for each in places))
    assert [each.position.lsn for each in found] == [7 << 32 | 4711, 7 << 32 | 4711, 1_000_000 << 32 | 4]


def test_what_does_not_fit_is_refused(spark: SparkSession) -> None:
    right = change(after=ROW)

    def row(**fields: Any) -> bytes:
        return change(after={**ROW, **fields})

    values: dict[bytes | None, str | None] = {
        change("t"): "NoRow",
        change(): "MissingField: after is null",
        change("d", after=ROW): "MissingField: before is null",
        change("x"): "WrongType: op is none of",
        change(None, after=ROW): "MissingField: op",
        change(after=ROW, table=None): "MissingField: table",
        change(after=ROW, pos=None): "MissingField: pos",
        change(after=ROW, pos=["325D0F70", 0]): "MissingField: pos",
        change(after=ROW, pos=["0/0"]): "MissingField: pos",
        change(after=7): "WrongType: it is no change",
        change(after={"id": 7}): "MissingField: after.name",
        change("u", after={"id": 7}, unchanged=["name"]): None,
        change("u", after={"name": "x"}, unchanged=["name"]): "MissingField: after.id",
        row(id="seven"): "WrongType: after.id is no bigint",
        row(id=7.5): "WrongType: after.id",
        row(id="9223372036854775808"): "WrongType: after.id",
        row(small=32768): "WrongType: after.small",
        row(flag="yes"): "WrongType: after.flag",
        row(ratio="1e400"): "WrongType: after.ratio",
        row(ratio="1d"): "WrongType: after.ratio",
        row(price="0.001"): "WrongType: after.price is no decimal(10,2)",
        row(price="123456789"): "WrongType: after.price",
        row(price="NaN"): "WrongType: after.price",
        row(day="infinity"): "WrongType: after.day",
        row(day="2024-02-30"): "WrongType: after.day",
        row(day="0044-03-15 BC"): "WrongType: after.day",
        row(at="infinity"): "WrongType: after.at",
        row(at="0044-03-15 00:00:00+00 BC"): "WrongType: after.at",
        row(clock="2024-02-29 12:34:56+02"): "WrongType: after.clock",
        row(raw="\\xdeadbeef"): "WrongType: after.raw",
        change("u", before={**ROW, "day": "?"}, after=ROW): "WrongType: before.day",
        b"[]": "MalformedJson",
        b"{": "MalformedJson",
        right + b"{}": "MalformedJson",
        b"\xff": "InvalidUtf8",
        b"{}": "MissingField: op",
        right: None,
        row(id="9007199254740993"): None,
        row(ratio="NaN"): None,
        row(ratio="-Infinity"): None,
        row(ratio=1e300): None,
        row(price="00012345678.900"): None,
        row(price=1.5): None,
        row(day="10000-01-01"): None,
        row(at="10000-01-01 00:00:00+00"): None,
        row(at="2024-02-29 12:34:56"): None,
        row(at="1883-11-18 12:03:58-04:56:02"): None,
        row(**dict.fromkeys(("small", "flag", "ratio", "price", "day", "at", "clock", "raw", "tags", "big"))): None,
    }
    told = errors(spark, plan_of(), list(values))
    for value, found, expected in zip(values, told, values.values(), strict=True):
        assert found is None if expected is None else (found or "").startswith(expected), (value, found)


def test_a_time_of_day_is_none_of_today(spark: SparkSession) -> None:
    """With its zone it is as long as a time that has a date."""
    texts = ("12:34:56.123456+05:30", "12:34:56.123456-05:30", "T12:34:56.123456+05:30")
    told = errors(spark, plan_of("at TIMESTAMP"), [change(after={"at": each}) for each in texts])
    assert [str(each).partition(":")[0] for each in told] == ["WrongType"] * len(texts)


def test_times_of_any_zone_are_the_same_instant(spark: SparkSession) -> None:
    texts = ("2024-02-29 12:00:00+00", "2024-02-29 17:30:00+05:30", "2024-02-29T12:00:00Z", "2024-02-29 12:00:00")
    rows = seen(spark, plan_of("at TIMESTAMP"), *(change(after={"at": each}) for each in texts))
    assert {each.after.at.astimezone(UTC) for each in rows} == {dt.datetime(2024, 2, 29, 12, tzinfo=UTC)}


def test_only_changes_of_the_tables_that_are_named(spark: SparkSession) -> None:
    """Those of others would fit nothing: their columns are others."""
    plan = plan_of("id BIGINT NOT NULL", tables=("public.orders", "public.items"))
    other = change(after={"nr": 1}, table="public.lines")
    values = [change(after={"id": 1}), other, change(after={"id": 2}, table="public.items"), b"{", None]
    found = output_rows(frame_of(spark, values), plan).collect()
    assert [(each.offset, (each.error or "").partition(":")[0]) for each in found] == [
        *((0, ""), (2, "")),
        (3, "MalformedJson"),
    ]
    assert [(error or "").partition(":")[0] for error in errors(spark, plan_of("id BIGINT NOT NULL"), [other])] == [
        "MissingField"
    ]


TABLE = TableRow(
    columns=(
        RowColumn("coalesce(after.id, before.id)", "spec.sinks[0].a.id"),
        RowColumn("after.big", "spec.sinks[0].a.big", may_stay=True),
        RowColumn("upper(after.name)", "spec.sinks[0].a.name", may_stay=True),
        RowColumn("after.day", "spec.sinks[0].a.day", may_stay=True),
    ),
    deletes=RowColumn("op = 'd'", "spec.sinks[0].a.deleteWhen"),
    order=RowColumn("position.lsn", "spec.sinks[0].a.orderBy"),
    keeps=True,
)


@pytest.mark.thorough("tests/e2e/test_changes has a whole table")
def test_a_table_keeps_what_the_log_was_without(spark: SparkSession) -> None:
    plan = plan_of(table=TABLE)
    analyse(spark, plan)
    without = {name: value for name, value in ROW.items() if name not in ("big", "name")}
    values = [
        change(after=ROW),
        change("u", after={**without, "name": "n"}, unchanged=["big"]),
        change("u", after=without, unchanged=["big", "name"]),
        change("d", before={"id": 7}),
    ]
    found = output_rows(frame_of(spark, values), plan).collect()
    lsn = 0x325D0F70
    assert [each.error and each.error.partition(" reads ")[0] for each in found] == [
        *(None, None),
        "UnavailableValue: a.name",
        None,
    ]
    assert [bytes(found[at].value).decode().split("\t") for at in (0, 1, 3)] == [
        ["7", ROW["big"], 'A "NAME" \\\\ Ä\\n', "2024-02-29", "f", str(lsn), "{}"],
        ["7", "\\N", "N", "2024-02-29", "f", str(lsn), "{2}"],
        ["7", "\\N", "\\N", "\\N", "t", str(lsn), "{}"],
    ]
    for where, refused in (("after.big IS NULL", True), ("after IS NOT NULL", False), ("to_json(after) != ''", True)):
        told = errors(spark, plan_of(where=where), values[1:2])[0]
        assert (told or "").startswith("UnavailableValue") == refused


def test_expressions_see_the_change(spark: SparkSession) -> None:
    plan = plan_of(
        "id BIGINT, tags STRING",
        explode=RowExplode("from_json(after.tags, 'ARRAY<STRING>')", "tag"),
        where="table = 'public.orders' AND op != 'd' AND committedAt > TIMESTAMP '2025-01-01 00:00:00'",
        select=RowSelect(key="CAST(after.id AS STRING)", value="concat(op, position.index, tag)"),
    )
    analyse(spark, plan)
    found = output_rows(frame_of(spark, [change(after={"id": 1, "tags": '["a","b"]'})]), plan).collect()
    assert [(bytes(each.key), bytes(each.value)) for each in found] == [(b"1", b"c467a"), (b"1", b"c467b")]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("a ARRAY<STRING>", "use STRING, and an expression such as from_json"),
        ("a STRUCT<b: INT>", "a change has such a value as a text"),
        ("a INT, A INT", "the same name"),
        ("a INT DEFAULT 1", "Syntax error"),
        ("a", "spec.decode.schema"),
    ],
)
def test_columns_that_no_value_is_converted_to_are_refused(spark: SparkSession, columns: str, told: str) -> None:
    with pytest.raises(SinkPipelineError, match=r"spec\.decode\.schema") as refused:
        analyse(spark, plan_of(columns))
    assert told in str(refused.value)
