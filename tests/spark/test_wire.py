"""Headers reach the worker as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sinkpipeline.spark.wire import headers_from_wire, to_wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    rows = spark.createDataFrame([(headers,)], "headers ARRAY<STRUCT<key: STRING, value: BINARY>>")

    [row] = to_wire(rows).collect()

    assert headers_from_wire(row.headers) == headers


def test_an_empty_list_is_none(spark: SparkSession) -> None:
    rows = spark.createDataFrame([([],)], "headers ARRAY<STRUCT<key: STRING, value: BINARY>>")

    assert to_wire(rows).collect()[0].headers is None
