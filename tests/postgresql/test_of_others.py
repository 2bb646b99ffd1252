"""What others do to the server, to its tables, to roles and sessions; and what a removal or a reset leaves to them."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SinkId
from sinkpipeline.core.ports import Fenced, RecordRefused
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.postgresql import cells, client
from sinkpipeline.postgresql import session as sessions
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.lines import row
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.postgresql.statements import CellStatements, TableStatements
from sinkpipeline.postgresql.target import PostgresqlTarget, oid_of
from sinkpipeline.sinks import removal, reset
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from support.cells import TOPIC
from support.sink.cell_sink import P0
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal
from support.waiting import wait_until


def at(monkeypatch: pytest.MonkeyPatch, module: object, name: str, action: Callable[[], object]) -> None:
    """What happens at a failpoint, the first time."""
    left = [action]

    def failpoint(reached: str) -> None:
        if reached == name and left:
            left.pop()()

    holder = module if hasattr(module, "failpoint") else module.failpoints  # type: ignore[attr-defined]
    monkeypatch.setattr(holder, "failpoint", failpoint)


# Removals and resets


def test_a_removal_that_is_overtaken_removes_nothing(sink: SqlSink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.driver().batch()
    newer = []
    at(monkeypatch, removal, "removal-before-tombstones", lambda: newer.append(sink.driver()))
    monkeypatch.setattr(PostgresqlTarget, "delete", lambda *_: None)
    refusal(SinkRemoval(ports=sink.ports()).carry_out, Reason.SUPERSEDED)
    newer[0].drain()
    assert sink.delivered() == sink.once


def test_a_removal_leaves_no_cell_that_it_has_made(sink: SqlSink) -> None:
    sink.driver().batch()
    key = sink.settings.id.partition_key(P0)
    sink.sql(f"DELETE FROM {sink.progress} WHERE key = '{key}'")
    SinkRemoval(ports=sink.ports()).carry_out()
    assert sink.sql(f"SELECT count(*) FROM {sink.progress}") == [(0,)]


def test_a_table_into_which_another_sink_delivers_outlives_a_removal(sink: SqlSink) -> None:
    sink.driver().batch()
    other = SqlSink(sink.address, name=sink.name, changes={"id": SinkId("i", "other")})
    other.driver()
    kept = SinkRemoval(ports=sink.ports()).carry_out()
    other.close()
    assert kept is not None
    assert "delivers into it" in kept.why
    assert sink.sql(f"SELECT count(*) FROM {sink.table}") == [(8,)]


def test_a_table_that_is_made_anew_at_the_moment_of_its_removal_is_somebody_elses(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.driver().batch()
    real = PostgresqlTarget.delete

    def delete(*args: str) -> None:
        sink.sql(f"DROP TABLE {sink.table}; CREATE TABLE {sink.table} (theirs int)")
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresqlTarget, "delete", delete)
    refusal(SinkRemoval(ports=sink.ports()).carry_out, Reason.TOPICS_CHANGED)
    assert sink.sql(f"SELECT count(*) FROM {sink.table}") == [(0,)]


def test_a_table_that_others_depend_on_is_told_of_and_not_taken_for_trouble(sink: SqlSink) -> None:
    sink.driver()
    sink.sql(f"CREATE VIEW {sink.table.replace('orders', 'seen')} AS SELECT * FROM {sink.table}")
    error = refusal(SinkRemoval(ports=sink.ports()).carry_out, Reason.SINK_REFUSED)
    assert "depend" in error.message


def test_a_reset_that_is_overtaken_by_a_task_of_a_newer_driver_changes_nothing(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.driver().batch()
    resetting = SinkReset(ports=sink.ports())
    plan = resetting.plan(parse_targets([f"{TOPIC}:0=1,{TOPIC}:1=earliest"]))
    newer = []
    at(monkeypatch, reset, "reset-before-transaction", lambda: newer.append(sink.driver()))
    refusal(lambda: resetting.carry_out(plan), Reason.SUPERSEDED)
    newer[0].drain()
    assert sink.delivered() == sink.once


def test_a_replacement_asks_whose_each_cell_is(sink: SqlSink) -> None:
    """`meta` alone may be as it was in a store that writes one cell after the other."""
    driver = sink.driver()
    key = sink.settings.id.partition_key(P0)
    sink.sql(
        f"UPDATE {sink.progress} SET value = jsonb_set(value::jsonb, '{{run}}', '\"another\"')::json "
        f"WHERE key = '{key}'"
    )
    with pytest.raises(Fenced):
        driver.started.hold.replace(driver.started.progress, driver.started.progress)


# Sessions that somebody else has used, and tables that change


def changing(sink: SqlSink, upsert: Upsert, columns: tuple[Column, ...], session: client.Client) -> Callable[..., None]:
    """Commits by a session that is given."""
    sink.upsert, sink.columns = upsert, columns
    started = sink.driver(make=lambda _partition, _offsets: batch([], [])).started
    settings = sink.settings
    found = PostgresqlCells(
        session,
        CellStatements(settings.progress_schema),
        TableStatements(settings.table, settings.progress_schema, oid_of(started.data_topic.id)),
    )
    key = settings.id.partition_key(P0)

    def commit(*changes: list[str | None]) -> None:
        found.commit(key, b"{}", found.read([key])[key].version, [row(each) for each in changes])

    return commit


ID, NOTE = Column(name="id", type="integer"), Column(name="note", type="text")


def test_two_sinks_of_one_session_merge_into_one_table_each_in_its_way(sink: SqlSink) -> None:
    """As in a worker that has tasks of both, and behind a pooler, where sessions are shared by everybody."""
    session = client.Client(sink.settings.connection)
    sink.clients.append(session)
    first = changing(sink, Upsert(key=("id",)), (ID, NOTE), session)
    second = changing(sink, Upsert(key=("id",), deletes=True), (ID,), session)
    first(["1", "a"], ["2", "b"])
    second(["1", "t"], ["3", "f"])
    first(["4", "d"])
    assert sink.sql(f"SELECT id, note FROM {sink.table} ORDER BY id") == [(2, "b"), (3, None), (4, "d")]


def test_a_column_that_is_widened_takes_what_it_takes_by_now(sink: SqlSink) -> None:
    session = client.Client(sink.settings.connection)
    sink.clients.append(session)
    commit = changing(sink, Upsert(key=("id",)), (ID, replace(NOTE, type="varchar(3)")), session)
    commit(["1", "abc"])
    sink.sql(f"ALTER TABLE {sink.table} ALTER note TYPE varchar(9), ALTER id TYPE bigint")
    commit(["5000000000", "abcdef"])
    assert sink.sql(f"SELECT note FROM {sink.table} WHERE id > 5") == [("abcdef",)]


@pytest.mark.parametrize("kind", ["double precision", "numeric(10,2)"])
def test_what_is_no_number_orders_nothing(sink: SqlSink, kind: str) -> None:
    """It would be newer than all that comes, for ever."""
    session = client.Client(sink.settings.connection)
    sink.clients.append(session)
    commit = changing(sink, Upsert(key=("id",), order_type=kind), (ID, NOTE), session)
    with pytest.raises(RecordRefused) as caught:
        commit(["1", "a", "1"], ["1", "b", "NaN"])
    assert caught.value.index == 1
    commit(["1", "c", "3"])
    assert sink.sql(f"SELECT note FROM {sink.table}") == [("c",)]


def test_an_order_of_another_kind_than_before_is_refused_at_the_start(sink: SqlSink) -> None:
    sink.upsert, sink.columns = Upsert(key=("id",), order_type="bigint"), (ID, NOTE)
    sink.driver()
    sink.upsert = replace(sink.upsert, order_type="timestamptz")
    assert "sinkpipeline_order" in refusal(sink.driver, Reason.SINK_REFUSED).message
    sink.upsert = replace(sink.upsert, order_type="bigint")
    sink.sql(f"ALTER TABLE {sink.table} ALTER id TYPE bigint")
    assert '"id"' in refusal(sink.driver, Reason.SINK_REFUSED).message


@pytest.mark.parametrize("cure", ["newer: (DROP .*?);", "numbers: (COMMENT .*)$"])
def test_another_order_by_than_before_is_refused_at_the_start(sink: SqlSink, cure: str) -> None:
    """Versions are smaller than microseconds: every change would be an older one, and count as delivered."""
    at, version = Upsert(key=("id",), order_type="bigint", order_by="at"), r"version + length('\\')"
    sink.upsert, sink.columns = at, (ID, NOTE)

    def run(order: str) -> None:
        sink.driver(make=lambda _, offsets: batch(offsets, [("1", order, order)] * len(offsets))).batch()

    run("1700000000000000")
    sink.upsert = replace(at, order_by=version)
    told = refusal(lambda: run("1"), Reason.SINK_REFUSED)
    assert f"is of orderBy at, and the manifest says {version}" in told.message
    [typed] = re.findall(cure, told.remedy)
    sink.sql(typed)
    run("1")
    assert sink.sql(f"SELECT note FROM {sink.table}") == [("1" if "DROP" in cure else "1700000000000000",)]


def test_an_order_of_another_type_than_before_is_refused_at_the_start(sink: SqlSink) -> None:
    """The expression is the same; of a time it gives microseconds, and of a number that number."""
    number = Upsert(key=("id",), order_type="bigint", order_by="at", order_kind="number")
    sink.upsert, sink.columns = number, (ID, NOTE)
    sink.driver()
    sink.upsert = replace(number, order_kind="time")
    told = refusal(sink.driver, Reason.SINK_REFUSED)
    assert "is of orderBy at (a number), and the manifest says at (a time)" in told.message
    [typed] = re.findall("numbers: (COMMENT .*)$", told.remedy)
    sink.sql(typed)
    sink.driver()


@pytest.mark.parametrize("what", ["table", "progress"])
def test_a_table_that_a_crash_empties_is_refused(sink: SqlSink, what: str) -> None:
    sink.driver()
    sink.sql(f"ALTER TABLE {getattr(sink, what)} SET UNLOGGED")
    assert "UNLOGGED" in refusal(sink.driver, Reason.SINK_REFUSED).message


def test_what_is_no_table_is_refused(sink: SqlSink) -> None:
    sink.sql(f"CREATE TABLE {sink.table}_2 (part int, off bigint PRIMARY KEY, value text)")
    sink.sql(f"CREATE VIEW {sink.table} AS SELECT * FROM {sink.table}_2")
    sink.upsert = Upsert(key=("off",))
    assert "is no table" in refusal(sink.driver, Reason.SINK_REFUSED).message


# Roles


def role(sink: SqlSink, *settings: str) -> None:
    sink.sql(f"CREATE ROLE {sink.name} LOGIN SUPERUSER")
    for each in settings:
        sink.sql(f"ALTER ROLE {sink.name} SET {each}")
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}


def test_what_a_text_means_is_not_the_roles_to_say(sink: SqlSink) -> None:
    role(sink, "timezone = 'Asia/Tokyo'", "datestyle = 'SQL, DMY'", "intervalstyle = 'sql_standard'")
    sink.columns = (*sink.columns[:2], Column(name="at", type="timestamptz"), Column(name="took", type="interval"))
    driver = sink.driver(
        make=lambda _partition, offsets: batch(
            offsets, [("0", str(each), "02/03/2026 10:00", "-1 2:00") for each in offsets]
        )
    )
    driver.batch()
    assert sink.sql(
        f"SELECT DISTINCT \"at\" AT TIME ZONE 'UTC' = '2026-02-03 10:00', took = '-22 hours' FROM {sink.table}"
    ) == [(True, True)]


def test_a_deletion_that_a_policy_hides_from_us_is_not_counted_as_done(sink: SqlSink) -> None:
    sink.upsert = Upsert(key=("part", "off"), deletes=True)
    sink.driver()
    sink.sql(f"CREATE ROLE {sink.name} LOGIN")
    schema = sink.table.rpartition(".")[0]
    sink.sql(f"GRANT USAGE ON SCHEMA {schema}, {sink.name}_progress TO {sink.name}")
    sink.sql(f"GRANT ALL ON {sink.table}, {sink.progress} TO {sink.name}")
    sink.sql("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
    sink.sql(f"CREATE POLICY ours ON {sink.table} FOR INSERT WITH CHECK (true)")
    sink.sql(f"ALTER TABLE {sink.table} ENABLE ROW LEVEL SECURITY; INSERT INTO {sink.table} VALUES (0, 3, 'x')")
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}

    def run() -> None:
        sink.driver(make=lambda _, offsets: batch(offsets, [("0", str(n), "v", "t") for n in offsets])).drain()

    assert "row-level security" in refusal(run, Reason.SINK_REFUSED).message


def test_a_text_with_null_is_an_array_with_one(sink: SqlSink) -> None:
    role(sink, "array_nulls = off", "xmloption = document")
    sink.columns = (*sink.columns[:2], Column(name="a", type="text[]"), Column(name="x", type="xml"))
    sink.driver(make=lambda _, offsets: batch(offsets, [("0", str(n), "{a,NULL}", "<a/>b") for n in offsets])).batch()
    assert sink.sql(f"SELECT DISTINCT a[2] IS NULL, x::text FROM {sink.table}") == [(True, "<a/>b")]


# Rows


def test_what_is_refused_before_there_are_rows_blames_none(sink: SqlSink) -> None:
    """Each record would become a dead letter, although none of them was looked at."""
    sink.upsert = Upsert(key=("part", "off"))
    driver = sink.driver()
    sink.sql(
        f'CREATE FUNCTION "{sink.name}"() RETURNS event_trigger LANGUAGE plpgsql AS '
        f"'BEGIN IF current_query() LIKE ''%{sink.name}%'' THEN RAISE EXCEPTION ''no tables''; END IF; END'"
    )
    sink.sql(
        f"CREATE EVENT TRIGGER {sink.name} ON ddl_command_start WHEN TAG IN ('CREATE TABLE AS')"
        f' EXECUTE FUNCTION "{sink.name}"()'
    )
    try:
        told = refusal(driver.drain, Reason.SINK_REFUSED)
        assert "no tables" in told.message
    finally:
        sink.sql(f"DROP EVENT TRIGGER {sink.name}")
    sink.driver().drain()
    assert sink.delivered() == sink.once


def test_a_type_with_a_wrong_length_is_refused(sink: SqlSink) -> None:
    sink.columns = (*sink.columns[:2], Column(name="v", type="varchar(0)"))
    assert "length for type varchar" in refusal(sink.driver, Reason.SINK_REFUSED).message


def test_the_order_of_changes_is_kept_by_a_table_that_a_crash_empties(sink: SqlSink) -> None:
    sink.upsert = Upsert(key=("part",), order_type="bigint", order_by="off")
    sink.driver()
    [(order,)] = sink.sql(
        f"SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = '{sink.name}_progress'::regnamespace"
        " AND relname LIKE 'order\\_%' AND relkind = 'r'"
    )
    sink.sql(f"ALTER TABLE {order} SET UNLOGGED")
    told = refusal(sink.driver, Reason.SINK_REFUSED)
    sink.sql(told.remedy[told.remedy.index("ALTER TABLE") :])
    sink.driver()


def test_a_trigger_that_refuses_a_row_refuses_that_row(sink: SqlSink) -> None:
    sink.driver()
    sink.sql(
        f'CREATE FUNCTION "{sink.name}"() RETURNS trigger LANGUAGE plpgsql AS '
        "'BEGIN IF NEW.off = 2 THEN RAISE EXCEPTION ''not this one''; END IF; RETURN NEW; END'"
    )
    sink.sql(f'CREATE TRIGGER t BEFORE INSERT ON {sink.table} FOR EACH ROW EXECUTE FUNCTION "{sink.name}"()')
    error = refusal(sink.driver().drain, Reason.RECORD_REFUSED)
    assert "offset 2 was refused: raise_exception" in error.message
    assert "not this one" not in error.message
    assert error.remedy.startswith("correct the expressions of transform.select.columns, or alter the table;")


def test_a_trigger_that_leaves_rows_out_is_told_as_what_it_is(sink: SqlSink) -> None:
    sink.driver()
    sink.sql(
        f'CREATE FUNCTION "{sink.name}"() RETURNS trigger LANGUAGE plpgsql AS '
        "'BEGIN IF NEW.off = 2 THEN RETURN NULL; END IF; RETURN NEW; END'"
    )
    sink.sql(f'CREATE TRIGGER t BEFORE INSERT ON {sink.table} FOR EACH ROW EXECUTE FUNCTION "{sink.name}"()')
    assert "trigger" in refusal(sink.driver().drain, Reason.SINK_REFUSED).message


def commit_rows(sink: SqlSink, values: list[tuple[str | None, ...]]) -> RecordRefused:
    driver = sink.driver()
    settings = sink.settings
    found = PostgresqlCells(
        driver.ports.client,  # type: ignore[attr-defined]  # of this kind
        CellStatements(settings.progress_schema),
        TableStatements(settings.table, settings.progress_schema, oid_of(driver.started.data_topic.id)),
    )
    key = settings.id.partition_key(P0)
    with pytest.raises(RecordRefused) as caught:
        found.commit(key, b"{}", found.read([key])[key].version, [row(each) for each in values])
    return caught.value


def test_no_row_is_blamed_for_a_neighbour_that_is_too_big(sink: SqlSink) -> None:
    """The server says `line 24` of whichever line it has read last."""
    count = 600
    sink.columns = tuple(Column(name=f"c{each}", type="uuid") for each in range(count))
    small: tuple[str | None, ...] = ("00000000-0000-0000-0000-000000000000", *[None] * (count - 1))
    big = ("00000000-0000-0000-0000-000000000000",) * count
    refused = commit_rows(sink, [*[small] * 2, big, *[small] * 97])
    assert (refused.verdict.code, refused.index) == ("54000", None)


def test_what_a_row_holds_blames_no_other_row(sink: SqlSink) -> None:
    sink.columns = (Column(name="part", type="integer"), Column(name="off", type="bigint"))
    for fake in ("x\nCOPY orders, line 1, column off: y", "x, line 1, y", "x, line 1: y"):
        refused = commit_rows(sink, [("0", "0"), ("0", "1"), ("0", fake)])
        assert refused.index in (2, None)
    sink.sql(f"DROP TABLE {sink.table}")
    sink.changes = {"table": replace(sink.settings.table, name="orders, line 1")}
    assert commit_rows(sink, [("0", "0"), ("0", "no number")]).index == 1


# Servers


def test_a_server_that_freezes_is_not_waited_for_for_ever(sink: SqlSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine answers for it, so no connection breaks. What it does once it goes on is a late commit."""
    monkeypatch.setattr(sessions, "ANSWER_S", 0.5)
    monkeypatch.setattr(client, "LOCK_TIMEOUT_MS", 100)
    driver = sink.driver()
    frozen: list[int] = []

    def freeze() -> None:
        [(pid,)] = sink.sql(
            "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
        )
        os.kill(pid, signal.SIGSTOP)
        frozen.append(pid)

    at(monkeypatch, cells, "sql-before-commit", freeze)
    driver.pause_s = 0.1
    running = threading.Thread(target=driver.drain)
    running.start()
    wait_until(lambda: frozen != [], "a server that is frozen")
    try:
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: sink.sql(waiting) != [(0,)], "somebody who waits for what it holds")
    finally:
        os.kill(frozen[0], signal.SIGCONT)
    running.join()
    assert sink.delivered() == sink.once
