"""What is told while Kafka or the API server does not answer; no driver runs here."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from cluster.target import DIRECTORY, Target
from node import machine
from support.cluster.installed import KUBEFLOW, SYSTEM, Installation, Pipeline
from support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

Object = dict[str, Any]
PROBES_S = 11.0
"""Two periods of the chart's readinessProbe, and a second."""
UNHEALTHY = "Readiness probe failed: HTTP probe failed with statuscode: 503"


def test_a_removal_that_kafka_does_not_answer_says_so_and_goes_as_it_is_printed(
    installed: Installation, target: Target
) -> None:
    case = "deleted with its topics, and Kafka does not answer"
    with socket.create_server((target.kafka_host, 0), backlog=256) as silence:
        pipeline = Pipeline(installed, f"{target.kafka_host}:{silence.getsockname()[1]}")
        try:
            pipeline.apply(suspend=True, deletionPolicy="Delete")
            pipeline.until(lambda: pipeline.status.get("phase") == "Suspended", "it is suspended")
            pipeline.until(lambda: installed.api.get(pipeline.path)["metadata"].get("finalizers"), "it is held back")
            pipeline.delete("--wait=false")
            told = pipeline.until_told(case, "Reconciling", "True KafkaNotAnswering", pipeline.servers, 45)
            assert pipeline.condition("Ready")["message"] == told
            pipeline.until(lambda: pipeline.events("KafkaNotAnswering"), "an event tells it", 30)
            installed.type(pipeline.printed())
            seconds = pipeline.until(lambda: installed.api.find(pipeline.path) is None, "the resource is gone")
            installed.report.tell(case, seconds, "as it is printed: the resource is gone")
        finally:
            # Else its finalizer would stand in the way of whoever deletes all.
            pipeline.kubectl("delete", "sinkpipeline", pipeline.name, "--ignore-not-found", "--wait=false")
            if installed.api.find(pipeline.path) is not None:
                pipeline.kubectl("annotate", "sinkpipeline", pipeline.name, "sinkpipeline.io/keep-topics=true")


def test_an_operator_is_not_ready_while_the_api_server_is_away(installed: Installation, target: Target) -> None:
    """As the kubelet's probe sees it, which tells of it once it can."""
    if target.kind != "local":
        pytest.skip("only the API server of the local node is stopped by a test")
    case = "the API server is away"
    [operator] = installed.operators()
    meta = operator["metadata"]
    [container] = operator["spec"]["containers"]
    url = f"http://{operator['status']['podIP']}:{container['ports'][0]['containerPort']}/readyz"
    assert machine.http_status(DIRECTORY, url) == 200
    before = unready(installed, meta["name"])
    begun = time.monotonic()
    with machine.stopped(DIRECTORY, "kube-apiserver"):
        wait_until(lambda: machine.http_status(DIRECTORY, url) == 503, "/readyz says so", 60, poll_s=1.0)
        since = time.monotonic()
        installed.report.tell(case, since - begun, "/readyz answers 503")
        # Nobody can be asked meanwhile what the kubelet has seen.
        wait_until(lambda: time.monotonic() - since > PROBES_S, "the kubelet has probed", 60, poll_s=1.0)
    back = time.monotonic()
    wait_until(installed.cluster.answers, "the API server is back", 120, poll_s=0.5)
    wait_until(lambda: machine.http_status(DIRECTORY, url) == 200, "it is ready again", 60, poll_s=1.0)
    installed.report.tell(f"{case}, and comes back", time.monotonic() - back, "/readyz answers 200")
    wait_until(lambda: unready(installed, meta["name"]) > before, "the kubelet tells what it has seen", 150, poll_s=1.0)
    for deployment, namespace in (
        ("sinkpipeline-operator", SYSTEM),
        # They have lost their leases, and start anew.
        ("spark-operator-controller", KUBEFLOW),
        ("spark-operator-webhook", KUBEFLOW),
    ):
        installed.until_rolled_out(deployment, namespace)
    [after] = installed.operators()
    assert after["metadata"]["uid"] == meta["uid"]
    assert restarts(after) == restarts(operator), "it is not ready, and nobody kills it for that"


def unready(installed: Installation, pod: str) -> int:
    """How often a probe of that pod was answered with 503."""
    found = installed.cluster.get("events", f"--namespace={SYSTEM}")["items"]
    return sum(
        each.get("count") or 1
        for each in found
        if each["involvedObject"]["name"] == pod and each["reason"] == "Unhealthy" and UNHEALTHY in each["message"]
    )


def restarts(pod: Object) -> int:
    return sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
