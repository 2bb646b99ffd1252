"""`status.source`: the stage that reads the changes of a database.

It is told as sinks are: by the driver while it answers, by its last words when it has died, by Kafka while it is down;
by the earlier status for what none of them tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinkpipeline.core.changes.told import AT_RISK, source_healthy
from sinkpipeline.core.status import Condition, SinkState
from sinkpipeline_operator.report.known import Known, cut
from sinkpipeline_operator.report.sinks import is_silent, state_of

_MEMORY = ("position", "index", "changes", "deadLettered", "dropped", "timeline")
_OF_THIS_RUN = (
    *("serverEnd", "lagBytes", "lagSeconds", "retainedBytes", "safeBytes", "atRisk"),
    *("snapshot", "incrementalSnapshot"),
)
"""What is so at the moment in which a stage looks."""


def source_status(known: Known) -> dict[str, Any] | None:
    """None where records come from Kafka."""
    if not known.has_stage:
        return None
    held = {} if known.slot is None else {"slot": known.slot}
    earlier = known.previous.get("source") or {}
    if earlier.get("slot") != known.slot:
        earlier = {}
    told = None if known.told is None else known.told.get("source")
    if told is not None:
        kept = {} if "position" in told else {key: earlier[key] for key in _MEMORY if key in earlier}
        return _bounded({**kept, **told, **held})
    source = {**earlier, **known.source_words, **known.source_observed, **held}
    if not is_silent(known):
        for key in _OF_THIS_RUN:
            source.pop(key, None)
    if known.decision.anew:
        source.pop("circuit", None)
    source["state"] = state_of(known, source).value
    if source["state"] in (SinkState.STARTING.value, SinkState.SUSPENDED.value):
        source.pop("error", None)
    return _bounded(source)


def source_condition(known: Known, source: Mapping[str, Any]) -> Condition:
    """SourceHealthy. While no stage reads, the database keeps its log for the slot: that is said."""
    if source.get("error") or (known.told is not None and "source" in known.told):
        healthy = source_healthy(source)
        return Condition(healthy.status, healthy.reason, cut(healthy.message))
    text = "no driver tells of its stage"
    if "position" in source and not is_silent(known):
        text = "no stage runs, and the database removes its log by age"
        if "slot" in source:
            text = f"no stage runs, and slot {source['slot']} keeps the database's log until one does"
    return Condition("Unknown", "NotYetKnown", text)


def bars(condition: Condition) -> bool:
    """Whether a pipeline is not ready by it: what is at risk is read all the same."""
    return condition.status != "True" and condition.reason not in AT_RISK


def _bounded(source: dict[str, Any]) -> dict[str, Any]:
    """The API server bounds texts."""
    if "atRisk" in source:
        source["atRisk"] = cut(str(source["atRisk"]))
    if (source.get("incrementalSnapshot") or {}).get("waitsFor"):
        told = source["incrementalSnapshot"]
        source["incrementalSnapshot"] = {**told, "waitsFor": cut(str(told["waitsFor"]))}
    if source.get("error"):
        error = source["error"]
        source["error"] = {key: cut(str(error.get(key, ""))) for key in ("reason", "message", "remedy")}
    return source
