"""`status`, as one pure function of what was observed and decided.

The sinks' part is in `sinks.py`. `phase` is computed from the conditions and never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinkpipeline.core.changes.told import SOURCE_HEALTHY, source_healthy
from sinkpipeline.core.status import (
    Condition,
    SinkState,
    beside,
    condition_of,
    conditions,
    first_batch_pending,
    is_required,
    timestamp,
    told_executors,
    without_errors,
)
from sinkpipeline_operator.decide.decision import ACTION_RUNNING, NAME_TAKEN, RESTART_WAITS, Standing
from sinkpipeline_operator.report.known import Known, cut
from sinkpipeline_operator.report.sinks import sink_status, totals
from sinkpipeline_operator.report.source import bars, source_condition, source_status

UNRESPONSIVE = "DriverUnresponsive"
"""The reason of `SparkApplicationReady` where a driver runs and can't be heard."""
_WORKING = (Standing.STARTING, Standing.STOPPING, Standing.BACKING_OFF)
_STOPS = "the driver stops after its running batch"
_WORDS = {
    NAME_TAKEN: "a SparkApplication of this name belongs to somebody else: delete it, or rename the pipeline",
    "DriverStopping": "the driver before this one is still stopping: nothing starts until its pod is gone",
    "SpecChanged": "the spec has changed: the driver is stopped, and a new one starts once its pod is gone",
    RESTART_WAITS: "the driver has to restart for another image or a changed Secret, and delivers until its turn comes",
    "RestartRequested": "spec.restartNonce has changed: the driver is stopped, and started again once its pod is gone",
    "ChildEdited": "somebody has edited the SparkApplication: it is deleted, and made anew",
    "Starting": "the SparkApplication is about to be made",
    "ReconciliationPaused": "nothing is started or stopped while the annotation is set",
    "Suspended": _STOPS,
    ACTION_RUNNING: "the driver is stopped while an action resets a sink, and started again after it",
    "Deleting": _STOPS,
}


def report(known: Known) -> dict[str, Any]:
    """The whole status."""
    sinks = [sink_status(known, name) for name in known.sinks]
    source = source_status(known)
    found = _conditions(known, sinks, source)
    return {
        "observedGeneration": known.generation,
        **({} if known.identity is None else {"identity": known.identity}),
        "phase": _phase(known, sinks, source),
        "conditions": conditions(found, known.generation, known.previous, known.now_ms),
        "totals": totals(sinks),
        **({"sparkApplication": dict(known.child)} if known.child else {}),
        **({} if known.executors is None else {"executors": told_executors(known.executors)}),
        **({} if known.reader_schema is None else {"readerSchema": dict(known.reader_schema)}),
        **({"lookups": [dict(each) for each in known.lookups]} if known.lookups else {}),
        "restarts": known.decision.restarts.to_dict(),
        **({} if source is None else {"source": source}),
        "sinks": sinks,
    }


def _conditions(known: Known, sinks: list[dict[str, Any]], source: Mapping[str, Any] | None) -> dict[str, Condition]:
    spec = _spec_valid(known)
    driver = _spark_application(known, spec)
    required = [sink for sink in sinks if is_required(sink)]
    stalled = _stalled(known, spec, required, source or {})
    healthy = {} if source is None else {SOURCE_HEALTHY: source_condition(known, source)}
    found = {
        "SpecValid": spec,
        "TopicsReady": known.topics or _of_driver(known, "TopicsReady"),
        "SparkApplicationReady": driver,
        **healthy,
        "SinksHealthy": _sinks_healthy(known, sinks),
        "ExactlyOnce": _of_driver(known, "ExactlyOnce"),
        "Reconciling": _reconciling(known, spec, stalled),
        "Stalled": stalled,
    }
    if known.suspended and known.decision.standing is Standing.STOPPED and not (known.deleting or known.trouble):
        # Nothing is to run, and nothing does: it is neither ready nor on its way there. With Ready=False, who goes by
        # kstatus, as Flux does, would wait for ever.
        return found
    optional = beside(sinks)
    # A required sink that has lost a topic has an error of its own; what another one has lost is no matter of Ready.
    parts = [each for each in healthy.values() if bars(each)] + ([] if optional else [found["TopicsReady"]])
    return {
        "Ready": _ready(known, required, [spec, driver, *parts, _sinks_healthy(known, required)], optional),
        **found,
    }


def _ready(known: Known, sinks: list[dict[str, Any]], parts: list[Condition], optional: str) -> Condition:
    """Of the required sinks; `optional`: what is told of the others where it is ready."""
    # What is wrong says more than what isn't known.
    broken = next((each for status in ("False", "Unknown") for each in parts if each.status == status), None)
    if known.held and not (known.deleting or known.suspended):
        return Condition("False", ACTION_RUNNING, cut(known.held))
    if known.deleting or known.suspended:
        why = str(known.trouble) if known.trouble is not None and not known.deleting else ""
        if known.deleting and known.waits_for is not None:
            doomed = f": {', '.join(known.doomed)}" if known.doomed and not known.waits_for.alarm else ""
            why = f"{known.waits_for.message}{doomed}"
        return Condition("False", "Deleting" if known.deleting else "Suspended", cut(why))
    if broken is not None:
        return Condition("False", broken.reason, broken.message)
    waiting = [sink["name"] for sink in sinks if sink["state"] != SinkState.RUNNING.value]
    if waiting:
        return Condition("False", "SinksStarting", f"not running yet: {', '.join(waiting)}")
    return first_batch_pending(sinks, known.executors) or Condition("True", "Running", cut(optional))


def _spec_valid(known: Known) -> Condition:
    if known.problems:
        return Condition("False", "ManifestInvalid", cut("; ".join(map(str, known.problems))))
    if known.rejected is not None:
        reason, message = known.rejected
        return Condition("False", reason, cut(message))
    if known.trouble is not None and not known.deleting:
        return Condition("False", known.trouble.reason.value, cut(str(known.trouble)))
    return Condition("True", "Valid", "")


def _spark_application(known: Known, spec: Condition) -> Condition:
    decision = known.decision
    wait = None if known.deleting else known.waits_for
    if decision.standing is not Standing.RUNNING:
        reason, message = (decision.why, _words(known, spec)) if wait is None else (wait.reason, wait.message)
        return Condition("False", reason, cut(message))
    if known.pod_going is not None:
        reason, message = known.pod_going if wait is None else (wait.reason, wait.message)
        return Condition("False", reason, cut(message))
    # Of a driver that answers, executors that are not there are why nothing moves.
    explained = known.told is not None and known.shortage is not None and known.shortage.none_runs
    if known.unresponsive and not explained:
        return Condition("Unknown", UNRESPONSIVE, cut(known.unresponsive))
    if known.shortage is not None and wait is not None:
        # A driver without any executor delivers nothing; with fewer than it asked for it is only slower.
        return Condition("False" if known.shortage.none_runs else "True", wait.reason, cut(wait.message))
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
        return Condition("False", broken[0]["error"]["reason"], cut(text))
    if known.told is None:
        return Condition("Unknown", "NotYetKnown", "no driver tells of its sinks")
    healthy = without_errors(sinks)
    return Condition(healthy.status, healthy.reason, cut(healthy.message))


def _of_driver(known: Known, kind: str) -> Condition:
    source = known.told if known.told is not None else known.previous
    found = condition_of(source, kind)
    if not found:
        return Condition("Unknown", "NotYetKnown", "no driver has told yet")
    return Condition(found["status"], found["reason"], cut(found["message"]))


def _reconciling(known: Known, spec: Condition, stalled: Condition) -> Condition:
    decision = known.decision
    if known.paused:
        return Condition("False", "ReconciliationPaused", "the annotation sinkpipeline.io/pause-reconciliation is set")
    wait = known.waits_for
    working = decision.standing in _WORKING or (known.deleting and wait is not None) or bool(known.held)
    if decision.why == RESTART_WAITS and stalled.status != "True":
        return Condition("True", RESTART_WAITS, _WORDS[RESTART_WAITS])
    if stalled.status == "True" and working:
        # What is tried again meanwhile is not what a person has to wait for: one of the two is true, never both.
        again = decision.restarts.next_ms
        when = f", and it is tried again at {timestamp(again)}" if again and again > known.now_ms else ""
        return Condition("False", "Stalled", f"a person is needed{when}")
    if working:
        reason, message = (decision.why, _words(known, spec)) if wait is None else (wait.reason, wait.message)
        return Condition("True", reason, cut(message))
    return Condition("False", "Settled", "")


def _stalled(known: Known, spec: Condition, sinks: list[dict[str, Any]], source: Mapping[str, Any]) -> Condition:
    decision = known.decision
    if decision.why == NAME_TAKEN:
        return Condition("True", decision.why, _WORDS[NAME_TAKEN])
    if decision.standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED):
        return Condition("True", decision.why, cut(_words(known, spec)))
    failed = _source_failed(source) or _sink_failed(sinks)
    if failed is not None:
        return failed
    if spec.status == "False":
        return Condition("True", spec.reason, spec.message)
    wait = known.waits_for
    if wait is not None and wait.needs_person:
        return Condition("True", wait.reason, cut(wait.message))
    return Condition("False", "NobodyNeeded", "")


def _source_failed(source: Mapping[str, Any]) -> Condition | None:
    if source.get("state") != SinkState.FAILED.value or not source.get("error"):
        return None
    found = source_healthy(source)
    return Condition("True", found.reason, cut(found.message))


def _sink_failed(sinks: list[dict[str, Any]]) -> Condition | None:
    failed = next((sink for sink in sinks if sink["state"] == SinkState.FAILED.value and sink.get("error")), None)
    if failed is None:
        return None
    error = failed["error"]
    return Condition("True", error["reason"], cut(f"{failed['name']}: {error['message']} ({error['remedy']})"))


def _phase(known: Known, sinks: list[dict[str, Any]], source: Mapping[str, Any] | None) -> str:
    if known.deleting:
        return "Deleting"
    if known.suspended and known.decision.standing is Standing.STOPPED:
        return "Suspended"
    return _phase_of_parts(known, sinks, None if source is None else str(source["state"]))


def _phase_of_parts(known: Known, sinks: list[dict[str, Any]], source: str | None) -> str:
    """`source`: the state of the stage, where there is one."""
    standing, states = known.decision.standing, {sink["state"] for sink in sinks}
    if source == SinkState.FAILED.value:
        # Its driver ends by it: sinks that go on would only look healthy.
        return "Failed"
    if source == SinkState.RETRYING.value:
        states.add(source)
    if standing in (Standing.GIVEN_UP, Standing.NOT_CONFIGURED) or states == {SinkState.FAILED.value}:
        return "Failed"
    broken = states & {SinkState.FAILED.value, SinkState.RETRYING.value} or known.problems or known.rejected
    required = [sink for sink in sinks if is_required(sink)]
    all_run = {sink["state"] for sink in required} <= {SinkState.RUNNING.value}
    short = known.shortage is not None and known.shortage.none_runs
    if broken or (all_run and (known.unresponsive or short)):
        return "Degraded"
    # One that is being suspended delivers until its driver has stopped.
    proved = source in (None, SinkState.RUNNING.value) and all(sink.get("proved") is not False for sink in required)
    if all_run and proved and (standing is Standing.RUNNING or known.suspended):
        return "Running"
    return "Starting" if known.child else "Pending"
