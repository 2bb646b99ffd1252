"""Each recipe of docs/cookbook.md, by the command: its manifest, its records, and the rows that it promises."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.schema_registry import LocalRegistry
from support import avro
from support.app.command import COMMAND, App
from support.cookbook import Recipe, compare, feed, lines, recipe, typed
from support.kafka import topics
from support.worlds.secure import Door, SecureKafka, documented

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.thorough("each starts Spark; tests/spark/test_cookbook checks their expressions"),
]

KAFKA = "kafka:9092"
PLAIN = [recipe("JSON"), recipe("Several sinks"), recipe("Tombstones")]
MORE = [recipe("Headers and timestamps"), recipe("Topics by a pattern"), recipe("Start at a time")]
"""Those that need no more than a broker."""


def run(directory: Path, shown: Recipe, here: Mapping[str, str], *options: str) -> App:
    """By the command, with this machine's addresses in place of those of the page."""
    app = App(directory, {})
    app.manifest.write_text(typed(shown, here))
    app.run_until_idle(*options)
    return app


@pytest.mark.parametrize("shown", [*PLAIN, *MORE], ids=lambda shown: shown.title)
@pytest.mark.long("a start of Spark each", after=len(PLAIN))
def test_with_a_broker(kafka: LocalKafka, tmp_path: Path, shown: Recipe) -> None:
    feed(kafka.bootstrap_servers, shown.before)
    run(tmp_path, shown, {KAFKA: kafka.bootstrap_servers})
    compare(kafka.bootstrap_servers, shown.after)


def test_avro_with_a_registry(kafka: LocalKafka, registry: LocalRegistry, tmp_path: Path) -> None:
    shown, servers = recipe("Avro with a registry"), kafka.bootstrap_servers
    [schema] = map(json.loads, shown.schemas)
    number = registry.register("shipments-raw-value", schema)
    [topic] = {each.topic for each in shown.before}
    topics.create_topic(servers, topic)
    values = [avro.framed(number, schema, json.loads(each.value or "")) for each in shown.before]
    topics.produce(servers, topic, values)
    run(tmp_path, shown, {KAFKA: servers, "http://registry:8081": registry.url})
    compare(servers, shown.after)


def test_two_clusters(kafka: LocalKafka, tmp_path: Path) -> None:
    shown = recipe("Two clusters")
    feed(kafka.bootstrap_servers, shown.before)
    with LocalKafka() as other:
        run(tmp_path, shown, {KAFKA: kafka.bootstrap_servers, "other-kafka:9092": other.bootstrap_servers})
        compare(other.bootstrap_servers, shown.after)


def grant(kafka: SecureKafka, principal: str, shown: Recipe) -> None:
    """What docs/rights.md says that a run needs."""
    [sink] = shown.manifest["spec"]["sinks"]
    [source] = shown.manifest["spec"]["source"]["kafka"]["topics"]
    names = {
        "identity": f"shop.{shown.manifest['metadata']['name']}",
        "source topic": source,
        "data topic": sink["kafka"]["topic"]["name"],
        "progress topic": "_sinkpipeline-progress",
    }
    kafka.grant(f"User:{principal}", [need.right(names) for need in documented() if "run" in need.commands])


def secret(directory: Path, name: str, key: str, content: bytes) -> None:
    (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / name / key).write_bytes(content)


def test_mutual_tls(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    shown, secrets = recipe("Mutual TLS"), tmp_path / "secrets"
    chain, key = secure_kafka.certificates.client("invoices")
    secret(secrets, "kafka", "ca.crt", secure_kafka.certificates.ca.read_bytes())
    secret(secrets, "invoices", "tls.crt", chain)
    secret(secrets, "invoices", "tls.key", key)
    feed(secure_kafka.bootstrap_servers, shown.before)
    grant(secure_kafka, "invoices", shown)
    run(tmp_path / "app", shown, {"kafka:9093": secure_kafka.servers(Door.MUTUAL)}, "--secrets-dir", str(secrets))
    compare(secure_kafka.bootstrap_servers, shown.after)


@pytest.mark.long("a start of Spark; tests/kafka/test_oauthbearer and test_secure_source have its tokens")
def test_oauthbearer(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    shown, secrets, tokens = recipe("OAUTHBEARER"), tmp_path / "secrets", secure_kafka.tokens
    tokens.secrets["payments"] = "correct $horse of {staple}"
    ca = secure_kafka.certificates.ca.read_bytes()
    secret(secrets, "kafka", "ca.crt", ca)
    secret(secrets, "idp", "ca.crt", ca)
    secret(secrets, "idp", "client-secret", tokens.secrets["payments"].encode())
    feed(secure_kafka.bootstrap_servers, shown.before)
    grant(secure_kafka, "payments", shown)
    here = {"kafka:9094": secure_kafka.servers(Door.TOKENS), "https://idp.example.org/realms/shop/token": tokens.url}
    run(tmp_path / "app", shown, here, "--secrets-dir", str(secrets))
    compare(secure_kafka.bootstrap_servers, shown.after)
    assert {each.scope for each in tokens.issued if each.client == "payments"} == {"kafka"}


def test_looking_up(kafka: LocalKafka, tmp_path: Path) -> None:
    shown, tables = recipe("Looking up"), tmp_path / "config-maps"
    [table] = shown.files
    secret(tables, "tables", "countries.csv", table.encode())
    feed(kafka.bootstrap_servers, shown.before)
    app = run(tmp_path / "app", shown, {KAFKA: kafka.bootstrap_servers}, "--config-maps-dir", str(tables))
    compare(kafka.bootstrap_servers, shown.after)
    [told] = app.status()["lookups"]
    assert told == {
        "name": "place",
        "table": "key countries.csv of ConfigMap tables",
        "rows": 2,
        "fingerprint": hashlib.sha256(table.encode()).hexdigest(),
    }


@pytest.mark.long("two starts of Spark; test_redrive has the command")
def test_dead_letters_and_redrive(kafka: LocalKafka, tmp_path: Path) -> None:
    shown, servers = recipe("Dead letters and redrive"), kafka.bootstrap_servers
    feed(servers, shown.before)
    app = run(tmp_path, shown, {KAFKA: servers})
    compare(servers, shown.after)

    done = typed_in(app, shown)
    assert re.search(r"0:0 +readings +Pending +EvaluationFailed .* readings-raw:0:1 ", done)
    compare(servers, lines(shown.tables[2]))


@pytest.mark.long("three starts of Spark; tests/conformance has sinks with several topics")
def test_a_topic_for_each_row(kafka: LocalKafka, tmp_path: Path) -> None:
    shown, servers = recipe("A topic for each row"), kafka.bootstrap_servers
    feed(servers, shown.before)
    app = run(tmp_path, shown, {KAFKA: servers})
    compare(servers, shown.after)
    told = typed_in(app, shown)
    assert re.search(r"0:0 +regions +Pending +TopicNotDeclared .* regions-raw:0:2 ", told)
    assert re.search(r"0:1 +regions +Pending +TopicNotDeclared .* regions-raw:0:3 ", told)
    compare(servers, lines(shown.tables[2]))
    left = app.call("dlq", "list", "-f", str(app.manifest), "--state", "pending")
    assert "regions-raw:0:3" in left.stdout
    assert "regions-raw:0:2" not in left.stdout


def typed_in(app: App, shown: Recipe) -> str:
    """What the commands of the page print, as they are typed."""
    [commands] = shown.commands
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=app.directory,
        env={**app.environment, "PATH": f"{COMMAND.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
