"""Records that are bad in every way, through Spark: good ones are delivered once, bad ones dead-lettered once."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from local_kafka import LocalKafka
from sinkpipeline.core.deadletter import parse
from support.app import App, manifest, sink
from support.topics import create_topic, produce, read_committed, unique

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(300)]

SEED = 20261122
COUNT = 3_000
SCHEMA = "id BIGINT NOT NULL, p INT, h STRING, n INT, ts BIGINT"
BAD: dict[str, bytes | None] = {
    "MalformedJson": b"not json",
    "WrongType": b'{"id":"one"}',
    "MissingField": b'{"p":0}',
    "InvalidUtf8": b'{"id":1,"h":"\xff"}',
    "NullValue": None,
    "PartitionOutOfRange": b'{"id":1,"p":99}',
    "InvalidHeader": b'{"id":1,"h":"a\\u0000b"}',
    "RecordTooLarge": b'{"id":1,"n":30000}',
    "InvalidTimestamp": b'{"id":1,"ts":1000}',
}


def test_every_record_has_one_end_also_when_the_driver_is_killed(kafka: LocalKafka, tmp_path: Path) -> None:
    name, servers, chance = unique("dlq"), kafka.bootstrap_servers, random.Random(SEED)
    source, dead = f"{name}-in", f"{name}-dead"
    create_topic(servers, source, partitions=2)
    expected: dict[tuple[int, int], str] = {}
    good: list[int] = []
    records: dict[int, list[tuple[bytes | None, bytes | None]]] = {0: [], 1: []}
    for number in range(COUNT):
        partition = number % 2
        kind = chance.choice(list(BAD)) if chance.random() < 0.02 else None
        if kind is None:
            good.append(number)
        else:
            expected[partition, len(records[partition])] = kind
        value = json.dumps({"id": number, "p": partition}).encode() if kind is None else BAD[kind]
        records[partition].append((f"k{number}".encode(), value))
    assert {*expected.values()} == {*BAD}
    for partition, found in records.items():
        produce(servers, source, found, partition=partition)
    document = manifest(
        servers,
        name,
        [source],
        decode={"format": "json", "schema": SCHEMA},
        transform={
            "select": {
                "value": "IF(n IS NULL, CAST(id AS STRING), repeat('x', n))",
                "partition": "p",
                "headers": "IF(h IS NULL, CAST(map() AS MAP<STRING, STRING>), map(h, 'x'))",
                "timestamp": "ts",
            }
        },
        trigger={"interval": "0s", "maxOffsetsPerTrigger": 1000},
        sinks=[{**sink(name), "deadLetter": {"topic": {"name": dead, "partitions": 2, "replicationFactor": 1}}}],
    )
    topic = document["spec"]["sinks"][0]["kafka"]["topic"]
    topic["config"] = {"max.message.bytes": "20000", "message.timestamp.before.max.ms": "3600000"}
    app = App(tmp_path, document)
    with app.start() as run:
        run.until_rows(300)
        run.kill()
    app.run_until_idle()
    delivered = [int(record.text) for record in read_committed(servers, f"{name}-out")]
    assert sorted(delivered) == good
    assert [n for n in delivered if n % 2 == 0] == [n for n in good if n % 2 == 0]
    letters = [parse(each.value, each.key, list(each.headers)) for each in read_committed(servers, dead)]
    told = [((one.record.partition.partition, one.record.offset), one) for one in letters]
    assert sorted(place for place, _ in told) == sorted(expected)
    for (partition, offset), letter in told:
        assert letter.verdict.error_class.value == expected[partition, offset]
        assert (letter.record.key, letter.record.value) == records[partition][offset]
    totals, classes = app.status()["totals"], Counter(expected.values())
    assert (totals["rowsDelivered"], totals["deadLettered"], totals["dropped"]) == (len(good), len(expected), 0)
    assert {each["class"]: each["count"] for each in app.sink_status()["deadLetters"]} == classes
    shown = app.call("progress", "-f", str(app.manifest)).stdout.partition("CLASS")[2].splitlines()[1:]
    assert {line.split()[2]: int(line.split()[3]) for line in shown} == classes
