"""Rows reach the worker as they were; what is too large for a counted Arrow batch is marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sinkpipeline.spark.wire import COUNTED_ROW_BYTES, Note, count_batches, counted_rows, note_from_wire, to_wire

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
def test_headers(spark: SparkSession, headers: Headers) -> None:
    assert note_from_wire(sent(spark, headers).notes) == Note(headers=headers)


def test_a_header_without_a_value_may_be_told_as_null() -> None:
    """As Spark does where `spark.sql.jsonGenerator.ignoreNullFields` is false."""
    assert note_from_wire('{"error":null,"headers":[{"k":"a","v":null}]}').headers == [("a", None)]


def test_an_empty_list_of_headers_is_none(spark: SparkSession) -> None:
    assert sent(spark, []).notes is None


@pytest.mark.parametrize("key", [None, "a\0b"])
def test_a_header_that_would_be_altered_in_silence_is_an_error(spark: SparkSession, key: str | None) -> None:
    note = note_from_wire(sent(spark, [("good", b"1"), (key, b"2")]).notes)

    assert note.error is not None
    assert note.error.startswith("InvalidHeader: ")


def test_an_error_before_stays(spark: SparkSession) -> None:
    note = note_from_wire(sent(spark, [(None, b"2")], error="NullValue: it is null").notes)

    assert note.error == "NullValue: it is null"


@pytest.mark.parametrize("error", [None, "MalformedJson: \u00fc"])
def test_a_row_within_the_bound_is_whole_when_rows_are_counted(spark: SparkSession, error: str | None) -> None:
    row = sent(spark, [("a", b"1")], error=error, value=b"x" * (COUNTED_ROW_BYTES - 100), counted=True)

    assert len(row.value) == COUNTED_ROW_BYTES - 100
    assert note_from_wire(row.notes) == Note(headers=[("a", b"1")], error=error)


@pytest.mark.parametrize(
    ("value", "headers"),
    [(b"x" * (COUNTED_ROW_BYTES + 1), None), (b"", [("a", b"x" * COUNTED_ROW_BYTES)])],
    ids=["value", "headers"],
)
def test_a_larger_row_comes_without_its_content_when_rows_are_counted(
    spark: SparkSession, value: bytes, headers: Headers
) -> None:
    row = sent(spark, headers, value=value, counted=True)

    assert note_from_wire(row.notes) == Note(oversized=True)
    assert (row.key, row.value) == (None, None)
    assert sent(spark, headers, value=value).value == value, "measured, it is whole"


def test_columns_that_nobody_needs_are_not_sent(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], SCHEMA)

    assert "topic" not in to_wire(frame, several_topics=False).columns
    assert "target_partition" not in to_wire(frame, targets=False).columns
    assert {"topic", "target_partition"} <= {*to_wire(frame).columns}


def test_counting_bounds_arrow_batches_by_rows_and_lets_nothing_be_measured(spark: SparkSession) -> None:
    session = spark.newSession()
    frame = session.createDataFrame([], SCHEMA)

    count_batches(frame, 700)

    assert session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "700"
    assert session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "2147483647"


@pytest.mark.parametrize(("wanted", "most"), [("0", 5000), ("-1", 5000), ("10000", 5000), ("300", 300)])
def test_no_batch_has_more_rows_than_the_session_was_given(spark: SparkSession, wanted: str, most: int) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", wanted)

    assert counted_rows(session.createDataFrame([], SCHEMA)) == most


SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY, target_partition INT, timestamp_ms BIGINT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, error STRING"
)


def sent(
    spark: SparkSession, headers: object, error: str | None = None, value: bytes = b"v", *, counted: bool = False
) -> Row:
    frame = spark.createDataFrame([("t", 0, 7, b"k", value, None, 1, headers, error)], SCHEMA)
    [row] = to_wire(frame, counted=counted).collect()
    return row
