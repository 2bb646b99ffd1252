"""What every Python worker is forked from: what it costs is paid by every task."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_task_reads_no_archive_again_and_collects_little_garbage(spark: SparkSession) -> None:
    """Spark puts its archives first on the path, and asks importlib to look at them again for every task."""

    def look_around(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import gc  # noqa: PLC0415 - what is told is the worker's
        import sys  # noqa: PLC0415
        from zipimport import zipimporter  # noqa: PLC0415

        for _ in batches:
            pass
        archives = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
        needed = ("pandas", "sinkpipeline.spark.task", "sinkpipeline.kafka.kind", "confluent_kafka")
        missing = [each for each in needed if each not in sys.modules]
        told = {"archives": archives, "missing": missing, "unfrozen": [len(gc.get_objects()) < 5_000]}
        yield pa.RecordBatch.from_pydict({"told": [f"{name}: {value}" for name, value in told.items()]})

    told = spark.range(0, 1, 1, 1).mapInArrow(look_around, "told STRING").collect()
    assert [row.told for row in told] == ["archives: []", "missing: []", "unfrozen: [True]"]
