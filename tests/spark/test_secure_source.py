"""Spark's own client comes in by the same ways as ours, with the same Secrets, and needs no more than to read."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType, ScramMechanism
from pyspark.sql import SparkSession

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection, Oauthbearer, Sasl, check_tls
from sinkpipeline.kafka.settings import SourceSettings
from sinkpipeline.spark.query import spark_error
from sinkpipeline.spark.source import read_batch, read_stream
from support.kafka import topics
from support.waiting import wait_until
from support.worlds.secure import PLAIN_PASSWORD, PLAIN_USER, Door, Right, SecureKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PASSWORD = "pass$word ${directory:/etc:hostname} {of} 'mine', =2C"
ODD_CLIENT = 'a "client" ${directory}, =2C'
ODD_USER = 'a "user\\" ${directory:/etc:hostname}, =2C\tx'


@pytest.fixture(scope="module")
def ways_in(secure_kafka: SecureKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Connection]]:
    """The principal's name, and how it comes in."""
    directory = tmp_path_factory.mktemp("secrets")
    ca = str(secure_kafka.certificates.ca)
    chain, key = secure_kafka.certificates.client("mutual")
    (directory / "tls.crt").write_bytes(chain)
    (directory / "tls.key").write_bytes(key)
    secure_kafka.add_user("orders", PASSWORD, ScramMechanism.SCRAM_SHA_256)
    secure_kafka.add_user("orders", PASSWORD)
    secure_kafka.add_user(ODD_USER, PASSWORD)

    def sasl(mechanism: str, user: str, password: str = PASSWORD) -> Sasl:
        file = directory / f"password-of-{mechanism}"
        file.write_text(password)
        return Sasl(mechanism=mechanism, username=user, password_file=str(file))

    def connect(door: Door, *, tls: Tls | None = None, sasl: Sasl | Oauthbearer | None = None) -> Connection:
        return Connection(bootstrap_servers=secure_kafka.servers(door), tls=tls and check_tls(tls), sasl=sasl)

    trusting = Tls(ca_file=ca)
    mutual = Tls(ca_file=ca, certificate_file=str(directory / "tls.crt"), key_file=str(directory / "tls.key"))
    plain = sasl("PLAIN", PLAIN_USER, PLAIN_PASSWORD)
    secure_kafka.tokens.secrets[ODD_CLIENT] = PASSWORD
    tokens = Oauthbearer(
        token_endpoint_url=secure_kafka.tokens.url,
        client_id=ODD_CLIENT,
        client_secret_file=plain.password_file.replace("PLAIN", "SCRAM-SHA-512"),
        scope="kafka api://shop/.default",
        extensions=(("logicalCluster", "lkc-1"), ("poolId", "pool-1")),
        ca_file=ca,
    )
    return {
        "plain": (PLAIN_USER, connect(Door.SASL_TLS, tls=trusting, sasl=plain)),
        "scram 256": ("orders", connect(Door.SASL_TLS, tls=trusting, sasl=sasl("SCRAM-SHA-256", "orders"))),
        "scram 512": ("orders", connect(Door.SASL_TLS, tls=trusting, sasl=sasl("SCRAM-SHA-512", "orders"))),
        "scram without TLS": ("orders", connect(Door.SASL, sasl=sasl("SCRAM-SHA-512", "orders"))),
        "odd user": (ODD_USER, connect(Door.SASL, sasl=sasl("SCRAM-SHA-512", ODD_USER))),
        "tokens": (ODD_CLIENT, connect(Door.TOKENS, tls=trusting, sasl=tokens)),
        "TLS": ("ANONYMOUS", connect(Door.TLS, tls=trusting)),
        "mutual TLS": ("mutual", connect(Door.MUTUAL, tls=mutual)),
    }


def read(spark: SparkSession, connection: Connection, topic: str) -> int:
    settings = SourceSettings(connection=connection, topics=(topic,))
    return read_batch(spark, settings, "group", {SourcePartition(topic, 0): OffsetRange(0, 3)}, 10.0).count()


def test_both_clients_come_in(
    spark: SparkSession, secure_kafka: SecureKafka, ways_in: dict[str, tuple[str, Connection]]
) -> None:
    for way, (principal, connection) in ways_in.items():
        topic = topics.unique("source")
        topics.create_topic(secure_kafka.bootstrap_servers, topic)
        topics.produce_numbers(secure_kafka.bootstrap_servers, topic, 3)
        if principal != "ANONYMOUS":  # who may do everything
            secure_kafka.grant(f"User:{principal}", [Right(ResourceType.TOPIC, topic, AclOperation.READ)])

        assert Admin(connection).topics([topic])[topic] is not None, way
        assert read(spark, connection, topic) == 3, way


def test_what_spark_is_refused(
    spark: SparkSession,
    secure_kafka: SecureKafka,
    ways_in: dict[str, tuple[str, Connection]],
    tmp_path: Path,
) -> None:
    _, connection = ways_in["scram without TLS"]
    topic = topics.unique("described")
    topics.create_topic(secure_kafka.bootstrap_servers, topic)
    topics.produce_numbers(secure_kafka.bootstrap_servers, topic, 3)
    secure_kafka.grant("User:orders", [Right(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)])
    (tmp_path / "password").write_text("nonsense")
    stranger = Sasl(mechanism="SCRAM-SHA-512", username="orders", password_file=str(tmp_path / "password"))

    with pytest.raises(Exception) as may_not:  # noqa: PT011 - whatever py4j makes of it
        read(spark, connection, topic)
    with pytest.raises(Exception) as unknown:  # noqa: PT011 - likewise
        read(spark, Connection(bootstrap_servers=connection.bootstrap_servers, sasl=stranger), topic)

    told = spark_error(may_not.value)
    assert told.reason is Reason.AUTHORIZATION_FAILED
    assert told.message.startswith(f"Read on topic {topic} is not granted")
    assert spark_error(unknown.value).reason is Reason.AUTHENTICATION_FAILED
    assert "nonsense" not in str(unknown.value)


def test_a_property_that_spark_refuses(spark: SparkSession, secure_kafka: SecureKafka) -> None:
    topic = topics.unique("any")
    topics.create_topic(secure_kafka.bootstrap_servers, topic)
    topics.produce_numbers(secure_kafka.bootstrap_servers, topic, 3)
    options = {"kafka.bootstrap.servers": secure_kafka.bootstrap_servers, "kafka.fetch.max.bytes": "9999999999"}

    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever py4j makes of it
        spark.read.format("kafka").options(**options).option("subscribe", topic).load().count()

    told = spark_error(refused.value)
    assert told.reason is Reason.MANIFEST_INVALID
    assert "fetch.max.bytes" in told.message


def test_only_the_token_endpoint_of_the_manifest_may_be_asked(
    spark: SparkSession, secure_kafka: SecureKafka, ways_in: dict[str, tuple[str, Connection]]
) -> None:
    """Java's client of Kafka 4 asks none that a system property doesn't name; that of 3.9 does where there is none."""
    principal, connection = ways_in["tokens"]
    topic = topics.unique("source")
    topics.create_topic(secure_kafka.bootstrap_servers, topic)
    topics.produce_numbers(secure_kafka.bootstrap_servers, topic, 3)
    secure_kafka.grant(f"User:{principal}", [Right(ResourceType.TOPIC, topic, AclOperation.READ)])
    system: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    system.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", "https://elsewhere.example/token")

    assert read(spark, connection, topic) == 3


@pytest.mark.thorough(
    "waits for two tokens; tests/kafka/test_oauthbearer renews one, and Spark comes in with one above"
)
def test_spark_renews_its_token(
    spark: SparkSession, secure_kafka: SecureKafka, ways_in: dict[str, tuple[str, Connection]]
) -> None:
    """The broker ends a connection with its token: a query that goes on has shown another one."""
    _, connection = ways_in["tokens"]
    assert isinstance(connection.sasl, Oauthbearer)
    client, endpoint = topics.unique("client"), secure_kafka.tokens
    endpoint.secrets[client] = PASSWORD
    connection = dataclasses.replace(connection, sasl=dataclasses.replace(connection.sasl, client_id=client))
    topic = topics.unique("renewed")
    topics.create_topic(secure_kafka.bootstrap_servers, topic)
    secure_kafka.grant(f"User:{client}", [Right(ResourceType.TOPIC, topic, AclOperation.READ)])
    settings = SourceSettings(connection=connection, topics=(topic,))
    rows = topics.unique("rows").replace("-", "_")

    def delivered(count: int) -> bool:
        assert query.exception() is None
        return spark.table(rows).count() == count

    def feed(start: int) -> None:
        topics.produce_numbers(secure_kafka.bootstrap_servers, topic, 10, start=start)
        wait_until(lambda: delivered(start + 10), "the query goes on")

    endpoint.lifetime_s = 4.0
    try:
        stream = read_stream(
            spark, settings, "group", {SourcePartition(topic, 0): PartitionProgress(epoch=1, next=0)}, 1000, 10.0
        )
        query = stream.writeStream.format("memory").queryName(rows).start()
        try:
            for start in itertools.count(step=10):
                feed(start)
                if sum(each.client == client for each in endpoint.issued) >= 4:
                    break
        finally:
            query.stop()
    finally:
        endpoint.lifetime_s = 3600.0


def test_who_is_refused_a_token(
    spark: SparkSession, ways_in: dict[str, tuple[str, Connection]], tmp_path: Path
) -> None:
    _, connection = ways_in["tokens"]
    assert isinstance(connection.sasl, Oauthbearer)
    (tmp_path / "secret").write_text("nonsense")
    stranger = dataclasses.replace(connection.sasl, client_secret_file=str(tmp_path / "secret"))

    with pytest.raises(Exception) as unknown:  # noqa: PT011 - whatever py4j makes of it
        read(spark, dataclasses.replace(connection, sasl=stranger), "nothing")

    told = spark_error(unknown.value)
    assert told.reason is Reason.AUTHENTICATION_FAILED
    assert "gave Spark no token for the brokers of the source" in told.message
    assert "clientSecretRef" in told.remedy
    assert "nonsense" not in str(unknown.value)
