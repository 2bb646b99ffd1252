"""What a driver or its executors wait for, as the cluster tells it: with a reason, in the cluster's own words. Pure.

A start goes through Kubeflow's operator, the scheduler and a kubelet, and each of them may keep it waiting without
anything having failed. Nothing is given up for that: who waits long enough is told to a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sinkpipeline.core.status import NO_EXECUTORS, executors_of, instant, timestamp
from sinkpipeline_operator.child import refusals
from sinkpipeline_operator.child.driverpod import POD_LOST, Child, DriverPod
from sinkpipeline_operator.child.podwait import PodWait, wait_of
from sinkpipeline_operator.kube.times import milliseconds

NOT_SUBMITTED = "NotSubmitted"
TOO_LONG = "StartDeadlineExceeded"
POD_STUCK = "DriverPodStuck"
_SUBMISSION_S = 120.0
"""For how long Kubeflow's operator may say nothing of a new SparkApplication: spark-submit takes 10 to 80 s there."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What is waited for."""

    reason: str
    """CamelCase; Kubernetes' own where it has one."""
    message: str
    alarm: bool = False
    """Whether it is more than a step of every start."""
    needs_person: bool = False


@dataclass(frozen=True, kw_only=True)
class Executor:
    """The pod of one."""

    name: str
    owned_by: str | None
    """The uid of its driver's pod."""
    phase: str
    created_ms: int
    wait: PodWait | None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Executor:
        meta, status = document["metadata"], document.get("status") or {}
        owner = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
        return cls(
            name=meta["name"],
            owned_by=None if owner is None else owner["uid"],
            phase=status.get("phase", "Pending"),
            created_ms=milliseconds(meta.get("creationTimestamp")) or 0,
            wait=wait_of(status),
        )


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Executors that can't start."""

    wait: Wait
    none_runs: bool
    """Whether there is no other executor: nothing is delivered then."""


def of_start(child: Child, pod: DriverPod | None, namespace: str, now_ms: int, deadline_s: float) -> Wait:
    """What a child that doesn't run yet waits for."""
    age_s = (now_ms - child.created_ms) / 1000
    late = age_s >= deadline_s
    if not child.is_noticed:
        wait = Wait(
            reason=child.shown_state,
            message="waiting until Kubeflow's Spark operator has submitted the SparkApplication",
        )
        if late or age_s >= _SUBMISSION_S:
            wait = Wait(
                reason=NOT_SUBMITTED,
                message="Kubeflow's Spark operator has said nothing of the SparkApplication for more than "
                f"{min(deadline_s, _SUBMISSION_S):.0f} s (see that it runs, that it serves this namespace, and what it "
                "logs; it is submitted as soon as it does)",
                alarm=True,
            )
        return replace(wait, needs_person=late)
    if pod is not None and pod.wait is not None and pod.wait.complains:
        return _of_pod(pod.name, pod.wait, late=late)
    doing = "is being set up" if pod is not None else "is not there yet"
    name = (pod.name if pod is not None else child.pod_name) or "of the driver"
    what = f": {pod.wait.reason}" if pod is not None and pod.wait is not None else ""
    wait = Wait(reason=child.shown_state, message=f"pod {name} {doing}{what}")
    if not late:
        return wait
    return Wait(
        reason=TOO_LONG,
        message=f"{wait.message}; the driver has not started within {deadline_s:.0f} s "
        f"(`kubectl -n {namespace} describe pod {name}` shows what it waits for)",
        alarm=True,
        needs_person=True,
    )


def of_end(pods: Iterable[DriverPod], namespace: str, now_ms: int, deadline_s: float) -> Wait | None:
    """A pod that was to have ended long ago: its node is lost, and nobody says so for it."""
    for pod in pods:
        if pod.is_gone or pod.ends_ms is None or (now_ms - pod.ends_ms) / 1000 < deadline_s:
            continue
        where = f"node {pod.node} does not say that it has" if pod.node else "nobody says that it has"
        message = (
            f"pod {pod.name} was to end by {timestamp(pod.ends_ms)}, and {where}. Nothing goes on before: bring the "
            "node back; or, once it is off for good, "
            f"`kubectl -n {namespace} delete pod {pod.name} --force` (what that driver may still write is refused)"
        )
        return Wait(reason=POD_STUCK, message=message, alarm=True, needs_person=True)
    return None


def of_lost_pod(lost_since_ms: int | None, now_ms: int, deadline_s: float) -> Wait | None:
    """A driver's pod is gone, and who has started it has not noticed for long."""
    if lost_since_ms is None or (now_ms - lost_since_ms) / 1000 < deadline_s:
        return None
    message = (
        "the driver's pod is gone, and Kubeflow's Spark operator has not said for more than "
        f"{deadline_s:.0f} s how it ended (see that it runs, that it serves this namespace, and what it logs; the "
        "driver is started as soon as it has)"
    )
    return Wait(reason=POD_LOST, message=message, alarm=True, needs_person=True)


def of_executors(executors: Iterable[Executor], driver: str, now_ms: int, deadline_s: float) -> Shortage | None:
    """None where no executor of the driver's pod with that uid is kept from starting."""
    mine = [each for each in executors if each.owned_by == driver]
    waiting = [each for each in mine if each.phase == "Pending" and each.wait is not None and each.wait.complains]
    if not waiting:
        return None
    first = min(waiting, key=lambda each: (each.created_ms, each.name))
    late = (now_ms - first.created_ms) / 1000 >= deadline_s
    running = sum(each.phase == "Running" for each in mine)
    assert first.wait is not None
    wait = _of_pod(first.name, first.wait, late=late)
    so = "no executor runs" if running == 0 else f"{running} of {running + len(waiting)} executors run"
    # What delivers with fewer than it asked for is Ready, and nobody has to come.
    wait = replace(wait, message=f"{so}: {wait.message}", needs_person=wait.needs_person and running == 0)
    return Shortage(wait=wait, none_runs=running == 0)


def of_registration(
    told: Mapping[str, Any], executors: Iterable[Executor], pod: DriverPod, namespace: str, deadline_s: float
) -> Shortage | None:
    """What the driver says where no pod tells: that no executor has joined it for too long, while there is work.

    Args:
        told: the driver's own document; times are of its clock.
        executors: the pods of the pipeline's executors.
        pod: the driver's.
        namespace: the pipeline's.
        deadline_s: when a person is called.
    """
    found, now_ms = executors_of(told), instant(told.get("now"))
    if found is None or found.none_since is None or now_ms is None or not found.are_lost(now_ms):
        return None
    mine = [each for each in executors if each.owned_by == pod.uid]
    running = sorted(each.name for each in mine if each.phase == "Running")
    pending = [each for each in mine if each.phase == "Pending"]
    if running:
        where = f"{len(running)} of their pods run: see what they log, `kubectl -n {namespace} logs {running[0]}`"
    elif pending:
        where = f"{len(pending)} of their pods are being set up"
    else:
        where = (
            "no pod of theirs is there: a quota or a webhook may refuse them, which the driver logs, "
            f"`kubectl -n {namespace} logs {pod.name}`"
        )
    late = found.missing_s(now_ms) >= deadline_s
    wait = Wait(
        reason=NO_EXECUTORS,
        message=f"{found} since {timestamp(found.none_since)}, and sinks wait for one ({where})",
        alarm=late or bool(running) or not pending,
        needs_person=late,
    )
    return Shortage(wait=wait, none_runs=True)


def of_refusal(message: str, *, passing: bool) -> Wait | None:
    """The API server would not make what a start needs.

    Args:
        message: its own words.
        passing: whether it may be otherwise the next time, though nobody changes anything; what is not known then is
            not told at the first time either.
    """
    known = refusals.reason_of(message)
    if known is None and passing:
        return None
    reason = known or refusals.REFUSED
    # The API server says nothing of what it doesn't know.
    fact = "the API server knows no SparkApplication" if reason == refusals.KUBEFLOW_MISSING else message
    words = f"{fact} ({refusals.remedy_of(reason)})"
    return Wait(reason=reason, message=words, alarm=True, needs_person=not passing)


def _of_pod(name: str, wait: PodWait, *, late: bool) -> Wait:
    return Wait(
        reason=wait.reason,
        message=f"pod {name}: {wait.message or wait.reason}",
        alarm=True,
        needs_person=late or wait.for_good,
    )
