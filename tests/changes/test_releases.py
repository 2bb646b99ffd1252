"""What releases of PostgreSQL do in different ways, and what a stage must not go over in any of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from servers.postgresql import DATABASE, LocalPostgresql, major_version
from servers.postgresql_standby import LocalStandby, has_program
from sinkpipeline.changes.postgresql.foreseen import foresee
from sinkpipeline.core.errors import Reason
from sinkpipeline.postgresql.settings import Connection as Database
from support.changes.lab import LOGICAL, Lab
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"


def since(version: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(major_version() < version, reason=f"PostgreSQL before {version}")


def statement(remedy: str) -> str:
    """What a remedy says to run, last."""
    return remedy.rpartition("run ")[2].partition(";")[0]


def test_a_publication_that_is_made_anew_while_it_is_read(lab: Lab) -> None:
    """From 18 on a server goes over what was changed in between, and says so in a warning."""
    lab.sql(ORDERS)
    stage = lab.start()
    stage.wait_for("claimed")
    lab.sql(
        "INSERT INTO orders VALUES (1)",
        f"DROP PUBLICATION {lab.name}",
        "INSERT INTO orders VALUES (2)",
        f"CREATE PUBLICATION {lab.name} FOR ALL TABLES",
        "INSERT INTO orders VALUES (3)",
    )
    assert stage.wait() == 3
    assert stage.error["reason"] == "PublicationMissing", stage.error
    # What was not committed yet comes again, to whoever goes on.
    assert [each.record.document["after"]["id"] for each in lab.found()] in ([], [1])
    before = lab.slot_lsn()
    assert lab.refusal().reason is Reason.SOURCE_RECREATED
    assert lab.slot_lsn() == before


@since(18)
def test_a_table_with_generated_columns_can_still_be_changed(lab: Lab) -> None:
    """The server refuses it by an identity of which not all is published."""
    lab.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, v int GENERATED ALWAYS AS (a * 2), "
        "s int GENERATED ALWAYS AS (a * 3) STORED)",
        "INSERT INTO orders (id, a) VALUES (1, 1)",
    )
    refused = lab.refusal(database={"require_full": True})
    assert "leave replicaIdentity out" in refused.remedy
    lab.sql("ALTER TABLE orders REPLICA IDENTITY FULL")
    refused = lab.refusal()
    assert "generated column v" in refused.message
    assert lab.sql("SELECT count(*) FROM pg_publication") == [(0,)]
    lab.sql("UPDATE orders SET a = 2")
    lab.sql(re.findall(r"ALTER TABLE .*? DEFAULT", refused.remedy)[0])
    assert foresee(lab.settings()).errors == []
    lab.live()
    lab.sql("UPDATE orders SET a = 3", "DELETE FROM orders")
    lab.live()
    assert [(each.told.op, dict(each.told.row)) for each in lab.found()] == [("u", {"id": 1, "a": 3}), ("d", {"id": 1})]


@since(18)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_key_with_a_generated_column_is_published(lab: Lab, is_there: bool) -> None:
    lab.sql("CREATE TABLE parts (a int, b int GENERATED ALWAYS AS (c * 2) STORED, c int, PRIMARY KEY (a, b))")
    if is_there:
        lab.sql(f"CREATE PUBLICATION {lab.name} FOR TABLE parts")
    refused = lab.refusal()
    [foreseen] = foresee(lab.settings()).errors
    assert foreseen.remedy == refused.remedy
    lab.sql(statement(refused.remedy))
    beside = {"incremental": True}
    lab.sql("INSERT INTO parts (a, c) VALUES (1, 1), (1, 2)")
    lab.live(database=beside)
    lab.sql("UPDATE parts SET c = 3 WHERE c = 1")
    lab.live(database=beside)
    told = [(each.told.op, dict(each.told.row)) for each in lab.found()]
    assert sorted(map(str, told)) == sorted(
        map(
            str,
            [
                ("r", {"a": 1, "b": 2, "c": 1}),
                ("r", {"a": 1, "b": 4, "c": 2}),
                ("d", {"a": 1, "b": 2}),
                ("c", {"a": 1, "b": 6, "c": 3}),
            ],
        )
    )


def test_partitions_that_tell_their_rows_by_other_columns_than_their_table(lab: Lab) -> None:
    """USING INDEX is of the partitioned table alone, and each new partition begins with its primary key."""
    lab.sql(
        "CREATE TABLE parted (id int, part int, ref int NOT NULL, PRIMARY KEY (id, part), UNIQUE (ref, part))"
        " PARTITION BY LIST (part)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "ALTER TABLE parted REPLICA IDENTITY USING INDEX parted_ref_part_key",
    )
    refused = lab.refusal()
    assert "partition public.parted_1" in refused.message
    assert "by column ref" in refused.message
    [foreseen] = foresee(lab.settings()).errors
    assert foreseen.message == refused.message
    lab.sql(refused.remedy.removeprefix("run ").partition(",")[0])
    lab.live()
    for each in ("INSERT INTO parted VALUES (1, 1, 7)", "UPDATE parted SET ref = 8", "DELETE FROM parted"):
        lab.sql(each)
    lab.live()
    keys = [(each.told.op, json.loads(each.record.key or b"")["key"]) for each in lab.found()]
    assert keys == [
        ("c", {"part": 1, "ref": 7}),
        ("d", {"part": 1, "ref": 7}),
        ("c", {"part": 1, "ref": 8}),
        ("d", {"part": 1, "ref": 8}),
    ]


def test_a_publication_that_sends_no_deletions_is_told(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.sql(ORDERS, f"CREATE PUBLICATION {lab.name} FOR TABLE orders WITH (publish = 'insert, update')")
    told = f"publication {lab.name} does not send delete and truncate"
    assert told in foresee(lab.settings()).told[0]
    lab.live()
    assert told in caplog.text
    lab.sql(statement(foresee(lab.settings()).told[0]))
    assert told not in " ".join(foresee(lab.settings()).told)


def test_partitions_that_do_not_send_what_their_table_says(lab: Lab) -> None:
    """REPLICA IDENTITY is of each of them by itself; the stream has that of the partitioned table."""
    lab.sql(
        "CREATE TABLE parted (id int, part int, doc text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "ALTER TABLE parted REPLICA IDENTITY FULL",
    )
    refused = lab.refusal()
    assert "partition public.parted_1" in refused.message
    assert lab.sql("SELECT count(*) FROM pg_publication") == [(0,)]
    [foreseen] = foresee(lab.settings()).errors
    assert "does not send its old rows whole" in foreseen.message
    lab.sql(statement(refused.remedy))
    lab.live()
    # What can't be compressed is stored apart.
    [(doc,)] = lab.sql("SELECT string_agg(md5(g::text), '') FROM generate_series(1, 150) AS g")
    lab.sql(
        # Nobody has told this one.
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)",
        f"INSERT INTO parted VALUES (1, 1, '{doc}'), (2, 2, '{doc}')",
        "UPDATE parted SET id = id + 10",
    )
    lab.live()
    told = [each.record.document for each in sorted(lab.found(), key=lambda each: each.place)]
    rows = [(each["op"], each["before"], each["after"], each["unchanged"]) for each in told[2:]]
    assert rows == [
        ("d", {"id": 1, "part": 1, "doc": doc}, None, []),
        ("c", None, {"id": 11, "part": 1, "doc": doc}, []),
        ("d", {"id": 2, "part": 2}, None, []),
        ("c", None, {"id": 12, "part": 2}, ["doc"]),
    ]


def test_a_partition_without_an_identity_is_told_before_it_is_published(lab: Lab) -> None:
    """From then on the server would refuse what changes its rows."""
    lab.sql(
        "CREATE TABLE parted (id int, part int) PARTITION BY LIST (part)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
        "ALTER TABLE parted REPLICA IDENTITY FULL",
        "INSERT INTO parted VALUES (1, 1)",
    )
    publication = replace(lab.settings().database.publication, tables=("public.parted",))
    settings = lab.settings(database={"publication": publication})
    [foreseen] = foresee(settings).errors
    assert "table public.parted_1" in foreseen.message
    refused = lab.refusal(database={"publication": publication})
    assert refused.message == foreseen.message
    lab.sql("UPDATE parted SET id = 2", statement(refused.remedy))
    assert foresee(settings).errors == []
    lab.live(database={"publication": publication})
    lab.sql("UPDATE parted SET id = 3")
    lab.live(database={"publication": publication})
    assert [each.record.document["before"] for each in lab.found()] == [{"id": 2, "part": 1}]


@pytest.mark.thorough("other identities by which a server refuses a change")
def test_identities_that_are_none(lab: Lab) -> None:
    lab.sql(
        "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE bare (id int NOT NULL UNIQUE)",
        "ALTER TABLE bare REPLICA IDENTITY USING INDEX bare_id_key",
        "ALTER TABLE bare DROP CONSTRAINT bare_id_key",
    )
    errors = foresee(lab.settings()).errors
    assert ["has no replica identity" in each.message for each in errors] == [True, True]
    lab.sql(*(statement(each.remedy) for each in errors))
    assert foresee(lab.settings()).errors == []
    lab.live()
    lab.sql("INSERT INTO late VALUES (1)", "INSERT INTO bare VALUES (1)", "DELETE FROM late", "DELETE FROM bare")
    lab.live()
    assert len(lab.found()) == 4


@since(14)
def test_a_slot_of_prepared_transactions_is_refused(lab: Lab) -> None:
    lab.sql(
        ORDERS,
        f"CREATE PUBLICATION {lab.name} FOR ALL TABLES",
        f"SELECT pg_create_logical_replication_slot('{lab.slot}', 'pgoutput', false, true)",
    )
    refused = lab.refusal(database={"slot": replace(lab.settings().database.slot, create=False)})
    assert (refused.reason, "two_phase" in refused.message) == (Reason.SOURCE_UNSUITABLE, True)


@since(14)
def test_limits_of_a_role_do_not_end_a_stage(lab: Lab) -> None:
    """A transaction is read for as long as it takes, and a stage that waits is no idle session."""
    role = f"{lab.name}_cdc"
    limits = {"idle_session_timeout": "500ms", **({"transaction_timeout": "200ms"} if major_version() >= 17 else {})}
    lab.sql(
        ORDERS,
        f"CREATE PUBLICATION {lab.name} FOR ALL TABLES",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        *(f"ALTER ROLE {role} SET {name} = '{value}'" for name, value in limits.items()),
    )
    there = {"connection": Database(servers=lab.server.address, database=lab.name, user=role)}
    lab.live(database=there)
    lab.watch()
    lab.sql("INSERT INTO orders SELECT g, 'x' FROM generate_series(1, 60000) AS g")
    life = lab.live(database=there)
    assert lab.check() == 60_000
    assert [each["event"] for each in life.told if each["event"] in ("claimed", "lost")] == ["claimed"]
    with lab.connected(DATABASE) as session:
        lab.close()
        session.execute(f"DROP ROLE {role}")


@pytest.fixture
def forgetful(kafka: LocalKafka, tmp_path: Path) -> Iterator[Lab]:
    """On a server that gives up slots which nobody reads."""
    with LocalPostgresql(settings={**LOGICAL, "idle_replication_slot_timeout": "1s"}) as server:
        lab = Lab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(ORDERS)
        yield lab
        lab.close()


@since(18)
def test_a_slot_that_was_idle_for_too_long(forgetful: Lab) -> None:
    forgetful.live()

    def is_lost() -> bool:
        forgetful.sql("CHECKPOINT")
        return forgetful.sql("SELECT wal_status FROM pg_replication_slots") == [("lost",)]

    wait_until(is_lost, "the server has given the slot up")
    refused = forgetful.refusal()
    assert refused.reason is Reason.SLOT_LOST
    assert "idle_replication_slot_timeout" in refused.message
    assert "raise idle_replication_slot_timeout" in refused.remedy


@pytest.mark.thorough("a standby, which takes seconds to make")
@pytest.mark.skipif(not has_program("pg_basebackup"), reason="no pg_basebackup")
def test_a_standby_is_told_once(kafka: LocalKafka, tmp_path: Path) -> None:
    with LocalPostgresql(settings=LOGICAL) as primary:
        lab = Lab(primary, kafka.bootstrap_servers, tmp_path)
        lab.sql(ORDERS)
        with LocalStandby(primary) as standby:
            standby.catch_up()
            connection = replace(lab.settings().postgresql.connection, servers=standby.address)
            settings = lab.settings(database={"connection": connection})
            assert ["is a standby" in each.message for each in foresee(settings).errors] == [True]
        lab.close()
