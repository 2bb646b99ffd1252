"""The real command on three brokers that are killed, come back, and lose and regain what they lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from support.app.command import App, Run, by_driver, last_line, manifest
from support.kafka.streams import EXACTLY_ONCE
from support.kafka.topics import unique
from support.worlds.three_brokers import (
    ReplicatedStream,
    elect_preferred_leaders,
    leaders,
    restored,
    three_brokers,
    wait_until_in_sync,
)

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

DEADLINE_S = 240.0
FLOW = 5_000
SEVERAL_BATCHES = {"interval": "0s", "maxOffsetsPerTrigger": FLOW // 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with three_brokers() as cluster:
        yield cluster


def sink(name: str, **topic: int) -> dict[str, object]:
    """A sink whose topics have a replica on every broker, as the brokers' own default is."""
    kafka = {"topic": {"name": f"{name}-out", "partitions": 6, **topic}, "progressTopic": {"name": f"{name}-progress"}}
    return {"name": name, "kafka": kafka}


@pytest.mark.long(
    "three brokers beside Spark; tests/kafka/test_three_brokers has each broker at each step, `make chaos` kills one"
)
def test_every_broker_dies_and_every_leader_moves_while_records_flow(cluster: LocalKafka, tmp_path: Path) -> None:
    """5,000 of 5,000, each time, in one run of the driver; at last with too few replicas to write to."""
    servers, name = cluster.bootstrap_servers, unique("trio")
    source = ReplicatedStream(servers, f"{name}-in").create()
    patient = {"maxConsecutiveFailures": 50, "backoff": {"initial": "500ms", "max": "1s"}}
    document = manifest(
        servers,
        name,
        [source.topic],
        sinks=[sink(name)],
        trigger=SEVERAL_BATCHES,
        failurePolicy=patient,
        spark=by_driver(FLOW // 10),
    )
    app = App(tmp_path, document)

    def rows(run: Run, count: int) -> None:
        run.eventually(lambda: app.rows_delivered() >= count, f"{count} rows are delivered", DEADLINE_S)

    def flow(run: Run, *troubles: Callable[[], object]) -> None:
        """Each trouble comes as soon as the first rows of its share have arrived."""
        for trouble in troubles:
            before = source.total
            source.feed(FLOW // source.partitions // len(troubles))
            rows(run, before + 1)
            trouble()
            rows(run, source.total)
        assert source.judge(f"{name}-out") == EXACTLY_ONCE

    def come_back(node: int) -> None:
        cluster.start_broker(node)
        wait_until_in_sync(servers)
        elect_preferred_leaders(servers)
        assert leaders(servers) == preferred

    def too_few(run: Run, *nodes: int) -> None:
        for node in nodes:
            cluster.pause_broker(node)
        run.eventually(lambda: app.sink_status().get("state") == "Retrying", "it says so", DEADLINE_S)
        assert app.sink_status()["error"]["reason"] in {"BrokerUnreachable", "TransactionFailed", "BatchFailed"}
        for node in nodes:
            cluster.resume_broker(node)

    with app.start() as run, restored(cluster):
        source.feed(10)
        rows(run, source.total)
        elect_preferred_leaders(servers)
        preferred = leaders(servers)
        flow(run, lambda: cluster.kill_broker(1))
        flow(run, lambda: come_back(1), lambda: cluster.kill_broker(2))
        flow(run, lambda: come_back(2), lambda: cluster.kill_broker(3))
        assert "WARNING" not in run.stderr, "no batch was tried again by the driver"

        flow(run, lambda: come_back(3), lambda: too_few(run, 1, 2))
        assert app.sink_status()["state"] == "Running"
        assert run.terminate() == 0, run.stderr
    assert sum(line["rows"] for line in app.progress()) == source.total


@pytest.mark.long("three brokers and a start of Spark for a warning")
def test_one_bootstrap_server_of_three_is_warned_of(cluster: LocalKafka, tmp_path: Path) -> None:
    """It cost another project an eighth of its messages, so nobody should have to find it out."""
    one, _, others = cluster.bootstrap_servers.partition(",")
    name = unique("single")
    source = ReplicatedStream(cluster.bootstrap_servers, f"{name}-in").create()
    # The second one is refused, so that neither command goes on to start Spark's JVM for nothing.
    sinks = [sink(name, replicationFactor=2), sink(f"{name}-refused", replicationFactor=9)]
    document = manifest(one, name, [source.topic], sinks=sinks)
    app = App(tmp_path, document)
    warning = f"bootstrapServers {one} names one of 3 brokers: while that one is down nothing can start"

    validated = app.call("validate", "-f", str(app.manifest))

    assert validated.returncode == 3
    assert f"sink {name}: warning: {warning}" in validated.stdout
    assert last_line(validated.stderr).startswith("TopicCreationFailed: ")
    with app.start() as run:
        run.eventually(lambda: f"WARNING {warning}" in run.stderr, "the run warns")
    document["spec"]["source"]["kafka"]["bootstrapServers"] = f"{one},{others}"
    app.write(document)
    again = app.call("validate", "-f", str(app.manifest)).stdout
    assert "names one of 3 brokers" not in again
    assert f"sink {name}: warning: {name}-out has 2 of 3 replicas: a broker that is lost" in again
    assert f"warning: {name}-progress" not in again, "the brokers' own default is not known before"
