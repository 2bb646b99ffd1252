"""What bad input and a bad world get: an exit code, and a last line with the reason, the facts and the remedy."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pyspark
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from servers.local_kafka import LocalKafka
from support.app.command import COMMAND, App, Run, last_line, manifest
from support.kafka.topics import create_topic, produce, unique

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LAST_LINE = re.compile(r"^[A-Z][A-Za-z]+: .+ \(.+\)$")
SOON_S = 20.0
"""On a busy machine; docs/benchmarks.md has what it takes on an idle one."""


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("command", ["validate", "run", "progress"])
@pytest.mark.parametrize(
    ("host", "fact"),
    [
        ("127.0.0.1", "refuses connections"),
        pytest.param(
            "nohost.invalid",
            "the host name nohost.invalid does not resolve",
            marks=pytest.mark.thorough("the other way of not being there; tests/unit/test_command has its words"),
        ),
    ],
)
def test_a_broker_that_is_not_there(command: str, host: str, fact: str, tmp_path: Path) -> None:
    app = App(tmp_path, manifest(f"{host}:{unused_port()}", "nobody", ["nothing"]))

    with Run(app, [str(COMMAND), command, "-f", str(app.manifest)]) as run:
        run.eventually(lambda: fact in run.stderr, "the broker is named", SOON_S)
        # That goes on to check the expressions, and so starts Spark.
        if command != "validate":
            assert run.wait(SOON_S) == 1
            assert last_line(run.stderr).startswith("BrokerUnreachable: ")
            assert LAST_LINE.match(last_line(run.stderr))
        assert "java" not in run.stderr.lower()


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "progress",
        pytest.param("validate", marks=pytest.mark.thorough("starts Spark; tests/unit/test_command has what is told")),
    ],
)
@pytest.mark.long("the other command", after=1)
def test_a_secret_that_is_missing(command: str, tmp_path: Path) -> None:
    auth = {
        "sasl": {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "kafka-user", "key": "password"}}
    }
    document = manifest("127.0.0.1:9", "secretive", ["t"])
    document["spec"]["source"]["kafka"]["auth"] = auth
    app = App(tmp_path, document)

    for more in ([], ["--secrets-dir", str(tmp_path)]):
        done = app.call(command, "-f", str(app.manifest), *more)

        assert done.returncode == 3
        assert last_line(done.stderr).startswith("SecretNotFound: ")
        assert "kafka-user" in last_line(done.stderr)


@pytest.mark.parametrize("command", ["validate", "run", "progress"])
@pytest.mark.thorough("the other commands", after=1)
def test_a_bad_manifest(command: str, tmp_path: Path) -> None:
    document = manifest("127.0.0.1:9", "bad", ["t"])
    document["spec"]["sinks"][0]["deliveryGuarantee"] = "AtMostOnce"
    app = App(tmp_path, document)

    done = app.call(command, "-f", str(app.manifest))

    assert done.returncode == 2
    assert last_line(done.stderr).startswith("ManifestInvalid: spec.sinks[0].deliveryGuarantee")
    assert "ExactlyOnce" in last_line(done.stderr)


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    app = App(tmp_path, manifest("127.0.0.1:9", "twice", ["t"]))
    app.manifest.write_text(app.manifest.read_text() + "kind: SinkPipeline\n")

    done = app.call("validate", "-f", str(app.manifest))

    assert done.returncode == 2
    assert "key kind is there twice" in last_line(done.stderr)


@pytest.mark.parametrize("arguments", [["run"], ["run", "-f", "m.yaml", "--master", "nonsense"], ["fly"]])
def test_a_wrong_command_line(arguments: list[str], tmp_path: Path) -> None:
    done = App(tmp_path, {}).call(*arguments)

    assert done.returncode == 2
    assert last_line(done.stderr).startswith("UsageInvalid: ")


def test_the_exit_code_tells_even_where_nobody_listens(tmp_path: Path) -> None:
    app = App(tmp_path, {})
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([COMMAND, "validate", "-f", app.manifest], stderr=writer, check=False, timeout=60)
    finally:
        os.close(writer)

    assert done.returncode == 2


@pytest.mark.spark
@pytest.mark.each_spark
@pytest.mark.skipif(not pyspark.__version__.startswith("4.0."), reason="a later Spark has both")
@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("avro", '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'),
        ("protobuf", 'syntax = "proto3"; message Order { int64 id = 1; }'),
    ],
)
def test_a_format_that_spark_4_0_is_without(kind: str, schema: str, tmp_path: Path) -> None:
    """Nothing is asked of brokers: a person reads it before anything runs."""
    app = App(tmp_path, manifest("127.0.0.1:9", kind, ["t"], decode={"format": kind, "schema": schema}))

    done = app.call("validate", "-f", str(app.manifest), "--offline")

    assert done.returncode == 2, done.stderr
    assert last_line(done.stderr).startswith(f"NotServed: format {kind} needs ")
    assert LAST_LINE.match(last_line(done.stderr))


@pytest.mark.spark
@pytest.mark.thorough("starts Spark; tests/spark/test_transform has wrong expressions")
def test_a_wrong_expression(tmp_path: Path) -> None:
    app = App(tmp_path, manifest("127.0.0.1:9", "wrong", ["t"], transform={"where": "amount > 0"}))

    done = app.call("validate", "-f", str(app.manifest), "--offline")

    assert done.returncode == 2
    assert "starting Spark, which checks the expressions" in done.stderr
    assert last_line(done.stderr).startswith("ExpressionInvalid: spec.transform.where")
    assert LAST_LINE.match(last_line(done.stderr))


@pytest.mark.spark
@pytest.mark.thorough("starts Spark; tests/unit/test_command has the document of a wrong manifest")
def test_brokers_and_expressions_are_told_at_once(tmp_path: Path) -> None:
    select = {"key": "CAST(nobody AS STRING)", "value": "value"}
    servers = f"127.0.0.1:{unused_port()}"
    app = App(tmp_path, manifest(servers, "wrong", ["t"], transform={"where": "amount > 0", "select": select}))

    done = app.call("validate", "-f", str(app.manifest), "-o", "json")

    told = json.loads(done.stdout)
    assert [(each["reason"], each["path"]) for each in told["problems"]] == [
        ("BrokerUnreachable", "spec.sinks[0]"),
        ("ExpressionInvalid", "spec.transform.where"),
        ("ExpressionInvalid", "spec.transform.select.key"),
    ]
    assert all(each["message"] and each["remedy"] for each in told["problems"])
    assert told["sinks"] == [{"name": "wrong", "plan": "would be refused"}]
    assert done.returncode == 1
    assert last_line(done.stderr).startswith("BrokerUnreachable: ")

    done = app.call("validate", "-f", str(app.manifest))

    by_line = [
        re.match(r"sink wrong: BrokerUnreachable|spec[\w.]+(?=: )|\w+(?=: )", each) for each in told_lines(done.stderr)
    ]
    assert [each and each[0] for each in by_line] == [
        "sink wrong: BrokerUnreachable",
        "spec.transform.where",
        "spec.transform.select.key",
        "ExpressionInvalid",
        "BrokerUnreachable",
    ]
    assert done.returncode == 1


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.thorough("five commands; test_a_bad_manifest has one")
def test_validate_leaves_nothing_behind(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("pure")
    create_topic(kafka.bootstrap_servers, f"{name}-in", partitions=2)
    produce(kafka.bootstrap_servers, f"{name}-in", [b"1", b"2"])
    app = App(tmp_path, manifest(kafka.bootstrap_servers, name, [f"{name}-in"]))
    before = everything(kafka.bootstrap_servers)

    done = app.call("validate", "-f", str(app.manifest))

    assert done.returncode == 0, done.stderr
    assert "starts for the first time, creates the progress topic and the data topic" in done.stdout
    assert everything(kafka.bootstrap_servers) == before


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long("starts Spark; test_validate_leaves_nothing_behind starts it, too")
def test_a_source_topic_that_is_missing(kafka: LocalKafka, tmp_path: Path) -> None:
    name = unique("sourceless")
    app = App(tmp_path, manifest(kafka.bootstrap_servers, name, [f"{name}-in"]))

    for command in ("validate", "run"):
        done = app.call(command, "-f", str(app.manifest))

        assert done.returncode == 3
        assert last_line(done.stderr).startswith(f"SourceTopicMissing: source topic {name}-in does not exist")


def told_lines(stderr: str) -> list[str]:
    """Without what says that Spark starts."""
    return [line for line in stderr.splitlines() if "Spark" not in line]


def everything(servers: str) -> object:
    """Topics with their configuration, and consumer groups."""
    client = AdminClient({"bootstrap.servers": servers})
    topics = sorted(client.list_topics(timeout=10).topics)
    futures = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
    configs = {
        resource.name: {name: entry.value for name, entry in future.result(10).items()}
        for resource, future in futures.items()
    }
    groups = sorted(group.group_id for group in client.list_consumer_groups(request_timeout=10).result().valid)
    return topics, configs, groups
