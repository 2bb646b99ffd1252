"""A cluster that asks who we are: both clients, Spark's and ours, log in with Secrets that stay files."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from local_kafka import LocalKafka
from support.app import App, last_line, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(180)]

PASSWORD = "pass$word {of} 'mine'"


def test_a_pipeline_logs_in_with_its_secret_and_tells_nobody(tmp_path: Path) -> None:
    cluster = LocalKafka(
        properties={
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
            f' required user_app="{PASSWORD}";',
        },
        client_config=log_in(PASSWORD),
    )
    secret = tmp_path / "secrets" / "kafka-user" / "password"
    secret.parent.mkdir(parents=True)
    with cluster:
        fill(cluster.bootstrap_servers)
        document = manifest(cluster.bootstrap_servers, "secured", ["in"])
        document["spec"]["source"]["kafka"]["auth"] = {
            "sasl": {
                "mechanism": "PLAIN",
                "username": "app",
                "passwordSecretRef": {"name": "kafka-user", "key": "password"},
            }
        }
        app = App(tmp_path / "app", document)

        secret.write_text("with a line break\n")
        invalid = app.call("validate", "-f", str(app.manifest), "--secrets-dir", str(tmp_path / "secrets"))
        assert invalid.returncode == 3
        assert last_line(invalid.stderr).startswith("SecretInvalid: key password of Secret kafka-user")

        secret.write_text("wrong")
        refused = app.call("validate", "-f", str(app.manifest), "--secrets-dir", str(tmp_path / "secrets"))
        assert refused.returncode == 3
        assert last_line(refused.stderr).startswith("AuthenticationFailed: ")

        secret.write_text(PASSWORD)
        app.run_until_idle("--secrets-dir", str(tmp_path / "secrets"))
        assert delivered(cluster.bootstrap_servers, "secured-out") == 100

    told = app.log_file.read_text() + app.status_file.read_text() + refused.stdout + refused.stderr
    assert PASSWORD not in told


def log_in(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": password,
    }


def fill(servers: str) -> None:
    client = {"bootstrap.servers": servers, **log_in(PASSWORD)}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("in", num_partitions=2, replication_factor=1)])["in"].result(20)
    producer = Producer(client)
    for number in range(100):
        producer.produce("in", str(number), partition=number % 2)
    assert producer.flush(20) == 0


def delivered(servers: str, topic: str) -> int:
    """The rows that a read_committed consumer counts."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            **log_in(PASSWORD),
            "group.id": "count",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    rows = ends = 0
    try:
        while ends < 3:
            message = consumer.poll(20)
            assert message is not None, f"{topic} can't be read to its end"
            if message.error() is None:
                rows += 1
            else:
                ends += 1
    finally:
        consumer.close()
    return rows
