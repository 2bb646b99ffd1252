"""`status`, as one pure function of what was observed and decided.

Sinks are told by whoever knows: the driver while it answers, its last words when it has died, Kafka while it is down;
the earlier status for what none of them tells. `phase` is computed from the conditions and never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.manifest import Problem
from sinkpipeline.core.status import Condition, SinkState, condition_of, conditions, without_errors
from sinkpipeline.core.tally import parse
from sinkpipeline_operator.decide.decision import NAME_TAKEN, Decision, Standing

MAX_MESSAGE = 1024
"""Characters of a condition's message."""

UNRESPONSIVE = "DriverUnresponsive"
"""The reason of `SparkApplicationReady` where a driver runs and can't be heard."""
_WORKING = (Standing.STARTING, Standing.STOPPING, Standing.BACKING_OFF)
_WORDS = {
    NAME_TAKEN: "a SparkApplication of this name belongs to somebody else: delete it, or rename the pipeline",
    "DriverStopping": "the driver before this one is still stopping: nothing starts until its pod is gone",
}
_MEMORY = ("deadLetters", "frontier", "epoch", "dataTopicId", "progressTopicId", "lastProgressTime", "mayBeDuplicated")
_COUNTS = ("rowsDelivered", "deadLettered", "dropped", "lost")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What there is to report."""

    generation: int
    previous: Mapping[str, Any]
    now_ms: int
    identity: str | None
    sinks: Mapping[str, str]
    """The guarantee of each sink that the resource has, by name, in its order."""
    problems: tuple[Problem, ...] = ()
    rejected: tuple[str, str] | None = None
    """Reason and message of the driver's refusal of the current configuration."""
    trouble: SinkPipelineError | None = None
    """Why a valid manifest can't be run."""
    decision: Decision
    child: Mapping[str, Any] = field(default_factory=dict)
    """`status.sparkApplication`."""
    told: Mapping[str, Any] | None = None
    """The driver's own document; None while it doesn't answer."""
    unresponsive: str = ""
    """Why a driver that runs counts as unresponsive; empty where it doesn't."""
    last_words: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sink, what the driver that died said of it."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sink, what Kafka says of it while no driver tells."""
    topics: Condition | None = None
    """What the operator itself found of the topics; None leaves it to the driver, or to the earlier status."""
    deleting: bool = False
    doomed: tuple[str, ...] = ()
    """Data topics that are deleted with the resource."""
    suspended: bool = False
    paused: bool = False


def report(known: Known) -> dict[str, Any]:
    """The whole status."""
    sinks = [_bounded(_sink(known, name)) for name in known.sinks]
    found = _conditions(known, sinks)
    return {
        "observedGeneration": known.generation,
        **({} if known.identity is None else {"identity": known.identity}),
        "phase": _phase(known, sinks),
        "conditions": conditions(found, known.generation, known.previous, known.now_ms),
        "totals": _totals(sinks),
        **({"sparkApplication": dict(known.child)} if known.child else {}),
        "restarts": known.decision.restarts.to_dict(),
        "sinks": sinks,
    }


def _sink(known: Known, name: str) -> dict[str, Any]:
    earlier = _named(known.previous.get("sinks"), name)
    told = None if known.told is None else _named(known.told.get("sinks"), name)
    if told is not None:
        # One that says nothing of a frontier has none to tell: that is no reason to forget it.
        kept = (
            {}
            if told.get("frontier")
            else {key: earlier[key] for key in (*_MEMORY, *_COUNTS) if earlier and key in earlier}
        )
        return {**kept, **told, "guarantee": told.get("guarantee", known.sinks[name])}
    # What is remembered is what a lost progress topic would be restored from: it stays, whatever happens to the driver.
    sink = {
        "name": name,
        **(earlier or {}),
        **(known.last_words.get(name) or {}),
        **(known.observed.get(name) or {}),
        "guarantee": known.sinks[name],
    }
    if known.decision.anew:
        sink.pop("circuit", None)
    if "frontier" in (seen := known.observed.get(name) or {}) and "mayBeDuplicated" not in seen:
        # A reset has ended it.
        sink.pop("mayBeDuplicated", None)
    sink["state"] = _state(known, sink).value
    if sink["state"] in (SinkState.STARTING.value, SinkState.SUSPENDED.value):
        sink.pop("error", None)
    return sink


def _bounded(sink: dict[str, Any]) -> dict[str, Any]:
    """The API server bounds texts and shapes, and would refuse the whole status for one that is none of them."""
    try:
        parse(sink.get("deadLetters", ()))
    except (KeyError, TypeError, ValueError):
        # Of a driver's answer nothing is believed but its shape, and this has none.
        del sink["deadLetters"]
    if sink.get("error"):
        error = sink["error"]
        sink["error"] = {key: _cut(str(error.get(key, ""))) for key in ("reason", "message", "remedy")}
    return sink


def _state(known: Known, sink: Mapping[str, Any]) -> SinkState:
    """The state of a sink of which no driver tells anything."""
    standing, restarts = known.decision.standing, known.decision.restarts
    if known.suspended or known.deleting:
        # A driver that still stops may still deliver, and write its progress.
        earlier = sink.get("state", SinkState.SUSPENDED.value)
        return SinkState.SUSPENDED if standing is Standing.STOPPED else SinkState(earlier)
    if known.decision.anew:
        return SinkState.STARTING
    if standing is Standing.RUNNING and known.unresponsive:
        # It may do what it did; that nobody knows is what the conditions say.
        return SinkState(sink.get("state", SinkState.STARTING.value))
    if standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED) or sink.get("state") == SinkState.FAILED.value:
        return SinkState.FAILED
    ended_badly = standing is Standing.STOPPING and restarts.consecutive + restarts.outages > 0
    return SinkState.RETRYING if standing is Standing.BACKING_OFF or ended_badly else SinkState.STARTING


def _named(items: Iterable[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any] | None:
    return next((each for each in items or () if each.get("name") == name), None)


def _totals(sinks: list[dict[str, Any]]) -> dict[str, Any]:
    ready = sum(sink["state"] == SinkState.RUNNING.value for sink in sinks)
    return {
        "sinksReady": f"{ready}/{len(sinks)}",
        **{name: sum(sink.get(name) or 0 for sink in sinks) for name in _COUNTS},
        # A lag that is not known of every sink is none.
        **({"lag": sum(sink["lag"] for sink in sinks)} if sinks and all("lag" in sink for sink in sinks) else {}),
    }


def _conditions(known: Known, sinks: list[dict[str, Any]]) -> dict[str, Condition]:
    spec, driver = _spec_valid(known), _spark_application(known)
    healthy = _sinks_healthy(known, sinks)
    found = {
        "SpecValid": spec,
        "TopicsReady": known.topics or _of_driver(known, "TopicsReady"),
        "SparkApplicationReady": driver,
        "SinksHealthy": healthy,
        "ExactlyOnce": _of_driver(known, "ExactlyOnce"),
        "Reconciling": _reconciling(known),
        "Stalled": _stalled(known, spec, sinks),
    }
    return {"Ready": _ready(known, sinks, [spec, driver, found["TopicsReady"], healthy]), **found}


def _ready(known: Known, sinks: list[dict[str, Any]], parts: list[Condition]) -> Condition:
    # What is wrong says more than what isn't known.
    broken = next((each for status in ("False", "Unknown") for each in parts if each.status == status), None)
    if known.deleting or known.suspended:
        doomed = f"deletes the data topics that it created: {', '.join(known.doomed)}" if known.doomed else ""
        why = doomed if known.trouble is None else str(known.trouble)
        return Condition("False", "Deleting" if known.deleting else "Suspended", _cut(why))
    if broken is not None:
        return Condition("False", broken.reason, broken.message)
    waiting = [sink["name"] for sink in sinks if sink["state"] != SinkState.RUNNING.value]
    if waiting:
        return Condition("False", "SinksStarting", f"not running yet: {', '.join(waiting)}")
    return Condition("True", "Running", "")


def _spec_valid(known: Known) -> Condition:
    if known.problems:
        return Condition("False", "ManifestInvalid", _cut("; ".join(map(str, known.problems))))
    if known.rejected is not None:
        reason, message = known.rejected
        return Condition("False", reason, _cut(message))
    if known.trouble is not None and not known.deleting:
        return Condition("False", known.trouble.reason.value, _cut(str(known.trouble)))
    return Condition("True", "Valid", "")


def _spark_application(known: Known) -> Condition:
    decision = known.decision
    if decision.standing is not Standing.RUNNING:
        told = str(known.trouble) if known.trouble is not None else decision.restarts.last_message
        return Condition("False", decision.why, _cut(told or _WORDS.get(decision.why, "")))
    if known.unresponsive:
        return Condition("Unknown", UNRESPONSIVE, known.unresponsive)
    return Condition("True", "Running", "")


def _sinks_healthy(known: Known, sinks: list[dict[str, Any]]) -> Condition:
    broken = [sink for sink in sinks if sink.get("error")]
    if broken:
        text = "; ".join(f"{sink['name']}: {sink['error']['message']} ({sink['error']['remedy']})" for sink in broken)
        return Condition("False", broken[0]["error"]["reason"], _cut(text))
    if known.told is None:
        return Condition("Unknown", "NotYetKnown", "no driver tells of its sinks")
    healthy = without_errors(sinks)
    return Condition(healthy.status, healthy.reason, _cut(healthy.message))


def _of_driver(known: Known, kind: str) -> Condition:
    source = known.told if known.told is not None else known.previous
    found = condition_of(source, kind)
    if not found:
        return Condition("Unknown", "NotYetKnown", "no driver has told yet")
    return Condition(found["status"], found["reason"], _cut(found["message"]))


def _reconciling(known: Known) -> Condition:
    decision = known.decision
    if known.paused:
        return Condition("False", "ReconciliationPaused", "the annotation sinkpipeline.io/pause-reconciliation is set")
    if decision.standing in _WORKING:
        return Condition("True", decision.why, "")
    return Condition("False", "Settled", "")


def _stalled(known: Known, spec: Condition, sinks: list[dict[str, Any]]) -> Condition:
    decision = known.decision
    if decision.why == NAME_TAKEN:
        return Condition("True", decision.why, _WORDS[NAME_TAKEN])
    if decision.standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED):
        message = str(known.trouble) if known.trouble is not None else decision.restarts.last_message or spec.message
        return Condition("True", decision.why, _cut(message))
    failed = [sink for sink in sinks if sink["state"] == SinkState.FAILED.value and sink.get("error")]
    if failed:
        error = failed[0]["error"]
        return Condition("True", error["reason"], _cut(f"{failed[0]['name']}: {error['message']} ({error['remedy']})"))
    if spec.status == "False":
        return Condition("True", spec.reason, spec.message)
    return Condition("False", "NobodyNeeded", "")


def _phase(known: Known, sinks: list[dict[str, Any]]) -> str:
    if known.deleting:
        return "Deleting"
    if known.suspended and known.decision.standing is Standing.STOPPED:
        return "Suspended"
    return _phase_of_sinks(known, {sink["state"] for sink in sinks})


def _phase_of_sinks(known: Known, states: set[str]) -> str:
    standing = known.decision.standing
    if standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED) or states == {SinkState.FAILED.value}:
        return "Failed"
    broken = states & {SinkState.FAILED.value, SinkState.RETRYING.value} or known.problems or known.rejected
    all_run = states == {SinkState.RUNNING.value}
    if broken or (all_run and known.unresponsive):
        return "Degraded"
    # One that is being suspended delivers until its driver has stopped.
    if all_run and (standing is Standing.RUNNING or known.suspended):
        return "Running"
    return "Starting" if known.child else "Pending"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
