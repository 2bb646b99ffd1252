"""The operator is killed, away and replaced, and the drivers' image with it: all of one pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.target import DIRECTORY
from node.images import another_name
from servers.local_kafka import LocalKafka
from sinkpipeline.core.status import condition_of
from support.cluster.beginning import ROWS, begin
from support.cluster.installed import APPLICATIONS, START_S, Installation, Pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

Object = dict[str, Any]

HELM = "helm {} sinkpipeline-operator --namespace sinkpipeline-system"
UPGRADE = HELM.format("upgrade") + " charts/sinkpipeline-operator --reuse-values --set spark.image.tag={} --wait"
ROLLBACK = HELM.format("rollback") + " --wait"
LONGER_S = 35.0
"""Than the 30 s for which a driver may lack executors (docs/design/0023)."""


@pytest.fixture(scope="module")
def running(installed: Installation, brokers: LocalKafka) -> Iterator[Pipeline]:
    """One for all of them, which was ready once."""
    ours = Pipeline(installed, brokers.bootstrap_servers)
    ours.stream.create()
    begin(ours, "a new pipeline")
    yield ours
    installed.leave(ours)


def test_an_operator_that_is_killed_is_followed_by_one_that_counts_on(running: Pipeline) -> None:
    case, installed = "the operator's pod is deleted", running.installed
    before = running.status["totals"]["rowsDelivered"], running.stream.total
    running.stream.feed(ROWS)
    installed.restart_operator()
    running.until_delivered(case)

    def counts_on() -> bool:
        delivered: int = running.status["totals"]["rowsDelivered"]
        assert delivered >= before[0], "it counts anew"
        return delivered == running.stream.total

    running.until(counts_on, "the new operator counts on", 90)
    assert running.told("Ready") == "True Running"


def test_a_driver_that_ends_in_order_while_no_operator_runs_has_not_failed(running: Pipeline) -> None:
    """Somebody has drained its node, or was done with it."""
    case, installed = "a driver ends while our operator is away", running.installed
    before = running.status["restarts"]
    assert before["consecutive"] == 0
    application = f"{APPLICATIONS.format(running.namespace)}/{running.name}"

    def state() -> str:
        told = installed.api.get(application).get("status") or {}
        return str((told.get("applicationState") or {}).get("state"))

    with installed.operator_away():
        # SIGTERM, as from a kubelet; a pod that is deleted may be gone before Kubeflow has seen how it ended.
        running.kubectl("exec", f"{running.name}-driver", "--", "kill", "1")
        running.until(lambda: state() == "COMPLETED", "Kubeflow has seen the end", 90)
    seconds = running.until(lambda: running.status["restarts"]["total"] > before["total"], "the end is noted", 90)
    found = running.status["restarts"]
    installed.report.tell(case, seconds, f"{found['lastReason']}, {found['consecutive']} failures", running.line)
    assert (found["total"], found["consecutive"], found.get("lastExitCode")) == (before["total"] + 1, 0, 0)


def test_a_ready_driver_that_loses_its_executors_is_ready_no_more(running: Pipeline) -> None:
    """While records wait. Nothing else runs here, so no other pod needs the node."""
    case, installed = "a driver loses its executors, and the node takes no pod", running.installed
    running.until(lambda: running.told("Ready") == "True Running", "it is Ready", START_S)
    driver = running.driver
    assert driver is not None
    node = driver["spec"]["nodeName"]
    installed.type(f"kubectl cordon {node}")
    try:
        for each in running.executors():
            installed.kubectl("delete", "pod", each["metadata"]["name"], "--force", "--grace-period=0")
        running.stream.feed(ROWS)
        running.until_told(case, "Ready", "False Unschedulable", "unschedulable", START_S)
        assert running.driver_uid == driver["metadata"]["uid"], "it is the same driver"
    finally:
        installed.type(f"kubectl uncordon {node}")
    running.until_delivered(f"{case}, and takes one again")
    running.until_told(f"{case}, and takes one again", "Ready", "True Running")


def test_without_executors_what_was_ready_is_not_and_no_new_operator_says_so(running: Pipeline) -> None:
    """Records wait, and no executor can come."""
    case, installed = "no node has room for the executors of an edit", running.installed
    running.stream.feed(ROWS)
    running.set_conf(spark_kubernetes_executor_request_cores="64")
    edited = installed.api.get(running.path)["metadata"]["generation"]
    told = running.until_told(case, "SparkApplicationReady", "False Unschedulable", "Insufficient cpu", START_S)
    assert told.startswith("no executor runs: pod "), told
    begun = time.monotonic()
    installed.restart_operator()
    running.until(lambda: time.monotonic() - begun > LONGER_S, "it goes on for a while", LONGER_S + 60)
    assert running.told("SparkApplicationReady") == "False Unschedulable"
    since = [each for each in running.statuses() if each.get("observedGeneration", 0) >= edited]
    told_ready = [each for each in since if condition_of(each, "Ready").get("status") == "True"]
    assert since
    assert told_ready == []
    words = "no status said Ready, not of another operator either"
    installed.report.tell(case, time.monotonic() - begun, words, running.line)


def test_an_image_that_is_not_there_is_told_and_rolled_back_and_another_one_taken(running: Pipeline) -> None:
    """Every driver is replaced by it, and the operator."""
    case, installed = "an upgrade names an image that is not there", running.installed
    running.set_conf(spark_kubernetes_executor_request_cores="200m")
    installed.type(UPGRADE.format("absent"))
    running.until_told(case, "SparkApplicationReady", "False ImagePullBackOff", "", START_S)
    running.until(lambda: running.events("ImagePullBackOff"), "an event tells it", 30)
    assert running.told("Ready").startswith("False")
    running.stream.feed(ROWS)
    installed.type(ROLLBACK)
    running.until_delivered(f"{case}, and is rolled back")
    if installed.target.kind == "local":
        an_upgrade_names_another_image(running)


def an_upgrade_names_another_image(running: Pipeline) -> None:
    """That works: the same one by another name, which no registry has to have."""
    case, another = "an upgrade names another image", "localhost/sinkpipeline-spark:another"
    driver = running.driver
    assert driver is not None
    with another_name(DIRECTORY, image_of(driver), another):
        running.installed.type(UPGRADE.format("another"))
        running.stream.feed(ROWS)
        running.until(lambda: image_of(running.driver) == another, "its driver has the other image", START_S)
        running.until_delivered(case)
        running.installed.type(ROLLBACK)


def image_of(pod: Object | None) -> str:
    containers = [] if pod is None else pod["spec"]["containers"]
    return next((each["image"] for each in containers if each["name"] == "spark-kubernetes-driver"), "")
