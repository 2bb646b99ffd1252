"""A task whose input fails in Spark: it learns it, and does not take what it was given for all there was."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from support.waiting import wait_until

pytestmark = pytest.mark.spark

ROWS = 100_000


@pytest.mark.parametrize("fails", [True, False])
def test_what_fails_in_the_middle_is_not_the_end_of_the_rows(spark: SparkSession, tmp_path: Path, fails: bool) -> None:
    """Far behind the first of Spark's buffers, so that whole Arrow batches have come through."""
    told = tmp_path / "told"

    def count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows, how = 0, "whole"
        try:
            for batch in batches:
                rows += batch.num_rows
        except ConnectionAbortedError:
            how = "cut"
        with told.open("a") as file:
            file.write(f"{how} {0 < rows < ROWS}\n")
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    end = ROWS - 5_000 if fails else -1
    frame = spark.range(0, ROWS, 1, 1).selectExpr(
        "id", "repeat('x', 200) AS text", f"CASE WHEN id = {end} THEN raise_error('cut') END AS fault"
    )
    if fails:
        with pytest.raises(PySparkException, match="cut"):
            frame.mapInArrow(count, "rows LONG").collect()
        # The task has failed for Spark, and goes on in Python.
        wait_until(told.exists, "the task has noticed")
        assert set(told.read_text().splitlines()) == {"cut True"}
    else:
        assert [row.rows for row in frame.mapInArrow(count, "rows LONG").collect()] == [ROWS]
        assert told.read_text() == "whole False\n"
