"""What a cluster refuses of a start is told, in its own words, by real admission and a real spark-submit.

No driver runs here: each start costs a spark-submit alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.target import ROOT
from servers.kube_api import ApiError
from sinkpipeline_operator.child import refusals
from support.cluster.installed import APPLICATIONS, KUBEFLOW, NAMESPACE, START_S, Installation, Pipeline
from support.resource.truthful import APPLICATION
from support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

Object = dict[str, Any]
QUOTA = "tight"
POLICY = "refuse-drivers"


def tries(number: int) -> Object:
    return {"maxConsecutiveFailures": number, "backoff": {"initial": "1s", "max": "1s"}}


def test_a_quota_that_refuses_the_driver_is_told_in_one_sentence(pipeline: Pipeline) -> None:
    case = "a quota refuses the driver's pod"
    with quota(pipeline.installed):
        # The second try says whether the same refusal is one event.
        pipeline.apply(failurePolicy=tries(2))
        told = pipeline.until_told(case, "Stalled", "True QuotaExceeded", f"exceeded quota: {QUOTA}", START_S)
        assert pipeline.told("Ready") == "False QuotaExceeded"
        is_one_sentence(pipeline, told)
        events = submissions(pipeline)
        assert [each["count"] for each in events] == [2], events
        has_one_name(pipeline)
    stderr = said_by_spark_submit(pipeline)
    # As a case of tests/unit/test_operator_waits, which knows a made-up one.
    kept = ROOT / "build" / "e2e" / "spark-submit-quota.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(stderr)
    assert refusals.cause(stderr) in told


def test_a_policy_that_refuses_the_driver_is_told_in_its_words(pipeline: Pipeline) -> None:
    case = "an admission policy refuses the driver's pod"
    with policy(pipeline):
        pipeline.apply(failurePolicy=tries(1))
        told = pipeline.until_told(case, "Stalled", "True AdmissionRefused", "no drivers today", START_S)
        assert pipeline.told("Ready") == "False AdmissionRefused"
        is_one_sentence(pipeline, told)
        assert [each["count"] for each in submissions(pipeline)] == [1]


def test_a_webhook_that_is_away_is_told_until_it_is_back(pipeline: Pipeline) -> None:
    case = "Kubeflow's webhook is away"
    installed = pipeline.installed
    application = f"{APPLICATIONS.format(pipeline.namespace)}/{pipeline.name}"
    with installed.webhook_away():
        pipeline.apply()
        pipeline.until_told(case, "SparkApplicationReady", "False WebhookUnavailable", "failed calling webhook")
        assert pipeline.told("Stalled").startswith("False"), "it may be back in a moment"
        pipeline.until(lambda: pipeline.events("WebhookUnavailable"), "an event tells it", 30)
        assert pipeline.events("DriverSubmitted") == []
        assert installed.api.find(application) is None
    installed.until_rolled_out("spark-operator-webhook", KUBEFLOW)
    seconds = pipeline.until(lambda: installed.api.find(application), "the SparkApplication is made", START_S)
    installed.report.tell(f"{case}, and comes back", seconds, "the SparkApplication is made", pipeline.line)


def is_one_sentence(pipeline: Pipeline, told: str) -> None:
    """Nothing of the kilobytes around it, with their times and stacks."""
    assert f"{pipeline.name}-driver" in told
    assert "\n" not in told
    for noise in ("Exception in thread", "\tat ", " INFO ", " WARN ", "StatusDetails"):
        assert noise not in told


def has_one_name(pipeline: Pipeline) -> None:
    """The same refusal is nothing else besides."""
    assert all("DriverPodLost" not in json.dumps(each) for each in pipeline.statuses())
    assert pipeline.events("DriverPodLost") == []


def submissions(pipeline: Pipeline) -> list[Object]:
    """The events that tell of one that failed, once the last failure stands in one."""

    def look() -> list[Object]:
        found = pipeline.cluster.get("events", f"--namespace={pipeline.namespace}")["items"]
        return [
            each
            for each in found
            if each["involvedObject"]["name"] == pipeline.name
            and each["message"].startswith("the driver could not be submitted")
        ]

    total = pipeline.status["restarts"]["total"]
    pipeline.until(lambda: sum(each["count"] for each in look()) >= total, "an event tells it", 30)
    return look()


def said_by_spark_submit(pipeline: Pipeline) -> str:
    """The whole of it, as Kubeflow's operator has it in the SparkApplication, which is gone by now."""
    found = [
        line["status"]["applicationState"]["errorMessage"]
        for line in pipeline.installed.recorder.lines
        if line["kind"] == APPLICATION
        and line["metadata"]["name"] == pipeline.name
        and (line["status"].get("applicationState") or {}).get("errorMessage")
    ]
    assert found, "no SparkApplication has told why it was not submitted"
    return str(found[-1])


@contextlib.contextmanager
def quota(installed: Installation) -> Iterator[None]:
    """No pods from now on; those that run stay."""
    hard = {"spec": {"hard": {"pods": "0"}}}
    document = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA, "namespace": NAMESPACE},
        **hard,
    }
    try:
        installed.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        wait_until(lambda: is_refused(installed, "probe", QUOTA), "the quota counts", 60, poll_s=0.5)
        yield
    finally:
        installed.kubectl("delete", "resourcequota", QUOTA, "--ignore-not-found")
        wait_until(lambda: not is_refused(installed, "probe", QUOTA), "the quota is gone", 60, poll_s=0.5)


@contextlib.contextmanager
def policy(pipeline: Pipeline) -> Iterator[None]:
    """Of the cluster's administrator, against the pod of this pipeline's driver."""
    installed, driver = pipeline.installed, f"{pipeline.name}-driver"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        },
        "validations": [{"expression": f"object.metadata.name != '{driver}'", "message": "no drivers today"}],
    }
    binding = {"policyName": POLICY, "validationActions": ["Deny"]}
    kinds = {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": binding}
    try:
        for kind, each in kinds.items():
            document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": POLICY}}
            installed.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**document, "spec": each}))
        # The API server follows its policies: the first pod that is refused shows that this one counts.
        wait_until(lambda: is_refused(installed, driver, "no drivers today"), "the policy counts", 60, poll_s=0.5)
        yield
    finally:
        for kind in reversed(kinds):
            installed.cluster.kubectl("delete", kind, POLICY, "--ignore-not-found")


def is_refused(installed: Installation, name: str, words: str) -> bool:
    """Whether a pod of that name would be, for what has those words."""
    spec = {
        "containers": [{"name": "probe", "image": "localhost/pause:1", "securityContext": {"privileged": False}}],
        "automountServiceAccountToken": False,
    }
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    try:
        installed.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", document)
    except ApiError as error:
        return words in str(error)
    return False
