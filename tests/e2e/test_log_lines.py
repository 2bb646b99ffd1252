"""What a driver, its executors and their Python workers log, as docs/logs.md has it shipped."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from servers.local_process import HOST
from servers.spark_cluster import SparkCluster
from sinkpipeline.core.manifest import parse_manifest
from support.app.command import App, by_driver, manifest, sink
from support.app.log_rules import Entry, Rules
from support.app.pod import TOKEN, Pod
from support.kafka.raw import produce_raw
from support.kafka.streams import Stream
from support.kafka.topics import unique
from support.waiting import wait_until
from support.worlds.secure import Door, Right, SecureKafka

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PASSWORD = "pa55-that-nobody-tells"
RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
CONTENT = b"c0ntent-that-nobody-tells"


def whole_lines(text: str) -> str:
    """Without a last one that has no end."""
    return text[: text.rfind("\n") + 1]


@pytest.mark.long("a master, a worker and a driver of Spark; the driver's lines are in test_pod_driver")
def test_lines_of_all_processes_are_taken_by_the_documented_rules(
    secure_kafka: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", HOST)
    monkeypatch.setenv("SINKPIPELINE_LOG_FORMAT", "json")
    name = unique("lines")
    source = Stream(secure_kafka.bootstrap_servers, f"{name}-in").create()
    secure_kafka.add_user(name, PASSWORD)
    everything = [Right(each, "*", AclOperation.ALL) for each in RESOURCES]
    secure_kafka.grant(f"User:{name}", [*everything, Right(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL)])
    now_ms = int(time.time() * 1000)
    produce_raw(secure_kafka.bootstrap_servers, source.topic, [(CONTENT, None, [])] * 2, timestamp=now_ms)
    # No letter fits (the end of a transaction does), so that the worker tells of what it drops.
    letters = {"topic": {"name": f"{name}-dlq", "replicationFactor": 1, "config": {"max.message.bytes": "200"}}}
    one = {**sink(name), "deadLetter": {**letters, "onFailure": "DropAndContinue"}}
    spark = {**by_driver(0), "executor": {"instances": 1, "cores": 1, "memory": "512m"}}
    document = manifest(secure_kafka.servers(Door.SASL), name, [source.topic], sinks=[one], spark=spark)
    reference = {"name": "user", "key": "password"}
    auth = {"sasl": {"mechanism": "SCRAM-SHA-512", "username": name, "passwordSecretRef": reference}}
    document["spec"]["source"]["kafka"]["auth"] = auth
    document["spec"]["decode"] = {"format": "json", "schema": "id INT"}
    document["spec"]["transform"] = {"select": {"value": "CAST(id AS STRING)"}}
    app = App(tmp_path, parse_manifest(document).to_document())
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "password").write_text(PASSWORD)

    with SparkCluster(tmp_path, app.environment) as cluster:
        wait_until(lambda: cluster.is_up, "the master is up")
        cluster.start_worker()
        with Pod(tmp_path, document, master=cluster.master) as pod:
            pod.run.eventually(lambda: pod.sinks().get(name, {}).get("dropped") == 2, "both are dropped")
            run = pod.status()["run"]
            assert pod.run.terminate() == 0, pod.run.stderr
            driver = pod.run.stderr
    # The worker of Spark's own cluster writes what an executor says while it is ended only in part.
    executors = "".join(whole_lines(path.read_text()) for path in (tmp_path / "work").rglob("stderr"))
    assert not any(each in driver + executors for each in (PASSWORD, TOKEN, CONTENT.decode()))

    rules = Rules()
    ours = [rules.apply(line) for line in driver.splitlines()]
    lines = itertools.takewhile(lambda line: "RECEIVED SIGNAL TERM" not in line, executors.splitlines())
    theirs = [rules.apply(line) for line in lines if line]
    # Before its configuration is read the JVM has words of its own.
    loose = [each.line for each in [*ours, *theirs] if each.time is None]
    assert [line for line in loose if not line.startswith(("WARNING: ", "Spark Executor Command", "===="))] == []
    assert {each.labels["pipeline"] for each in ours if each.time} == {f"test/{name}"}
    assert {each.metadata["run"] for each in [*ours, *theirs] if each.time} == {run}
    [running] = [each for each in ours if f"{name}: Running" in each.line][:1]
    assert (running.labels["sink"], running.labels["level"]) == (name, "INFO")

    dropped = [each for each in theirs if "dropped offset" in each.line]
    assert len(dropped) == 2
    assert {about(each) for each in dropped} == {(name, "0", "WARN", "sinkpipeline.sink")}
    tasks = [each for each in theirs if each.metadata.get("logger") == "org.apache.spark.executor.Executor"]
    assert (name, "0", "INFO", "org.apache.spark.executor.Executor") in {about(each) for each in tasks}
    assert {each.labels["pipeline"] for each in [*dropped, *tasks]} == {f"test/{name}"}


def about(each: Entry) -> tuple[str | None, ...]:
    return (
        each.labels.get("sink"),
        each.metadata.get("batch"),
        each.labels.get("level"),
        each.metadata.get("logger"),
    )
