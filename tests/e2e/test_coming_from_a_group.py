"""A pipeline that goes on for a consumer group whose consumer was killed; for Spark's own sink see tests/spark."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.source.groups import Groups
from support.app.command import App, last_line, manifest
from support.kafka import topics
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

BATCH = 8
WRITTEN, COMMITTED = 20, 16
"""Of the first partition, at the kill: the third batch was begun."""
CONSUMER = """
import sys
from confluent_kafka import Consumer, Producer
servers, group, source, data, batch, last = *sys.argv[1:5], *map(int, sys.argv[5:])
brokers = {"bootstrap.servers": servers}
member = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
consumer, producer, done = Consumer({**brokers, **member}), Producer(brokers), 0
consumer.subscribe([source])
while True:
    record = consumer.poll(1.0)
    if record is None or record.error() or done == last:
        continue
    producer.produce(data, record.value(), record.key())
    done += 1
    if done % batch == 0:
        producer.flush()
        consumer.commit(asynchronous=False)
    if done == last:
        producer.flush()
        print("written", flush=True)
"""
"""As a sink that delivers at least once: it writes, and commits now and then."""


@pytest.mark.long("starts Spark, and waits for a group to lose a member; tests/kafka/test_positions has the parts")
def test_stop_import_go_on(kafka: LocalKafka, tmp_path: Path) -> None:
    """As docs/coming-from-elsewhere.md has it, by the command: what was written after the last commit is there twice.

    The killed one is a consumer of librdkafka, and no connector: of either no more is read than its group's offsets.
    """
    name, servers = topics.unique("group"), kafka.bootstrap_servers
    source, data, group = f"{name}-in", f"{name}-out", f"connect-{name}"
    topics.create_topic(servers, source)
    topics.create_topic(servers, data, partitions=3)
    topics.produce_numbers(servers, source, 25)
    document = manifest(servers, name, [source])
    document["spec"]["source"]["kafka"]["startFrom"] = {"group": group}
    app = App(tmp_path, document)
    validate = ("validate", "-f", str(app.manifest))

    arguments = [servers, group, source, data, str(BATCH), str(WRITTEN)]
    with subprocess.Popen([sys.executable, "-c", CONSUMER, *arguments], stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        try:
            assert consumer.stdout.readline() == "written\n"
            in_use = app.call(*validate)
        finally:
            consumer.kill()
    assert in_use.returncode == 3
    assert last_line(in_use.stderr).startswith(f"PositionsRefused: consumer group {group} is in use")

    groups = Groups(Connection(bootstrap_servers=servers))
    wait_until(lambda: groups.state(group) == "EMPTY", "its member is gone", 60.0)
    shown = app.call(*validate)
    assert shown.returncode == 0, shown.stderr
    assert f"begins from consumer group {group}: {source}-0 at {COMMITTED}" in shown.stdout
    assert "what the group's consumers wrote after their last commit is delivered again" in shown.stdout

    app.run_until_idle()

    assert Counter(topics.texts(topics.read_committed(servers, data))) == {
        str(number): 2 if COMMITTED <= number < WRITTEN else 1 for number in range(25)
    }
    reset = app.call("reset", "-f", str(app.manifest), "--sink", name, "--to-group", group, "--dry-run")
    assert reset.returncode == 0, reset.stderr
    assert f"up to {25 - COMMITTED} records are delivered AGAIN" in reset.stderr
