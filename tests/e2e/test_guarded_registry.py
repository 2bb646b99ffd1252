"""A registry that asks who we are, in each way: wrong Secrets are told, and with right ones all is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from support import avro
from support.app.command import App, Run, last_line, manifest, sink
from support.kafka import topics
from support.worlds.guarded_registry import READS, WRITES, GuardedRegistry, behind_certificates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
    pytest.mark.thorough("two starts of Spark and a registry; tests/kafka/test_guarded_registry shows each Secret"),
]

PASSWORD = b"correct $horse"
WAYS: dict[str, dict[str, Any]] = {
    "basic": {"basic": {"username": "basic", "passwordSecretRef": {"name": "basic", "key": "password"}}},
    "bearer": {"bearer": {"tokenSecretRef": {"name": "bearer", "key": "token"}}},
    "rights": {"bearer": {"tokenSecretRef": {"name": "rights", "key": "token"}}},
    "mtls": {"bearer": {"tokenSecretRef": {"name": "mtls", "key": "token"}}},
}
CA = {"name": "ca", "key": "ca.crt"}
CERTIFICATE = {"name": "mtls", "certKey": "tls.crt", "keyKey": "tls.key"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedRegistry]:
    with GuardedRegistry(tmp_path / "registry") as registry:
        for name in WAYS:
            registry.user(name, PASSWORD.decode(), WRITES)
        registry.user("reader", PASSWORD.decode(), READS)
        yield registry


def test_each_way_in_delivers_and_each_wrong_secret_is_told(
    kafka: LocalKafka, guarded: GuardedRegistry, tmp_path: Path
) -> None:
    name, servers, secrets = topics.unique("guarded"), kafka.bootstrap_servers, tmp_path / "secrets"

    def put(secret: str, **contents: bytes) -> None:
        for key, content in contents.items():
            path = secrets / secret / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def token(user: str) -> bytes:
        return guarded.tokens.token(user).encode()

    schema = avro.record(("id", "long"), name=name.replace("-", "_"))
    number = guarded.register(f"{name}-in-value", schema)
    topics.create_topic(servers, f"{name}-in")
    topics.produce(servers, f"{name}-in", [avro.framed(number, schema, {"id": each}) for each in range(9)])
    right, right_key = guarded.certificates.client("orders")
    strange, strange_key = guarded.certificates.client("orders", trusted=False)
    put("ca", **{"ca.crt": guarded.certificates.ca.read_bytes()})
    put("source", password=b"wrong")
    put("basic", password=b"wrong")
    put("bearer", token=b"eyJhbGciOi.x.y")
    put("rights", token=token("reader"))
    put("mtls", token=token("mtls"), **{"tls.crt": strange, "tls.key": strange_key})

    with behind_certificates(guarded, guarded.certificates) as of_certificates:

        def asks(way: str) -> dict[str, Any]:
            mutual = way == "mtls"
            tls = {"caSecretRef": CA, **({"certSecretRef": CERTIFICATE} if mutual else {})}
            return {"url": of_certificates if mutual else guarded.url, "auth": {**WAYS[way], "tls": tls}}

        source = asks("basic")
        source["auth"]["basic"] = {"username": "basic", "passwordSecretRef": {"name": "source", "key": "password"}}
        progress = {"name": f"{name}-progress", "replicationFactor": 1}
        encoded = [
            sink(
                way,
                topic=f"{name}-{way}",
                progressTopic=progress,
                encode={"value": {"format": "avro", "schemaRegistry": asks(way)}},
            )
            for way in WAYS
        ]
        plain = {
            **sink("plain", topic=f"{name}-plain", progressTopic=progress),
            "transform": {"select": {"value": "CAST(id AS STRING)"}},
        }
        app = App(
            tmp_path / "app",
            manifest(
                servers,
                name,
                [f"{name}-in"],
                decode={"format": "avro", "schemaRegistry": source},
                transform={"select": {"value": "struct(id)"}},
                sinks=[*encoded, plain],
            ),
        )
        with app.start("--secrets-dir", str(secrets)) as run:
            assert run.wait() == 3
            assert last_line(run.stderr).startswith("AuthenticationFailed: the schema registry refused to tell subject")
            assert "check decode.schemaRegistry.auth, and the Secrets it names" in run.stderr

        put("source", password=PASSWORD)
        with app.start("--secrets-dir", str(secrets)) as run:
            told = {way: refusal(run, way) for way in WAYS}
            assert {way: each["reason"] for way, each in told.items()} == {
                **dict.fromkeys(WAYS, "AuthenticationFailed"),
                "rights": "AuthorizationFailed",
            }
            paths = {way: f"sinks[{at}].kafka.encode.value.schemaRegistry.auth" for at, way in enumerate(WAYS)}
            assert {way: each["remedy"] for way, each in told.items()} == {
                "basic": f"check {paths['basic']}, and the Secrets it names",
                "bearer": f"check {paths['bearer']}, and the Secrets it names",
                "rights": f"grant the user of {paths['rights']} to register schemas, or set autoRegister: false",
                "mtls": f"give {paths['mtls']}.tls.certSecretRef a certificate that it trusts and that has not expired",
            }
            run.eventually(lambda: app.sink_status("plain").get("rowsDelivered") == 9, "who asks nothing delivers")
            assert [app.sink_status(way).get("rowsDelivered", 0) for way in WAYS] == [0] * len(WAYS)

            put("basic", password=PASSWORD)
            put("bearer", token=token("bearer"))
            put("rights", token=token("rights"))
            put("mtls", **{"tls.crt": right, "tls.key": right_key})
            for way in WAYS:
                run.eventually(lambda way=way: app.sink_status(way).get("rowsDelivered") == 9, f"{way} delivers")
    assert all(len(topics.read(servers, f"{name}-{way}")) == 9 for way in WAYS)


def refusal(run: Run, way: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        told = run.app.sink_status(way)
        return told["error"] if told.get("state") == "Failed" else {}

    found: dict[str, Any] = run.eventually(look, f"{way} is refused")
    return found
