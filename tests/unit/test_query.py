"""What a query makes of rows that it can't fetch; the rest of it is in tests/spark and tests/model."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from sinkpipeline.sinks.contract import OversizedRecord
from sinkpipeline.spark import query
from sinkpipeline.spark.query import SinkQuery


@pytest.mark.parametrize(
    ("error", "abandoned", "told"),
    [
        (PySparkException("too large"), False, 1),
        (PySparkException("cancelled"), True, 0),
        (OversizedRecord(), False, 0),
    ],
    ids=["it fails", "it was ended by us", "a large record"],
)
def test_after_rows_that_could_not_be_fetched_tasks_deliver(
    monkeypatch: pytest.MonkeyPatch, error: Exception, abandoned: bool, told: int
) -> None:
    """Else the same batch is fetched again after each start, until the circuit opens."""
    asked: Any = SinkQuery.__new__(SinkQuery)
    asked.delivery, asked._abandoned = Mock(), abandoned
    monkeypatch.setattr(query, "collected", Mock(side_effect=error))
    with pytest.raises(type(error)):
        asked._collected(Mock(), Mock())
    assert asked.delivery.not_collected.call_count == told
