"""A start that waits, or is refused, is told with its reason, whoever holds it up."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kubeflow import pods
from sinkpipeline.core.status import condition_of
from support.kube.kubelet import Kubelet
from support.kube.operator_lab import OperatorLab
from support.kube.policies import tight_quota
from support.kube.scripts import Script, SinkScript

pytestmark = pytest.mark.kube

Object = dict[str, Any]
AWAY = "WebhookUnavailable"
ELSEWHERE = "elsewhere"
"""A node whose pods nobody runs."""
NODES = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available."
PULL = 'Back-off pulling image "registry.invalid/sinkpipeline:1": ErrImagePull: no such host'
PULLS = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": PULL}}, "name": "spark-kubernetes-driver"}
NO_IMAGE = {"phase": "Pending", "conditions": [], "containerStatuses": [PULLS]}

SETTING_UP: Object = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "True"}],
    "containerStatuses": [
        {
            "name": "spark-kubernetes-driver",
            "image": "registry.invalid/sinkpipeline:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}},
        }
    ],
}


@pytest.fixture
def lab(hasty_lab: OperatorLab) -> Iterator[OperatorLab]:
    """Whose operator soon calls a person."""
    yield hasty_lab
    hasty_lab.check()
    hasty_lab.suspend_all()


def test_each_thing_that_a_start_waits_for_is_told(lab: OperatorLab, name: str) -> None:
    pipeline = (lab.namespace, name)
    lab.drivers.hold(pipeline)
    lab.drivers.keep(pipeline, pods.unschedulable(NODES))
    lab.apply(lab.pipeline(name))
    told = lab.until_condition(name, "SparkApplicationReady", "False", "NEW")
    assert "Kubeflow" in told["message"]
    assert not needed_at_first(lab, name, "NEW")

    told = lab.until_condition(name, "Stalled", "True", "NotSubmitted")
    assert "serves this namespace" in told["message"]
    assert lab.condition(name, "SparkApplicationReady")["reason"] == "NotSubmitted"
    lab.until(lambda: "NotSubmitted: " in lab.told(name), "an event tells it")

    lab.drivers.submit(pipeline)
    told = lab.until_condition(name, "SparkApplicationReady", "False", "Unschedulable")
    assert told["message"] == f"pod {name}-driver: {NODES}"
    assert lab.condition(name, "Ready")["message"] == told["message"]
    lab.until(lambda: f"Unschedulable: pod {name}-driver: {NODES}" in lab.told(name), "an event tells it")

    # What its pod has yet to mount is taken away: it comes back, else the pod would never start.
    maps = [each["metadata"]["name"] for each in lab.all("configmaps") if each["metadata"]["name"].startswith(name)]
    assert len(maps) == 2
    for each in maps:
        lab.delete("configmap", each)
    lab.until(lambda: all(lab.find("configmap", each) for each in maps), "both are there again")

    lab.drivers.keep(pipeline, NO_IMAGE)
    told = lab.until_condition(name, "SparkApplicationReady", "False", "ImagePullBackOff")
    assert "no such host" in told["message"]
    lab.until_condition(name, "Stalled", "True", "ImagePullBackOff")

    lab.drivers.keep(pipeline, SETTING_UP)
    told = lab.until_condition(name, "SparkApplicationReady", "False", "StartDeadlineExceeded")
    assert f"{name}-driver" in lab.type(command(told))

    lab.drivers.keep(pipeline, None)
    lab.until_ready(name)
    assert lab.condition(name, "Stalled")["status"] == "False"
    assert lab.starts(name) == 1
    assert lab.status(name)["restarts"]["total"] == 0


def test_a_pod_that_does_not_end_is_told_and_ended_as_it_is_printed(lab: OperatorLab, name: str) -> None:
    """As of a node that is lost: nobody says that it has ended, and nothing goes on before."""
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    lab.drivers.lose((lab.namespace, name))
    lab.kubectl("delete", "pod", f"{name}-driver", "--wait=false", "--grace-period=1")
    lab.until_condition(name, "SparkApplicationReady", "False", "DriverPodStuck")
    assert lab.condition(name, "Stalled")["reason"] == "DriverPodStuck"
    lab.patch(name, {"suspend": True})
    told = lab.until_condition(name, "Stalled", "True", "DriverPodStuck")
    lab.type(command(told))
    lab.until_status(name, lambda status: status["phase"] == "Suspended", "nothing keeps it")
    assert lab.condition(name, "Stalled")["status"] == "False"


def test_executors_that_can_not_start_are_told(lab: OperatorLab, name: str) -> None:
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    lab.make_executor(name, 1, pods.unschedulable(NODES))
    told = lab.until_condition(name, "Ready", "False", "Unschedulable")
    assert told["message"] == f"no executor runs: pod {name}-exec-1: {NODES}"
    assert lab.status(name)["phase"] == "Degraded"
    lab.until(lambda: f"{name}-exec-1: {NODES}" in lab.told(name), "an event tells it")

    lab.set_executor(name, 1, {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]})
    lab.until_ready(name)
    lab.make_executor(name, 2, pods.unschedulable(NODES))
    told = lab.until_condition(name, "SparkApplicationReady", "True", "Unschedulable")
    assert lab.condition(name, "Stalled")["status"] == "False"
    assert told["message"] == f"1 of 2 executors run: pod {name}-exec-2: {NODES}"
    assert lab.condition(name, "Ready")["status"] == "True"


@pytest.mark.thorough("waits; test_executors_that_can_not_start_are_told has a pod")
def test_executors_that_do_not_come_are_told_without_a_pod_of_theirs(lab: OperatorLab, name: str) -> None:
    """A quota that refuses them leaves none; the driver knows that it has nobody."""
    nobody = Script(executors=0, sinks={"copy": SinkScript(proved=False)})
    lab.drivers.play((lab.namespace, name), nobody)
    lab.apply(lab.pipeline(name))
    told = lab.until_condition(name, "Ready", "False", "FirstBatchPending")
    assert told["message"] == "no batch has come through yet: copy (none of 2 executors registered)"
    assert lab.condition(name, "Stalled")["status"] == "False"
    assert "NoExecutors" not in lab.told(name), "they take a while at every start"

    driver = lab.driver(name)
    driver.change(clock_ahead_s=31)
    told = lab.until_condition(name, "Stalled", "True", "NoExecutors")
    assert (
        f"a quota or a webhook may refuse them, which the driver logs, `kubectl -n {lab.namespace}" in told["message"]
    )
    with kubelets(lab):
        assert lab.type(command(told)) == f"what {name}-driver logs\n"
    assert lab.condition(name, "Ready")["reason"] == "NoExecutors"
    lab.until(lambda: "NoExecutors: none of 2 executors registered" in lab.told(name), "an event tells it")
    driver.change(executors=2, sinks={})
    lab.until_ready(name)
    assert lab.condition(name, "Stalled")["status"] == "False"

    # An idle sink misses nobody; one for which records wait misses them after half a minute.
    driver.change(executors=0, clock_ahead_s=100)
    lab.stays(lambda: lab.condition(name, "Ready")["status"] == "True", "nothing waits", 2)
    waits = SinkScript(lag=20_000)
    driver.change(sinks={"copy": waits}, clock_ahead_s=115)
    lab.stays(lambda: lab.condition(name, "Ready")["status"] == "True", "another one may be on its way", 2)
    driver.change(clock_ahead_s=1000)
    lab.until_condition(name, "Ready", "False", "NoExecutors")
    seen = [each.new.get("status", {}).get("conditions") for each in lab.history("sinkpipeline", name)]
    assert "DriverUnresponsive" not in json.dumps(seen), "that nothing moves has a cause"
    assert lab.status(name)["phase"] == "Degraded"
    lab.make_executor(name, 1, {"phase": "Pending"})
    lab.until(
        lambda: "1 of their pods are being set up" in lab.condition(name, "Ready")["message"], "a pod is told", 20
    )
    lab.make_executor(name, 2, {"phase": "Running"}, node=ELSEWHERE)
    lab.until(lambda: "1 of their pods run: " in lab.condition(name, "Ready")["message"], "another pod is told", 20)
    with kubelets(lab):
        assert lab.type(command(lab.condition(name, "Ready"))) == f"what {name}-exec-2 logs\n"
    driver.change(executors=1)
    lab.until_ready(name)


@pytest.mark.thorough("test_what_refuses_the_child_is_told shows another refusal")
def test_a_quota_that_refuses_the_driver_is_the_one_cause_that_is_told(lab: OperatorLab, name: str) -> None:
    """Of several KB of spark-submit's words, in a submission that is FAILED at once."""
    with tight_quota(lab, {"pods": "0"}):
        lab.apply(
            lab.pipeline(name, failurePolicy={"maxConsecutiveFailures": 2, "backoff": {"initial": "1s", "max": "1s"}})
        )
        told = lab.until_condition(name, "Stalled", "True", "QuotaExceeded")
    assert f'pods "{name}-driver" is forbidden: exceeded quota: tight' in told["message"]
    assert lab.condition(name, "Ready")["reason"] == "QuotaExceeded"
    restarts = lab.status(name)["restarts"]
    assert (restarts["total"], restarts["lastReason"]) == (2, "QuotaExceeded")
    lab.until(lambda: [each for each in submissions(lab, name) if each["count"] == 2], "the event counts them")
    assert len(submissions(lab, name)) == 1
    assert "DriverPodLost" not in json.dumps([each.new for each in lab.history("sinkpipeline", name)])
    assert "DriverPodLost" not in lab.told(name)
    lab.patch(name, {"trigger": {"interval": "2s"}})
    lab.until_ready(name)


def test_what_refuses_the_child_is_told(lab: OperatorLab, name: str) -> None:
    """Kubeflow's webhook is away."""
    with webhook_that_is_away(lab):
        lab.apply(lab.pipeline(name))
        told = lab.until_condition(name, "SparkApplicationReady", "False", AWAY)
        assert "connection refused" in told["message"]
        lab.until(lambda: f"{AWAY}: " in lab.told(name), "an event tells it")
        assert not needed_at_first(lab, name, AWAY), "it may be back in a moment"
        assert "DriverSubmitted" not in lab.told(name)
        assert lab.child(name) is None
    lab.until_ready(name)
    lab.until(lambda: "DriverSubmitted" in lab.told(name), "an event tells of the child")


@pytest.mark.thorough("another refusal of the child, which is beside it")
def test_a_quota_that_refuses_the_child_needs_a_person(lab: OperatorLab, name: str) -> None:
    with tight_quota(lab, {"count/sparkapplications.sparkoperator.k8s.io": "0"}):
        lab.apply(lab.pipeline(name))
        told = lab.until_condition(name, "Stalled", "True", "QuotaExceeded")
        assert "raise the quota" in told["message"]
        writes = lab.status_writes(name)
        lab.stays(lambda: lab.status_writes(name) == writes, "the same refusal is written once", 4)
    lab.until_ready(name)
    assert lab.condition(name, "Stalled")["status"] == "False"


def command(told: Object) -> str:
    """The one that a condition names."""
    [only] = re.findall(r"`([^`]+)`", told["message"])
    return str(only)


@contextlib.contextmanager
def kubelets(lab: OperatorLab) -> Iterator[None]:
    """They answer for the pods of both nodes."""

    def log(_: str, pod: str) -> str:
        return f"what {pod} logs\n"

    with Kubelet(lab.cluster.kubeconfig, log), Kubelet(lab.cluster.kubeconfig, log, node=ELSEWHERE):
        yield


def needed_at_first(lab: OperatorLab, name: str, reason: str) -> bool:
    """Whether a person was, when that reason was told first."""
    seen = [each.new.get("status") or {} for each in lab.history("sinkpipeline", name)]
    first = next(each for each in seen if condition_of(each, "SparkApplicationReady").get("reason") == reason)
    return bool(condition_of(first, "Stalled")["status"] == "True")


def submissions(lab: OperatorLab, name: str) -> list[Object]:
    return [each for each in lab.events(name) if each["message"].startswith("the driver could not be submitted")]


@contextlib.contextmanager
def webhook_that_is_away(lab: OperatorLab) -> Iterator[None]:
    """As Kubeflow's chart registers its own, for this namespace; at the address nobody listens."""
    name = f"away-{lab.namespace}"
    hook = {
        "name": "mutate-sparkapplication.sparkoperator.k8s.io",
        "clientConfig": {"url": "https://127.0.0.1:9/mutate"},
        "rules": [
            {
                "apiGroups": ["sparkoperator.k8s.io"],
                "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["sparkapplications"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": lab.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }
    lab.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    # The API server follows these configurations: the first that is refused shows that this one counts.
    lab.until(lab.refuses_applications, "the webhook counts")
    try:
        yield
    finally:
        lab.cluster.kubectl("delete", "mutatingwebhookconfiguration", name)
