"""A stage goes on where Debezium's own engine was killed: by the offset of the last change that this had delivered."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from debezium.record import Recorder, recording
from servers.local_process import HOST, cache_directory
from sinkpipeline.core.changes.checkpoints import Checkpoint, binlog_from_debezium
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from support.changes.binlog import BOTH, ORDERS, BinlogLab
from support.changes.oracle import check, in_topic
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long("tests/binlog/test_refusals has a place by hand"),
    pytest.mark.skipif(not list(cache_directory().glob("debezium-*")), reason="no Debezium: make debezium"),
]


CONNECTORS = {
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
}


def connector(lab: BinlogLab, number: int) -> dict[str, str]:
    return {
        "connector.class": CONNECTORS[lab.kind],
        "driver.allowPublicKeyRetrieval": "true",
        "snapshot.mode": "no_data",
        "database.hostname": HOST,
        "database.port": str(lab.server.port),
        "database.user": "debezium",
        "database.password": "any",
        "database.server.id": str(700 + number),
        "table.include.list": f"{lab.name}.orders",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "offset.flush.interval.ms": "100",
    }


def write(lab: BinlogLab, chance: random.Random, first: int) -> int:
    """Transactions of several lengths and of several statements; the next number."""
    with lab.connected(autocommit=False) as session, session.cursor() as cursor:
        for _ in range(60):
            count = chance.randrange(1, 40)
            cursor.execute(f"INSERT INTO orders SELECT {first} + seq, repeat('x', 150) FROM seq_1_to_{count}")
            first += 40
            if chance.random() < 0.3:
                session.commit()
        session.commit()
    return first


def ids(recorder: Recorder) -> list[int]:
    plain = [json.loads(each["plain"]) for each in recorder.records if each["plain"]]
    return [each["after"]["id"] for each in plain if each.get("after")]


@BOTH
def test_nothing_is_missing_and_at_most_one_transaction_comes_again(lab: BinlogLab) -> None:
    lab.sql(
        ORDERS,
        "CREATE USER IF NOT EXISTS 'debezium'@'%' IDENTIFIED BY 'any'",
        "GRANT ALL ON *.* TO 'debezium'@'%'",
    )
    chance = random.Random(20)
    first, again, inside = 1, 0, 0
    for turn in range(6):
        with recording(connector(lab, turn)) as recorder:

            def has_begun(recorder: Recorder = recorder) -> bool:
                nonlocal first
                first = write(lab, chance, first)
                return bool(ids(recorder))

            wait_until(has_begun, "Debezium reads", 60, poll_s=0.5)
            count = len(ids(recorder)) + chance.randrange(1, 400)
            first = write(lab, chance, first)
            wait_until(lambda: len(ids(recorder)) >= count, "Debezium has delivered some of it", 60)  # noqa: B023
            recorder.kill()
        told = [each for each in recorder.records if each["plain"] and json.loads(each["plain"]).get("after")][:count]
        place = binlog_from_debezium(json.dumps(told[-1]["offset"]))
        inside += bool(place.overlap)
        last = json.loads(told[-1]["plain"])["after"]["id"]
        expected = lab.expected()
        found = gone_on(lab, place, turn)
        begin = len(expected) - len(found)
        check(expected[begin:], found)
        at = next(number for number, each in enumerate(expected) if dict(each.row)["id"] == last)
        assert begin <= at + 1, "nothing is missing"
        assert len({each.xid for each in expected[begin : at + 1]}) <= 1
        again += at + 1 - begin
    assert again > 0
    assert inside > 0


def gone_on(lab: BinlogLab, place: Checkpoint, turn: int) -> Any:
    """What a stage delivers that begins there."""
    name = f"{lab.name}-{turn}"
    lab.live(
        id=SinkId(name, "changes"),
        topic=TopicRequest(name=name, partitions=3),
        progress=progress_request(f"{name}-progress", None),
        database={"start_from": place},
    )
    return in_topic(lab.servers, name)
