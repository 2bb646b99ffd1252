"""Streams whose messages expire: the progress stays, also that of a partition which gets no records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from servers.nats import LocalNats
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.nats.look import fears
from sinkpipeline.sinks.contract import Restart
from support.sink.cell_driver import Driver
from support.sink.cell_sink import P0, P1
from support.sink.nats_sink import NatsSink, messages
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
SECOND, DAY = 10**9, 86_400 * 10**9


def cells(sink: NatsSink) -> list[dict[str, str]]:
    """The headers of the newest message of each cell."""
    found = {each[1]: each[2] for each in messages(sink.direct, sink.stream) if each[1].startswith("_sinkpipeline.")}
    return list(found.values())


def until_rows_are_gone(sink: NatsSink) -> None:
    wait_until(lambda: not sink.rows(), "the rows have expired", 60)


def goes_on(sink: NatsSink, driver: Driver) -> None:
    """From what is in the stream alone, and each record that is left comes once; P1 has none left."""
    assert driver.delivery.progress.partitions[P1].next == sink.ends[P1]
    begun = driver.delivery.progress.partitions[P0].next
    driver.drain()
    assert sink.delivered() == Counter((0, each) for each in range(begun, sink.ends[P0]))


@pytest.fixture(params=["new", pytest.param("old", marks=pytest.mark.thorough("AtLeastOnce, an old server"))])
def expiring(request: pytest.FixtureRequest, nats: LocalNats) -> Iterator[NatsSink]:
    """A sink whose stream keeps messages for two seconds."""
    server = nats if request.param == "new" else request.getfixturevalue("old")
    sink = NatsSink(server.address, changes={"exactly_once": request.param == "new"})
    assert "error" not in sink.create(max_age=2 * SECOND, duplicate_window=SECOND)
    yield sink
    sink.close()


def test_progress_of_an_idle_partition_outlives_the_rows(expiring: NatsSink) -> None:
    """The driver that runs goes on, and so does one that knows nothing but the stream."""
    sink = expiring
    driver = sink.driver(step=5, remembered=Remembered())
    driver.batch()
    assert driver.delivery.progress.partitions[P1].next == sink.ends[P1], "it gets no more records"
    until_rows_are_gone(sink)
    driver.delivery.check_world()
    driver.batch()
    assert sink.delivered() == Counter((0, each) for each in range(5, 10))
    until_rows_are_gone(sink)
    remembered = driver.starter.remembered
    driver.delivery.close()
    for memory in (remembered.memory, None):
        again = sink.driver(remembered=Remembered(memory))
        assert again.started.progress.partitions[P1].next == sink.ends[P1]
        again.delivery.close()
    goes_on(sink, sink.driver())


def unmarked(sink: NatsSink) -> Driver:
    """A driver whose stream does not expire anything, and lets no message say that it stays."""
    assert "error" not in sink.create(allow_msg_ttl=False)
    driver = sink.driver(step=5, remembered=Remembered())
    driver.batch()
    assert [each.get("Nats-TTL") for each in cells(sink)] == [None] * 3
    return driver


def test_a_limit_that_is_set_under_a_running_driver_makes_it_write_its_progress_anew(sink: NatsSink) -> None:
    driver = unmarked(sink)
    driver.delivery.check_world()
    assert "error" not in sink.update(max_age=DAY, allow_msg_ttl=True)
    with pytest.raises(Restart, match="not marked to stay"):
        driver.delivery.check_world()
    driver.delivery.close()
    driver.start()
    assert [each.get("Nats-TTL") for each in cells(sink)] == ["never"] * 3
    driver.delivery.check_world()
    driver.drain()
    assert sink.delivered() == sink.once


@pytest.mark.thorough("a limit is waited for: the one above looks at the headers")
def test_and_so_it_goes_on_once_the_limit_has_come(sink: NatsSink) -> None:
    driver = unmarked(sink)
    assert "error" not in sink.update(max_age=6 * SECOND, allow_msg_ttl=True, duplicate_window=SECOND)
    with pytest.raises(Restart):
        driver.delivery.check_world()
    driver.delivery.close()
    driver.start()
    until_rows_are_gone(sink)
    driver.delivery.check_world()
    goes_on(sink, driver)


def test_while_no_driver_runs_it_is_warned_of(sink: NatsSink) -> None:
    unmarked(sink).delivery.close()

    def told() -> list[str]:
        ports = sink.ports()
        with closing(ports.client):
            return [each for each in fears(ports) if "progress in stream" in each]

    assert told() == []
    assert "error" not in sink.update(max_age=DAY, allow_msg_ttl=True)
    [warning] = told()
    assert "it goes 24 hours after it was written; run the pipeline before:" in warning
    sink.driver().delivery.close()
    assert told() == []
