"""The expressions of docs/cookbook.md, asked of Spark: tests/e2e/test_cookbook runs each recipe."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.rowplan import row_plan, rows_of_all
from sinkpipeline.spark.analysis import analyse
from support.cookbook import recipes

pytestmark = pytest.mark.spark


@pytest.mark.thorough("tests/e2e/test_cookbook runs each recipe")
def test_every_expression_is_valid(spark: SparkSession) -> None:
    checked = []
    for title, recipe in recipes().items():
        pipeline = parse_manifest(recipe.manifest)
        # What an expression may name, such a pipeline's registry says.
        if not pipeline.spec.decode.asks_registry:
            analyse(spark, *rows_of_all(row_plan(pipeline), pipeline))
            checked.append(title)
    assert len(checked) == len(recipes()) - 1
