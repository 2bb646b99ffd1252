"""A record becomes a message of a stream: its subject has the place of a key."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.rowplan import RowPlan, row_plan, rows_of
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.transform import output_rows
from support.resource.manifests import SINK, changed, smallest
from support.resource.streams import stream
from support.spark_source import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=dt.timezone.utc)
DECODE = {"format": "json", "schema": "id BIGINT NOT NULL, to STRING"}


def plan(**sink: Any) -> RowPlan:
    document = changed(smallest(), (SINK, stream(**sink)), (("spec", "decode"), DECODE))
    pipeline = parse_manifest(document)
    return rows_of(row_plan(pipeline), pipeline, "copy")


def rows(spark: SparkSession, plan: RowPlan, *values: bytes) -> list[Row]:
    found = [(b"k", bytearray(each), "t", 0, n, AT, 0, [("h", b"1")]) for n, each in enumerate(values)]
    analyse(spark, plan)
    return output_rows(spark.createDataFrame(found, SOURCE).coalesce(1), plan).collect()


def test_the_subject_has_the_place_of_a_key(spark: SparkSession) -> None:
    select = {"subject": "'a.' || to", "value": "CAST(id AS STRING)", "headers": "map('id', CAST(id AS STRING))"}
    bad, *good = rows(
        spark, plan(select=select), b"{", *(json.dumps(each).encode() for each in ({"id": 1, "to": "é"}, {"id": 2}))
    )
    assert [(each.key, each.value, each.headers[0].value) for each in good] == [
        ("a.é".encode(), b"1", b"1"),
        (None, b"2", b"2"),
    ]
    assert (bytes(bad.key), bad.error.partition(":")[0]) == (b"k", "MalformedJson"), "a letter has the record's own"


def test_without_a_selection_value_and_headers_are_the_records_own_and_there_is_no_key(spark: SparkSession) -> None:
    [row] = rows(spark, plan(), b'{"id": 1}')
    assert (row.key, bytes(row.value), row.headers[0].key, row.error) == (None, b'{"id": 1}', "h", None)


def test_a_subject_is_text(spark: SparkSession) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        rows(spark, plan(select={"subject": "id"}), b"{}")
    assert caught.value.reason is Reason.EXPRESSION_INVALID
    assert "spec.sinks[0].transform.select.subject" in caught.value.message
    assert "STRING" in caught.value.message
