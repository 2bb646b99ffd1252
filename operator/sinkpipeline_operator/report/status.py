"""`status`, as one pure function of what was observed and decided.

Sinks are told by whoever knows: the driver while it answers, its last words when it has died, Kafka while it is down;
the earlier status for what none of them tells. `phase` is computed from the conditions and never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sinkpipeline.core.documents import MAX_COUNT
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.manifest import Problem
from sinkpipeline.core.status import (
    Condition,
    SinkState,
    condition_of,
    conditions,
    executors_of,
    first_batch_pending,
    timestamp,
    told_executors,
    without_errors,
)
from sinkpipeline.core.work import Executors
from sinkpipeline_operator.child.waits import Shortage, Wait
from sinkpipeline_operator.decide.decision import ACTION_RUNNING, NAME_TAKEN, Decision, Standing

MAX_MESSAGE = 1024
"""Characters of a condition's message."""

UNRESPONSIVE = "DriverUnresponsive"
"""The reason of `SparkApplicationReady` where a driver runs and can't be heard."""
UNTOLD = "LastWordsRefused"
"""The reason of a death whose own words the API server does not take."""
_WORKING = (Standing.STARTING, Standing.STOPPING, Standing.BACKING_OFF)
_STOPS = "the driver stops after its running batch"
_WORDS = {
    NAME_TAKEN: "a SparkApplication of this name belongs to somebody else: delete it, or rename the pipeline",
    "DriverStopping": "the driver before this one is still stopping: nothing starts until its pod is gone",
    "SpecChanged": "the driver of the configuration before is stopped, and the next one starts once its pod is gone",
    "RestartRequested": "spec.restartNonce has changed: the driver is stopped, and started again once its pod is gone",
    "ChildEdited": "somebody has edited the SparkApplication: it is deleted, and made anew",
    "Starting": "the SparkApplication is about to be made",
    "ReconciliationPaused": "nothing is started or stopped while the annotation is set",
    "Suspended": _STOPS,
    ACTION_RUNNING: "the driver is stopped while an action resets a sink, and started again after it",
    "Deleting": _STOPS,
}
_MEMORY = ("deadLetters", "frontier", "epoch", "dataTopicId", "progressTopicId", "lastProgressTime", "mayBeDuplicated")
_COUNTS = ("rowsDelivered", "deadLettered", "dropped", "lost")
_OF_THIS_RUN = ("proved", "stillSince")
"""What only the driver that runs can tell of a sink."""


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
    wait: Wait | None = None
    """What a start waits for, or a removal, or why a driver can't be stopped."""
    shortage: Shortage | None = None
    """Executors that can't start, beside a driver that runs."""
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
    held: str = ""
    """Why there must be no driver for now: an action that runs; empty where there may."""
    paused: bool = False

    @property
    def executors(self) -> Executors | None:
        """What the driver says of its executors."""
        return None if self.told is None else executors_of(self.told)

    @property
    def waits_for(self) -> Wait | None:
        """What a start on its way waits for, or an executor beside a driver that runs, or the resource's removal."""
        match self.decision.standing:
            case Standing.STARTING | Standing.STOPPING:
                return self.wait
            case Standing.RUNNING if self.shortage is not None:
                return self.shortage.wait
            case Standing.STOPPED if self.deleting:
                return self.wait
            case _:
                return None


def without_words(known: Known, why: str) -> Known:
    """The same, as far as it can be told without anything that a driver has said, or Kafka.

    Args:
        known: what there is to report.
        why: it can't be told.
    """
    decision = known.decision
    if decision.death is not None:
        restarts = replace(decision.restarts, last_reason=UNTOLD, last_message=_cut(why))
        decision = replace(decision, restarts=restarts)
    return replace(
        known,
        decision=decision,
        rejected=None if known.rejected is None else (UNTOLD, why),
        told=None,
        unresponsive=why,
        shortage=None,
        last_words={},
        observed={},
        topics=None,
    )


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
        **({} if known.executors is None else {"executors": told_executors(known.executors)}),
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
    # What the source held back is of the moment in which somebody looked.
    sink = {
        "name": name,
        **{key: value for key, value in (earlier or {}).items() if key not in ("heldBack", "openTransaction")},
        **(known.last_words.get(name) or {}),
        **(known.observed.get(name) or {}),
        "guarantee": known.sinks[name],
    }
    if not _is_silent(known):
        for each in _OF_THIS_RUN:
            sink.pop(each, None)
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
    """The API server bounds texts, and would refuse the whole status for one that is longer."""
    if sink.get("error"):
        error = sink["error"]
        sink["error"] = {key: _cut(str(error.get(key, ""))) for key in ("reason", "message", "remedy")}
    if sink.get("openTransaction"):
        hanging = sink["openTransaction"]
        sink["openTransaction"] = {key: _cut(str(hanging.get(key, ""))) for key in ("message", "remedy")}
    return sink


def _is_silent(known: Known) -> bool:
    """Whether the driver of which the earlier status tells runs still, as far as anybody knows."""
    return known.decision.standing is Standing.RUNNING and bool(known.unresponsive)


def _state(known: Known, sink: Mapping[str, Any]) -> SinkState:
    """The state of a sink of which no driver tells anything."""
    standing, restarts = known.decision.standing, known.decision.restarts
    if known.suspended or known.deleting or known.held:
        # A driver that still stops may still deliver, and write its progress.
        earlier = sink.get("state", SinkState.SUSPENDED.value)
        return SinkState.SUSPENDED if standing is Standing.STOPPED else SinkState(earlier)
    if known.decision.anew:
        return SinkState.STARTING
    if _is_silent(known):
        # It may do what it did; that nobody knows is what the conditions say.
        return SinkState(sink.get("state", SinkState.STARTING.value))
    if standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED) or sink.get("state") == SinkState.FAILED.value:
        return SinkState.FAILED
    ended_badly = standing is Standing.STOPPING and restarts.consecutive + restarts.outages > 0
    return SinkState.RETRYING if standing is Standing.BACKING_OFF or ended_badly else SinkState.STARTING


def _named(items: Iterable[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any] | None:
    return next((each for each in items or () if each.get("name") == name), None)


def _totals(sinks: list[dict[str, Any]]) -> dict[str, Any]:
    ready = sum(sink["state"] == SinkState.RUNNING.value and sink.get("proved") is not False for sink in sinks)
    return {
        "sinksReady": f"{ready}/{len(sinks)}",
        **{name: _sum(sinks, name) for name in _COUNTS},
        # A lag that is not known of every sink is none.
        **({"lag": _sum(sinks, "lag")} if sinks and all("lag" in sink for sink in sinks) else {}),
    }


def _sum(sinks: list[dict[str, Any]], name: str) -> int:
    return min(MAX_COUNT, sum(sink.get(name) or 0 for sink in sinks))


def _conditions(known: Known, sinks: list[dict[str, Any]]) -> dict[str, Condition]:
    spec = _spec_valid(known)
    driver = _spark_application(known, spec)
    healthy, stalled = _sinks_healthy(known, sinks), _stalled(known, spec, sinks)
    found = {
        "SpecValid": spec,
        "TopicsReady": known.topics or _of_driver(known, "TopicsReady"),
        "SparkApplicationReady": driver,
        "SinksHealthy": healthy,
        "ExactlyOnce": _of_driver(known, "ExactlyOnce"),
        "Reconciling": _reconciling(known, spec, stalled),
        "Stalled": stalled,
    }
    if known.suspended and known.decision.standing is Standing.STOPPED and not (known.deleting or known.trouble):
        # Nothing is to run, and nothing does: it is neither ready nor on its way there. With Ready=False, who goes by
        # kstatus, as Flux does, would wait for ever.
        return found
    return {"Ready": _ready(known, sinks, [spec, driver, found["TopicsReady"], healthy]), **found}


def _ready(known: Known, sinks: list[dict[str, Any]], parts: list[Condition]) -> Condition:
    # What is wrong says more than what isn't known.
    broken = next((each for status in ("False", "Unknown") for each in parts if each.status == status), None)
    if known.held and not (known.deleting or known.suspended):
        return Condition("False", ACTION_RUNNING, _cut(known.held))
    if known.deleting or known.suspended:
        why = str(known.trouble) if known.trouble is not None and not known.deleting else ""
        if known.deleting and known.waits_for is not None:
            doomed = f": {', '.join(known.doomed)}" if known.doomed and not known.waits_for.alarm else ""
            why = f"{known.waits_for.message}{doomed}"
        return Condition("False", "Deleting" if known.deleting else "Suspended", _cut(why))
    if broken is not None:
        return Condition("False", broken.reason, broken.message)
    waiting = [sink["name"] for sink in sinks if sink["state"] != SinkState.RUNNING.value]
    if waiting:
        return Condition("False", "SinksStarting", f"not running yet: {', '.join(waiting)}")
    return first_batch_pending(sinks, known.executors) or Condition("True", "Running", "")


def _spec_valid(known: Known) -> Condition:
    if known.problems:
        return Condition("False", "ManifestInvalid", _cut("; ".join(map(str, known.problems))))
    if known.rejected is not None:
        reason, message = known.rejected
        return Condition("False", reason, _cut(message))
    if known.trouble is not None and not known.deleting:
        return Condition("False", known.trouble.reason.value, _cut(str(known.trouble)))
    return Condition("True", "Valid", "")


def _spark_application(known: Known, spec: Condition) -> Condition:
    decision = known.decision
    wait = None if known.deleting else known.waits_for
    if decision.standing is not Standing.RUNNING:
        reason, message = (decision.why, _words(known, spec)) if wait is None else (wait.reason, wait.message)
        return Condition("False", reason, _cut(message))
    # Of a driver that answers, executors that are not there are why nothing moves.
    explained = known.told is not None and known.shortage is not None and known.shortage.none_runs
    if known.unresponsive and not explained:
        return Condition("Unknown", UNRESPONSIVE, _cut(known.unresponsive))
    if known.shortage is not None and wait is not None:
        # A driver without any executor delivers nothing; with fewer than it asked for it is only slower.
        return Condition("False" if known.shortage.none_runs else "True", wait.reason, _cut(wait.message))
    return Condition("True", "Running", "" if known.told is not None else "its pod runs, and it has not answered yet")


def _words(known: Known, spec: Condition) -> str:
    """What there is to say of a driver that doesn't run: of a death only while it is the reason."""
    decision = known.decision
    if known.trouble is not None and decision.why == known.trouble.reason.value:
        return str(known.trouble)
    if decision.why == decision.restarts.last_reason and decision.restarts.last_message:
        return decision.restarts.last_message
    if decision.standing is Standing.NOT_CONFIGURED:
        return spec.message
    if decision.standing is Standing.STOPPED and not known.child and decision.why in ("Suspended", "Deleting"):
        return "no driver runs"
    return _WORDS.get(decision.why) or (f"the SparkApplication is {known.child['state']}" if known.child else "")


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


def _reconciling(known: Known, spec: Condition, stalled: Condition) -> Condition:
    decision = known.decision
    if known.paused:
        return Condition("False", "ReconciliationPaused", "the annotation sinkpipeline.io/pause-reconciliation is set")
    wait = known.waits_for
    working = decision.standing in _WORKING or (known.deleting and wait is not None) or bool(known.held)
    if stalled.status == "True" and working:
        # What is tried again meanwhile is not what a person has to wait for: one of the two is true, never both.
        again = decision.restarts.next_ms
        when = f", and it is tried again at {timestamp(again)}" if again and again > known.now_ms else ""
        return Condition("False", "Stalled", f"a person is needed{when}")
    if working:
        reason, message = (decision.why, _words(known, spec)) if wait is None else (wait.reason, wait.message)
        return Condition("True", reason, _cut(message))
    return Condition("False", "Settled", "")


def _stalled(known: Known, spec: Condition, sinks: list[dict[str, Any]]) -> Condition:
    decision = known.decision
    if decision.why == NAME_TAKEN:
        return Condition("True", decision.why, _WORDS[NAME_TAKEN])
    if decision.standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED):
        return Condition("True", decision.why, _cut(_words(known, spec)))
    failed = [sink for sink in sinks if sink["state"] == SinkState.FAILED.value and sink.get("error")]
    if failed:
        error = failed[0]["error"]
        return Condition("True", error["reason"], _cut(f"{failed[0]['name']}: {error['message']} ({error['remedy']})"))
    if spec.status == "False":
        return Condition("True", spec.reason, spec.message)
    wait = known.waits_for
    if wait is not None and wait.needs_person:
        return Condition("True", wait.reason, _cut(wait.message))
    return Condition("False", "NobodyNeeded", "")


def _phase(known: Known, sinks: list[dict[str, Any]]) -> str:
    if known.deleting:
        return "Deleting"
    if known.suspended and known.decision.standing is Standing.STOPPED:
        return "Suspended"
    return _phase_of_sinks(known, sinks)


def _phase_of_sinks(known: Known, sinks: list[dict[str, Any]]) -> str:
    standing, states = known.decision.standing, {sink["state"] for sink in sinks}
    if standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED) or states == {SinkState.FAILED.value}:
        return "Failed"
    broken = states & {SinkState.FAILED.value, SinkState.RETRYING.value} or known.problems or known.rejected
    all_run = states == {SinkState.RUNNING.value}
    short = known.shortage is not None and known.shortage.none_runs
    if broken or (all_run and (known.unresponsive or short)):
        return "Degraded"
    # One that is being suspended delivers until its driver has stopped.
    proved = all(sink.get("proved") is not False for sink in sinks)
    if all_run and proved and (standing is Standing.RUNNING or known.suspended):
        return "Running"
    return "Starting" if known.child else "Pending"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
