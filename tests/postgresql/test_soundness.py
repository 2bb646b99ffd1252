"""Tables in which rows would not be taken, or not be found again; and what a session leaves on a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.postgresql import cells, client
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.lines import row
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.postgresql.statements import OLD_XIDS, CellStatements, TableStatements
from sinkpipeline.postgresql.target import oid_of
from support.sink.cell_sink import P0
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal
from support.waiting import wait_until

NOTE = Column(name="note", type="text")
DELETING = Upsert(key=("id",), deletes=True)


def as_role(sink: SqlSink, *settings: str) -> None:
    """Of its own, with what it needs in a database where all is there."""
    sink.sql(f"CREATE ROLE {sink.name} LOGIN SUPERUSER")
    for each in settings:
        sink.sql(f"ALTER ROLE {sink.name} SET {each}")
    sink.changes = {**sink.changes, "connection": replace(sink.settings.connection, user=sink.name)}


# Rows that a merge looks for


def citext(sink: SqlSink) -> None:
    """Its equality knows no case; where that is not found, the one of texts is taken."""
    sink.sql(f"CREATE SCHEMA {sink.name}_ext; CREATE EXTENSION citext SCHEMA {sink.name}_ext")
    sink.upsert, sink.columns = DELETING, (Column(name="id", type=f"{sink.name}_ext.citext"), NOTE)


def commits(sink: SqlSink, *each: list[list[str | None]]) -> list[tuple[object, ...]]:
    """The rows after a commit of each of these lists of changes."""
    started = sink.driver(make=lambda _partition, _offsets: batch([], [])).started
    settings, session = sink.settings, client.Client(sink.settings.connection)
    sink.clients.append(session)
    found = PostgresqlCells(
        session,
        CellStatements(settings.progress_schema),
        TableStatements(settings.table, settings.progress_schema, oid_of(started.data_topic.id)),
    )
    key = settings.id.partition_key(P0)
    for changes in each:
        found.commit(key, b"{}", found.read([key])[key].version, [row(change) for change in changes])
    return sink.sql(f"SELECT * FROM {sink.table} ORDER BY 1")


def test_keys_that_an_operator_out_of_sight_tells_apart_are_refused(sink: SqlSink) -> None:
    """A deletion of `ABC` would find no `abc`, and count as done."""
    citext(sink)
    try:
        as_role(sink)
        told = refusal(sink.driver, Reason.SINK_REFUSED)
        assert f'column "id" apart by an operator of schema {sink.name}_ext' in told.message
        sink.sql(told.remedy)
        assert commits(sink, [["abc", "a", "f"], ["x", "b", "f"]], [["ABC", None, "t"], ["X", "c", "f"]]) == [
            ("x", "c")
        ]
    finally:
        sink.sql(f"DROP SCHEMA {sink.name}_ext CASCADE")


def test_a_unique_key_of_another_collation_than_its_column_is_refused(sink: SqlSink) -> None:
    sink.sql(f"CREATE COLLATION {sink.name} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    sink.upsert, sink.columns = DELETING, (Column(name="id", type="text"), NOTE)
    sink.sql(
        f"CREATE TABLE {sink.table} (id text, note text); CREATE UNIQUE INDEX ON {sink.table} (id COLLATE {sink.name})"
    )
    told = refusal(sink.driver, Reason.SINK_REFUSED)
    assert "by another collation" in told.message
    sink.sql(f"ALTER TABLE {sink.table} ALTER id TYPE text COLLATE {sink.name}")
    assert commits(sink, [["abc", "a", "f"], ["x", "b", "f"]], [["ABC", None, "t"], ["X", "c", "f"]]) == [("x", "c")]


# Rows that the table takes


def test_a_column_that_every_row_would_lack_is_told_at_the_start(sink: SqlSink) -> None:
    """And not by dead letters, one for each record of the source."""
    sink.sql(
        f"CREATE TABLE {sink.table} (part int, off bigint, value text, made timestamptz NOT NULL DEFAULT now(), "
        "number bigint NOT NULL GENERATED ALWAYS AS IDENTITY, must int NOT NULL)"
    )
    told = refusal(sink.driver, Reason.SINK_REFUSED)
    assert 'has column "must", which may not be null' in told.message
    sink.sql(told.remedy.partition(": ")[2].replace("...", "7"))
    sink.driver().drain()
    assert sink.delivered() == sink.once


def test_a_trigger_may_give_a_column_its_value(sink: SqlSink) -> None:
    sink.sql(
        f"CREATE TABLE {sink.table} (part int, off bigint, value text, must int NOT NULL); "
        f'CREATE FUNCTION "{sink.name}"() '
        "RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.must = 7; RETURN NEW; END'; "
        f'CREATE TRIGGER t BEFORE INSERT ON {sink.table} FOR EACH ROW EXECUTE FUNCTION "{sink.name}"()'
    )
    sink.driver().drain()
    assert sink.delivered() == sink.once


@pytest.mark.parametrize("parts", ["", " PARTITION BY LIST (part)"], ids=["plain", "partitioned"])
def test_who_may_only_insert_does_not_take_a_table_for_empty(sink: SqlSink, parts: str) -> None:
    schema = sink.table.rpartition(".")[0]
    sink.sql(f"CREATE TABLE {sink.table} (part int, off bigint, value text){parts}")
    if parts:
        sink.sql(f"CREATE TABLE {schema}.parts PARTITION OF {sink.table} DEFAULT")
    sink.sql(f"INSERT INTO {sink.table} VALUES (0, 1, 'theirs'); CREATE ROLE {sink.name} LOGIN")
    sink.sql(f"GRANT CREATE ON DATABASE postgres TO {sink.name}; GRANT USAGE ON SCHEMA {schema} TO {sink.name}")
    sink.sql(f"GRANT INSERT ON {sink.table} TO {sink.name}")
    sink.changes = {
        "connection": replace(sink.settings.connection, user=sink.name),
        "refuse_existing_data": True,
    }
    refusal(sink.driver, Reason.DATA_TOPIC_NOT_EMPTY)


# What a session leaves


def age(sink: SqlSink) -> int:
    """Of the oldest table that somebody else can't vacuum."""
    [(found,)] = sink.sql("SELECT max(age(relfrozenxid)) FROM pg_class WHERE relkind = 'r' AND relpersistence = 't'")
    return int(found or 0)


def test_a_temporary_table_does_not_grow_old(sink: SqlSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it stays the database can't forget what was before it, and a server that can't forget stops."""
    most = 50
    monkeypatch.setattr(cells, "OLD_XIDS", most)
    sink.upsert, sink.columns = Upsert(key=("id",)), (Column(name="id", type="int"), NOTE)
    ages = []
    each: list[list[list[str | None]]] = [[["1", str(number)]] for number in range(3 * most)]
    real = PostgresqlCells._stage

    def stage(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        ages.append(age(sink))

    monkeypatch.setattr(PostgresqlCells, "_stage", stage)
    assert commits(sink, *each) == [(1, str(3 * most - 1))]
    assert most // 2 < max(ages) <= most + 5
    assert OLD_XIDS < 200_000_000, "from where on a server by default vacuums for this alone"


def test_a_session_with_a_temporary_table_ends_when_nobody_uses_it(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinkpipeline.postgresql.statements.IDLE_SESSION", "1s")
    sink.upsert = Upsert(key=("part", "off"))
    driver = sink.driver()
    driver.batch()
    wait_until(lambda: age(sink) == 0, "the temporary table is gone")
    driver.drain()
    assert sink.delivered() == sink.once


def test_without_a_password_nothing_is_said_of_one(sink: SqlSink, capfd: pytest.CaptureFixture[str]) -> None:
    """Libpq itself writes to our standard error."""
    sink.driver()
    assert "password" not in capfd.readouterr().err
