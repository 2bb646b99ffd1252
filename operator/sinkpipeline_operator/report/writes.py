"""When a status is worth a write. Pure, but for the tokens that all pipelines share.

Transitions are written at once. What only goes on (rows, frontier, lag) is written at once where a person looks for it:
the first rows after a transition, and a lag that is worked off; then every quarter of a minute while the transition is
young, and once a minute after that. What is the same is never written.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline_operator.report.undelivered import firsts

EVERY_S = 60.0
EVERY_S_AT_FIRST = 15.0
FIRST_S = 300.0
"""For how long a transition is young."""
PER_SECOND = 10.0

_CONDITION = ("type", "status", "reason", "observedGeneration")
_TELLING = frozenset({"SpecValid", "Stalled"})
"""Conditions whose message changes only when somebody has done something; other messages may hold counts."""
_SINK = (
    "name",
    "state",
    "guarantee",
    "circuit",
    "epoch",
    "dataTopicId",
    "dataTopics",
    "progressTopicId",
    "mayBeDuplicated",
    "rolledBack",
)


class Due(enum.Enum):
    NOT = "not"
    COUNTS = "counts"
    TRANSITION = "transition"


@dataclass(kw_only=True)
class Pace:
    """Of one pipeline, for as long as the operator lives; times are of one monotonic clock."""

    _wrote_at: float | None = None
    _transition_at: float | None = None
    _moved: bool = False
    """Whether rows that were delivered since the transition have been written."""
    _caught_up: bool = False
    """Likewise, that nothing waits any more."""

    def due(self, before: Mapping[str, Any], after: Mapping[str, Any], now: float) -> Due:
        """Whether to write `after` over `before`."""
        if before == after:
            return Due.NOT
        if _is_transition(before, after):
            return Due.TRANSITION
        if self._wrote_at is None:
            return Due.COUNTS
        since_s = now - self._wrote_at
        young = self._transition_at is not None and now - self._transition_at < FIRST_S
        first = (_moves(before, after) and not self._moved) or (_catches_up(before, after) and not self._caught_up)
        later = since_s >= EVERY_S_AT_FIRST and (young or _catches_up(before, after))
        return Due.COUNTS if first or later or since_s >= EVERY_S else Due.NOT

    def wrote(self, before: Mapping[str, Any], after: Mapping[str, Any], now: float) -> None:
        """`after` was written over `before`."""
        self._wrote_at = now
        if _is_transition(before, after):
            self._transition_at, self._moved, self._caught_up = now, False, False
            return
        self._moved = self._moved or _moves(before, after)
        self._caught_up = self._caught_up or _catches_up(before, after)


class Tokens:
    """How often all pipelines together may write what only goes on: transitions take tokens too, and never wait."""

    def __init__(self, per_second: float = PER_SECOND) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at: float | None = None
        self._lock = threading.Lock()

    def suffice(self, due: Due, now: float) -> bool:
        """Whether `take` would say so."""
        with self._lock:
            passed_s = 0.0 if self._at is None else max(0.0, now - self._at)
            self._at = now
            self._left = min(self._per_second, self._left + passed_s * self._per_second)
            return due is Due.TRANSITION or (due is Due.COUNTS and self._left >= 1)

    def take(self, due: Due, now: float) -> bool:
        """Whether to write now."""
        if not self.suffice(due, now):
            return False
        with self._lock:
            # A flood of transitions is no reason to be silent for longer than a second.
            self._left = max(-self._per_second, self._left - 1)
        return True


def _is_transition(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return essence(before) != essence(after) or any(firsts(before, after))


def _moves(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return _total(after, "rowsDelivered") > _total(before, "rowsDelivered")


def _catches_up(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    lag = (after.get("totals") or {}).get("lag")
    return lag == 0 and _total(before, "lag") > 0


def _total(status: Mapping[str, Any], name: str) -> int:
    return (status.get("totals") or {}).get(name) or 0


def essence(status: Mapping[str, Any]) -> dict[str, Any]:
    """What changes only when something has happened."""
    source = status.get("source") or {}
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
        "source": {
            **{key: source.get(key) for key in ("state", "slot", "circuit", "timeline")},
            "error": (source.get("error") or {}).get("reason"),
        },
    }


def _tells(condition: Mapping[str, Any]) -> bool:
    return condition["type"] in _TELLING
