"""Headers reach the worker as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sinkpipeline.spark.wire import headers_from_wire, to_wire

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

Headers = list[tuple[str, bytes | None]] | None


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [("a", b"1")],
        [("a", None), ("a", b""), ("a", b"2")],
        [('\u00fc " \\ {', bytes(range(256)) * 3)],
    ],
    ids=["none", "one", "null, empty and repeated", "any bytes"],
)
def test_round_trip(spark: SparkSession, headers: Headers) -> None:
    row = sent(spark, headers)

    assert headers_from_wire(row.headers) == headers
    assert row.error is None


def test_an_empty_list_is_none(spark: SparkSession) -> None:
    assert sent(spark, []).headers is None


@pytest.mark.parametrize("key", [None, "a\0b"])
def test_a_header_that_would_be_altered_in_silence_is_an_error(spark: SparkSession, key: str | None) -> None:
    row = sent(spark, [("good", b"1"), (key, b"2")])

    assert row.error.startswith("InvalidHeader: ")
    headers_from_wire(row.headers)


def test_an_error_before_stays(spark: SparkSession) -> None:
    assert sent(spark, [(None, b"2")], error="NullValue: it is null").error == "NullValue: it is null"


def sent(spark: SparkSession, headers: object, error: str | None = None) -> Row:
    schema = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, error STRING"
    [row] = to_wire(spark.createDataFrame([(headers, error)], schema)).collect()
    return row
