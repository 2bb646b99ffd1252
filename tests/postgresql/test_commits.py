"""Rows and progress in one transaction, on a real server: what is there after each trouble is there once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.cells.store import Moved
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.targets import Targets
from sinkpipeline.postgresql import cells, client
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.statements import CellStatements, TableStatements
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from support.sink.cell_driver import Driver
from support.sink.cell_sink import P0
from support.sink.sql_child import Child
from support.sink.sql_sink import SqlSink, of_offsets
from support.sink.starts import refusal


@pytest.fixture
def proxied(postgresql: LocalPostgresql, sink: SqlSink) -> Iterator[tuple[SqlSink, SqlProxy]]:
    """The sink of this test, by way of a proxy."""
    with SqlProxy(postgresql.port) as proxy:
        found = SqlSink(proxy.address, name=sink.name)
        yield found, proxy
        found.close()


def test_a_first_start_and_its_batches_and_a_resume(sink: SqlSink) -> None:
    first = sink.driver()
    first.batch()
    second = sink.driver()
    second.drain()
    assert sink.delivered() == sink.once
    meta = second.delivery.progress.meta
    assert meta is not None
    assert (meta.data, meta.created) == (second.ports.target.id(), second.ports.target.id())
    assert refusal(first.batch, Reason.SUPERSEDED)
    assert sink.delivered() == sink.once


def test_a_writer_that_is_frozen_lets_go_of_its_partition(sink: SqlSink, tmp_path: Path) -> None:
    frozen = Child(sink, tmp_path, "sql-after-cell", idle_ms=1_000)
    frozen.wait_at("sql-after-cell")
    sink.driver().drain()
    assert sink.delivered() == sink.once
    frozen.release("sql-after-cell")
    assert frozen.end() == {"told": "Superseded"}
    assert sink.delivered() == sink.once


@pytest.mark.thorough("each request of a commit", after=2)
@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize(
    ("of", "after"), [(b"COMMIT", b"COPY"), (b"COPY", b""), (b"UPDATE", b""), (b"COMMIT", b"UPDATE")]
)
def test_an_answer_that_is_lost(proxied: tuple[SqlSink, SqlProxy], loss: Loss, of: bytes, after: bytes) -> None:
    sink, proxy = proxied
    driver = sink.driver(step=2)
    for _ in range(3):
        proxy.lose(of, loss, after=after)
        with contextlib.suppress(Restart):
            driver.batch()
        driver.start()
    driver.drain()
    assert (proxy.caught, sink.delivered()) == (3, sink.once)
    if after == b"COPY":
        assert (driver.costs.in_doubt, driver.costs.retries) == (3, {"SinkUnreachable": 3})
        answered = driver.costs.rows.total == sum(sink.ends.values())
        assert answered is (loss is Loss.REQUEST), "what counts without an answer is in no histogram"


@pytest.mark.thorough("each transaction of a start", after=1)
@pytest.mark.parametrize("loss", Loss)
def test_the_answer_to_any_commit_of_a_start_is_lost(proxied: tuple[SqlSink, SqlProxy], loss: Loss) -> None:
    """Each of its transactions in turn: what it made and did not see is found, and nothing is begun twice."""
    sink, proxy = proxied
    lost = 0
    for nth in range(40):
        before = proxy.caught
        with pytest.MonkeyPatch.context() as patch:
            after = nth

            def begin(self: client.Client, real: Callable[..., object] = client.Client._connected) -> object:
                nonlocal after
                if not after:
                    proxy.lose(b"COMMIT", loss)
                after -= 1
                return real(self)

            patch.setattr(client.Client, "_connected", begin)
            started(sink)
        lost += proxy.caught - before
        if proxy.caught == before:
            break
    sink.driver().drain()
    assert lost > 10
    assert sink.delivered() == sink.once


def started(sink: SqlSink) -> Driver:
    """As a runner would: what may be tried again is."""
    for _ in range(10):
        try:
            return sink.driver()
        except SinkPipelineError as error:
            # An announcement that came through, and was not seen to, looks like a newer driver's.
            if not error.reason.retry and error.reason is not Reason.SUPERSEDED:
                raise
    raise AssertionError("it never started")


def taken_from_each_other(sink: SqlSink) -> None:
    sink.ends = {P0: 120}
    superseded = [0, 0]

    def drive(which: int) -> None:
        for _ in range(200):
            try:
                sink.driver(step=7).drain()
            except SinkPipelineError as error:
                if error.reason not in (Reason.SUPERSEDED, Reason.FENCED_REPEATEDLY):
                    raise
                superseded[which] += 1
            else:
                return

    threads = [threading.Thread(target=drive, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.delivered() == sink.once


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_session_that_is_terminated_and_a_lock_that_is_not_to_be_had(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = sink.driver()
    driver.batch()
    sink.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'sinkpipeline' AND query LIKE 'COMMIT%'"
    )
    driver.batch()
    monkeypatch.setattr(client, "LOCK_TIMEOUT_MS", 50)
    with psycopg.connect(
        host="127.0.0.1", port=sink.address.rpartition(":")[2], user=SUPERUSER, dbname=DATABASE
    ) as other:
        other.execute(f"LOCK TABLE {sink.table}".encode())
        writing = threading.Thread(target=driver.drain)
        writing.start()
        wait_until(lambda: sink.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        wait_until(lambda: sink.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)])
        other.rollback()
        writing.join()
    assert sink.delivered() == sink.once


def test_a_role_that_is_serializable_and_does_not_wait_for_the_disk(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defaults of a role are somebody's own: none of them makes a commit less than it is."""
    sink.sql(f"CREATE ROLE {sink.name} LOGIN SUPERUSER")
    sink.sql(f"ALTER ROLE {sink.name} SET default_transaction_isolation = serializable")
    sink.sql(f"ALTER ROLE {sink.name} SET synchronous_commit = off")
    connection = sink.settings.connection
    sink.changes = {"connection": type(connection)(servers=connection.servers, database=DATABASE, user=sink.name)}
    seen = []
    with client_of(sink).reading() as work:
        seen += work.rows("SELECT current_setting('synchronous_commit')")
        seen += work.rows("SELECT current_setting('transaction_isolation')")
    # What is read in a transaction is what counts by then: a value that was kept, or a row that is to be deleted.
    assert seen == [("on",), ("read committed",)]
    sink.ends = {P0: 120}
    assert "40001" not in a_conflict(sink, monkeypatch)
    taken_from_each_other(sink)


def a_conflict(sink: SqlSink, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Two transactions write one cell, and the second began before the first has ended; what the server said."""
    states: list[str | None] = []
    real = client.Client._told
    has_cell, may_commit = threading.Event(), threading.Event()

    def told(self: client.Client, error: psycopg.Error, *, committing: bool, of_rows: bool) -> Exception:
        states.append(error.sqlstate)
        return real(self, error, committing=committing, of_rows=of_rows)

    def hold(name: str) -> None:
        if name == "sql-after-cell" and not has_cell.is_set():
            has_cell.set()
            assert may_commit.wait(30)

    driver = sink.driver()
    writer, offsets = next(driver.writers())
    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(client.Client, "_told", told)
        patch.setattr(cells, "failpoint", hold)
        writing = pool.submit(driver.write, writer, offsets)
        try:
            wait_until(has_cell.is_set)
            # Its start takes the cell too, and so waits for it.
            starting = pool.submit(sink.driver)
            wait_until(lambda: sink.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        finally:
            may_commit.set()
        writing.result()
        starting.result()
    return states


def client_of(sink: SqlSink) -> client.Client:
    found = client.Client(sink.settings.connection)
    sink.clients.append(found)
    return found


def test_a_table_that_is_made_again_within_a_transaction(sink: SqlSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the claim, which looks, and the commit."""
    driver = sink.driver()
    driver.batch()
    writer, offsets = next(driver.writers())
    statements = driver.ports.target._statements.create  # type: ignore[attr-defined]  # of this kind
    taken: list[bool] = []
    real = client.Work.copy

    def copy(self: client.Work, *args: Any) -> int:
        if not taken:
            taken.append(True)
            for each in (f"DROP TABLE {sink.table}", statements):
                sink.sql(each)
        return real(self, *args)

    monkeypatch.setattr(client.Work, "copy", copy)
    refusal(lambda: driver.write(writer, offsets), Reason.TOPICS_CHANGED)
    assert sink.sql(f"SELECT count(*) FROM {sink.table}") == [(0,)], "nothing is written into another table"
    refusal(driver.start, Reason.DATA_TOPIC_LOST)


def test_progress_that_is_dropped_while_it_runs_is_lost(sink: SqlSink) -> None:
    """With the cells goes what would tell of a newer driver, so nobody can prove that there was none."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    writer, offsets = next(driver.writers())
    sink.sql(f"DROP TABLE {sink.progress}")
    refusal(lambda: driver.write(writer, offsets), Reason.SINK_REFUSED)
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_LOST)
    assert sink.delivered() == {each: offsets[:4] for each, offsets in sink.once.items()}


def test_progress_that_is_gone_is_not_made_of_what_a_status_remembers(sink: SqlSink) -> None:
    """A database that was restored to before the first start has none, and none of the rows that the status counts."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    driver.delivery.close()
    sink.sql(f"TRUNCATE {sink.table}; DELETE FROM {sink.progress}")
    told = refusal(lambda: sink.driver(remembered=Remembered(driver.starter.remembered.memory)), Reason.PROGRESS_LOST)
    assert "is gone, and 8 rows were delivered into table" in told.message
    assert sink.sql(f"SELECT count(*) FROM {sink.table}") == [(0,)]


def test_a_lock_that_somebody_keeps_is_waited_for_as_an_outage_is(
    sink: SqlSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens no circuit: somebody alters the table, for as long as that takes."""
    monkeypatch.setattr(client, "LOCK_TIMEOUT_MS", 20)
    driver = sink.driver()
    port = sink.address.rpartition(":")[2]
    with psycopg.connect(host="127.0.0.1", port=port, user=SUPERUSER, dbname=DATABASE) as other:
        other.execute(f"LOCK TABLE {sink.table}".encode())
        told = refusal(driver.batch, Reason.SINK_UNREACHABLE)
    assert "lock_not_available" in told.message
    assert told.remedy.startswith("end what holds the lock")
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


def test_progress_that_is_restored_from_a_backup_is_refused(sink: SqlSink) -> None:
    remembered = Remembered()
    driver = sink.driver(remembered=remembered)
    driver.batch()
    backup, kept = sink.sql(f"SELECT key, value::text, version FROM {sink.progress}"), sink.delivered()
    driver.batch()
    for key, value, version in backup:
        sink.sql(f"UPDATE {sink.progress} SET value = '{value}', version = {version} WHERE key = '{key}'")
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_REGRESSED)
    # The rows are restored with it: it goes on from there, each once, once a person has said so.
    for each in kept:
        sink.sql(f"DELETE FROM {sink.table} WHERE part = {each.partition} AND off > {max(kept[each])}")
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(Targets()))
    again = sink.driver()
    for _ in range(max(sink.ends.values()) // 4):
        again.batch()
    assert sink.delivered() == sink.once


def test_a_removal_leaves_no_cell(sink: SqlSink) -> None:
    driver = sink.driver()
    driver.batch()
    assert SinkRemoval(ports=driver.ports).carry_out() is None
    assert sink.sql(f"SELECT count(*) FROM {sink.progress}") == [(0,)]
    assert driver.ports.target.id() is None


def test_a_commit_of_a_version_that_is_not_there_writes_nothing(sink: SqlSink) -> None:
    driver = sink.driver()
    plan = driver.delivery.begin({P0: OffsetRange(0, 4)})
    claim = driver.ports.kind.claim(plan, P0, driver.worker)
    session, late = claim.take(), claim.take()
    batch = of_offsets(P0, range(4))
    with pytest.raises(Moved):
        session._cells.commit(session.key, b"{}", session._version, list(batch.rows(0, 4)))
    assert sink.delivered()[P0] == []
    assert late._cells.commit(late.key, b"{}", late._version, list(batch.rows(0, 4)))
    assert sink.delivered()[P0] == [0, 1, 2, 3]


# The commit, broken on purpose: what is above finds it.


def any_version(self: CellStatements) -> str:
    return UPDATE(self).replace("cell.version = new.was", "(cell.version = new.was OR true)")


def unchecked(self: PostgresqlCells, work: client.Work, to: TableStatements) -> None:
    pass


def success(self: PostgresqlCells, *args: Any) -> Any:
    with contextlib.suppress(InDoubt):
        return COMMIT(self, *args)
    return 1


def certain(self: client.Client, error: psycopg.Error, *, committing: bool) -> Exception:  # noqa: ARG001 - that is it
    return RecordRefused(Verdict(ErrorClass.RECORD_REFUSED, "no answer"))


UPDATE, COMMIT = CellStatements.update.fget, PostgresqlCells.commit  # type: ignore[attr-defined]


def test_a_commit_that_is_broken_is_found(sink: SqlSink, proxied: tuple[SqlSink, SqlProxy]) -> None:
    for broken, name, by, finds in (
        (CellStatements, "update", property(any_version), test_a_commit_of_a_version_that_is_not_there_writes_nothing),
        (PostgresqlCells, "_check_table", unchecked, remade_in_a_transaction),
        (PostgresqlCells, "commit", success, lambda _: lost_request(proxied)),
        (client.Client, "_told", certain, lambda _: lost_request(proxied)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broken, name, by)
            with pytest.raises(BaseException):  # noqa: B017, PT011 - a failed test raises what it likes
                finds(sink)


def remade_in_a_transaction(sink: SqlSink) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_a_table_that_is_made_again_within_a_transaction(sink, patch)


def lost_request(proxied: tuple[SqlSink, SqlProxy]) -> None:
    test_an_answer_that_is_lost(proxied, Loss.REQUEST, b"COMMIT", b"COPY")
