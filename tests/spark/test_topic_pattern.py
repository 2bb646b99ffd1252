"""Java reads a pattern as we do. Spark is told names and never a pattern, but people try their patterns in Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, example, given, settings

from sinkpipeline.core.topic_pattern import PatternError, matches
from support.resource.patterns import TOPICS, patterns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(r"(?i)[A-z]|\W")
@example("(?i)[^a]")
@given(patterns)
def test_what_is_read_is_read_alike_by_java(spark: SparkSession, pattern: str) -> None:
    try:
        ours = [topic for topic in TOPICS if matches(pattern, topic)]
    except PatternError:
        assume(False)
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)  # type: ignore[union-attr]
    assert [topic for topic in TOPICS if java.matcher(topic).matches()] == ours
