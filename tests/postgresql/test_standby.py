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
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.reset import SinkReset
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
        """The standby gets nothing more."""
        self.line.hold()

    def fail_over(self) -> None:
        self.primary.kill()
        self.line.close()
        self.standby.promote()
        self.sink.address = self.standby.address


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


def test_a_standby_that_took_over_without_the_last_commits(pair: Pair) -> None:
    sink = pair.sink
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    driver.delivery.check_world()
    kept = sink.delivered()
    pair.standby.catch_up()
    pair.cut_off()
    driver.batch()
    assert sink.delivered() != kept
    pair.fail_over()
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    told = refusal(driver.start, Reason.PROGRESS_REGRESSED)
    print(told.message, "|", told.remedy)
    assert sink.delivered() == kept
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(parse_targets(["orders:0=4,orders:1=4"])))
    sink.driver().drain()
    assert sink.delivered() == sink.once
