"""What `sinkpipeline validate` says of a database: each thing that is wrong, with a statement that helps when typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from servers.local_kafka import LocalKafka
from servers.pgbouncer import LocalPgBouncer, program
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.changes.ports import Foreseen
from sinkpipeline.changes.postgresql.foreseen import foresee
from sinkpipeline.core.errors import Reason
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.postgresql.settings import Connection as Database
from support.changes.lab import LOGICAL, Lab
from support.waiting import wait_until

pytestmark = pytest.mark.kafka

TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY)",
    "CREATE TABLE keyless (id int)",
    "CREATE TABLE nothing (id int PRIMARY KEY)",
    "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
)


def looked(lab: Lab, *tables: str, **database: Any) -> Foreseen:
    settings = lab.settings()
    publication = replace(settings.database.publication, tables=tables)
    return foresee(replace(settings, database=replace(settings.database, **{"publication": publication, **database})))


def typed(found: Foreseen) -> list[str]:
    """The statements of its remedies."""
    return [
        re.sub(r" \(Amazon.*| \(only.*|, and restart.*", "", each.remedy.rpartition("run ")[2]) for each in found.errors
    ]


def check_nothing_is_made(lab: Lab) -> None:
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert lab.sql(slots) == [(0,)]
    assert lab.sql("SELECT count(*) FROM pg_publication") == [(0,)]
    found = Admin(lab.settings().kafka).topics([lab.topic, lab.settings().progress.name])
    assert list(found.values()) == [None, None]


def test_what_a_first_start_would_do(lab: Lab) -> None:
    lab.sql(*TABLES[:1])
    found = looked(lab, "public.orders")
    assert found.errors == []
    [told] = found.told
    assert "starts for the first time, now" in told
    assert f'CREATE PUBLICATION "{lab.name}" FOR TABLE "public"."orders"' in told
    assert f"slot {lab.slot}" in told
    check_nothing_is_made(lab)
    lab.live()
    [told] = looked(lab, "public.orders").told
    assert told.startswith("resumes at ")


def test_what_a_snapshot_would_do(lab: Lab) -> None:
    lab.sql(*TABLES[:1], "INSERT INTO orders VALUES (1)", f"CREATE ROLE {lab.name}_cdc LOGIN REPLICATION")
    there = Database(servers=lab.server.address, database=lab.name, user=f"{lab.name}_cdc")
    of_role = looked(lab, "public.orders", connection=there, snapshot=True)
    [statement] = typed(of_role)
    role = f'"{lab.name}_cdc"'
    assert statement == f"GRANT USAGE ON SCHEMA public TO {role}; GRANT SELECT ON public.orders TO {role}"
    # The table has to be locked, for which a right on a column is too little.
    lab.sql(f"GRANT SELECT (id) ON orders TO {role}", "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    assert typed(looked(lab, "public.orders", connection=there, snapshot=True)) == [statement]
    lab.sql(statement)
    assert looked(lab, "public.orders", connection=there, snapshot=True).errors == []
    [told] = looked(lab, "public.orders", snapshot=True).told
    assert "starts for the first time, with a snapshot of the tables; creates " in told
    check_nothing_is_made(lab)
    stage = lab.start("snapshot-before-complete", database={"snapshot": True})
    stage.wait_at("snapshot-before-complete")
    stage.kill()
    [told] = looked(lab, "public.orders", snapshot=True).told
    assert "a start takes 1 rows back, and begins it anew in epoch 1; drops slot " in told
    lab.live(database={"snapshot": True})
    [told] = looked(lab, "public.orders", snapshot=True).told
    assert told.startswith("resumes at ")
    lab.sql(f"REVOKE ALL ON orders FROM {lab.name}_cdc", f"DROP OWNED BY {lab.name}_cdc; DROP ROLE {lab.name}_cdc")


@pytest.mark.skipif(program() is None, reason="no PgBouncer: make postgresql")
@pytest.mark.parametrize("mode", ["session", pytest.param("transaction", marks=pytest.mark.thorough("another mode"))])
def test_a_pooler_in_front_of_the_server(lab: Lab, mode: str) -> None:
    """It is told before a start, and by a start; named itself, the server suits."""
    lab.sql(*TABLES[:1])
    with LocalPgBouncer(lab.server.port, mode) as pooler:
        there = Database(servers=pooler.address, database=lab.name, user=SUPERUSER)
        [error] = looked(lab, "public.orders", connection=there).errors
        check_nothing_is_made(lab)
        refused = lab.refusal(database={"connection": there})
    for each in (error, refused):
        assert each.reason is Reason.SOURCE_UNSUITABLE
        assert "name the server itself" in each.remedy
    assert looked(lab, "public.orders").errors == []


def test_each_table_that_tells_no_rows_is_named_with_what_helps(lab: Lab) -> None:
    lab.sql(*TABLES)
    found = looked(lab, "public.orders", "public.keyless", "public.nothing", "public.missing")
    assert [each.reason for each in found.errors] == [Reason.SOURCE_UNSUITABLE] * 3
    assert "no table public.missing" in found.errors[0].message
    lab.sql(*typed(found)[1:])
    assert [each.message for each in looked(lab, "public.keyless", "public.nothing").errors] == []
    assert len(looked(lab).errors) == 0, "all tables are those three"
    whole = looked(lab, "public.orders", require_full=True)
    lab.sql(*typed(whole))
    assert looked(lab, "public.orders", require_full=True).errors == []
    check_nothing_is_made(lab)


def test_a_role_without_the_right_and_a_server_without_logical_wal(lab: Lab, postgresql: LocalPostgresql) -> None:
    """All that is wrong is told at once."""
    lab.sql(*TABLES[:1], f"CREATE ROLE {lab.name}_cdc LOGIN")
    there = Database(servers=lab.server.address, database=lab.name, user=f"{lab.name}_cdc")
    found = looked(lab, "public.orders", connection=there)
    assert [each.reason for each in found.errors] == [Reason.SOURCE_UNSUITABLE]
    lab.sql(*typed(found))
    assert looked(lab, "public.orders", connection=there).errors == []
    plain = Database(servers=postgresql.address, database=DATABASE, user=SUPERUSER)
    found = looked(lab, "public.missing", connection=plain)
    assert ["wal_level" in each.message for each in found.errors] == [True, False]
    assert typed(found)[0] == "ALTER SYSTEM SET wal_level = logical"


@pytest.mark.thorough("another thing that a server lacks")
def test_a_server_without_a_free_slot_or_sender(kafka: LocalKafka, tmp_path: Any) -> None:
    few = {**LOGICAL, "max_replication_slots": "1", "max_wal_senders": "1"}
    with LocalPostgresql(settings=few) as server:
        lab = Lab(server, kafka.bootstrap_servers, tmp_path)
        lab.sql(*TABLES[:1], "SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
        [error] = looked(lab, "public.orders").errors
        assert "max_replication_slots is 1" in error.message
        assert "ALTER SYSTEM SET max_replication_slots = 5" in error.remedy
        lab.sql("SELECT pg_drop_replication_slot('other')")
        assert looked(lab, "public.orders").errors == []
        wait_until(lambda: lab.sql("SELECT count(*) FROM pg_stat_replication") == [(0,)], "the last look has left")
        [error] = looked(lab, "public.orders", incremental=True).errors
        assert "a start needs 2 more" in error.message


@pytest.mark.thorough("another thing that a first start is refused for")
def test_a_slot_that_is_somebody_elses_or_missing(lab: Lab) -> None:
    lab.sql(*TABLES[:1])
    slot = replace(lab.settings().database.slot, create=False)
    [error] = looked(lab, "public.orders", slot=slot).errors
    [statement] = re.findall(r"SELECT pg_create_logical_replication_slot\(.*?\)", error.remedy)
    lab.sql(statement)
    assert looked(lab, "public.orders", slot=slot).errors == []
    [error] = looked(lab, "public.orders").errors
    assert "already" in error.message
    lab.drop_slot()


@pytest.fixture
def right(lab: Lab) -> Iterator[Database]:
    """A role with what docs/changes.md says that it needs, and nothing else."""
    role = f"{lab.name}_cdc"
    lab.sql(*TABLES[:1], f"CREATE PUBLICATION {lab.name} FOR TABLE orders", f"CREATE ROLE {role} LOGIN REPLICATION")
    yield Database(servers=lab.server.address, database=lab.name, user=role)
    lab.sql(f"REASSIGN OWNED BY {role} TO {SUPERUSER}", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.thorough("rights, taken away one by one")
def test_the_least_rights(lab: Lab, right: Database) -> None:
    """With a publication that is there, REPLICATION alone; to create one, the table's owner and CREATE beside."""
    lab.live(database={"connection": right})
    lab.sql("INSERT INTO orders VALUES (1)")
    lab.live(database={"connection": right})
    assert [each.told.row for each in lab.found()] == [(("id", 1),)]
    lab.sql(f"ALTER ROLE {right.user} NOREPLICATION")
    assert lab.refusal(database={"connection": right}).reason is Reason.SOURCE_UNSUITABLE
    lab.sql(f"ALTER ROLE {right.user} REPLICATION", f"REVOKE CONNECT ON DATABASE {lab.name} FROM PUBLIC")
    assert lab.refusal(database={"connection": right}).reason in (
        Reason.AUTHENTICATION_FAILED,
        Reason.SOURCE_UNSUITABLE,
    )


@pytest.mark.thorough("rights, taken away one by one")
@pytest.mark.parametrize("without", ["", "owner", "create"])
def test_the_least_rights_to_create_a_publication(lab: Lab, right: Database, without: str) -> None:
    lab.sql(f"DROP PUBLICATION {lab.name}")
    if without != "owner":
        lab.sql(f"ALTER TABLE orders OWNER TO {right.user}")
    if without != "create":
        lab.sql(f"GRANT CREATE ON DATABASE {lab.name} TO {right.user}")
    publication = replace(lab.settings().database.publication, tables=("public.orders",))
    told: dict[str, Any] = {"connection": right, "publication": publication}
    if without:
        assert lab.refusal(database=told).reason is Reason.SOURCE_UNSUITABLE
    else:
        lab.live(database=told)
