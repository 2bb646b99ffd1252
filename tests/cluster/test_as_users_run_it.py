"""The whole system on a real cluster: Kubeflow's operator, its webhook, a scheduler, a kubelet, images and pods.

What these tests hold, the stand-ins in dev/kubeflow play, so that the quick tests see it too.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Sequence
from typing import Any

import pytest

from servers.kube_api import ApiError
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.kube.client import Ref
from support.cluster.beginning import ROWS, begin
from support.cluster.installed import START_S, Installation, Pipeline, documented_commands
from support.kafka import topics

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

STRICT = "strict"
ENFORCE = "pod-security.kubernetes.io/enforce"


def test_whatever_is_killed_each_row_comes_once(pipeline: Pipeline) -> None:
    begin(pipeline, "a new pipeline")
    pipeline.until_delivered("a new pipeline")
    its_pods_meet_restricted(pipeline)
    pipeline.until(lambda: pipeline.status["totals"]["rowsDelivered"] == 4 * ROWS, "the status counts them", 30)

    installed = pipeline.installed
    pipeline.stream.feed(ROWS)
    [executor] = pipeline.executors()
    installed.kubectl("delete", "pod", executor["metadata"]["name"], "--force", "--grace-period=0")
    pipeline.until_delivered("an executor's pod is deleted")

    pipeline.stream.feed(ROWS)
    driver = pipeline.driver
    assert driver is not None
    begun = time.monotonic()
    installed.kubectl("delete", "pod", driver["metadata"]["name"], "--force", "--grace-period=0")
    pipeline.until(lambda: not pipeline.told("Ready").startswith("True"), "it is not Ready", 30)
    installed.report.tell("a driver's pod is deleted", time.monotonic() - begun, pipeline.told("Ready"), pipeline.line)
    pipeline.until_delivered("a driver's pod is deleted")
    pipeline.until_told("a driver's pod is deleted", "Ready", "True Running", deadline_s=START_S)


def its_pods_meet_restricted(pipeline: Pipeline) -> None:
    """By the API server's own admission: the pods that run would be taken by a namespace which enforces it."""
    installed = pipeline.installed
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": STRICT, "labels": {ENFORCE: "restricted"}},
    }
    installed.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    try:
        driver, executors = pipeline.driver, pipeline.executors()
        assert driver is not None
        assert executors
        privileged = {"containers": [{**driver["spec"]["containers"][0], "securityContext": {"privileged": True}}]}
        with pytest.raises(ApiError, match="PodSecurity"):
            admitted(installed, {**driver, "spec": {**driver["spec"], **privileged}})
        for pod in (driver, *executors):
            admitted(installed, pod)
    finally:
        installed.cluster.kubectl("delete", "namespace", STRICT, "--wait=false")


def admitted(installed: Installation, pod: dict[str, Any]) -> None:
    """In the strict namespace, where it runs under the account that each namespace has."""
    left_out = ("nodeName", "serviceAccount", "serviceAccountName", "priority", "tolerations")
    spec = {name: each for name, each in pod["spec"].items() if name not in left_out}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["metadata"]["name"]}, "spec": spec}
    installed.api.create(f"/api/v1/namespaces/{STRICT}/pods?dryRun=All", document)


def test_what_a_person_decides_is_done_as_it_is_printed(pipeline: Pipeline) -> None:
    """A dead letter is redriven once its cause is mended, and a lost data topic is written anew."""
    case = "a row can't be delivered"
    # The last one of its partition, so that it comes in its order.
    bad = f"0:{ROWS - 1}"
    letters = {"topic": {"name": f"{pipeline.name}-dead", "partitions": 1, "replicationFactor": 1}}
    sink = {**pipeline.document["spec"]["sinks"][0], "deadLetter": letters}
    begin(pipeline, case, sinks=[sink], transform=_astray(bad))
    pipeline.until(lambda: pipeline.status["totals"].get("deadLettered") == 1, "the status counts a dead letter", 90)
    assert pipeline.delivered() == pipeline.stream.total - 1
    ours = Ref(pipeline.namespace, pipeline.name)
    [look] = re.findall(r"`(kubectl .*?)`", remedies.in_cluster("`sinkpipeline dlq list`", ours, sink["name"]))
    assert "pending" in pipeline.installed.type(look).lower()
    pipeline.apply(transform=_astray("nobody"))
    asked = {"pipeline": pipeline.name, "sink": sink["name"], "action": "Redrive"}
    action = {"apiVersion": "sinkpipeline.io/v1alpha1", "kind": "SinkPipelineAction"}
    document = json.dumps({**action, "metadata": {"generateName": "redrive-"}, "spec": asked})
    pipeline.carry_out(f"{case}: redriven", f"echo '{document}' | kubectl -n {pipeline.namespace} create -f -")
    pipeline.until_delivered(f"{case}: redriven")
    pipeline.until_told(f"{case}: redriven", "Ready", "True Running", deadline_s=START_S)

    case = "the data topic is deleted"
    topics.delete_topic(pipeline.servers, pipeline.data)
    pipeline.stream.feed(1)
    pipeline.until_told(case, "TopicsReady", "False DataTopicLost")
    assert pipeline.told("Ready").startswith("False")
    assert topics.topic_id(pipeline.servers, pipeline.data) is None, "it was made again"
    pipeline.carry_out(f"{case}: reset", pipeline.printed())
    pipeline.until_delivered(f"{case}: reset")
    pipeline.until_told(f"{case}: reset", "Ready", "True Running", deadline_s=START_S)


def _astray(row: str) -> dict[str, Any]:
    """Its partition is not there."""
    return {"select": {"partition": f"CASE CAST(value AS STRING) WHEN '{row}' THEN 99 END"}}


def test_suspended_it_says_so_and_deleted_its_topics_go(pipeline: Pipeline) -> None:
    case = "suspended"
    begin(pipeline, case, deletionPolicy="Delete")
    page = pipeline.plugin("status", pipeline.name)
    assert page.startswith(f"{pipeline.namespace}/{pipeline.name}: Running, ready for "), page
    assert "executors registered: 1 of 1" in page
    pipeline.plugin("suspend", pipeline.name, "--wait")
    assert pipeline.status.get("phase") == "Suspended"
    assert pipeline.driver is None or pipeline.driver["status"]["phase"] != "Running"
    assert pipeline.plugin("status", pipeline.name).startswith(f"{pipeline.namespace}/{pipeline.name}: Suspended")
    pipeline.stream.feed(ROWS)
    pipeline.plugin("resume", pipeline.name)
    pipeline.until_delivered("resumed")
    pipeline.until_told("resumed", "Ready", "True Running", deadline_s=START_S)
    assert "executors registered" in in_a_pod(pipeline, ("status", pipeline.name))
    begun = time.monotonic()
    pipeline.delete("--timeout=90s")
    pipeline.installed.report.tell("deleted, with its topics", time.monotonic() - begun, "the resource is gone")
    assert topics.topic_id(pipeline.servers, pipeline.data) is None
    assert topics.topic_id(pipeline.servers, pipeline.name) is not None


def in_a_pod(pipeline: Pipeline, arguments: Sequence[str]) -> str:
    """The plugin of the operator's image, as docs/kubectl.md says, with the rights that it names."""
    typed = documented_commands("Without Python", "kubectl.md", 1)
    told = "kubectl-sinkpipeline status\n"
    assert told in typed
    typed = typed.replace(told, f"kubectl-sinkpipeline {shlex.join(arguments)}\n").replace("ACCOUNT", "looker")
    in_namespace = f"kubectl --namespace {pipeline.namespace}"
    typed = re.sub("^kubectl", in_namespace, typed, flags=re.MULTILINE)
    return pipeline.installed.type(
        f"{in_namespace} delete serviceaccount,role,rolebinding looker --ignore-not-found\n"
        f"{in_namespace} create serviceaccount looker\n"
        f"{in_namespace} create role looker --verb=get,list --resource=sinkpipelines,pods,events\n"
        f"{in_namespace} create rolebinding looker --role=looker --serviceaccount={pipeline.namespace}:looker\n{typed}"
    )
