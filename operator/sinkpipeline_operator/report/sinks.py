"""Each sink's part of the status, and their totals.

Sinks are told by whoever knows: the driver while it answers, its last words when it has died, Kafka while it is down;
the earlier status for what none of them tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sinkpipeline.core.documents import MAX_COUNT
from sinkpipeline.core.status import SinkState
from sinkpipeline_operator.decide.decision import Standing
from sinkpipeline_operator.report.known import Known, cut

_MEMORY = (
    *("deadLetters", "frontier", "epoch", "dataTopicId", "dataTopics", "progressTopicId", "lastProgressTime"),
    *("mayBeDuplicated", "rolledBack", "counted"),
)
_UNTIL_A_RESET = {"mayBeDuplicated", "rolledBack"}
_COUNTS = ("rowsDelivered", "deadLettered", "dropped", "lost")
_OF_THIS_RUN = ("proved", "stillSince")
"""What only the driver that runs can tell of a sink."""


def sink_status(known: Known, name: str) -> dict[str, Any]:
    """One sink's part."""
    told = _told(known, name)
    told.pop("required", None)
    kind = {"kind": known.kinds[name]} if name in known.kinds else {}
    return _bounded({**told, **kind, **({"required": False} if name in known.optional else {})})


def _told(known: Known, name: str) -> dict[str, Any]:
    told = None if known.told is None else _named(known.told.get("sinks"), name)
    words = known.last_words.get(name) or {}
    earlier = _of_its_epoch(_named(known.previous.get("sinks"), name), words if told is None else told)
    if told is not None:
        # One that says nothing of a frontier has none to tell: that is no reason to forget it.
        kept = (
            {}
            if told.get("frontier")
            else {key: earlier[key] for key in (*_MEMORY, *_COUNTS) if earlier and key in earlier}
        )
        guarantee = told.get("guarantee", known.sinks[name])
        is_same = earlier and (earlier["guarantee"], earlier.get("kind")) == (guarantee, known.kinds.get(name))
        if earlier and is_same:
            # A driver tells it once it has started the sink.
            kept |= {key: earlier[key] for key in ("durability", "duplicateWindow") if key in earlier}
        return {**kept, **told, "guarantee": guarantee}
    # What is remembered is what a lost progress topic would be restored from: it stays, whatever happens to the driver.
    # What the source held back is of the moment in which somebody looked.
    sink = {
        "name": name,
        **{key: value for key, value in (earlier or {}).items() if key not in ("heldBack", "openTransaction")},
        **words,
        **(known.observed.get(name) or {}),
        "guarantee": known.sinks[name],
    }
    if not is_silent(known):
        for each in _OF_THIS_RUN:
            sink.pop(each, None)
    if known.decision.anew:
        sink.pop("circuit", None)
    if "frontier" in (seen := known.observed.get(name) or {}):
        for each in _UNTIL_A_RESET - seen.keys():
            sink.pop(each, None)
    sink["state"] = state_of(known, sink).value
    if sink["state"] in (SinkState.STARTING.value, SinkState.SUSPENDED.value):
        sink.pop("error", None)
    return sink


def _of_its_epoch(earlier: Mapping[str, Any] | None, newer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """An earlier status, without what it remembers of before a reset that the newer one comes after."""
    if earlier is None or newer.get("epoch", earlier.get("epoch")) == earlier.get("epoch"):
        return earlier
    return {key: each for key, each in earlier.items() if key not in (*_MEMORY, *_COUNTS)}


def _bounded(sink: dict[str, Any]) -> dict[str, Any]:
    """The API server bounds texts, and would refuse the whole status for one that is longer."""
    if sink.get("error"):
        error = sink["error"]
        sink["error"] = {key: cut(str(error.get(key, ""))) for key in ("reason", "message", "remedy")}
    if sink.get("openTransaction"):
        hanging = sink["openTransaction"]
        sink["openTransaction"] = {key: cut(str(hanging.get(key, ""))) for key in ("message", "remedy")}
    return sink


def is_silent(known: Known) -> bool:
    """Whether the driver of which the earlier status tells runs still, as far as anybody knows."""
    return known.decision.standing is Standing.RUNNING and bool(known.unresponsive)


def state_of(known: Known, sink: Mapping[str, Any]) -> SinkState:
    """The state of a sink, or of a stage, of which no driver tells anything."""
    standing, restarts = known.decision.standing, known.decision.restarts
    if known.suspended or known.deleting or known.held:
        # A driver that still stops may still deliver, and write its progress.
        earlier = sink.get("state", SinkState.SUSPENDED.value)
        return SinkState.SUSPENDED if standing is Standing.STOPPED else SinkState(earlier)
    if known.decision.anew:
        return SinkState.STARTING
    if is_silent(known):
        # It may do what it did; that nobody knows is what the conditions say.
        return SinkState(sink.get("state", SinkState.STARTING.value))
    if standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED) or sink.get("state") == SinkState.FAILED.value:
        return SinkState.FAILED
    ended_badly = standing is Standing.STOPPING and restarts.consecutive + restarts.outages > 0
    return SinkState.RETRYING if standing is Standing.BACKING_OFF or ended_badly else SinkState.STARTING


def _named(items: Iterable[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any] | None:
    return next((each for each in items or () if each.get("name") == name), None)


def totals(sinks: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all sinks' parts."""
    ready = sum(sink["state"] == SinkState.RUNNING.value and sink.get("proved") is not False for sink in sinks)
    return {
        "sinksReady": f"{ready}/{len(sinks)}",
        **{name: _sum(sinks, name) for name in _COUNTS},
        # A lag that is not known of every sink is none.
        **({"lag": _sum(sinks, "lag")} if sinks and all("lag" in sink for sink in sinks) else {}),
    }


def _sum(sinks: list[dict[str, Any]], name: str) -> int:
    return min(MAX_COUNT, sum(sink.get(name) or 0 for sink in sinks))
