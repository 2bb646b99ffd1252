"""Log-in as to Amazon MSK, at a broker that takes tokens: another signer stands in for that of AWS."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from servers.waiting import crowding
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection, MskIam
from sinkpipeline.kafka.producers import TransactionalProducer
from support.kafka import topics
from support.kafka.asking import trouble
from support.waiting import wait_until
from support.worlds.secure import Door, Right, SecureKafka

pytestmark = pytest.mark.kafka

NAME = "msk-role"
DEADLINE_S = 60.0
LIFE_S = 10.0
"""Of a token. A client renews it when four fifths are over, and looks at that once a second."""
SKEW_S = 1.0
"""How long a broker still takes a token that has ended."""


class HTTPClientError(Exception):
    """Of botocore."""


class Signer:
    """Its tokens are those of the world's own endpoint."""

    def __init__(self, kafka: SecureKafka) -> None:
        self.kafka = kafka
        self.ends: dict[str, list[float]] = defaultdict(list)
        """Of the tokens that it gave, by region."""
        self.broken: Exception | None = None

    def generate_auth_token(self, region: str) -> tuple[str, int]:
        if self.broken is not None:
            raise self.broken
        self.ends[region].append(time.time() + LIFE_S)
        return self.kafka.tokens.token(NAME, "kafka", LIFE_S), int(self.ends[region][-1] * 1000)

    def renewed(self, region: str) -> bool:
        return len(self.ends[region]) > 1


@pytest.fixture
def signer(secure_kafka: SecureKafka, monkeypatch: pytest.MonkeyPatch) -> Signer:
    """As the two packages that are asked are called."""
    found = Signer(secure_kafka)
    parts: dict[str, Mapping[str, Any]] = {
        "aws_msk_iam_sasl_signer": {},
        "aws_msk_iam_sasl_signer.MSKAuthTokenProvider": {"generate_auth_token": found.generate_auth_token},
        "botocore": {},
        "botocore.exceptions": {"HTTPClientError": HTTPClientError},
    }
    for name, contents in parts.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return found


@pytest.fixture
def connection(secure_kafka: SecureKafka) -> Callable[[str], Connection]:
    """As a client of that region."""
    tls = Tls(ca_file=str(secure_kafka.certificates.ca))
    servers = secure_kafka.servers(Door.TOKENS)
    return lambda region: Connection(bootstrap_servers=servers, tls=tls, sasl=MskIam(region=region))


@pytest.mark.thorough("waits for a token's end; test_oauthbearer renews one")
def test_a_token_is_renewed_while_nobody_polls(
    signer: Signer, secure_kafka: SecureKafka, connection: Callable[[str], Connection]
) -> None:
    """The broker ends a connection with its token. A client that was idle for longer has another one to show."""
    topic = topics.unique("msk")
    topics.create_topic(secure_kafka.bootstrap_servers, topic)
    resources = (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)
    secure_kafka.grant(f"User:{NAME}", [Right(each, topic, AclOperation.WRITE) for each in resources])
    admin = Admin(connection("eu-west-1"))
    producer = TransactionalProducer(connection("eu-central-1"), topic)
    assert admin.topics([topic])[topic] is not None
    last = max(signer.ends[each][0] for each in ("eu-west-1", "eu-central-1"))
    for region in ("eu-west-1", "eu-central-1"):
        wait_until(partial(signer.renewed, region), f"the client of {region} has asked again, on its own", DEADLINE_S)
    wait_until(lambda: time.time() > last + SKEW_S, "the first tokens have ended", DEADLINE_S)

    producer.begin()
    producer.produce_rows(topic, [(b"row", None, 0, 0, None)])
    producer.commit()
    producer.close()
    assert admin.topics([topic])[topic] is not None
    assert len(topics.read_committed(secure_kafka.bootstrap_servers, topic)) == 1


@pytest.mark.thorough("waits until a token has expired")
def test_credentials_that_go_away_are_no_refusal_and_are_taken_again(
    signer: Signer, connection: Callable[[str], Connection]
) -> None:
    admin = Admin(connection("eu-central-1"))
    admin.brokers()
    signer.broken = HTTPClientError("the endpoint")

    outage = wait_until(partial(trouble, admin), "its token has expired", DEADLINE_S)
    assert outage is not None
    assert outage.reason is Reason.BROKER_UNREACHABLE
    signer.broken = None
    wait_until(lambda: trouble(admin) is None, "it comes in again", DEADLINE_S)


@pytest.mark.parametrize(
    ("broken", "reason", "remedy"),
    [
        (AttributeError("'NoneType' object has no attribute 'access_key'"), Reason.AUTHENTICATION_FAILED, "IRSA"),
        (HTTPClientError("https://sts"), Reason.BROKER_UNREACHABLE, "AWS"),
    ],
)
def test_who_has_no_credentials_is_told_at_once(
    signer: Signer, connection: Callable[[str], Connection], broken: Exception, reason: Reason, remedy: str
) -> None:
    signer.broken = broken
    began = time.monotonic()
    with pytest.raises(SinkPipelineError) as refused:
        Admin(connection("eu-central-1"))
    assert time.monotonic() - began < 5 * crowding()
    assert refused.value.reason is reason
    assert remedy in refused.value.remedy
    assert str(broken) not in str(refused.value)
