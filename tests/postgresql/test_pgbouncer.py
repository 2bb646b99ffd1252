"""A pooler between: each of its modes works exactly once, or is refused with what to do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from servers.pgbouncer import LocalPgBouncer, program
from servers.postgresql import LocalPostgresql
from servers.postgresql_standby import LocalStandby, has_program
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.postgresql.settings import Upsert
from sinkpipeline.sinks.contract import Restart, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.sink.cell_sink import P0, P1
from support.sink.sql_sink import SqlSink, batch, of_offsets
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(program() is None, reason="no PgBouncer: make postgresql"),
    pytest.mark.thorough("the others reach the server itself; a pooler passes the same statements on"),
]

ALL = Upsert(key=("part", "off"), deletes=True, order_type="bigint", keeps=True)
MODES = ["session", "transaction"]


def changes(partition: SourcePartition, offsets: range) -> RowBatch:
    """Of `ALL`: for each offset a row, and then one that keeps its value."""
    rows = []
    for each in offsets:
        key = (str(partition.partition), str(each))
        rows += [(*key, f"v{each}", "f", "1", "{}"), (*key, None, "f", "2", "{3}")]
    return batch([each for each in offsets for _ in range(2)], rows)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pooled(sink: SqlSink, pooler: str, opened: ExitStack, upsert: Upsert | None = None) -> SqlSink:
    """The sink of this test, by way of the pooler."""
    found = SqlSink(pooler, name=sink.name, upsert=upsert)
    opened.callback(found.close)
    return found


def values(sink: SqlSink) -> list[tuple[object, ...]]:
    return sink.sql(f"SELECT part, off, value FROM {sink.table} ORDER BY part, off")


@pytest.mark.parametrize("mode", MODES)
def test_two_tasks_share_one_connection_of_the_pool(
    sink: SqlSink, postgresql: LocalPostgresql, opened: ExitStack, mode: str
) -> None:
    """With its temporary table, its settings, and its locks: nothing of a task stays for the other."""
    size = {"default_pool_size": "1"} if mode == "transaction" else {}
    pooler = opened.enter_context(LocalPgBouncer(postgresql.port, mode, **size))
    through = pooled(sink, pooler.address, opened, ALL)
    through.ends = {P0: 40, P1: 40}
    driver = through.driver(make=changes)
    plan = driver.delivery.begin({each: OffsetRange(0, 40) for each in through.ends})
    receipts = {}

    def drive(partition: SourcePartition) -> None:
        worker = Worker()
        through.workers.append(worker)
        writer = ExactlyOnceWriter(plan, partition, worker)
        for begin in range(0, 40, 4):
            writer.write(changes(partition, range(begin, begin + 4)))
            writer._guard(writer._commit_held)
        writer.finish()
        receipts[partition] = writer.receipt()

    threads = [threading.Thread(target=drive, args=(each,)) for each in through.ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each: receipt.commits for each, receipt in receipts.items()} == {P0: 10, P1: 10}
    driver.delivery.end(plan, receipts.values())
    assert values(sink) == [(each.partition, off, f"v{off}") for each in (P0, P1) for off in range(40)]


@pytest.mark.parametrize(("mode", "upsert"), [("session", None), ("transaction", ALL)], ids=MODES)
def test_the_pooler_and_the_server_are_killed(opened: ExitStack, mode: str, upsert: Upsert | None) -> None:
    server = opened.enter_context(LocalPostgresql())
    pooler = opened.enter_context(LocalPgBouncer(server.port, mode))
    direct = SqlSink(server.address)
    direct.create_schema()
    through = pooled(direct, pooler.address, opened, upsert)
    through.ends = {P0: 400}
    driver = through.driver(step=10, make=of_offsets if upsert is None else changes)
    driver.pause_s = 0.1
    running = threading.Thread(target=driver.drain)
    running.start()

    def handled() -> int:
        return sum(each.next for each in driver.delivery.progress.partitions.values())

    for kill in (pooler, server, pooler):
        before = handled()
        wait_until(lambda: handled() > before, "rows come")  # noqa: B023 - called before the next one
        kill.kill()
        kill.start()
    running.join()
    assert values(direct) == [(0, off, f"v{off}") for off in range(400)]


@pytest.mark.parametrize("loss", Loss)
def test_a_commit_that_the_pooler_loses_or_its_answer(
    sink: SqlSink, postgresql: LocalPostgresql, opened: ExitStack, loss: Loss
) -> None:
    """It keeps our connection, and answers in the server's place."""
    line = opened.enter_context(SqlProxy(postgresql.port))
    pooler = opened.enter_context(LocalPgBouncer(line.port, "transaction"))
    through = pooled(sink, pooler.address, opened)
    driver = through.driver(step=2)
    for _ in range(3):
        line.lose(b"COMMIT", loss, after=b"COPY")
        with contextlib.suppress(Restart):
            driver.batch()
        driver.start()
    driver.drain()
    assert (line.caught, sink.delivered()) == (3, sink.once)


def test_a_mode_without_transactions_is_refused_with_what_to_do(
    sink: SqlSink, postgresql: LocalPostgresql, opened: ExitStack
) -> None:
    pooler = opened.enter_context(LocalPgBouncer(postgresql.port, "statement"))
    told = refusal(pooled(sink, pooler.address, opened).driver, Reason.SINK_UNREACHABLE)
    assert "statement pooling mode" in told.message
    assert told.remedy.startswith("give the pooler pool_mode = transaction")


@dataclass
class Pooled:
    """A primary, its asynchronous standby, and a pooler that leads to the first."""

    primary: LocalPostgresql
    line: SqlProxy
    """By which the standby reaches its primary."""
    standby: LocalStandby
    pooler: LocalPgBouncer
    direct: SqlSink
    sink: SqlSink


@pytest.fixture
def pair(opened: ExitStack) -> Pooled:
    if not has_program("pg_basebackup"):
        pytest.skip("no pg_basebackup: make postgresql")
    primary = opened.enter_context(LocalPostgresql())
    direct = SqlSink(primary.address)
    direct.create_schema()
    line = opened.enter_context(SqlProxy(primary.port))
    standby = opened.enter_context(LocalStandby(primary, line.port))
    pooler = opened.enter_context(LocalPgBouncer(primary.port, "transaction"))
    return Pooled(primary, line, standby, pooler, direct, pooled(direct, pooler.address, opened))


def test_a_standby_takes_over_behind_the_pooler(pair: Pooled) -> None:
    """No connection of ours breaks: that another server answers is seen by what it says of itself."""
    driver = pair.sink.driver(remembered=Remembered())
    driver.batch()
    driver.delivery.check_world()
    pair.standby.catch_up()
    pair.line.hold()
    driver.batch()
    pair.primary.kill()
    pair.line.close()
    pair.standby.promote()
    pair.pooler.lead_to(pair.standby.port)
    pair.direct.address = pair.standby.address
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_REGRESSED)
    assert pair.direct.delivered() == {P0: [0, 1, 2, 3], P1: [0, 1, 2, 3]}


def test_a_pooler_that_leads_to_a_standby_for_a_while_loses_nothing(pair: Pooled) -> None:
    """The standby is behind, which is what it is there for."""
    driver = pair.sink.driver(remembered=Remembered())
    driver.batch()
    pair.standby.catch_up()
    pair.line.hold()
    driver.batch()
    pair.pooler.lead_to(pair.standby.port)
    told = refusal(driver.delivery.check_world, Reason.SINK_UNREACHABLE)
    assert "session is read-only" in told.message
    assert "promote the standby" in told.remedy
    pair.pooler.lead_to(pair.primary.port)
    pair.line.heal()
    driver.delivery.close()
    driver.start()
    driver.drain()
    assert pair.direct.delivered() == pair.direct.once
