"""A cluster that asks who we are and what we may do: both clients, Spark's and ours, come in with the same Secrets.

Which stay files: nobody who sees processes, logs, the status or Spark's own files sees one.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from sinkpipeline.core.naming import SinkId
from support.app.command import BY_TASKS, App, Run, last_line, manifest, sink
from support.cookbook import recipe
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kafka.topics import progress_truth, read_committed, topic_id, unique
from support.worlds.secure import Door, Right, SecureKafka, documented

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PASSWORD = "correct $horse of {staple}"


class Secrets:
    """The directory of Secrets, and whether anybody tells them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: list[bytes] = []

    @property
    def option(self) -> tuple[str, str]:
        return "--secrets-dir", str(self.directory)

    def put(self, secret: str, key: str, content: bytes) -> dict[str, str]:
        path = self.directory / secret / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # Of a key, what stands between its lines would be enough.
        self._known.append(content if b"\n" not in content else content.splitlines()[1])
        return {"name": secret, "key": key}

    def told_by(self, app: App) -> list[str]:
        """The files of a run that hold a secret."""
        found = []
        for path in app.directory.rglob("*"):
            with suppress(OSError):
                content = path.read_bytes()
                found += [str(path) for secret in self._known if secret in content]
        return found

    def shown_by(self, run: Run) -> list[int]:
        """The processes of a run that show a secret to whoever lists them."""
        found = []
        for process in [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                shown = "\0".join([*process.cmdline(), *map("=".join, process.environ().items())]).encode()
                found += [process.pid for secret in self._known if secret in shown]
        return found


def rights(name: str, source: str) -> list[Right]:
    """What docs/rights.md says that a run needs."""
    names = {"identity": f"test.{name}", "source topic": source, "progress topic": f"{name}-progress"}
    needs = [need for need in documented() if "run" in need.commands]
    found = [need.right({**names, "data topic": f"{name}-{data}"}) for data in ("out", "late") for need in needs]
    return list(dict.fromkeys(found))


def document(servers: str, name: str, source: str, auth: dict[str, Any]) -> dict[str, Any]:
    late = sink("late", topic=f"{name}-late", progressTopic={"name": f"{name}-progress"})
    made = manifest(servers, name, [source], sinks=[sink(name), late])
    made["spec"]["source"]["kafka"]["auth"] = auth
    return made


def refused_alone_until_granted(run: Run, kafka: SecureKafka, source: Stream, name: str, missing: list[Right]) -> None:
    """After 100 rows a partition were fed: the sink `late` lacks rights, and the other one goes on.

    Then the rights are granted, and nothing else is done: it looks again after the longest backoff, one second here.
    """
    app, late = run.app, f"{name}-late"

    def refusal() -> dict[str, Any]:
        told = app.sink_status("late")
        # The state is Running again for a moment, each time that it looks.
        return told["error"] if told.get("state") == "Failed" else {}

    def start_of_the_other() -> str:
        truth = progress_truth(kafka.bootstrap_servers, f"{name}-progress")
        return str(truth[SinkId(f"test.{name}", name).meta_key]["run"])

    error = run.eventually(refusal, "the sink is refused")
    assert error["reason"] == "AuthorizationFailed"
    assert f"on topic {late} is not granted" in error["message"]
    run.eventually(lambda: app.sink_status(name).get("rowsDelivered") == source.total, "the other sink delivers")
    delivered = len(read_committed(kafka.bootstrap_servers, late)) if topic_id(kafka.bootstrap_servers, late) else 0
    assert delivered == source.total - 100 * source.partitions, "nothing of what was fed last"
    begun = start_of_the_other()

    kafka.grant(f"User:{name}", missing)

    run.eventually(lambda: app.sink_status("late").get("rowsDelivered") == source.total, "it delivers again")
    run.until_state("Running", "late")
    assert start_of_the_other() == begun, "that sink alone was started again"


@pytest.mark.long(
    "two starts of Spark; tests/kafka/test_rights takes each right away, tests/spark/test_secure_source logs in"
)
def test_a_pipeline_with_the_least_rights(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """First with SCRAM over TLS, until a right is revoked; then with a certificate, from where that left it.

    What one of two sinks may not do, at its first start or later on, stops that one alone, and only until it may.

    Every other way in is tried by both clients in tests/spark/test_secure_source.py.
    """
    name = unique("least")
    source = Stream(secure_kafka.bootstrap_servers, f"{name}-in").create()
    secrets = Secrets(tmp_path / "secrets")
    ca = {"name": "ca", "key": "ca.crt"}
    (tmp_path / "secrets" / "ca").mkdir(parents=True)
    (tmp_path / "secrets" / "ca" / "ca.crt").write_bytes(secure_kafka.certificates.ca.read_bytes())
    password = secrets.put("user", "password", PASSWORD.encode())
    scram = {"sasl": {"mechanism": "SCRAM-SHA-512", "username": name, "passwordSecretRef": password}}
    app = App(
        tmp_path / "app",
        document(secure_kafka.servers(Door.SASL_TLS), name, source.topic, {**scram, "tls": {"caSecretRef": ca}}),
    )
    secure_kafka.add_user(name, PASSWORD)
    granted = rights(name, source.topic)
    of_late = [right for right in granted if right.name == f"{name}-late"]
    secure_kafka.grant(f"User:{name}", [right for right in granted if right not in of_late])
    source.feed(100)

    for content, expected in (
        ("with a line break\n", "SecretInvalid: key password of Secret user"),
        ("wrong", "AuthenticationFailed: "),
    ):
        (secrets.directory / "user" / "password").write_text(content)
        refused = app.call("validate", "-f", str(app.manifest), *secrets.option)
        assert refused.returncode == 3
        assert last_line(refused.stderr).startswith(expected)
        assert secrets.told_by(app) == []

    (secrets.directory / "user" / "password").write_text(PASSWORD)
    with app.start(*secrets.option) as run:
        refused_alone_until_granted(run, secure_kafka, source, name, of_late)
        assert secrets.shown_by(run) == []
        assert secrets.told_by(app) == []
        write = Right(ResourceType.TOPIC, f"{name}-late", AclOperation.WRITE)
        secure_kafka.revoke(f"User:{name}", write)
        source.feed(100)
        refused_alone_until_granted(run, secure_kafka, source, name, [write])
        # So that it may be seen still: what is missing is Read alone, which only Spark needs.
        secure_kafka.grant(f"User:{name}", [Right(ResourceType.TOPIC, source.topic, AclOperation.DESCRIBE)])
        secure_kafka.revoke(f"User:{name}", Right(ResourceType.TOPIC, source.topic, AclOperation.READ))
        source.feed(100)
        assert run.wait() == 3, run.stderr
        told = last_line(run.stderr)
    assert told.startswith(f"AuthorizationFailed: Read on topic {source.topic} is not granted")
    assert app.sink_status()["error"]["reason"] == "AuthorizationFailed"

    other = f"{name}-certificate"
    chain, key = secure_kafka.certificates.client(other)
    secrets.put("client", "tls.key", key)
    (tmp_path / "secrets" / "client" / "tls.crt").write_bytes(chain)
    certificate = {"name": "client", "certKey": "tls.crt", "keyKey": "tls.key"}
    mutual = {"tls": {"caSecretRef": ca, "certSecretRef": certificate}}
    app.write(document(secure_kafka.servers(Door.MUTUAL), name, source.topic, mutual))
    secure_kafka.grant(f"User:{other}", rights(name, source.topic))
    app.run_until_idle(*secrets.option)

    assert source.judge(f"{name}-out") == source.judge(f"{name}-late") == EXACTLY_ONCE
    assert secrets.told_by(app) == []


LIFETIME_S = 30.0
"""Of a token; the brokers end a connection with it, unless another one was shown. The clients ask for one when four
fifths of it are over, and show it when nine tenths are: a crowded machine needs the seconds between."""


@pytest.mark.long("waits for two lives of a token; tests/spark/test_secure_source renews one without executors")
def test_a_run_with_executors_outlives_its_tokens(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """Its clients of Java and of Python, in the driver and in an executor, each have tokens of their own."""
    name, tokens = unique("tokens"), secure_kafka.tokens
    source = Stream(secure_kafka.bootstrap_servers, f"{name}-in", partitions=1).create()
    secrets = Secrets(tmp_path / "secrets")
    for directory in ("kafka", "idp"):
        (secrets.directory / directory).mkdir(parents=True)
        (secrets.directory / directory / "ca.crt").write_bytes(secure_kafka.certificates.ca.read_bytes())
    secrets.put("idp", "client-secret", PASSWORD.encode())
    tokens.secrets[name] = PASSWORD
    auth = recipe("OAUTHBEARER").manifest["spec"]["source"]["kafka"]["auth"]
    auth["sasl"]["oauthbearer"] |= {"tokenEndpointUrl": tokens.url, "clientId": name}
    made = document(secure_kafka.servers(Door.TOKENS), name, source.topic, auth)
    made["spec"] |= {"sinks": [sink(name)], "spark": BY_TASKS}
    app = App(tmp_path / "app", made)
    secure_kafka.grant(f"User:{name}", rights(name, source.topic))
    source.feed(10)

    def start_of_sink() -> str:
        return str(progress_truth(secure_kafka.bootstrap_servers, f"{name}-progress")[sink_id.meta_key]["run"])

    def is_issued_after(seconds: float) -> bool:
        return any(each.client == name and each.at > began + seconds for each in tokens.issued)

    sink_id, before = SinkId(f"test.{name}", name), tokens.lifetime_s
    tokens.lifetime_s = LIFETIME_S
    try:
        with app.start("--master", "local-cluster[1,1,2048]", *secrets.option) as run:
            run.until_rows(source.total)
            [executor] = executors(run)
            # Without it Java's client of Kafka 4 asks nobody for a token.
            assert f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.url}" in executor.cmdline()
            began, start = time.monotonic(), start_of_sink()
            for lives in range(1, 3):
                run.eventually(partial(is_issued_after, lives * LIFETIME_S), f"{lives} lives of a token are over")
                source.feed(10)
                run.until_rows(source.total)
            assert executors(run) == [executor]
            assert start_of_sink() == start, "nothing has failed meanwhile"
            assert secrets.shown_by(run) == []
            assert run.terminate() == 0, run.stderr
    finally:
        tokens.lifetime_s = before

    assert source.judge(f"{name}-out") == EXACTLY_ONCE
    assert secrets.told_by(app) == []


def executors(run: Run) -> list[psutil.Process]:
    """JVMs of their own."""
    found = psutil.Process(run.pid).children(recursive=True)
    return [each for each in found if each.name() == "java" and "CoarseGrained" in " ".join(each.cmdline())]
