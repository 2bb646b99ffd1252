"""`explode` with Spark and a broker: the rows of a record together or not at all, killed, and redriven."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.core.deadletter import DeadLetter, parse
from support.app.command import COMMAND, App, Run, by_driver, manifest
from support.app.command import sink as sink_of
from support.kafka import topics

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(600)]

SEED = 20261123
PARTITIONS = 2
MOST = 9
"""Rows of a record."""
FEW = 41
"""Records whose rows the driver delivers at once; one of them has too many rows."""
ROOM = {"max.message.bytes": "12000", "retention.ms": "-1"}


class Orders:
    """Records with items, and which of them can't be delivered, for what."""

    def __init__(self, count: int) -> None:
        chance = random.Random(SEED)
        self.items: list[list[int]] = []
        self.bad: dict[int, str] = {}
        for number in range(count):
            items = [chance.randrange(1, 9) for _ in range(chance.randrange(0, MOST + 1))]
            fate = chance.randrange(40)
            if fate == 0:
                items = [*items[:8], 0]
                self.bad[number] = "EvaluationFailed"
            elif fate == 1:
                items = [1] * (MOST + 1 + chance.randrange(20))
                self.bad[number] = "TooManyRows"
            elif fate == 2:
                items = [*items[:8], 20_000]
                self.bad[number] = "RecordTooLarge"
            self.items.append(items)

    def feed(self, servers: str, topic: str, numbers: range) -> None:
        for partition in range(PARTITIONS):
            values = [
                json.dumps({"id": number, "items": self.items[number]}).encode()
                for number in numbers
                if number % PARTITIONS == partition
            ]
            topics.produce(servers, topic, values, partition=partition)

    def rows(self, partition: int) -> list[str]:
        """Those that can be delivered, of one source partition, in order."""
        return [row for number in range(partition, len(self.items), PARTITIONS) for row in self.rows_of(number)]

    def rows_of(self, number: int, *, repaired: bool = False) -> list[str]:
        if number in self.bad and not repaired:
            return []
        return [f"{number}/{at}/{_part(each)}" for at, each in enumerate(self.items[number])]


def _part(item: int) -> str:
    return str(40 // item) if item else "none"


def document(servers: str, name: str, *, guarantee: str, repaired: bool = False) -> dict[str, Any]:
    part = "try_divide(40, item)" if repaired else "40 / item"
    padded = "" if repaired else ", repeat('x', item - 100)"
    # The driver delivers no batch where the client sends more at once than the topic takes.
    sink = sink_of(name, guarantee=guarantee, properties={"batch.size": ROOM["max.message.bytes"]})
    sink["kafka"]["topic"] |= {"partitions": PARTITIONS, "config": ROOM}
    return manifest(
        servers,
        name,
        [f"{name}-in"],
        decode={"format": "json", "schema": "id BIGINT NOT NULL, items ARRAY<INT>"},
        transform={
            "explode": {
                "array": "items",
                "as": "item",
                "positionAs": "at",
                "maxRowsPerRecord": 1000 if repaired else MOST,
            },
            "select": {
                "key": "CAST(id AS STRING)",
                "value": f"concat(id, '/', at, '/', COALESCE(CAST(FLOOR({part}) AS STRING), 'none'){padded})",
                "partition": "kafka.partition",
            },
        },
        trigger={"interval": "0s", "maxOffsetsPerTrigger": 400},
        spark=by_driver(600),
        sinks=[{**sink, "deadLetter": {"topic": {"name": f"{name}-dead", "config": {"retention.ms": "-1"}}}}],
    )


def delivered(servers: str, topic: str) -> dict[int, list[str]]:
    found = defaultdict(list)
    for record in topics.read_committed(servers, topic):
        found[record.partition].append(record.text)
    return found


def letters(servers: str, topic: str) -> list[DeadLetter]:
    return [parse(each.value, each.key, list(each.headers)) for each in topics.read_committed(servers, topic)]


def numbers(found: list[DeadLetter]) -> dict[int, str]:
    return {json.loads(each.record.value or b"")["id"]: each.verdict.error_class.value for each in found}


@pytest.mark.parametrize("guarantee", ["ExactlyOnce", "AtLeastOnce"])
@pytest.mark.long("six starts of Spark; test_run explodes, tests/kafka/test_several_rows has each guarantee")
def test_rows_of_a_record_are_delivered_together_however_often_it_is_killed(
    kafka: LocalKafka, tmp_path: Path, guarantee: str
) -> None:
    exactly_once = guarantee == "ExactlyOnce"
    name, servers = topics.unique("explode"), kafka.bootstrap_servers
    orders = Orders(2_000)
    assert {*orders.bad.values()} == {"EvaluationFailed", "TooManyRows", "RecordTooLarge"}
    topics.create_topic(servers, f"{name}-in", partitions=PARTITIONS)
    app = App(tmp_path, document(servers, name, guarantee=guarantee))

    # The driver delivers the first batch itself. Later batches have more rows than it takes, so tasks deliver them.
    fed = {
        "delivered-rows-before-progress": range(FEW),
        "after-rows-before-progress": range(FEW, len(orders.items)),
        "after-commit": range(0),
    }
    for point, more in (fed if exactly_once else {"after-batch": range(len(orders.items))}).items():
        orders.feed(servers, f"{name}-in", more)
        app.arm(point)
        with app.start() as run:
            run.until_held(point)
            run.kill()
        app.disarm()
    app.run_until_idle()

    found = delivered(servers, f"{name}-out")
    dead = letters(servers, f"{name}-dead")
    assert numbers(dead) == orders.bad
    for partition in range(PARTITIONS):
        rows = found[partition] if exactly_once else list(dict.fromkeys(found[partition]))
        assert rows == orders.rows(partition), "all rows of good records, none of bad ones, in order"
    if not exactly_once:
        return
    assert len(dead) == len(orders.bad), "each bad record once"
    totals = app.status()["totals"]
    assert (totals["rowsDelivered"], totals["deadLettered"]) == (sum(map(len, found.values())), len(dead))
    assert all(line["lag"] == 0 for line in app.progress()), "the frontier is one of the source's offsets"

    app.write(document(servers, name, guarantee=guarantee, repaired=True))
    command = [str(COMMAND), "dlq", "redrive", "-f", str(app.manifest), "--log-file", str(app.log_file)]
    app.arm("redrive-before-commit")
    with Run(app, command) as run:
        run.until_held("redrive-before-commit")
        run.kill()
    app.disarm()
    done = app.call(*command[1:], "-o", "json")
    assert done.returncode == 0, f"{done.stderr}\n{app.log_tail()}"
    assert json.loads(done.stdout)["delivered"] == len(orders.bad), "letters"
    redriven = Counter(row for rows in delivered(servers, f"{name}-out").values() for row in rows)
    before = Counter(row for rows in found.values() for row in rows)
    assert redriven - before == Counter(row for each in orders.bad for row in orders.rows_of(each, repaired=True))
