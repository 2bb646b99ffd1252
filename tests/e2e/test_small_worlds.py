"""Sources that are empty, tiny, wide, compacted or odd: what arrives is what was there, byte for byte."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from servers.local_kafka import LocalKafka
from support.app.command import App, manifest
from support.kafka import topics
from support.kafka.topics import Record, unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

ANY_TIME = {name: str(2**63 - 1) for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")}
"""Brokers refuse timestamps of more than an hour ahead, and delete by them."""
KEPT = {**ANY_TIME, "retention.ms": "-1"}

DEADLINE_S = 240.0
WIDE = 64
NOW_MS = int(time.time() * 1000)
TIMESTAMPS = (1, -1, -2, -(10**12), NOW_MS, 253_402_300_799_999, 2**53)
"""No timestamp (-1), before 1970, the last millisecond of the year 9999, and what a double just holds."""
HEADERS: tuple[list[tuple[str, bytes | None]], ...] = (
    [],
    [("", b""), ("", None), ("", b"\x00")],
    [("same", b"1"), ("other", None), ("same", b"\xff\xfe"), ("same", b""), ("same", None), ("same", b"1")],
    [("n" * 5_000, b"v" * 5_000), ('\u00e9\U0001f600 "quoted"\n', "\u00e9".encode())],
)

Shape = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def shape(record: Record) -> Shape:
    return record.key, record.value, tuple(record.headers), record.timestamp


@dataclass
class World:
    """The source topics of one pipeline."""

    servers: str
    name: str

    def topic(self, what: str) -> str:
        return f"{self.name}-{what}"

    def create(self, what: str, partitions: int = 1, config: Mapping[str, str] = KEPT) -> str:
        topics.create_topic(self.servers, self.topic(what), partitions=partitions, config={**KEPT, **config})
        return self.topic(what)

    def produce(self, what: str, values: Iterable[bytes], partition: int = 0) -> None:
        topics.produce(self.servers, self.topic(what), [(value, value) for value in values], partition=partition)


def produce_shapes(servers: str, topic: str) -> None:
    """Every key with every value, every list of headers, every timestamp."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for key in (None, b"", b"\xff\x00key"):
        for value in (None, b"", b"x", b"\xc3\x28 not UTF-8 \xff\x00", b"\xe4\xbd\xa0"):
            producer.produce(topic, value, key, 0, timestamp=NOW_MS)
    for headers in HEADERS:
        producer.produce(topic, b"headers", b"k", 0, timestamp=NOW_MS, headers=list(headers))
    for timestamp in TIMESTAMPS:
        producer.produce(topic, b"timestamp", str(timestamp).encode(), 0, timestamp=timestamp)
    assert producer.flush(topics.DEADLINE_S) == 0


def run_until_idle(app: App) -> None:
    """Without the deadline that a small start has."""
    with app.start("--until-idle") as run:
        assert run.wait(DEADLINE_S) == 0, f"{run.stderr}\n{app.log_tail()}"


@pytest.mark.long("two starts of Spark; tests/kafka/test_small_worlds has the source, tests/spark the shapes")
def test_an_empty_source_and_later_every_shape_of_record(kafka: LocalKafka, tmp_path: Path) -> None:
    """One pipeline with the longest names: started on nothing, stopped, filled, and started again."""
    servers = kafka.bootstrap_servers
    world = World(servers, unique("shapes"))
    # Where Kafka's limits are: dots and underscores, 249 characters.
    long = "_.".join(["long", *["x" * 20] * 9])[: 249 - len(world.name) - 1].ljust(249 - len(world.name) - 1, ".")
    source = [
        world.create("never", partitions=2),
        world.create("one"),
        world.create("shapes"),
        world.create("wide", partitions=WIDE),
        world.create("sizes"),
        world.create("late"),
        world.create("aborted"),
        world.create("compacted", config=topics.EAGERLY_COMPACTED),
        world.create("stamped", config={"message.timestamp.type": "LogAppendTime"}),
        world.create(long),
    ]
    world.produce("late", [b"gone"] * 5)
    topics.delete_records(servers, world.topic("late"), 5)
    data = "d" * 249
    document = manifest(
        servers,
        world.name,
        source,
        identity=(world.name + "." + "i" * 200)[:200],
        sinks=[
            {
                "name": "s" * 63,
                "kafka": {
                    "topic": {"name": f"{world.name}-{data}"[:249], "partitions": 1, "config": KEPT},
                    "progressTopic": {"name": f"{world.name}-progress"},
                },
            }
        ],
    )
    data = document["spec"]["sinks"][0]["kafka"]["topic"]["name"]
    app = App(tmp_path, document)

    with app.start() as run:
        run.until_state("Running")
        run.eventually(lambda: app.status()["totals"].get("lag") == 0, "the lag of nothing is 0")
        assert run.terminate() == 0, run.stderr
    first = app.progress()
    assert {line["next"] for line in first if line["topic"] != world.topic("late")} == {0}
    assert [line["next"] for line in first if line["topic"] == world.topic("late")] == [5]
    assert len(first) == WIDE + 2 + 8
    assert sum(line["rows"] for line in first) == 0
    assert topics.read_committed(servers, data) == []

    world.produce("one", [b"one"])
    produce_shapes(servers, world.topic("shapes"))
    for partition in range(WIDE):
        world.produce("wide", [f"{partition}:{n}".encode() for n in range(10)], partition)
    world.produce("sizes", [b"%d" % (n % 10) for n in range(500)])
    topics.produce(servers, world.topic("sizes"), [bytes([n]) * 900_000 for n in range(30)])
    world.produce("late", [b"late"])
    topics.aborted_transaction(servers, world.name, [(world.topic("aborted"), b"k", b"aborted")] * 3)
    for n in range(3):
        topics.produce(servers, world.topic("compacted"), [(b"same", b"version %d" % n), (b"own %d" % n, b"kept")])
    topics.compact(servers, world.topic("compacted"), without=b"version 0")
    world.produce("stamped", [b"stamped"])
    world.produce(long, [b"long"])

    run_until_idle(app)

    expected = {topic: topics.read_committed(servers, topic) for topic in source}
    delivered = topics.read_committed(servers, data)
    assert Counter(map(shape, delivered)) == Counter(shape(record) for each in expected.values() for record in each)
    for topic in (world.topic("shapes"), world.topic("sizes")):
        of_topic = set(map(shape, expected[topic]))
        assert [shape(each) for each in delivered if shape(each) in of_topic] == list(map(shape, expected[topic])), (
            topic
        )
    progress = app.progress()
    assert {line["lag"] for line in progress} == {0}
    assert sum(line["rows"] for line in progress) == len(delivered)
    rows = {line["topic"]: line["rows"] for line in progress if line["topic"] in {world.topic("aborted"), source[0]}}
    assert set(rows.values()) == {0}


@pytest.mark.long("starts Spark; test_run has filters and several sinks, tests/kafka two names of one cluster")
def test_tombstones_filters_and_two_sinks_of_one_cluster_by_two_names(kafka: LocalKafka, tmp_path: Path) -> None:
    """Fewer offsets per batch than partitions; batches of which nothing survives."""
    servers = kafka.bootstrap_servers
    world = World(servers, unique("two"))
    partitions, each = 8, 4
    source = world.create("in", partitions=partitions)
    for partition in range(partitions):
        values = [json.dumps({"id": partition * each + n, "keep": n > 0}).encode() for n in range(each)]
        topics.produce(servers, source, [(b"%d" % partition, value) for value in values], partition=partition)
    topics.produce(servers, source, [(b"tombstone", None)], partition=3)
    names = ("left", "right")
    data = {name: {"name": world.topic(name), "partitions": partitions, "config": KEPT} for name in names}
    progress = {"name": world.topic("progress")}
    sinks = [
        {"name": "left", "kafka": {"topic": data["left"], "progressTopic": progress}},
        {
            "name": "right",
            "kafka": {
                "topic": data["right"],
                "progressTopic": progress,
                "bootstrapServers": servers.replace("127.0.0.1", "localhost"),
            },
        },
    ]
    document = manifest(
        servers,
        world.name,
        [source],
        decode={"format": "json", "schema": "id BIGINT NOT NULL, keep BOOLEAN", "onNull": "PassThrough"},
        transform={
            "where": "keep",
            "select": {
                "value": "to_json(struct(id))",
                "partition": "kafka.partition",
                # The client would take 0 for now.
                "timestamp": "CASE WHEN id % 2 = 0 THEN 0L ELSE -id END",
            },
        },
        trigger={"interval": "0s", "maxOffsetsPerTrigger": partitions - 3},
        sinks=sinks,
    )
    app = App(tmp_path, document)

    run_until_idle(app)

    kept = [id_ for id_ in range(partitions * each) if id_ % each > 0]
    expected = [(id_ // each, b"%d" % (id_ // each), b'{"id":%d}' % id_, 1 if id_ % 2 == 0 else -id_) for id_ in kept]
    for name in names:
        delivered = topics.read_committed(servers, world.topic(name))
        rows = [(each.partition, each.key, each.value, each.timestamp) for each in delivered if each.value is not None]
        assert Counter(rows) == Counter(expected)
        tombstones = [(each.partition, each.key) for each in delivered if each.value is None]
        assert tombstones == [(3, b"tombstone")]
    lines = app.progress()
    assert {line["lag"] for line in lines} == {0}
    assert Counter(
        {name: sum(line["rows"] for line in lines if line["sink"] == name) for name in ("left", "right")}
    ) == {
        "left": len(expected) + 1,
        "right": len(expected) + 1,
    }
