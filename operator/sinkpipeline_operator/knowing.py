"""What there is to report of one pipeline, from what was seen of it, heard and decided. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sinkpipeline.core.manifest import DeletionPolicy, SinkPipeline
from sinkpipeline.core.status import SinkState, condition_of, is_required
from sinkpipeline_operator.child import waits
from sinkpipeline_operator.child.driverpod import POD_LOST, POD_TERMINATING, ChildState
from sinkpipeline_operator.child.remedies import KEEP_TOPICS
from sinkpipeline_operator.child.waits import Shortage, Wait
from sinkpipeline_operator.decide.decision import Decision, Standing, Step
from sinkpipeline_operator.kube.client import ApiFailed, ApiRefused
from sinkpipeline_operator.kube.times import milliseconds
from sinkpipeline_operator.observe.hearing import Heard
from sinkpipeline_operator.observe.kafka_view import Found
from sinkpipeline_operator.observe.observer import Seen, spec_of
from sinkpipeline_operator.report.known import Known
from sinkpipeline_operator.report.status import UNRESPONSIVE

_GOING = (POD_LOST, POD_TERMINATING, waits.POD_STUCK)
TOLD_STEPS = (Step.START, Step.DELETE)
"""Steps whose refusal stands in the status."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A step that the API server does not take."""

    step: Step
    since: float
    """By the clock of who asks."""
    wait: Wait | None
    """What is told of it; None where it may pass at once."""


def optional_sinks(pipeline: SinkPipeline) -> frozenset[str]:
    """The names of those on which Ready does not depend."""
    return frozenset(sink.name for sink in pipeline.spec.sinks if not sink.required)


def refused_of(
    step: Step, error: ApiRefused | ApiFailed, before: Refused | None, now: float, deadline_s: float
) -> Refused:
    """What is made of a refusal, after the one before it."""
    since = before.since if before is not None and before.step is step else now
    passing = isinstance(error, ApiFailed) and now - since < deadline_s
    return Refused(step=step, since=since, wait=waits.of_refusal(error.message, passing=passing))


def known_of(
    seen: Seen,
    decision: Decision,
    heard: Heard,
    found: Found | None,
    *,
    refused: Refused | None,
    start_deadline_s: float,
) -> Known:
    """All that the status tells.

    Args:
        seen: what is so.
        decision: what is done about the driver.
        heard: what is made of what that says.
        found: what Kafka says; None where nobody asked.
        refused: the step that could not be taken last.
        start_deadline_s: when a person is called to a start that waits.
    """
    if seen.pipeline is None:
        earlier = seen.status.get("sinks", ())
        sinks = {sink["name"]: sink["guarantee"] for sink in earlier}
        kinds = {sink["name"]: sink["kind"] for sink in earlier if "kind" in sink}
        optional = frozenset(sink["name"] for sink in earlier if not is_required(sink))
    else:
        sinks = {sink.name: sink.delivery_guarantee.value for sink in seen.pipeline.spec.sinks}
        kinds = {sink.name: sink.kind for sink in seen.pipeline.spec.sinks}
        optional = optional_sinks(seen.pipeline)
    observation, child = seen.observation, seen.child
    before = seen.status.get("source")
    has_stage, slot = before is not None, (before or {}).get("slot")
    if seen.pipeline is not None:
        source = seen.pipeline.spec.source
        has_stage = source.database is not None
        slot = None if source.postgresql is None else source.postgresql.slot_name(seen.pipeline.identity)
    wanted = seen.config(None if seen.run is None else seen.run.hash)
    refusal = None if wanted is None or wanted.hash not in observation.rejected else wanted.refusal
    death = decision.death
    return Known(
        generation=seen.resource["metadata"]["generation"],
        previous=seen.status,
        now_ms=observation.now_ms,
        identity=seen.status.get("identity") if seen.pipeline is None else seen.pipeline.identity,
        sinks=sinks,
        kinds=kinds,
        optional=optional,
        problems=seen.problems,
        rejected=None if refusal is None else (refusal.reason, refusal.message),
        trouble=seen.trouble,
        decision=decision,
        child={}
        if child is None or child.foreign
        else {"name": seen.ref.name, "state": child.shown_state, "configHash": child.config_hash},
        told=heard.document,
        unresponsive=heard.trouble,
        pod_going=_pod_going(seen),
        wait=_wait(seen, decision, refused, start_deadline_s),
        shortage=_shortage(seen, heard, start_deadline_s),
        last_words={} if death is None else {str(sink["name"]): sink for sink in death.sinks},
        observed={} if found is None else found.sinks,
        topics=None if found is None else found.topics,
        has_stage=has_stage,
        slot=slot,
        source_words={} if death is None else death.source,
        source_observed={} if found is None else found.source,
        deleting=observation.deleting,
        suspended=observation.suspended,
        held=observation.held,
        paused=observation.paused,
    )


def _wait(seen: Seen, decision: Decision, refused: Refused | None, deadline_s: float) -> Wait | None:
    child = seen.child
    if decision.step in TOLD_STEPS:
        return refused.wait if refused is not None and refused.step is decision.step else None
    now_ms, namespace = seen.observation.now_ms, seen.ref.namespace
    stuck = waits.of_end(seen.observation.pods, namespace, now_ms, deadline_s)
    if stuck is not None or decision.standing is Standing.STOPPING:
        return stuck
    if child is None or child.foreign:
        return None
    if child.state is ChildState.RUNNING and seen.pod is None:
        return waits.of_lost_pod(_lost_since(seen), now_ms, deadline_s)
    if child.state is not ChildState.SUBMITTING:
        return None
    return waits.of_start(child, seen.pod, namespace, now_ms, deadline_s)


def _lost_since(seen: Seen) -> int | None:
    before = condition_of(seen.status, "SparkApplicationReady")
    return milliseconds(before.get("lastTransitionTime")) if before.get("reason") == POD_LOST else None


def _pod_going(seen: Seen) -> tuple[str, str] | None:
    child, pod = seen.child, seen.pod
    if child is None or child.state is not ChildState.RUNNING:
        return None
    before = condition_of(seen.status, "SparkApplicationReady")
    # Of a start the pod may be heard of after its SparkApplication.
    if pod is None and (before.get("status") == "True" or before.get("reason") in _GOING):
        return POD_LOST, "the driver's pod is gone; Kubeflow's Spark operator has not said yet how it ended"
    if pod is not None and pod.deleting and not pod.has_ended:
        return POD_TERMINATING, f"the driver's pod {pod.name} is being deleted or evicted"
    return None


def _shortage(seen: Seen, heard: Heard, deadline_s: float) -> Shortage | None:
    if seen.pod is None or seen.pod.has_ended:
        return None
    of_pods = waits.of_executors(seen.executors, seen.pod.uid, seen.observation.now_ms, deadline_s)
    if heard.document is None or (of_pods is not None and of_pods.none_runs):
        return of_pods
    namespace = seen.ref.namespace
    return waits.of_registration(heard.document, seen.executors, seen.pod, namespace, deadline_s) or of_pods


def is_new(seen: Seen, patience_s: float) -> bool:
    """Whether its driver may not listen yet: its pod runs before it does."""
    started = None if seen.pod is None else seen.pod.started_ms
    # What an earlier run of the operator said of this driver still holds.
    has_answered = (
        condition_of(seen.status, "Ready").get("status") == "True"
        or condition_of(seen.status, "SparkApplicationReady").get("reason") == UNRESPONSIVE
    )
    return not has_answered and started is not None and seen.observation.now_ms - started < patience_s * 1000


def is_to_be_removed(seen: Seen) -> bool:
    """By the resource itself: a manifest that is refused for something else still says so."""
    if (seen.resource["metadata"].get("annotations") or {}).get(KEEP_TOPICS) == "true":
        return False
    return spec_of(seen.resource).get("deletionPolicy") == DeletionPolicy.DELETE.value


def is_at_rest(seen: Seen) -> bool:
    """Whether it has no driver and is to have none, so that only Kafka, or a watch, can tell anything new of it."""
    observation = seen.observation
    if seen.child is not None or observation.pods or observation.deleting:
        return False
    return observation.suspended or observation.paused


def settled(seen: Seen, known: Known) -> bool:
    """Whether nothing is to be expected of its driver within a second."""
    if known.shortage is not None or known.unresponsive:
        return True
    document = None if seen.answer is None else seen.answer.document
    sinks = [] if document is None else document["sinks"]
    return bool(sinks) and all(
        sink.get("state") == SinkState.RUNNING.value and sink.get("proved") is not False for sink in sinks
    )
