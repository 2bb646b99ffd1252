"""What a start waits for is told, by whom it is kept, and goes on once it may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.target import Target
from support.cluster.beginning import ROWS, begin
from support.cluster.installed import START_S, Installation, Pipeline
from support.cluster.recording import POD
from support.cluster.unserved import Unserved
from support.worlds.secure import Door, SecureKafka, documented

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

# Five minutes pass while the other tests run.
pytestmark.append(pytest.mark.usefixtures("unserved"))


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
    assert set(exit_codes(pipeline, uid)) == {0}
    pipeline.until_delivered(f"{case}, and the manifest is mended")
    pipeline.until_told(f"{case}, and the manifest is mended", "Ready", "True Running")


def exit_codes(pipeline: Pipeline, uid: str | None) -> list[int]:
    """Of a pod's containers, once a watch has seen them end."""

    def look() -> list[int]:
        return [
            container["state"]["terminated"]["exitCode"]
            for line in pipeline.installed.recorder.lines
            if line["kind"] == POD and line["metadata"]["uid"] == uid
            for container in line["status"]["containerStatuses"]
            if "terminated" in container["state"]
        ]

    pipeline.until(look, "its end is seen", 30)
    return look()


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


def test_kubeflow_is_away_while_a_pipeline_is_edited(pipeline: Pipeline) -> None:
    case = "Kubeflow's operator is away during an edit"
    begin(pipeline, case)
    with pipeline.installed.kubeflow_away():
        pipeline.apply(trigger={"interval": "2s"})
        pipeline.stream.feed(ROWS)
        pipeline.until(lambda: pipeline.driver is None, "the old driver is gone", 120)
        pipeline.until(lambda: pipeline.told("Ready").startswith("False"), "it is not Ready", 30)
        words = "waiting until Kubeflow's Spark operator has submitted"
        pipeline.until_told(case, "SparkApplicationReady", "False NEW", words, 60)
    pipeline.until_delivered(f"{case}, and comes back")


def test_a_namespace_that_kubeflow_does_not_serve(unserved: Unserved) -> None:
    assert "that it serves this namespace" in unserved.until_told()
    assert unserved.pipeline.told("SparkApplicationReady") == "False NotSubmitted"
    assert any(event.startswith("NotSubmitted: ") for event in unserved.pipeline.events())
