"""How a pipeline of these tests begins."""

from __future__ import annotations

import time
from typing import Any, Final

from support.cluster.installed import START_S, Pipeline

ROWS: Final = 5_000
"""For each of four partitions."""


def begin(pipeline: Pipeline, case: str, **spec: Any) -> None:
    """Ready never comes before rows."""

    def rows_are_there() -> bool:
        ready = pipeline.told("Ready").startswith("True")
        delivered = pipeline.delivered()
        assert delivered > 0 or not ready, "it is Ready, and nothing was ever delivered"
        return delivered > 0

    pipeline.stream.feed(ROWS)
    begun = time.monotonic()
    pipeline.apply(**spec)
    first = pipeline.until(rows_are_there, "its first rows are there", START_S)
    pipeline.installed.report.tell(case, first, f"first rows; of that: {pipeline.first_row(first)}")
    pipeline.until(lambda: pipeline.told("Ready").startswith("True"), "it is Ready", START_S)
    pipeline.installed.report.tell(case, time.monotonic() - begun, "applied until it is Ready", pipeline.line)
