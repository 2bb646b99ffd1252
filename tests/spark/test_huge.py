"""Records that Spark would work at for hours, or end its JVM by: each is refused, and the next one is delivered."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from sinkpipeline.core.rowplan import RowPlan
from sinkpipeline.spark.transform import output_rows
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)
COLUMNS = "d DECIMAL(12,3), s STRING, o STRUCT<l: ARRAY<DECIMAL(5,2)>>, x DOUBLE"


def refused(spark: SparkSession, plan: RowPlan, values: list[str]) -> list[str | None]:
    found = [(b"k", bytearray(each.encode()), "t", 0, offset, AT, 0, None) for offset, each in enumerate(values)]
    rows = output_rows(spark.createDataFrame(found, SOURCE).coalesce(1), plan).collect()
    return [None if each.error is None else each.error.partition(":")[0] for each in rows]


@pytest.mark.parametrize(
    "value",
    [
        "1e600000000",
        "-1.5E+600000000",
        '"1e600000000"',
        '"1\\u0065600000000"',
        '"1e\\u002b600000000"',
        '"\\u0031e\\u0036\\u0036\\u0036\\u0036\\u0036\\u0036\\u0036\\u0036\\u0036"',
        '"1e٦٦٦٦٦٦٦٦٦"',
        f'"{"1" * 900_000}"',
        f'"0.{"0" * 900_000}1"',
    ],
)
def test_decimals_of_json(spark: SparkSession, value: str) -> None:
    values = [f'{{"d": {value}}}', f'{{"s": "a", "o": {{"l": [1, {value}]}}}}', f'{{"d":1,"x":2,"d":{value}}}']
    assert refused(spark, RowPlan("json", COLUMNS), [*values, '{"d": 1}']) == ["WrongType"] * 3 + [None]


def test_what_only_looks_like_them(spark: SparkSession) -> None:
    """Identifiers, and what no decimal is."""
    fine = [
        '{"d": 1.5, "s": "4e123456789"}',
        '{"d": 1.5, "s": "a: 1e600000000, [1e600000000]"}',
        '{"d": 1.5, "s": "\\"1e600000000\\u0065", "y": "1e600000000"}',
        f'{{"d": 1.5, "s": "{"1" * 5000}"}}',
        '{"d": "1e5", "s": "x"}',
    ]
    assert refused(spark, RowPlan("json", COLUMNS), fine) == [None] * len(fine)
    lines = ["1.5,4e123456789", "1e5,a", f'1,"{"1" * 5000}"']
    assert refused(spark, RowPlan("csv", "d DECIMAL(12,3), s STRING"), lines) == [None] * len(lines)


def test_lines_of_csv(spark: SparkSession) -> None:
    lines = ["1e600000000,a", '"1e٦٦٦٦٦٦٦٦٦",a', f"{'1' * 900_000},a", f'1,"{"x" * 900_000}', f'1,"{"x" * 900_000}""']
    found = refused(spark, RowPlan("csv", "d DECIMAL(12,3), s STRING"), [*lines, "1,a"])
    assert found == ["MalformedCsv"] * len(lines) + [None]


def test_long_texts(spark: SparkSession) -> None:
    """Nothing is looked for in them again and again."""
    fine = [
        '{"d": 1, "s": "' + "\\\\" * 300_000 + '?"}',
        '{"s": "x", "a": [' + ",".join(str(each) for each in range(150_000)) + '], "d": 1}',
        '{"d":' + " " * 900_000 + "1}",
    ]
    behind = '{"s": "' + "x\\n" * 300_000 + '", "d": 1e600000000}'
    assert refused(spark, RowPlan("json", COLUMNS), [*fine, behind]) == [None] * len(fine) + ["WrongType"]
