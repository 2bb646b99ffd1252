"""When a status is worth a write: transitions at once, counts once a minute, what is the same never. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinkpipeline_operator.report.undelivered import firsts

EVERY_S = 60.0
"""Of what only goes on: rows, frontier, lag."""

_CONDITION = ("type", "status", "reason", "observedGeneration")
_TELLING = frozenset({"SpecValid", "SparkApplicationReady", "Stalled"})
"""Conditions whose message changes only when somebody has done something; other messages may hold counts."""
_SINK = ("name", "state", "guarantee", "circuit", "epoch", "dataTopicId", "progressTopicId", "mayBeDuplicated")


def is_due(before: Mapping[str, Any], after: Mapping[str, Any], since_s: float) -> bool:
    """Whether to write `after` over `before`, `since_s` seconds after the last write."""
    if before == after:
        return False
    return essence(before) != essence(after) or any(firsts(before, after)) or since_s >= EVERY_S


def essence(status: Mapping[str, Any]) -> dict[str, Any]:
    """What changes only when something has happened."""
    return {
        **{key: status.get(key) for key in ("observedGeneration", "identity", "phase", "sparkApplication", "restarts")},
        "sinksReady": (status.get("totals") or {}).get("sinksReady"),
        "conditions": [
            {**{key: each.get(key) for key in _CONDITION}, "message": each["message"] if _tells(each) else None}
            for each in status.get("conditions") or ()
        ],
        "sinks": [
            {**{key: sink.get(key) for key in _SINK}, "error": (sink.get("error") or {}).get("reason")}
            for sink in status.get("sinks") or ()
        ],
    }


def _tells(condition: Mapping[str, Any]) -> bool:
    return condition["type"] in _TELLING
