"""A stage goes on where Debezium's own engine was killed: by the offset of the last change that this had delivered."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from debezium.record import Recorder, recording
from readers.changes import Told
from servers.local_process import HOST, cache_directory
from servers.postgresql import SUPERUSER
from sinkpipeline.changes.settings import Slot
from sinkpipeline.core.changes.checkpoints import Checkpoint, from_debezium
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.topics import TopicRequest
from support.changes.lab import Lab
from support.changes.oracle import check, in_topic
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long("tests/changes/test_taking_over has an offset by hand"),
    pytest.mark.skipif(not list(cache_directory().glob("debezium-*")), reason="no Debezium: make debezium"),
]


def connector(lab: Lab, slot: str) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "publication.name": lab.name,
        "publication.autocreate.mode": "disabled",
        "slot.name": slot,
        "snapshot.mode": "no_data",
        "database.hostname": HOST,
        "database.port": str(lab.server.port),
        "database.user": SUPERUSER,
        "database.password": "any",
        "database.dbname": lab.name,
        "offset.flush.interval.ms": "100",
    }


def write(lab: Lab, chance: random.Random, first: int) -> int:
    """Transactions of several lengths, some of which are open at once; the next number."""
    with lab.connected(autocommit=False) as one, lab.connected(autocommit=False) as two:
        for _ in range(30):
            for session in chance.sample([one, two], 2):
                session.execute(
                    "INSERT INTO orders SELECT g, 'x' FROM generate_series(%s::int, %s::int) AS g",
                    (first, first + chance.randrange(40)),
                )
                first += 40
                if chance.random() < 0.5:
                    session.commit()
        one.commit()
        two.commit()
    return first


def delivered(recorder: Recorder) -> list[dict[str, Any]]:
    return [each for each in recorder.records if each["plain"] and json.loads(each["plain"]).get("after")]


def ids(changes: Sequence[Told]) -> list[int]:
    return [dict(each.row)["id"] for each in changes]


def test_nothing_is_missing_and_at_most_one_transaction_comes_again(lab: Lab) -> None:
    lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)", f"CREATE PUBLICATION {lab.name} FOR ALL TABLES")
    lab.watch()
    chance = random.Random(20)
    first, again = 1, 0
    for turn in range(6):
        slot, before = f"{lab.name}_{turn}", len(lab.expected())
        lab.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        with recording(connector(lab, slot)) as recorder:
            count = chance.randrange(1, 400)
            first = write(lab, chance, first)
            wait_until(lambda: len(delivered(recorder)) >= count, "Debezium has delivered some of it", 60)  # noqa: B023
            recorder.kill()
        told = delivered(recorder)[:count]
        place = from_debezium(json.dumps(told[-1]["offset"]))
        assert place.overlap
        expected = lab.expected()[before:]
        assert [json.loads(each["plain"])["after"]["id"] for each in told] == ids(expected)[: len(told)]
        found = gone_on(lab, slot, place, turn)
        begin = len(expected) - len(found)
        check(expected[begin:], found)
        assert begin <= len(told)
        assert len({each.xid for each in expected[begin : len(told)]}) <= 1
        again += len(told) - begin
        lab.sql(f"SELECT pg_drop_replication_slot('{slot}')")
    assert again > 0


def gone_on(lab: Lab, slot: str, place: Checkpoint, turn: int) -> Any:
    """What a stage delivers that begins there."""
    name = f"{lab.name}-{turn}"
    active = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
    wait_until(lambda: lab.sql(active) == [(0,)], "nobody reads the slot")
    lab.live(
        id=SinkId(name, "changes"),
        topic=TopicRequest(name=name, partitions=3),
        progress=progress_request(f"{name}-progress", None),
        database={"slot": Slot(name=slot, create=False), "start_from": place},
    )
    return in_topic(lab.servers, name)


def test_where_debezium_is_at_rest_nothing_comes_again(lab: Lab) -> None:
    lab.sql("CREATE TABLE orders (id bigint PRIMARY KEY, note text)", f"CREATE PUBLICATION {lab.name} FOR ALL TABLES")
    lab.watch()
    slot = f"{lab.name}_rest"
    lab.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    with recording({**connector(lab, slot), "heartbeat.interval.ms": "200"}) as recorder:
        lab.sql("INSERT INTO orders SELECT g, 'x' FROM generate_series(1, 50) AS g")

        def rests() -> bool:
            offsets = [each["offset"] for each in recorder.records if "heartbeat" in each["topic"]]
            return len(delivered(recorder)) == 50 and bool(offsets) and offsets[-1].get("messageType") == "COMMIT"

        wait_until(rests, "Debezium has told that it rests", 60)
    place = from_debezium(json.dumps(recorder.records[-1]["offset"]))
    assert not place.overlap
    lab.sql("INSERT INTO orders VALUES (100, 'y')")
    check(lab.expected()[50:], gone_on(lab, slot, place, 0))
