"""The rows of a small batch come to the driver as they would come to tasks, and so do errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.functions import expr

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.schemas import PENDING
from sinkpipeline.sinks.contract import OversizedRecord
from sinkpipeline.spark.collect import Found, collected
from sinkpipeline.spark.query import spark_error
from sinkpipeline.spark.session import RESULT_SIZE
from sinkpipeline.spark.wire import COUNTED_ROW_BYTES, to_wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PLAN: Any = SimpleNamespace(ranges={SourcePartition("in", number): OffsetRange(0, 10) for number in range(3)})


def rows(spark: SparkSession, count: int, size: int = 3) -> DataFrame:
    """So many offsets in each of three partitions, of which the last one has none."""
    found = spark.range(0, 3, 1, 3).selectExpr(
        "CAST(id AS INT) AS partition", f"explode(sequence(0L, {count - 1}L)) AS offset"
    )
    return found.where("partition < 2").selectExpr(
        "'in' AS topic",
        "partition",
        "offset",
        "CAST(CAST(offset AS STRING) AS BINARY) AS key",
        f"CAST(repeat('x', {size}) AS BINARY) AS value",
        "CAST(NULL AS INT) AS target_partition",
        "1000 + offset AS timestamp_ms",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        "CAST(NULL AS STRING) AS error",
    )


@pytest.mark.parametrize("several", [False, True])
def test_rows_come_by_partition_and_in_order(spark: SparkSession, several: bool) -> None:
    wire = to_wire(rows(spark, 4), several_topics=several, targets=False, counted=True)
    found = collected(wire, PLAN)
    assert found is not None
    assert [(at, batch.offsets, batch.keys) for at, batch in found.rows] == [
        (SourcePartition("in", number), [0, 1, 2, 3], [b"0", b"1", b"2", b"3"]) for number in range(2)
    ]
    assert collected(wire.where("partition = 2"), PLAN) == Found([])


def test_the_rows_of_a_partition_end_before_a_record_of_an_unknown_schema(spark: SparkSession) -> None:
    at = {(0, 2): "0000000007", (0, 3): "0000000008", (1, 0): "0000000009"}
    cases = " ".join(f"WHEN partition = {p} AND offset = {o} THEN '{PENDING}{frame}'" for (p, o), frame in at.items())
    unknown = rows(spark, 5).withColumn("error", expr(f"CASE {cases} END"))
    wire = to_wire(unknown, several_topics=False, targets=False, counted=True)
    found = collected(wire, PLAN)
    assert found is not None
    assert [(each.partition, batch.offsets) for each, batch in found.rows] == [(0, [0, 1])]
    frames = {(each.partition, stop.offset): [frame[-1] for frame in stop.frames] for each, stop in found.stops.items()}
    assert frames == {(0, 2): [7, 8], (1, 0): [9]}


def test_a_large_record_is_for_a_start_that_measures(spark: SparkSession) -> None:
    wire = to_wire(rows(spark, 1, COUNTED_ROW_BYTES), several_topics=False, targets=False, counted=True)
    with pytest.raises(OversizedRecord):
        collected(wire, PLAN)


def test_rows_that_are_larger_than_the_driver_has_room_for_are_for_the_tasks(spark: SparkSession) -> None:
    context: Any = spark.sparkContext._jsc.sc()
    before = context.conf().get(RESULT_SIZE, "1g")
    small = to_wire(rows(spark, 8), several_topics=False, targets=False, counted=True)
    large = to_wire(rows(spark, 8, 15_000), several_topics=False, targets=False, counted=True)
    # Spark reads it anew for each job.
    context.conf().set(RESULT_SIZE, "100k")
    try:
        assert collected(small, PLAN) is not None
        assert collected(large, PLAN) is None
    finally:
        context.conf().set(RESULT_SIZE, before)
    assert collected(large, PLAN) is not None


def test_a_job_that_fails_is_told_alike_however_its_rows_are_fetched(spark: SparkSession) -> None:
    wire = to_wire(rows(spark, 1), several_topics=False, targets=False, counted=True)
    failing = wire.where("raise_error('Cannot fetch record for offset 3 in 1000 milliseconds') IS NULL")
    told = []
    for fetch in (failing.collect, lambda: collected(failing, PLAN)):
        with pytest.raises((PySparkException, Py4JError)) as caught:
            fetch()
        told.append(spark_error(caught.value))
    assert [error.reason for error in told] == [Reason.SOURCE_SLOW] * 2
    assert "Cannot fetch record" in told[1].message
