"""What a stage does not go over in silence: on real servers, by what was done to a slot, a publication, a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, LocalPostgresql
from servers.postgresql_standby import LocalStandby, has_program
from servers.sql_proxy import SqlProxy
from sinkpipeline.changes.postgresql.foreseen import foresee
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.settings import DeadLetterSettings
from sinkpipeline.postgresql.settings import Connection as Database
from support.changes.lab import LOGICAL, Lab
from support.kafka.topics import (
    alter_topic,
    create_topic,
    delete_topic,
    produce,
    progress_records,
    read_committed,
    recreate_topic,
)
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"


def insert(lab: Lab, first: int, count: int = 5) -> None:
    lab.sql(f"INSERT INTO orders SELECT g, 'x' FROM generate_series({first}, {first + count - 1}) AS g")


@pytest.fixture
def delivered(lab: Lab) -> Lab:
    """With five changes in the topic."""
    lab.sql(TABLE)
    lab.live()
    insert(lab, 0)
    lab.live()
    return lab


def check_nothing_came(lab: Lab, error: SinkPipelineError, reason: Reason) -> None:
    assert error.reason is reason, error
    assert len(lab.found()) == 5


def test_a_slot_that_is_gone_is_not_made_anew(delivered: Lab) -> None:
    delivered.drop_slot()
    insert(delivered, 10)
    error = delivered.refusal()
    check_nothing_came(delivered, error, Reason.SLOT_LOST)
    assert delivered.sql("SELECT count(*) FROM pg_replication_slots WHERE slot_name = current_database()") == [(0,)]


@pytest.mark.thorough("another way to the same gap")
def test_a_slot_that_was_made_anew_has_a_gap(delivered: Lab) -> None:
    delivered.drop_slot()
    insert(delivered, 10)
    delivered.sql(f"SELECT pg_create_logical_replication_slot('{delivered.slot}', 'pgoutput')")
    check_nothing_came(delivered, delivered.refusal(), Reason.SOURCE_DATA_LOST)


def test_a_slot_that_was_advanced_has_a_gap(delivered: Lab) -> None:
    insert(delivered, 10)
    delivered.sql(f"SELECT pg_replication_slot_advance('{delivered.released()}', pg_current_wal_flush_lsn())")
    error = delivered.refusal()
    check_nothing_came(delivered, error, Reason.SOURCE_DATA_LOST)
    assert "was confirmed up to" in error.message


@pytest.mark.thorough("another thing that somebody does to a source")
def test_a_publication_that_is_gone_or_another_one(delivered: Lab) -> None:
    delivered.sql(f"DROP PUBLICATION {delivered.name}")
    check_nothing_came(delivered, delivered.refusal(), Reason.PUBLICATION_MISSING)
    delivered.sql(f"CREATE PUBLICATION {delivered.name} FOR ALL TABLES")
    check_nothing_came(delivered, delivered.refusal(), Reason.SOURCE_RECREATED)


@pytest.mark.thorough("another thing that somebody does to a source")
def test_a_publication_that_is_younger_than_the_changes(lab: Lab) -> None:
    lab.sql(TABLE, f"SELECT pg_create_logical_replication_slot('{lab.slot}', 'pgoutput')")
    insert(lab, 0)
    slot = replace(lab.settings().database.slot, create=False)
    error = lab.refusal(database={"slot": slot})
    assert error.reason is Reason.PUBLICATION_MISSING, error


@pytest.mark.thorough("another thing that somebody does to a topic")
def test_a_change_topic_that_is_gone(delivered: Lab) -> None:
    delete_topic(delivered.servers, delivered.topic)
    assert delivered.refusal().reason is Reason.DATA_TOPIC_LOST
    create_topic(delivered.servers, delivered.topic)
    assert delivered.refusal().reason is Reason.DATA_TOPIC_LOST


@pytest.mark.thorough("another thing that somebody does to a topic")
def test_a_change_topic_that_is_made_anew_while_it_is_written(delivered: Lab) -> None:
    stage = delivered.start()
    stage.wait_for("claimed")
    recreate_topic(delivered.servers, delivered.topic)
    assert stage.wait() == 1
    assert stage.error["reason"] == "TopicsChanged"
    assert delivered.refusal().reason is Reason.DATA_TOPIC_LOST


@pytest.mark.thorough("a first start where something is there already")
def test_a_first_start_takes_nothing_that_is_somebody_elses(lab: Lab) -> None:
    lab.sql(TABLE, f"SELECT pg_create_logical_replication_slot('{lab.slot}', 'pgoutput')")
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_UNSUITABLE
    assert f"SELECT pg_drop_replication_slot('{lab.slot}')" in error.remedy
    lab.drop_slot()
    produce(lab.servers, lab.topic, [(b"k", b"v")])
    assert lab.refusal().reason is Reason.DATA_TOPIC_NOT_EMPTY
    lab.live(refuse_existing_data=False)


@pytest.mark.thorough("a slot that a person has made")
def test_a_slot_of_a_persons_is_read_from_where_it_stands(lab: Lab) -> None:
    lab.sql(TABLE, f"CREATE PUBLICATION {lab.name} FOR ALL TABLES")
    slot = replace(lab.settings().database.slot, create=False)
    publication = replace(lab.settings().database.publication, create=False)
    told: dict[str, Any] = {"slot": slot, "publication": publication}
    error = lab.refusal(database=told)
    assert error.reason is Reason.SOURCE_UNSUITABLE
    [statement] = re.findall(r"SELECT pg_create_logical_replication_slot\(.*?\)", error.remedy)
    lab.sql(statement)
    lab.watch()
    insert(lab, 0)
    lab.live(database=told)
    assert lab.check() == 5


@pytest.mark.thorough("another owner")
def test_an_identity_of_somebody_else_is_not_taken(delivered: Lab) -> None:
    other = Owner(cluster="file", name="other")
    check_nothing_came(delivered, delivered.refusal(owner=other), Reason.IDENTITY_IN_USE)
    insert(delivered, 10)
    delivered.live(owner=other, adopt=delivered.settings().owner)
    assert len(delivered.found()) == 10


@pytest.mark.thorough("what a server lacks, and the statement that gives it")
def test_what_is_unsuitable_is_told_with_a_statement_that_works(lab: Lab) -> None:
    role = f"{lab.name}_cdc"
    lab.sql(
        "CREATE TABLE keyless (id int)", f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE {lab.name} TO {role}"
    )
    there = Database(servers=lab.server.address, database=lab.name, user=role)
    error = lab.refusal(database={"connection": there})
    assert error.reason is Reason.SOURCE_UNSUITABLE
    lab.sql(error.remedy.removeprefix("run ").partition(" (")[0])
    error = lab.refusal(database={"connection": there})
    assert "has no replica identity" in error.message
    assert lab.sql("SELECT count(*) FROM pg_publication") == [(0,)], "the application's UPDATE still works"
    settings = lab.settings()
    asked = replace(settings, database=replace(settings.database, connection=there))
    assert ["has no replica identity" in each.message for each in foresee(asked).errors] == [True]
    lab.sql(error.remedy.partition("run ")[2])
    assert foresee(asked).errors == []
    error = lab.refusal(database={"connection": there})
    assert (error.reason, "CREATE PUBLICATION" in error.remedy) == (Reason.SOURCE_UNSUITABLE, True), error
    lab.sql(error.remedy.partition(": ")[2])
    lab.live(database={"connection": there})
    lab.sql("INSERT INTO keyless VALUES (1)", "UPDATE keyless SET id = 2")
    lab.live(database={"connection": there})
    assert [each.told.op for each in lab.found()] == ["c", "u"]
    with lab.connected(DATABASE) as session:
        lab.close()
        session.execute(f"DROP ROLE {role}")


@pytest.mark.thorough("a server that writes no logical WAL")
def test_a_server_without_logical_wal_is_refused(kafka: LocalKafka, postgresql: LocalPostgresql, tmp_path: Any) -> None:
    lab = Lab(postgresql, kafka.bootstrap_servers, tmp_path)
    try:
        error = lab.refusal()
        assert error.reason is Reason.SOURCE_UNSUITABLE
        assert "ALTER SYSTEM SET wal_level = logical" in error.remedy
    finally:
        lab.close()


@pytest.mark.thorough("a server that is not there")
def test_a_server_that_is_away_is_an_outage(lab: Lab) -> None:
    there = Database(servers="127.0.0.1:1", database=lab.name, user="postgres")
    error = lab.refusal(database={"connection": there})
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert not error.reason.counted


@pytest.fixture
def own(kafka: LocalKafka, tmp_path: Any) -> Iterator[Lab]:
    """On a server of its own, whose WAL is limited."""
    settings = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with LocalPostgresql(settings={**LOGICAL, **settings}) as server:
        lab = Lab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(TABLE)
        yield lab
        lab.close()


@pytest.mark.thorough("a slot that the server gives up: WAL is written until it does")
def test_a_slot_that_was_invalidated(own: Lab) -> None:
    own.live()
    insert(own, 0)
    own.live()

    def is_lost() -> bool:
        own.sql("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, 20)")
        own.sql("SELECT pg_switch_wal()", "CHECKPOINT")
        return own.sql(f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{own.slot}'") == [("lost",)]

    wait_until(is_lost, "the server has given the slot up")
    insert(own, 10)
    error = own.refusal()
    check_nothing_came(own, error, Reason.SLOT_LOST)
    assert "max_slot_wal_keep_size" in error.remedy


@pytest.mark.thorough("standbys that take over: with all that was read, and without")
@pytest.mark.skipif(not has_program("pg_basebackup"), reason="no pg_basebackup")
@pytest.mark.parametrize("behind", [False, True])
def test_a_standby_that_took_over(behind: bool, kafka: LocalKafka, tmp_path: Any) -> None:
    with LocalPostgresql(settings=LOGICAL) as primary, SqlProxy(primary.port) as proxy:
        lab = Lab(primary, kafka.bootstrap_servers, tmp_path)
        lab.sql(TABLE)
        lab.live()
        with LocalStandby(primary, through=proxy.port) as standby:
            insert(lab, 0)
            lab.live()
            standby.catch_up()
            if behind:
                proxy.hold()
                insert(lab, 10)
                lab.live()
            primary.kill()
            proxy.close()
            standby.promote()
            lab.server = standby
            error = lab.refusal()
            # A standby has no slots before version 17.
            assert error.reason is (Reason.SOURCE_ROLLED_BACK if behind else Reason.SLOT_LOST), error
            assert len(lab.found()) == (10 if behind else 5)


def test_a_change_that_is_too_large_is_a_dead_letter_at_its_place(lab: Lab) -> None:
    lab.sql(TABLE)
    letters = DeadLetterSettings(topic=TopicRequest(name=f"{lab.name}-dead", config={"max.message.bytes": "1000000"}))
    topic = replace(lab.settings().topic, config={"max.message.bytes": "2000"})
    told: dict[str, Any] = {"topic": topic, "dead_letter": letters}
    lab.live(**told)
    # What can't be compressed is stored apart.
    [(note,)] = lab.sql("SELECT string_agg(md5(g::text), '') FROM generate_series(1, 150) AS g")
    lab.sql(f"INSERT INTO orders SELECT g, CASE g WHEN 2 THEN '{note}' ELSE 'x' END FROM generate_series(0, 4) AS g")
    life = lab.live(**told)
    found = lab.found()
    assert [each.place[1] for each in found] == [0, 1, 3, 4], "it keeps its index"
    [letter] = read_committed(lab.servers, letters.topic.name)
    headers = {name: (value or b"").decode() for name, value in letter.headers}
    assert headers["sinkpipeline.dlq.error.class"] == "RecordTooLarge"
    assert headers["sinkpipeline.dlq.source.topic"] == "postgresql"
    assert headers["sinkpipeline.dlq.source.offset"] == "2"
    assert headers["sinkpipeline.source.position"].endswith(",2]")
    assert letter.document["after"]["id"] == 2
    committed = [each for each in life.told if each["event"] == "committed"][-1]
    assert (committed["rows"], committed["dead"], committed["next"]) == (4, 1, 5)
    records = [value for key, value in progress_records(lab.servers, f"{lab.name}-progress") if "/p/" in key]
    assert records[-1]["deadByClass"] == {"RecordTooLarge": 1}
    lab.sql("INSERT INTO orders VALUES (9, repeat('x', 5000))")
    error = lab.refusal(topic=topic)
    assert error.reason is Reason.RECORD_REFUSED
    assert "max.message.bytes" in error.remedy
    # As docs/changes.md says. A value that is stored apart comes only where it is written anew.
    alter_topic(lab.servers, lab.topic, {"max.message.bytes": "1000000"})
    lab.live(topic=topic)
    [statement] = re.findall(r"^UPDATE .*;$", Path("docs/changes.md").read_text(), re.MULTILINE)
    assert statement == "UPDATE orders SET note = note || '' WHERE id = 7;"
    lab.sql(statement.replace("7", "2"))
    lab.live(topic=topic)
    newest = max(lab.found(), key=lambda each: each.place).record.document
    assert (newest["op"], newest["after"]) == ("u", {"id": 2, "note": note})
