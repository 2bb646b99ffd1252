"""Brokers that ask for a token: our client gets one and renews it, and who refuses what is told apart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from sinkpipeline.cli.validate import validate
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.resolve import resolve_source
from support.app.command import manifest
from support.kafka import topics
from support.kafka.asking import trouble
from support.waiting import wait_until
from support.worlds.secure import Door, Right, SecureKafka

pytestmark = pytest.mark.kafka

SECRET = "correct $horse of {staple}"
SCOPE = "kafka api://shop/.default"
DEADLINE_S = 40.0


class Client:
    """One that the token endpoint knows, its Secrets, and manifests that name them."""

    def __init__(self, kafka: SecureKafka, directory: Path) -> None:
        self.kafka = kafka
        self.name = topics.unique("client")
        self.secrets = directory / "secrets"
        self._directory = directory
        kafka.tokens.secrets[self.name] = SECRET
        self.put("secret", SECRET.encode())
        self.put("ca", kafka.certificates.ca.read_bytes())
        self.put("wrong-ca", kafka.certificates.wrong_ca.read_bytes())

    def put(self, key: str, content: bytes) -> None:
        path = self.secrets / "oauth" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def manifest(self, **others: Any) -> Path:
        document = manifest(self.kafka.servers(Door.TOKENS), "tokens", ["nothing"])
        tokens = {
            "tokenEndpointUrl": self.kafka.tokens.url,
            "clientId": self.name,
            "clientSecretRef": {"name": "oauth", "key": "secret"},
            "caSecretRef": {"name": "oauth", "key": "ca"},
            "scope": SCOPE,
            "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
            **others,
        }
        document["spec"]["source"]["kafka"]["auth"] = {
            "tls": {"caSecretRef": {"name": "oauth", "key": "ca"}},
            "sasl": {"mechanism": "OAUTHBEARER", "oauthbearer": tokens},
        }
        path = self._directory / "sinkpipeline.json"
        path.write_text(json.dumps(document))
        return path

    def connection(self, **others: Any) -> Connection:
        pipeline = parse_manifest(json.loads(self.manifest(**others).read_text()))
        return resolve_source(pipeline, self.secrets).connection

    def tokens(self) -> int:
        return sum(each.client == self.name for each in self.kafka.tokens.issued)

    def has(self, tokens: int) -> bool:
        return self.tokens() >= tokens

    @contextmanager
    def short_lives(self, seconds: float) -> Iterator[None]:
        self.kafka.tokens.lifetime_s, before = seconds, self.kafka.tokens.lifetime_s
        try:
            yield
        finally:
            self.kafka.tokens.lifetime_s = before

    @contextmanager
    def endpoint_down(self, status: int, page: bytes) -> Iterator[None]:
        self.kafka.tokens.down = (status, page)
        try:
            yield
        finally:
            self.kafka.tokens.down = None


@pytest.fixture
def client(secure_kafka: SecureKafka, tmp_path: Path) -> Client:
    return Client(secure_kafka, tmp_path)


def test_a_way_in(client: Client) -> None:
    assert Admin(client.connection()).brokers() == 1
    assert [each.scope for each in client.kafka.tokens.issued if each.client == client.name] == [SCOPE]


def test_a_way_in_by_the_authorities_of_the_machine(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(client.kafka.certificates.ca))
    assert Admin(client.connection(caSecretRef=None)).brokers() == 1


def barred(client: Client, what: str) -> tuple[str, str]:
    """Makes it so, and says what is told and how it is mended."""
    match what:
        case "wrong secret":
            client.put("secret", b"nonsense")
            return "invalid_client", "clientSecretRef"
        case "wrong scope":
            client.kafka.tokens.scopes = frozenset({"kafka"})
            return "invalid_scope", "correct auth.sasl.oauthbearer.scope"
        case "wrong CA":
            client.put("ca-of-the-endpoint", client.kafka.certificates.wrong_ca.read_bytes())
            return "certificate", "auth.sasl.oauthbearer.caSecretRef"
        case _:
            raise ValueError(what)


@pytest.mark.usefixtures("expressions_unchecked")
@pytest.mark.parametrize("what", ["wrong secret", "wrong scope", "wrong CA"])
def test_what_bars_the_way(what: str, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A person is asked for; nobody's secret is told."""
    message, remedy = barred(client, what)
    ca = {"caSecretRef": {"name": "oauth", "key": "ca-of-the-endpoint"}} if what == "wrong CA" else {}
    began = time.monotonic()
    try:
        with pytest.raises(SinkPipelineError) as refused:
            validate(client.manifest(**ca), client.secrets, "text", offline=False)
    finally:
        client.kafka.tokens.scopes = frozenset()

    assert time.monotonic() - began < DEADLINE_S
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    assert message in refused.value.message
    assert remedy in refused.value.remedy
    shown = capsys.readouterr()
    assert SECRET not in f"{refused.value}{shown.out}{shown.err}"
    assert "nonsense" not in f"{refused.value}{shown.out}{shown.err}"


def test_a_token_endpoint_that_is_overloaded_is_an_outage(client: Client) -> None:
    """The client tells nothing of it: it asks again."""
    with client.endpoint_down(503, b"{}"), pytest.raises(SinkPipelineError) as outage:
        Admin(client.connection()).brokers(2.0)

    assert outage.value.reason is Reason.BROKER_UNREACHABLE
    assert f"the token endpoint {client.kafka.tokens.url} gives tokens" in outage.value.remedy


@pytest.mark.parametrize("how", ["down", "its port is closed"])
def test_a_token_endpoint_that_is_away_is_an_outage(how: str, client: Client) -> None:
    away = {} if how == "down" else {"tokenEndpointUrl": "https://127.0.0.1:1/token"}
    page = b"<html>%s</html>" % (b"maintenance " * 100)
    with client.endpoint_down(404, page), pytest.raises(SinkPipelineError) as outage:
        Admin(client.connection(**away)).brokers(2.0)

    assert outage.value.reason is Reason.BROKER_UNREACHABLE
    assert "the token endpoint gave no token while connecting: " in outage.value.message
    assert "tokenEndpointUrl" in outage.value.remedy
    assert "maintenance" not in outage.value.message


def test_a_token_is_renewed_while_clients_work(client: Client) -> None:
    """The broker ends a connection with its token: whoever goes on has shown another one."""
    kafka, topic = client.kafka, topics.unique("renewed")
    topics.create_topic(kafka.bootstrap_servers, topic)
    kafka.grant(
        f"User:{client.name}",
        [
            Right(ResourceType.TOPIC, topic, AclOperation.WRITE),
            Right(ResourceType.TRANSACTIONAL_ID, topic, AclOperation.WRITE),
        ],
    )
    with client.short_lives(6.0):
        connection = client.connection()
        admin, producer = Admin(connection), TransactionalProducer(connection, topic)
        before = client.tokens()
        for lives in range(1, 3):
            producer.begin()
            producer.produce_rows(topic, [(b"row", None, 0, 0, None)])
            producer.commit()
            assert admin.topics([topic])[topic] is not None
            wanted = before + 2 * lives
            wait_until(partial(client.has, wanted), "both have asked for the next token", DEADLINE_S)
        producer.close()

    assert len(topics.read_committed(kafka.bootstrap_servers, topic)) == 2


@pytest.mark.thorough("waits until a token has expired, and until one is asked for again")
def test_a_token_that_expired_while_nobody_gave_another_is_no_refusal(client: Client) -> None:
    with client.short_lives(4.0):
        admin = Admin(client.connection())
        admin.brokers()

        with client.endpoint_down(503, b"{}"):
            outage = wait_until(partial(trouble, admin), "nobody lets it in", DEADLINE_S)
            assert outage is not None
            assert outage.reason is Reason.BROKER_UNREACHABLE
            again = trouble(admin)
            assert again is None or again.reason is Reason.BROKER_UNREACHABLE
        wait_until(lambda: trouble(admin) is None, "it comes in again", DEADLINE_S)
