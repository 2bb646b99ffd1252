"""A real standby that takes over, with and without the last commits; and servers that take no writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from servers.postgresql import LocalPostgresql
from servers.postgresql_standby import LocalStandby, has_program
from servers.sql_proxy import SqlProxy
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.postgresql import client, silence
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.worker import Worker
from support.cells import TOPIC
from support.sink.cell_driver import Driver
from support.sink.sql_sink import SqlSink
from support.sink.starts import refusal

pytestmark = pytest.mark.skipif(not has_program("pg_basebackup"), reason="no pg_basebackup: make postgresql")


@dataclass
class Pair:
    """A primary, and its asynchronous standby."""

    primary: LocalPostgresql
    line: SqlProxy
    """By which the standby reaches its primary."""
    standby: LocalStandby
    sink: SqlSink
    """Of both; its `address` is where the test itself looks."""

    def cut_off(self) -> None:
        """The standby has all that was committed until now, and gets nothing more."""
        self.standby.catch_up()
        self.line.hold()

    def crash(self) -> None:
        self.primary.kill()
        self.line.close()

    def promote(self) -> None:
        self.standby.promote()
        self.sink.address = self.standby.address

    def fail_over(self) -> None:
        self.crash()
        self.promote()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(LocalPostgresql())
        sink = SqlSink(primary.address)
        stack.callback(sink.close)
        sink.create_schema()
        line = stack.enter_context(SqlProxy(primary.port))
        standby = stack.enter_context(LocalStandby(primary, line.port))
        connection = replace(sink.settings.connection, servers=f"{primary.address},{standby.address}")
        sink.changes = {"connection": connection}
        yield Pair(primary, line, standby, sink)


def reset(sink: SqlSink, *offsets: int) -> None:
    """As the page says: to the restored progress."""
    targets = [f"{TOPIC}:{partition}={offset}" for partition, offset in enumerate(offsets)]
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(parse_targets(targets)))


def next_offsets(sink: SqlSink) -> list[int]:
    """As `sinkpipeline progress` shows them."""
    partitions = sink.ports().ledger.observe().partitions
    return [partitions[each].next for each in sorted(partitions)]


def test_a_standby_that_took_over_without_the_last_commits(pair: Pair) -> None:
    sink = pair.sink
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    driver.delivery.check_world()
    kept = sink.delivered()
    pair.cut_off()
    driver.batch()
    assert sink.delivered() != kept
    pair.crash()
    told = refusal(driver.delivery.check_world, Reason.SINK_UNREACHABLE)
    assert f"{pair.standby.address}: session is read-only" in told.message
    assert "promote the standby" in told.remedy

    pair.promote()
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_REGRESSED)
    assert sink.delivered() == kept, "nothing is written before a person has said where to go on"
    assert next_offsets(sink) == [4, 4]
    reset(sink, *next_offsets(sink))
    sink.driver().drain()
    assert sink.delivered() == sink.once


FIRST = "a standby without the last commits is the first test; this is when and where it is met"


@pytest.mark.thorough(FIRST)
@pytest.mark.parametrize("lost", [True, False], ids=["behind", "complete"])
def test_tasks_that_meet_the_other_server_first(pair: Pair, lost: bool) -> None:
    """Their sessions are of the old one; their driver has not looked since."""
    sink = pair.sink
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    if lost:
        pair.cut_off()
        driver.batch()
    writers = list(driver.writers())
    kept = sink.delivered()
    if not lost:
        pair.cut_off()
    pair.fail_over()
    kept = sink.delivered() if lost else kept
    for writer, offsets in writers:
        refusal(lambda w=writer, o=offsets: driver.write(w, o), Reason.SINK_UNREACHABLE)  # type: ignore[misc]
    assert sink.delivered() == kept
    if lost:
        with pytest.raises(Restart, match="went back"):
            driver.delivery.check_world()
        driver.delivery.close()
        refusal(driver.start, Reason.PROGRESS_REGRESSED)
        reset(sink, *next_offsets(sink))
        driver = sink.driver()
    driver.delivery.close()
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


@pytest.mark.thorough(FIRST)
@pytest.mark.parametrize("starts", [1, 2])
def test_a_standby_without_the_last_starts_is_no_newer_driver(pair: Pair, starts: int) -> None:
    """Nothing was delivered since: there is nothing to decide for a person, and nobody took the sink over."""
    sink = pair.sink
    before = sink.driver()
    before.batch()
    before.delivery.close()
    pair.cut_off()
    driver = sink.driver(remembered=Remembered())
    for _ in range(starts - 1):
        driver.delivery.close()
        driver.start()
    pair.fail_over()
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


@pytest.mark.thorough(FIRST)
def test_a_standby_without_the_first_start_is_told_by_the_status(pair: Pair) -> None:
    """It has the table, and neither rows nor progress: what the status remembers is of the other server."""
    sink = pair.sink
    sink.sql(f"CREATE TABLE {sink.table} (part int, off bigint, value text)")
    pair.cut_off()
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    driver.delivery.close()
    status = driver.starter.remembered.memory
    pair.fail_over()
    told = refusal(lambda: sink.driver(remembered=Remembered(status)), Reason.PROGRESS_LOST)
    assert "8 rows were delivered into table" in told.message
    assert all(each == [] for each in sink.delivered().values())
    resetting = SinkReset(ports=sink.ports(), memory=status)
    resetting.carry_out(resetting.plan(parse_targets(["earliest"])))
    sink.driver(remembered=Remembered(status)).drain()
    assert sink.delivered() == sink.once


@pytest.mark.thorough(FIRST)
def test_an_old_primary_that_is_back_gets_no_rows(pair: Pair) -> None:
    """Both take writes: a worker that is new, and takes the first of `servers`, would deliver into the wrong one."""
    sink = pair.sink
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    pair.cut_off()
    pair.fail_over()
    driver.delivery.check_world()
    pair.primary.start()
    driver.worker = Worker()
    sink.workers.append(driver.worker)
    told = refusal(driver.batch, Reason.SINK_UNREACHABLE)
    assert "another server than its driver" in told.message
    assert told.remedy.startswith("if several of servers take writes, end all but one")
    for each in (pair.primary, pair.standby):
        assert sink.sql(f"SELECT count(*) FROM {sink.table}", address=each.address) == [(8,)]
    driver.delivery.close()
    driver.start()
    # The run there is the one before: nobody has taken the sink over.
    refusal(driver.batch, Reason.SINK_UNREACHABLE)
    pair.primary.kill()
    driver.delivery.close()
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


@pytest.mark.thorough(FIRST)
def test_a_commit_that_waits_for_a_standby_is_given_up_and_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would wait for ever, and answers all the while."""
    monkeypatch.setattr(silence, "QUIET_S", 0.3)
    monkeypatch.setattr(client, "LOCK_TIMEOUT_MS", 100)
    sink = pair.sink
    driver = sink.driver()
    for statement in ("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()"):
        sink.sql(statement)
    driver.batch()
    pair.cut_off()
    told = refusal(driver.batch, Reason.SINK_UNREACHABLE)
    assert "the commit waits for a synchronous standby" in told.message
    driver.delivery.close()
    # What waits holds the locks that we need.
    told = refusal(driver.start, Reason.SINK_UNREACHABLE)
    assert "lock_not_available" in told.message
    assert told.remedy.startswith("the commit waits for a synchronous standby that is before us: bring back a standby")
    pair.line.heal()
    pair.standby.catch_up()
    driver.start()
    driver.drain()
    assert sink.delivered() == sink.once


def test_a_role_that_may_only_read_is_told_what_to_do(sink: SqlSink) -> None:
    sink.sql(f"CREATE ROLE {sink.name} LOGIN SUPERUSER")
    sink.sql(f"ALTER ROLE {sink.name} SET default_transaction_read_only = on")
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}
    told = refusal(sink.driver, Reason.SINK_UNREACHABLE)
    assert "session is read-only" in told.message
    assert "default_transaction_read_only" in told.remedy
    sink.sql(f"ALTER ROLE {sink.name} RESET default_transaction_read_only")
    started: Driver = sink.driver()
    started.drain()
    assert sink.delivered() == sink.once
