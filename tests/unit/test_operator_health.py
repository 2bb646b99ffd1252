"""For how long a driver has been well, which is what clears the deaths before."""

from __future__ import annotations

from typing import Any

import pytest

from sinkpipeline.core.status import timestamp
from sinkpipeline_operator.observe.observer import _healthy_s

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def status(*sinks: dict[str, Any], ready: str = "True") -> dict[str, Any]:
    since = timestamp(NOW_MS - HOUR_MS)
    return {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}], "sinks": list(sinks)}


def sink(lag: int | None, committed_ago_ms: int | None) -> dict[str, Any]:
    return {
        **({} if lag is None else {"lag": lag}),
        **({} if committed_ago_ms is None else {"lastProgressTime": timestamp(NOW_MS - committed_ago_ms)}),
    }


@pytest.mark.parametrize(
    ("document", "seconds"),
    [
        ({}, 0),
        (status(sink(0, 60_000), ready="False"), 0),
        (status(sink(0, 2 * HOUR_MS)), 3600),  # idle
        (status(sink(7, 60_000)), 3540),
        (status(sink(7, 2 * HOUR_MS)), 0),  # nothing was committed since
        (status(sink(7, None)), 0),
        (status(sink(0, None), sink(7, 60_000)), 3540),
        (status(sink(None, None)), 3600),
    ],
)
def test_a_batch_that_goes_on_is_no_health(document: dict[str, Any], seconds: float) -> None:
    assert _healthy_s(document, NOW_MS) == seconds
