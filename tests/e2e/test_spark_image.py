"""Pipelines with nothing but what the image of drivers and executors holds."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import prune
from servers.local_kafka import LocalKafka
from support import environment
from support.app import command
from support.app.command import App, manifest, sink
from support.functions_jar import MASK, functions_jar
from support.kafka.topics import create_topic, produce, read_committed, unique

pytestmark = [
    *(pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)),
    pytest.mark.thorough("the same Spark, with fewer files"),
]

UNNEEDED = environment.ROOT / "spark_app" / "unneeded.txt"

PROTO = 'syntax = "proto3"; message M { int32 a = 1; }'

ON_KUBERNETES = """
import sys
from pathlib import Path
from py4j.protocol import Py4JJavaError
from sinkpipeline.spark import archive_making as making
from sinkpipeline.spark.session import spark_session

with spark_session("image", "local[1]", {}, Path(sys.argv[1])) as spark:
    java = spark._jvm
    for name in making._OF_PODS:
        java.java.lang.Class.forName(name)
    kubernetes = java.io.fabric8.kubernetes.client
    config = kubernetes.ConfigBuilder().withMasterUrl("http://127.0.0.1:9").withRequestRetryBackoffLimit(0).build()
    client = kubernetes.KubernetesClientBuilder().withConfig(config).build()
    pod = kubernetes.utils.Serialization.unmarshal(making._POD)
    try:
        client.pods().inNamespace("training").resource(pod).create()
    except Py4JJavaError as error:
        print(error.java_exception.getClass().getName())
    client.close()
"""
"""What a driver in a pod has beside one on a machine: its scheduler, and the client with which it makes executors."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment.make(tmp_path_factory.mktemp("image"), "sinkpipeline", "spark", UNNEEDED)


@pytest.fixture
def installed(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of that environment."""
    script = tmp_path / "sinkpipeline"
    script.write_text(f'#!/bin/sh\nexec "{python}" -c "from sinkpipeline.cli.main import main; main()" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(command, "COMMAND", script)


@pytest.mark.usefixtures("installed")
def test_a_pipeline_misses_nothing(kafka: LocalKafka, tmp_path: Path) -> None:
    """With an executor that is a JVM of its own, decoding, a transform, compressed batches and dead letters."""
    name = unique("image")
    topic = f"{name}-in"
    create_topic(kafka.bootstrap_servers, topic, partitions=2)
    good = [json.dumps({"id": number, "country": "IS", "at": "2026-01-01T00:00:00Z"}).encode() for number in range(50)]
    for codec in ("zstd", "lz4", "snappy", "gzip"):
        produce(kafka.bootstrap_servers, topic, good, partition=0, compression=codec)
    produce(kafka.bootstrap_servers, topic, [b"no JSON"], partition=1)
    schema = "id BIGINT NOT NULL, country STRING, at TIMESTAMP"
    select = {"key": "CAST(id AS STRING)", "value": "to_json(struct(id, upper(country) AS country, at))"}
    document = manifest(
        kafka.bootstrap_servers,
        name,
        [topic],
        decode={"format": "json", "schema": schema},
        transform={"where": "id % 2 = 0 AND country RLIKE '^I'", "select": select},
        sinks=[{**sink(name), "deadLetter": {"topic": {"name": f"{name}-dead", "replicationFactor": 1}}}],
    )
    app = App(tmp_path / "app", document)
    app.run_until_idle("--master", "local-cluster[1,1,2048]", deadline_s=500.0)
    assert len(read_committed(kafka.bootstrap_servers, f"{name}-out")) == 100
    assert len(read_committed(kafka.bootstrap_servers, f"{name}-dead")) == 1
    log = app.log_file.read_text()
    assert "NoClassDefFound" not in log
    assert "ClassNotFound" not in log


@pytest.mark.usefixtures("installed")
def test_an_image_on_top_has_functions_of_a_jar(kafka: LocalKafka, python: Path, tmp_path: Path) -> None:
    """The jar is where the Dockerfile of docs/install.md copies it to, and a run needs no `--jars`."""
    [jars] = python.parents[1].glob("lib/python3*/site-packages/pyspark/jars")
    jar = functions_jar(tmp_path, "mask.jar")
    name = unique("on-top")
    create_topic(kafka.bootstrap_servers, f"{name}-in")
    produce(kafka.bootstrap_servers, f"{name}-in", [b"ann@example.org"])
    document = manifest(
        kafka.bootstrap_servers,
        name,
        [f"{name}-in"],
        transform={"select": {"value": "mask_email(CAST(value AS STRING))"}},
        spark={"functions": [{"name": "mask_email", "className": MASK}]},
        sinks=[sink(name)],
    )
    app = App(tmp_path / "app", document)
    try:
        shutil.copy(jar, jars)
        app.run_until_idle("--master", "local-cluster[1,1,2048]", deadline_s=500.0)
    finally:
        (jars / jar.name).unlink()
    assert [each.text for each in read_committed(kafka.bootstrap_servers, f"{name}-out")] == ["***@example.org"]


def test_a_driver_in_a_pod_misses_nothing(python: Path, tmp_path: Path) -> None:
    argv = [str(python), "-c", ON_KUBERNETES, str(tmp_path / "log")]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["io.fabric8.kubernetes.client.KubernetesClientException"]


def test_protoc_needs_nothing_of_grpc(python: Path) -> None:
    code = f"from sinkpipeline.protobuf.compiler import compiled; compiled({PROTO!r})"
    done = subprocess.run([str(python), "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(python.parents[1].glob("lib/python3*/site-packages/grpc"))


def test_it_has_no_more_than_its_share(python: Path) -> None:
    """Without bytecode, Java, and the archive of classes."""
    assert prune.size(python.parents[1]) < 520e6
