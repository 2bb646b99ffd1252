from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from servers import local_kafka
from servers.local_kafka import LocalKafka, LocalKafkaError

pytestmark = pytest.mark.kafka

DEADLINE = 20.0


def create_topic(servers: str, topic: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])
    created[topic].result(DEADLINE)


def produce(servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE) == 0


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": f"of-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, DEADLINE)]
    finally:
        consumer.close()


def test_what_is_produced_can_be_consumed(kafka: LocalKafka) -> None:
    create_topic(kafka.bootstrap_servers, "local-kafka-round-trip")
    produce(kafka.bootstrap_servers, "local-kafka-round-trip", b"a", b"b")
    assert consume(kafka.bootstrap_servers, "local-kafka-round-trip", 2) == [b"a", b"b"]


def test_a_broker_starts_from_an_archive_of_its_classes(kafka: LocalKafka) -> None:
    [broker] = kafka.pids.values()
    if psutil.LINUX:
        assert str(local_kafka.archive()) in {each.path for each in psutil.Process(broker).memory_maps()}


def test_a_topic_is_not_created_by_asking_for_it(kafka: LocalKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "allow.auto.create.topics": True})
    admin.list_topics("local-kafka-unknown", timeout=DEADLINE)
    assert "local-kafka-unknown" not in admin.list_topics(timeout=DEADLINE).topics


@pytest.mark.thorough("starts brokers of its own: it is about the local cluster, which every test of this folder uses")
def test_broker_keeps_its_data_and_its_address_through_a_kill_and_a_stop() -> None:
    with LocalKafka() as cluster:
        servers, first = cluster.bootstrap_servers, cluster.pids[1]
        create_topic(servers, "kept")
        produce(servers, "kept", b"before")

        cluster.kill_broker(1)
        assert not psutil.pid_exists(first)
        cluster.start_broker(1)
        assert cluster.bootstrap_servers == servers
        produce(servers, "kept", b"killed")

        cluster.stop_broker(1)
        assert cluster.pids == {}
        cluster.start_broker(1)
        produce(servers, "kept", b"stopped")
        assert consume(servers, "kept", 3) == [b"before", b"killed", b"stopped"]


def test_paused_broker_answers_again_once_resumed(kafka: LocalKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    kafka.pause_broker(1)
    try:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
    finally:
        kafka.resume_broker(1)
    assert admin.list_topics(timeout=DEADLINE).brokers.keys() == {1}


@pytest.mark.long("about the brokers of the tests; each test with three of them needs it")
def test_topic_with_a_replica_on_every_broker_outlives_one_of_three() -> None:
    with LocalKafka(brokers=3) as cluster:
        create_topic(cluster.bootstrap_servers, "replicated", replicas=3)
        produce(cluster.bootstrap_servers, "replicated", b"three")
        cluster.kill_broker(2)
        produce(cluster.bootstrap_servers, "replicated", b"two")
        cluster.start_broker(2)
        assert consume(cluster.bootstrap_servers, "replicated", 2) == [b"three", b"two"]
        pids = list(cluster.pids.values())
    assert len(pids) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.thorough("starts brokers of its own: it is about the local cluster, which every test of this folder uses")
def test_nothing_is_left_after_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(psutil.Process().children(recursive=True))
    with LocalKafka() as cluster:
        assert list(tmp_path.iterdir())
        cluster.pause_broker(1)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(tmp_path.iterdir())


@pytest.mark.long("about the brokers of the tests")
def test_directory_of_the_caller_is_kept(tmp_path: Path) -> None:
    with LocalKafka(directory=tmp_path / "cluster") as first:
        create_topic(first.bootstrap_servers, "kept")
        produce(first.bootstrap_servers, "kept", b"record")
    with LocalKafka(directory=tmp_path / "cluster") as second:
        assert consume(second.bootstrap_servers, "kept", 1) == [b"record"]


@pytest.mark.thorough("starts brokers of its own: it is about the local cluster, which every test of this folder uses")
def test_broker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "servers.local_kafka"]
    environment = {**os.environ, "PYTHONPATH": str(Path(local_kafka.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline().startswith(b"127.0.0.1:")
        descendants = psutil.Process(runner.pid).children(recursive=True)
        assert any(process.name() == "java" for process in descendants)
        runner.send_signal(signal.SIGKILL)
    _, left = psutil.wait_procs(descendants, DEADLINE)
    # Nobody collects an orphan in a container without an init process.
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in left)


@pytest.mark.thorough("starts brokers of its own: it is about the local cluster, which every test of this folder uses")
def test_properties_secure_what_clients_see() -> None:
    cluster = LocalKafka(
        properties={
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
            ' required user_reader="right";',
        },
        client_config=sasl("right"),
    )
    with cluster:
        stranger = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **sasl("wrong")})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=2)


def sasl(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": password,
    }


@pytest.mark.thorough("starts brokers of its own: it is about the local cluster, which every test of this folder uses")
def test_failed_start_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    cluster = LocalKafka(directory=tmp_path, properties={"log.segment.bytes": "many"})
    with pytest.raises(LocalKafkaError, match=r"log\.segment\.bytes"):
        cluster.start()
    assert set(psutil.Process().children(recursive=True)) <= before


def test_missing_jars_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINKPIPELINE_CACHE", str(tmp_path))
    with pytest.raises(LocalKafkaError, match="make install"):
        LocalKafka().start()
