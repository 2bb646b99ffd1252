"""Several rows of one record: what Spark makes of an array, and how the rows of a record come together again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.rowplan import RowExplode, RowPlan, RowSelect
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.whole_records import WholeRecords
from sinkpipeline.spark import collect
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.collect import collected
from sinkpipeline.spark.redrive import LetterTransform
from sinkpipeline.spark.task import row_batch
from sinkpipeline.spark.transform import output_rows
from sinkpipeline.spark.wire import COUNTED_ROWS, count_batches, to_wire
from support.spark_source import SOURCE, letter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PLAN = RowPlan(
    "json",
    schema="id BIGINT NOT NULL, items ARRAY<STRUCT<sku: STRING, n: INT>>, tags ARRAY<STRING>",
    explode=RowExplode("items", "item", "pos", 4),
    where="item.n > 0 OR item.n IS NULL",
    select=RowSelect(key="item.sku", value="concat_ws('/', id, pos, 12 / item.n)"),
)
AT = SourcePartition("orders", 0)
BATCH: Any = SimpleNamespace(ranges={AT: OffsetRange(0, 1_000_000)})


def order(number: int, *counts: int | None) -> bytes:
    return json.dumps({"id": number, "items": [{"sku": f"s{at}", "n": n} for at, n in enumerate(counts)]}).encode()


def wire_of(spark: SparkSession, plan: RowPlan, *values: bytes | None, counted: bool = True) -> DataFrame:
    rows = [
        (b"k", None if value is None else bytearray(value), AT.topic, AT.partition, offset, None, 0, None)
        for offset, value in enumerate(values)
    ]
    analyse(spark, plan)
    frame = spark.createDataFrame(rows, SOURCE).coalesce(1)
    return to_wire(output_rows(frame, plan), several_topics=False, targets=False, counted=counted)


def records(wire: DataFrame) -> list[tuple[int, list[bytes | None], str | None]]:
    """Offset, values and error of each record, in order, as they come to a writer."""
    found = collected(wire, BATCH)
    assert found is not None
    whole, told = WholeRecords(), []
    for _, batch in found.rows:
        told += list(whole.add(batch))
    told += list(whole.rest())
    return [
        (batch.offsets[at], [row[0] for row in batch.rows(at, at + 1)], batch.error(at))
        for batch in told
        for at in range(len(batch))
    ]


def test_a_record_gives_a_row_for_each_element(spark: SparkSession) -> None:
    found = records(
        wire_of(
            spark,
            PLAN,
            order(1, 1, 2, 3),
            order(2),
            b'{"id":3,"items":null}',
            order(4, 0, 4, 0, None),
            order(5, 0, 0),
            order(6, 6),
        )
    )
    assert found == [
        (0, [b"1/0/12.0", b"1/1/6.0", b"1/2/4.0"], None),
        (3, [b"4/1/3.0", b"4/3"], None),
        (5, [b"6/0/2.0"], None),
    ], "without elements, or without any that are kept, it is as if it were filtered out"


def test_one_bad_element_is_a_bad_record(spark: SparkSession) -> None:
    plan = replace(PLAN, where=None)
    found = records(wire_of(spark, plan, order(1, 1, 0, 3), b"no json", order(3, *[1] * 5), order(4, *[1] * 4), None))
    assert [(offset, len(values), error and error.partition(":")[0]) for offset, values, error in found] == [
        (0, 3, "EvaluationFailed"),
        (1, 1, "MalformedJson"),
        (2, 1, "TooManyRows"),
        (3, 4, None),
        (4, 1, "NullValue"),
    ]
    assert found[2][1] == [order(3, *[1] * 5)], "the row is the record"
    assert "maxRowsPerRecord, 4" in (found[2][2] or "")


def test_of_a_bad_record_the_letter_is_the_record(spark: SparkSession) -> None:
    value = order(1, 1, 0, 3)
    found = collected(wire_of(spark, replace(PLAN, where=None), value), BATCH)
    assert found is not None
    [(_, batch)] = found.rows
    own = batch.source_record(AT, 0)
    assert own is not None
    assert (own.offset, own.key, own.value) == (0, b"k", value)


@pytest.mark.thorough("two more kinds of a record without rows")
def test_an_array_that_fails_and_tombstones_that_pass(spark: SparkSession) -> None:
    plan = replace(
        PLAN,
        on_null="PassThrough",
        explode=RowExplode("slice(items, CAST(tags[0] AS INT), 1)", "item"),
        where="true",
        select=RowSelect(value="item.sku"),
    )
    failing = b'{"id":1,"items":[{"sku":"a"}],"tags":["x"]}'
    found = records(wire_of(spark, plan, failing, b'{"id":1,"items":[{"sku":"a"}],"tags":["1"]}', None))
    assert [(offset, values) for offset, values, _ in found] == [(0, [failing]), (1, [b"a"]), (2, [None])]
    assert [error and error.partition(" for it")[0] for _, _, error in found] == [
        "EvaluationFailed: transform.explode.array has no value",
        None,
        None,
    ]


@pytest.mark.parametrize("rows_of_a_batch", [2, 1, 7, 5_000])
@pytest.mark.thorough("further sizes", after=1)
def test_records_are_whole_however_arrow_cuts_them(spark: SparkSession, rows_of_a_batch: int) -> None:
    counts = [3, 1, 0, 4, 4, 2, 1, 1, 3]
    wire = wire_of(spark, PLAN, *(order(number, *[1] * count) for number, count in enumerate(counts)))
    conf = wire.sparkSession.conf
    before = conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or "10000"
    conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows_of_a_batch))
    try:
        count_batches(wire, COUNTED_ROWS)
        found = records(wire)
    finally:
        conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    assert [(offset, len(values)) for offset, values, _ in found] == [
        (offset, count) for offset, count in enumerate(counts) if count
    ]


def test_a_batch_of_more_rows_than_the_driver_has_room_for_is_for_the_tasks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = wire_of(spark, PLAN, order(1, 1, 1), order(2, 1, 1, 1))
    monkeypatch.setattr(collect, "MOST_ROWS", 5)
    assert len(records(wire)) == 2
    monkeypatch.setattr(collect, "MOST_ROWS", 4)
    assert collected(wire, BATCH) is None


def test_a_letter_is_redriven_with_all_of_its_rows(spark: SparkSession) -> None:
    letters = [letter(3, 30, order(3, 1, 2)), letter(5, 20, order(2)), letter(7, 10, order(1, 3, 4, 6))]
    found = LetterTransform(spark, PLAN)(letters)
    assert isinstance(found, RowBatch)
    assert [(found.offsets[at], [row[0] for row in found.rows(at, at + 1)]) for at in range(len(found))] == [
        (3, [b"3/0/12.0", b"3/1/6.0"]),
        (7, [b"1/0/4.0", b"1/1/3.0", b"1/2/2.0"]),
    ]


@pytest.mark.thorough("reads the plan")
def test_without_it_nothing_else_travels(spark: SparkSession) -> None:
    plan = replace(PLAN, explode=None, where=None, select=RowSelect())
    wire = wire_of(spark, plan, order(1, 1, 2))
    assert "row" not in wire.columns
    [batch] = wire.toArrow().to_batches()
    found = row_batch(batch)
    assert found is not None
    assert found.firsts is None


@pytest.mark.thorough("reads the plan; the rows are those of the others")
def test_the_array_is_made_once(spark: SparkSession) -> None:
    wire = wire_of(spark, PLAN, order(1, 1))
    physical = wire.where("notes IS NULL")._jdf.queryExecution().executedPlan().toString()
    assert len(re.findall(r"from_json\(StructField", physical)) == 1
    assert len(re.findall(r"tryeval\(struct\(result, items", physical, re.IGNORECASE)) == 1


@pytest.mark.parametrize(
    ("explode", "fact"),
    [
        (RowExplode("id", "item"), "explode.array: must be ARRAY<...>, is BIGINT"),
        (RowExplode("explode(items)", "item"), "explode.array: generators"),
        (RowExplode("shuffle(items)", "item"), "explode.array: is not deterministic"),
        (RowExplode("lines", "item"), "explode.array: there is no column `lines`"),
        (RowExplode("items", "ID"), "explode.as: there is a column id already"),
        (RowExplode("items", "item", "kafka"), "explode.positionAs: there is a column kafka already"),
        (RowExplode("items", "item", "Item"), "explode.positionAs: there is a column item already"),
        (RowExplode("items", "other"), "transform.where: there is no column `item`"),
    ],
)
@pytest.mark.thorough("each refusal", after=1)
def test_what_is_refused(spark: SparkSession, explode: RowExplode, fact: str) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        analyse(spark, replace(PLAN, explode=explode))
    assert caught.value.reason is Reason.EXPRESSION_INVALID
    assert fact in caught.value.message


@pytest.mark.thorough("two sinks with what the others show for one")
def test_each_sink_is_asked_about_its_own_columns(spark: SparkSession) -> None:
    other = replace(
        PLAN,
        explode=RowExplode("tags", "tag"),
        explode_at="spec.sinks[1].transform",
        where="tag <> ''",
        select=RowSelect(),
    )
    analyse(spark, PLAN, other)
    with pytest.raises(SinkPipelineError) as caught:
        analyse(spark, PLAN, replace(other, where="item.n > 1"), replace(PLAN, explode=None, explode_at="elsewhere"))
    assert "there is no column `item`" in caught.value.message
