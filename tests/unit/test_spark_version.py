"""What is named otherwise in another line of Spark."""

from __future__ import annotations

import pytest

from sinkpipeline.spark.session import plain_files


@pytest.mark.parametrize(
    ("spark", "package"), [("4.0.4", "streaming"), ("4.1.1", "checkpointing"), ("4.10.0.dev1", "checkpointing")]
)
def test_the_manager_of_checkpoint_files_is_where_that_spark_has_it(spark: str, package: str) -> None:
    assert plain_files(spark).split(".")[-2:] == [package, "FileSystemBasedCheckpointFileManager"]
