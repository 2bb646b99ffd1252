"""Rows of letters are the rows that Spark's Kafka source would have led to, each with its letter's offset."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sinkpipeline.core.records import Headers
from sinkpipeline.core.redrive import Letter
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.spark.redrive import LetterTransform
from support.spark_source import letter

pytestmark = pytest.mark.spark

YEAR_1 = -62_135_596_800_000
"""What .NET has where no time was set."""
RAW = RowPlan(decode_format="raw", on_null="PassThrough")


def rows(spark: SparkSession, plan: RowPlan, *letters: Letter) -> RowBatch:
    found = LetterTransform(spark, plan)(letters)
    assert found is not None
    return found


def test_bytes_headers_and_times_are_the_source_s(spark: SparkSession) -> None:
    odd: Headers = [("h", b"\xff\x00"), ("h", None), ("\u00fc", b"")]
    found = rows(
        spark,
        RAW,
        letter(3, 30, b"\xff\x00", headers=odd),
        letter(5, 20, None, timestamp=-1),
        letter(6, 20, b"", timestamp=2**62, partition=1),
        letter(7, 21, b"", timestamp=YEAR_1, partition=1),
        letter(8, 22, b"", timestamp=-(2**63), partition=1),
    )
    assert found.offsets == [3, 5, 6, 7, 8]
    assert found.values == [b"\xff\x00", None, b"", b"", b""]
    assert found.keys == [b"k", None, b"k", b"k", b"k"]
    assert found.headers == [odd, None, None, None, None]
    assert [*found.timestamps[:2], found.timestamps[3]] == [5_000, -1, YEAR_1]
    assert found.errors is None or found.errors == [None] * 5


def test_each_row_has_its_letter_s_offset_also_where_some_are_dropped_and_some_fail(spark: SparkSession) -> None:
    plan = RowPlan(
        decode_format="json",
        schema="id BIGINT NOT NULL",
        where="id % 3 != 0",
        select=RowSelect(
            value="concat_ws('/', kafka.topic, kafka.partition, kafka.offset, id)", partition="CAST(id AS INT)"
        ),
    )
    count = 3_000
    letters = [
        letter(2 * n, count - n, b"no json" if n == 7 else b'{"id":%d}' % n, partition=n % 4) for n in range(count)
    ]
    found = rows(spark, plan, *letters)
    left = [n for n in range(count) if n % 3 or n == 7]
    assert found.offsets == [2 * n for n in left]
    assert found.values == [b"no json" if n == 7 else f"t/{n % 4}/{count - n}/{n}".encode() for n in left]
    assert found.errors is not None
    assert [found.offsets[i] for i, error in enumerate(found.errors) if error] == [14]
    assert found.target_partitions == [-1 if n == 7 else n for n in left]


def test_of_a_chunk_of_which_nothing_is_left_there_are_no_rows(spark: SparkSession) -> None:
    plan = RowPlan(decode_format="raw", where="kafka.offset > 5")
    assert LetterTransform(spark, plan)([letter(1, 5, b"v")]) is None
