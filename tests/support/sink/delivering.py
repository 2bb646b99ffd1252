"""A driver that delivers while something breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_driver import Driver
from support.waiting import wait_until

_PACE_S = 0.05


@contextmanager
def delivering(driver: Driver) -> Iterator[None]:
    """At an easy pace while the block breaks something; in the end all was delivered."""
    driver.pause_s = 0.2
    over = threading.Event()
    troubles: list[BaseException] = []
    make = driver.make

    def paced(partition: SourcePartition, offsets: range) -> RowBatch:
        over.wait(_PACE_S)
        return make(partition, offsets)

    def drain() -> None:
        try:
            driver.drain()
        except BaseException as error:  # noqa: BLE001 - told below
            troubles.append(error)

    driver.make = paced
    thread = threading.Thread(target=drain)
    thread.start()
    try:
        wait_until(lambda: any(each.next for each in driver.delivery.progress.partitions.values()), "rows come")
        yield
        assert left(driver), "rows were still to come"
    finally:
        over.set()
        thread.join()
    assert troubles == []


def left(driver: Driver) -> int:
    """Rows that are still to come."""
    return sum(end - driver.delivery.progress.partitions[each].next for each, end in driver.ends.items())
