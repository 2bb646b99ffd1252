"""What a run writes over the status document that an earlier one has left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sinkpipeline.core.errors import Reason

_COUNTS = ("rowsDelivered", "deadLettered", "dropped", "lost")
_OF_PROGRESS = (
    *_COUNTS,
    "deadLetters",
    "frontier",
    "lastProgressTime",
    "epoch",
    "dataTopicId",
    "dataTopics",
    "progressTopicId",
    "mayBeDuplicated",
    "rolledBack",
    "counted",
)
"""What a sink's document has of its progress."""


def write_over(there: object, status: Mapping[str, Any], *, own: bool) -> Mapping[str, Any] | None:
    """What a run writes over the document that is there; None: it leaves that as it is.

    What is `there` is what a lost progress topic would be restored from. A run that was superseded knows less than who
    has taken over; one that has not come to a sink's frontier yet forgets none that is there.

    Args:
        there: whatever could be read; what is no document of the same identity is written over.
        status: the run's own document.
        own: whether nobody else has written since this run did.
    """
    told = status["sinks"]
    if not own and any(sink.get("error", {}).get("reason") == Reason.SUPERSEDED.value for sink in told):
        return None
    if not isinstance(there, Mapping) or there.get("identity") != status["identity"]:
        return status
    known = {sink["name"]: sink for sink in there.get("sinks", []) if sink.get("frontier")}
    sinks = [sink if sink.get("frontier") else sink | _remembered(known.get(sink["name"], {})) for sink in told]
    return {**status, "totals": status["totals"] | sums(sinks), "sinks": sinks}


def sums(sinks: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Of what all sinks' documents count."""
    counted = list(sinks)
    return {name: sum(sink.get(name) or 0 for sink in counted) for name in _COUNTS}


def _remembered(sink: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sink[name] for name in _OF_PROGRESS if name in sink}
