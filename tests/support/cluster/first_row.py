"""How long it takes from `kubectl apply` to the first row, and what takes it; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Object = dict[str, Any]
Mark = tuple[str, dt.datetime]
"""What has come then."""


def marks(pipeline: Object, application: Object, driver: Object, executor: Object) -> list[Mark]:
    """By the clocks of the API server and of the kubelet, which count whole seconds."""
    return [
        ("applied", _made(pipeline)),
        ("SparkApplication", _made(application)),
        ("driver's pod (spark-submit)", _made(driver)),
        ("driver's container", _started(driver)),
        ("executor's pod (Spark, the sink's start)", _made(executor)),
        ("executor's container", _started(executor)),
    ]


def parts(marks: Sequence[Mark], seconds: float) -> str:
    """Of that many seconds, as `SparkApplication 1 s, driver's pod 9 s`: how long each came after the one before."""
    took = [(what, (at - before).total_seconds()) for (_, before), (what, at) in pairwise(marks)]
    rest = seconds - sum(each for _, each in took)
    return ", ".join(f"{what} {each:.0f} s" for what, each in [*took, ("first batch", rest)])


def _made(found: Object) -> dt.datetime:
    return dt.datetime.fromisoformat(found["metadata"]["creationTimestamp"])


def _started(pod: Object) -> dt.datetime:
    return dt.datetime.fromisoformat(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])
