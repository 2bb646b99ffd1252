"""A server that has lost its newest entries with their progress: they are delivered again, and told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.redis import LocalRedis
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import RolledBack
from sinkpipeline.core.status import SinkReport, SinkState, condition_of, render
from sinkpipeline.core.topics import remember
from sinkpipeline.sinks.contract import Restart
from support.sink.cell_driver import Driver
from support.sink.cell_sink import P0, P1
from support.sink.redis_sink import RedisSink
from support.sink.starts import refusal

LOST = RolledBack(rows=9, offsets=9, partitions=2)


@pytest.fixture
def server() -> Iterator[LocalRedis]:
    """One of its own, as it is killed, and its files are replaced."""
    with LocalRedis(settings={"appendfsync": "always"}) as found:
        yield found


@pytest.fixture
def sink(server: LocalRedis) -> Iterator[RedisSink]:
    found = RedisSink(server.address)
    yield found
    found.close()


def go_back(server: LocalRedis, driver: Driver, batches: int) -> None:
    """To what it holds now, after so many batches more."""
    server.keep_files()
    left = batches
    while left:
        try:
            driver.batch()
            left -= 1
        except Restart:
            driver.start()
    server.put_files_back()


def exactly_once(driver: Driver, sink: RedisSink) -> tuple[str, str]:
    report = SinkReport(
        name=sink.name, exactly_once=True, state=SinkState.RUNNING, progress=driver.delivery.progress, proved=True
    )
    document = render([report], identity="i", generation=None, previous=None, now_ms=0)
    assert document["sinks"][0].get("rolledBack") == driver.started.progress.meta.rolled_back  # type: ignore[union-attr]
    told = condition_of(document, "ExactlyOnce")
    return told["status"], told["reason"]


def test_what_a_running_driver_remembers(server: LocalRedis, sink: RedisSink) -> None:
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    go_back(server, driver, 2)
    assert len(sink.entries()) == 8
    with pytest.raises(Restart, match="went back"):
        driver.delivery.check_world()
    driver.delivery.close()
    driver.start()
    assert driver.started.rolled_back == LOST
    assert driver.started.progress.meta is not None
    assert driver.started.progress.meta.rolled_back == 9
    driver.drain()
    assert sink.delivered() == sink.once
    assert exactly_once(driver, sink) == ("Unknown", "SinkRolledBack")
    # Whoever comes next knows it by the progress, and nothing went back since.
    driver.delivery.close()
    driver.start()
    assert driver.started.rolled_back is None
    assert exactly_once(driver, sink) == ("Unknown", "SinkRolledBack")


def test_what_a_status_remembers(server: LocalRedis, sink: RedisSink) -> None:
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    go_back(server, driver, 2)
    memory = remember(driver.delivery.progress)
    sink.changes = {"stops_rolled_back": True}
    told = refusal(lambda: sink.driver(remembered=Remembered(memory)), Reason.SINK_ROLLED_BACK)
    assert "9 rows that were delivered, 9 offsets in 2 partitions" in told.message
    assert "set onRollback: Redeliver" in told.remedy
    assert len(sink.entries()) == 8, "nobody was disturbed"
    sink.changes = {}
    again = sink.driver(remembered=Remembered(memory))
    assert again.started.rolled_back == LOST
    again.drain()
    assert sink.delivered() == sink.once


def test_entries_of_others_that_came_since_may_hide_it(server: LocalRedis, sink: RedisSink) -> None:
    """Then a person decides, as ever: as many entries may be there as were."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    go_back(server, driver, 1)
    for _ in range(2):
        sink.run("XADD", sink.stream.key, "*", "value", "9/9")
    driver.delivery.close()
    told = refusal(driver.start, Reason.PROGRESS_REGRESSED)
    assert "does not prove that the 5 rows in between are gone too" in told.message


def test_progress_that_was_put_back_alone_stays_an_error(sink: RedisSink) -> None:
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    key = sink.settings.id.partition_key(P0)
    older = sink.run("HGET", sink.stream.progress, key)
    driver.batch()
    driver.delivery.close()
    sink.run("HSET", sink.stream.progress, key, older)
    refusal(driver.start, Reason.PROGRESS_REGRESSED)
    assert sink.counted() == dict.fromkeys([*((0, each) for each in range(8)), *((1, each) for each in range(5))], 1)
    assert P1 in sink.ends
