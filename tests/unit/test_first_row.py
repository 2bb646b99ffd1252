from __future__ import annotations

from typing import Any

from support.cluster.first_row import marks, parts


def seen(second: int, started: int | None = None) -> dict[str, Any]:
    running = {"running": {"startedAt": f"2026-11-23T01:00:{started:02}Z"}} if started is not None else {}
    return {
        "metadata": {"creationTimestamp": f"2026-11-23T01:00:{second:02}Z"},
        "status": {"containerStatuses": [{"state": running}]},
    }


def test_each_part_is_the_time_since_the_one_before() -> None:
    told = parts(marks(seen(1), seen(2), seen(12, 14), seen(24, 27)), 30.4)
    assert told == (
        "SparkApplication 1 s, driver's pod (spark-submit) 10 s, driver's container 2 s, "
        "executor's pod (Spark, the sink's start) 10 s, executor's container 3 s, first batch 4 s"
    )
