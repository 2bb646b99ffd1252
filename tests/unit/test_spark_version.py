"""What is named otherwise in another line of Spark, and what one of them is without."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaPackage
from pyspark.sql import functions

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.spark.avro import require_avro
from sinkpipeline.spark.protobuf import require_protobuf
from sinkpipeline.spark.session import plain_files


@pytest.mark.parametrize(
    ("spark", "package"), [("4.0.4", "streaming"), ("4.1.1", "checkpointing"), ("4.10.0.dev1", "checkpointing")]
)
def test_the_manager_of_checkpoint_files_is_where_that_spark_has_it(spark: str, package: str) -> None:
    assert plain_files(spark).split(".")[-2:] == [package, "FileSystemBasedCheckpointFileManager"]


@pytest.mark.parametrize(("kind", "require"), [("avro", require_avro), ("protobuf", require_protobuf)])
def test_a_format_that_a_spark_is_without_is_refused_by_its_name(
    kind: str, require: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of 4.0; `make test-spark-4.0` asks it itself (tests/e2e/test_refusals.py)."""
    monkeypatch.delattr(functions, "arrow_udf", raising=False)
    # What py4j gives for a name that the JVM has no class for.
    names = ["org", "apache", "spark", "sql", "avro", "AvroDataToCatalyst"]
    jvm: Any = JavaPackage(".".join(names), None)
    for name in reversed(names):
        jvm = SimpleNamespace(**{name: jvm})

    with pytest.raises(SinkPipelineError, match=rf"format {kind} needs .*\b4\.0\.4\b") as caught:
        require(SimpleNamespace(version="4.0.4", _jvm=jvm))

    assert caught.value.reason is Reason.NOT_SERVED
    assert "use Spark 4.1" in caught.value.remedy
