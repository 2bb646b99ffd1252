"""The whole system on a real cluster: Kubeflow's operator, its webhook, a scheduler, a kubelet, images and pods.

What these tests hold, the stand-ins in dev/kubeflow play, so that the quick tests see it too.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.target import DIRECTORY, ROOT, Target
from node.images import another_name
from servers.local_kafka import LocalKafka
from support.cluster.installed import (
    APPLICATIONS,
    START_S,
    SYSTEM,
    TOKEN_S,
    Installation,
    Pipeline,
    documented_commands,
)
from support.cluster.recording import unlike
from support.kafka import topics
from support.resource.truthful import APPLICATION, PIPELINE, untrue
from support.waiting import wait_until
from support.worlds.secure import Door, SecureKafka, documented

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

LONGER_S = 35.0
"""Than the 30 s for which a driver may lack executors (docs/design/0023)."""
ROWS = 5_000
"""For each of four partitions."""


def begin(pipeline: Pipeline, case: str, **spec: Any) -> None:
    """Ready never comes before rows."""

    def rows_are_there() -> bool:
        ready = pipeline.told("Ready").startswith("True")
        delivered = pipeline.delivered()
        assert delivered > 0 or not ready, "it is Ready, and nothing was ever delivered"
        return delivered > 0

    pipeline.stream.feed(ROWS)
    begun = time.monotonic()
    pipeline.apply(**spec)
    first = pipeline.until(rows_are_there, "its first rows are there", START_S)
    pipeline.installed.report.tell(case, first, f"first rows; of that: {pipeline.first_row(first)}")
    pipeline.until(lambda: pipeline.told("Ready").startswith("True"), "it is Ready", START_S)
    pipeline.installed.report.tell(case, time.monotonic() - begun, "applied until it is Ready", pipeline.line)


def test_whatever_is_killed_each_row_comes_once(pipeline: Pipeline) -> None:
    begin(pipeline, "a new pipeline")
    pipeline.until_delivered("a new pipeline")
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

    pipeline.stream.feed(ROWS)
    installed.kubectl("delete", "pod", "--selector=app.kubernetes.io/name=sinkpipeline-operator", namespace=SYSTEM)
    pipeline.until_delivered("the operator's pod is deleted")
    rows = 16 * ROWS
    pipeline.until(lambda: pipeline.status["totals"]["rowsDelivered"] == rows, "the new operator counts on", 90)
    assert pipeline.told("Ready") == "True Running"


def test_without_room_for_executors_it_is_not_ready_and_says_why(pipeline: Pipeline) -> None:
    case = "no node has room for an executor"
    pipeline.stream.feed(ROWS)
    pipeline.set_conf(spark_kubernetes_executor_request_cores="64")
    words = pipeline.until_told(case, "SparkApplicationReady", "False Unschedulable", "Insufficient cpu", START_S)
    assert "exec-1" in words
    page = pipeline.plugin("status", pipeline.name)
    assert re.search(r"-exec-1: Pending \(Unschedulable\), .*\n +0/\d+ nodes are available: .*Insufficient cpu", page)
    assert pipeline.told("Ready").startswith("False")
    assert any(event.startswith("Unschedulable: ") for event in pipeline.events())
    uid = pipeline.driver_uid
    pipeline.set_conf(spark_kubernetes_executor_request_cores="200m")
    seconds = pipeline.until(lambda: pipeline.driver_uid != uid, "the driver without executors has ended", 25)
    pipeline.installed.report.tell(f"{case}, and the manifest is mended", seconds, "the old driver has ended")
    pipeline.until_delivered(f"{case}, and the manifest is mended")
    pipeline.until_told(f"{case}, and the manifest is mended", "Ready", "True Running")
    never_ready_without_executors(pipeline)


def never_ready_without_executors(pipeline: Pipeline) -> None:
    """Of a pipeline that was ready: records wait, no executor can come, and the operator is another one meanwhile."""
    case, installed = "no node has room for the executors of an edit", pipeline.installed
    pipeline.stream.feed(ROWS)
    pipeline.set_conf(spark_kubernetes_executor_request_cores="64")
    edited = installed.api.get(pipeline.path)["metadata"]["generation"]
    told = pipeline.until_told(case, "SparkApplicationReady", "False Unschedulable", "Insufficient cpu", START_S)
    assert told.startswith("no executor runs: pod "), told
    begun = time.monotonic()
    installed.restart_operator()
    pipeline.until(lambda: time.monotonic() - begun > LONGER_S, "it goes on for a while", LONGER_S + 60)
    assert pipeline.told("SparkApplicationReady") == "False Unschedulable"
    since = [each for each in pipeline.statuses() if each.get("observedGeneration", 0) >= edited]
    ready = [
        each for each in since for found in each["conditions"] if found["type"] == "Ready" and found["status"] == "True"
    ]
    assert since
    assert ready == []
    words = "no status said Ready, not of another operator either"
    installed.report.tell(case, time.monotonic() - begun, words, pipeline.line)


def test_a_namespace_that_kubeflow_does_not_serve(installed: Installation, brokers: LocalKafka) -> None:
    namespace = "elsewhere"
    with own_namespace(installed, namespace):
        pipeline = Pipeline(installed, brokers.bootstrap_servers, namespace=namespace)
        pipeline.stream.create()
        pipeline.apply()
        case = "Kubeflow does not serve the namespace"
        words = pipeline.until_told(case, "SparkApplicationReady", "False NotSubmitted", deadline_s=200)
        assert "that it serves this namespace" in words
        assert any(event.startswith("NotSubmitted: ") for event in pipeline.events())
        pipeline.delete("--timeout=60s")


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


def test_kubeflow_is_away_while_a_pipeline_is_edited_and_we_are_while_a_driver_ends(pipeline: Pipeline) -> None:
    case = "Kubeflow's operator is away during an edit"
    begin(pipeline, case)
    with pipeline.installed.kubeflow_away():
        pipeline.apply(trigger={"interval": "2s"})
        pipeline.stream.feed(ROWS)
        pipeline.until(lambda: pipeline.driver is None, "the old driver is gone", 120)
        pipeline.until(lambda: pipeline.told("Ready").startswith("False"), "it is not Ready", 30)
        pipeline.until_told(case, "SparkApplicationReady", "False NEW", deadline_s=60)
    pipeline.until_delivered(f"{case}, and comes back")
    a_driver_ends_while_no_operator_runs(pipeline)


def a_driver_ends_while_no_operator_runs(pipeline: Pipeline) -> None:
    """In order: somebody has drained its node, or was done with it; that is no failure."""
    case, installed = "a driver ends while our operator is away", pipeline.installed
    before = pipeline.status["restarts"]
    assert before["consecutive"] == 0
    application = f"{APPLICATIONS.format(pipeline.namespace)}/{pipeline.name}"

    def state() -> str:
        told = installed.api.get(application).get("status") or {}
        return str((told.get("applicationState") or {}).get("state"))

    with installed.operator_away():
        pipeline.kubectl("delete", "pod", f"{pipeline.name}-driver", "--timeout=90s")
        pipeline.until(lambda: state() in ("COMPLETED", "FAILED"), "Kubeflow has seen the end", 90)
        # It may miss how a pod has ended that is gone within the second: nobody knows that then.
        known = state() == "COMPLETED"
    seconds = pipeline.until(lambda: pipeline.status["restarts"]["total"] > before["total"], "the end is noted", 90)
    found = pipeline.status["restarts"]
    installed.report.tell(case, seconds, f"{found['lastReason']}, {found['consecutive']} failures", pipeline.line)
    assert (found["total"], found["consecutive"]) == (before["total"] + 1, 0 if known else 1)
    assert found.get("lastExitCode") == (0 if known else None)


def test_secrets_open_a_secured_cluster(installed: Installation, target: Target, tmp_path: Path) -> None:
    """With the rights of docs/rights.md and no others; with a wrong password first."""
    case = "SASL over TLS, with Secrets"
    with SecureKafka(tmp_path, host=target.kafka_host) as kafka:
        pipeline = Pipeline(installed, kafka.bootstrap_servers)
        pipeline.stream.create()
        user, ca = f"{pipeline.name}-user", f"{pipeline.name}-ca"
        installed.kubectl("create", "secret", "generic", user, "--from-literal=password=wrong")
        installed.kubectl("create", "secret", "generic", ca, f"--from-file=ca.crt={kafka.certificates.ca}")
        kafka.add_user(pipeline.name, "right")
        names = {
            "identity": f"{pipeline.namespace}.{pipeline.name}",
            "source topic": pipeline.name,
            "progress topic": f"{pipeline.name}-progress",
            "data topic": pipeline.data,
        }
        kafka.grant(f"User:{pipeline.name}", [need.right(names) for need in documented() if "run" in need.commands])
        password = {"name": user, "key": "password"}
        auth = {
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": pipeline.name, "passwordSecretRef": password},
            "tls": {"caSecretRef": {"name": ca, "key": "ca.crt"}},
        }
        source = {"bootstrapServers": kafka.servers(Door.SASL_TLS), "topics": [pipeline.name], "auth": auth}
        pipeline.stream.feed(ROWS)
        # Of a range that some clusters demand: a user without a name.
        user_id = {"runAsUser": 1000650000, "runAsGroup": 1000650000, "fsGroup": 1000650000}
        spark = pipeline.document["spec"]["spark"] | {"template": {"spec": {"securityContext": user_id}}}
        pipeline.apply(source={"kafka": source}, spark=spark)
        pipeline.until(lambda: "AuthenticationFailed" in pipeline.told("Ready"), "the password is wrong", START_S)
        words = pipeline.condition("Ready")["message"]
        installed.report.tell(f"{case}: a wrong password", 0, words, pipeline.line)
        installed.kubectl("patch", "secret", user, "--type=merge", "-p", '{"stringData": {"password": "right"}}')
        pipeline.until_delivered(f"{case}: the password is mended")
        driver = pipeline.driver
        assert driver is not None
        assert driver["spec"]["securityContext"]["runAsUser"] == 1000650000
        pipeline.delete("--timeout=90s")


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
    typed = documented_commands("Without Python", "kubectl.md", 1).strip()
    assert typed.endswith(" status")
    typed = typed.removesuffix("status") + shlex.join(arguments)
    in_namespace = f"kubectl --namespace {pipeline.namespace}"
    # Nobody sits at a terminal here.
    typed = typed.replace("kubectl run", f"{in_namespace} run").replace(" -it ", " -i ").replace("ACCOUNT", "looker")
    return pipeline.installed.type(
        f"{in_namespace} delete serviceaccount,role,rolebinding looker --ignore-not-found\n"
        f"{in_namespace} create serviceaccount looker\n"
        f"{in_namespace} create role looker --verb=get,list --resource=sinkpipelines,pods,events\n"
        f"{in_namespace} create rolebinding looker --role=looker --serviceaccount={pipeline.namespace}:looker\n{typed}"
    )


def test_an_image_that_is_not_there_is_told_and_rolled_back(pipeline: Pipeline) -> None:
    """Last: it replaces every driver, and the operator, which by then has outlived the token that it began with."""
    installed = pipeline.installed
    wait_until(lambda: installed.operator_age_s() > TOKEN_S, "the operator's first token is void", TOKEN_S)
    case = "an upgrade names an image that is not there"
    begin(pipeline, case)
    words = f"an operator whose tokens are good for {TOKEN_S} s works on"
    installed.report.tell("tokens", installed.operator_age_s(), words)
    helm = "helm {} sinkpipeline-operator --namespace sinkpipeline-system"
    upgrade = helm.format("upgrade") + " charts/sinkpipeline-operator --reuse-values --set spark.image.tag={} --wait"
    installed.type(upgrade.format("absent"))
    pipeline.until_told(case, "SparkApplicationReady", "False ImagePullBackOff", "", START_S)
    assert pipeline.told("Ready").startswith("False")
    pipeline.stream.feed(ROWS)
    installed.type(helm.format("rollback") + " --wait")
    pipeline.until_delivered(f"{case}, and is rolled back")
    if installed.target.kind == "local":
        an_upgrade_names_another_image(pipeline, upgrade)


def an_upgrade_names_another_image(pipeline: Pipeline, upgrade: str) -> None:
    """That works: the same one by another name, which no registry has to have."""
    case, another = "an upgrade names another image", "localhost/sinkpipeline-spark:another"
    driver = pipeline.driver
    assert driver is not None
    image = image_of(driver)
    with another_name(DIRECTORY, image, another):
        pipeline.installed.type(upgrade.format("another"))
        pipeline.stream.feed(ROWS)
        pipeline.until(lambda: image_of(pipeline.driver) == another, "its driver has the other image", START_S)
        pipeline.until_delivered(case)


def image_of(pod: dict[str, Any] | None) -> str:
    containers = [] if pod is None else pod["spec"]["containers"]
    return next((each["image"] for each in containers if each["name"] == "spark-kubernetes-driver"), "")


def test_the_stand_in_would_have_done_what_kubeflow_did(installed: Installation) -> None:
    """In all that came before: so what dev/kubeflow plays for the quick tests is what happens."""
    lines = [line for line in list(installed.recorder.lines) if line["kind"] != PIPELINE]
    _keep(lines, "kubeflow.json")
    replayed, strange = unlike(lines)
    assert strange == []
    installed.report.tell("the stand-in replays Kubeflow's changes of state", 0, f"{replayed} of {replayed}")
    installed.report.tell("the operator's memory", 0, installed.operator_memory())


def test_no_status_ever_said_what_was_not_so(installed: Installation) -> None:
    """In all that came before."""
    lines = [line for line in list(installed.recorder.lines) if line["kind"] in (PIPELINE, APPLICATION)]
    _keep(lines, "told.json")
    statuses = [line for line in lines if line["kind"] == PIPELINE]
    assert untrue(lines) == []
    installed.report.tell("what statuses said", 0, f"{len(statuses)} of {len(statuses)} were true in themselves")


def _keep(lines: Sequence[dict[str, Any]], name: str) -> None:
    recording = ROOT / "build" / "e2e" / name
    recording.parent.mkdir(parents=True, exist_ok=True)
    recording.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@contextlib.contextmanager
def own_namespace(installed: Installation, name: str) -> Iterator[None]:
    """With what docs/install.md says for one that comes later: the drivers' account, and the right on Secrets."""
    operator = "sinkpipeline-system:sinkpipeline-operator"
    account = (
        f"kubectl create namespace {name}\n"
        f"kubectl create rolebinding sinkpipeline-operator --namespace {name}"
        f" --clusterrole={operator}:secrets --serviceaccount={operator}\n"
        "kubectl get serviceaccount,role,rolebinding sinkpipeline-driver --namespace shop -o yaml |"
        f" sed 's/namespace: shop/namespace: {name}/' | kubectl apply -f -"
    )
    installed.type(account)
    try:
        yield
    finally:
        installed.kubectl("delete", "namespace", name, "--wait=false")
