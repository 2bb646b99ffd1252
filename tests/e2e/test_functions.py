"""`--jars`: functions of a jar in a run, where what they throw is a dead letter, and in what looks before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from support.app.command import App, last_line, manifest, sink
from support.functions_jar import CATALOG, MASK, functions_jar
from support.kafka.topics import create_topic, produce, read_committed, unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return functions_jar(tmp_path_factory.mktemp("functions"), "of #1.jar")  # letters with a meaning in a URI


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,2048]"])
@pytest.mark.long("starts Spark; test_spark_image runs the functions of a jar in an image on top")
def test_a_run_with_functions_of_a_jar(kafka: LocalKafka, tmp_path: Path, jar: Path, master: str) -> None:
    name = unique("functions")
    servers, topic = kafka.bootstrap_servers, f"{name}-in"
    create_topic(servers, topic)
    produce(servers, topic, [b"ann@example.org", b"nobody", b"bob@example.net"])
    document = manifest(
        servers,
        name,
        [topic],
        transform={"select": {"value": "mask_email(CAST(value AS STRING))", "key": "CAST(f.twice(3) AS STRING)"}},
        spark={
            "conf": {"spark.sql.catalog.f": CATALOG},
            "functions": [{"name": "mask_email", "className": MASK}],
        },
        sinks=[{**sink(name), "deadLetter": {"topic": {"name": f"{name}-dead", "replicationFactor": 1}}}],
    )
    app = App(tmp_path, document)
    without = app.call("validate", "--offline", "-f", str(app.manifest))
    assert without.returncode == 2, without.stderr
    assert last_line(without.stderr).startswith("ExpressionInvalid: spec.spark.functions[0].className: ")
    assert "--jars" in without.stderr

    preview = app.call("preview", "-f", str(app.manifest), "--jars", str(jar))
    assert preview.returncode == 0, preview.stderr
    assert "***@example.net" in preview.stdout

    app.run_until_idle("--jars", str(jar), "--master", master, deadline_s=240.0)

    rows = read_committed(servers, f"{name}-out")
    assert sorted((each.key, each.text) for each in rows) == [(b"6", "***@example.net"), (b"6", "***@example.org")]
    [letter] = read_committed(servers, f"{name}-dead")
    assert letter.text == "nobody"
    again = app.call("dlq", "redrive", "-f", str(app.manifest), "--jars", str(jar))
    assert again.returncode == 0, again.stderr
    assert "1" in again.stdout
