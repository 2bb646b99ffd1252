"""`AtLeastOnce` in a stream: rows under ids that the server knows again, behind them the progress, compared and set."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from servers.nats import LocalNats
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason
from sinkpipeline.nats.look import check_rights
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from support.sink.cell_sink import P0
from support.sink.nats_sink import NatsSink, batch
from support.sink.starts import refusal
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)
WEAK = {"exactly_once": False}


def weak(server: LocalNats, **more: Any) -> NatsSink:
    return NatsSink(server.address, changes=WEAK, **more)


def test_a_server_without_atomic_batches_delivers_and_names_its_window(old: LocalNats) -> None:
    sink = weak(old)
    check_rights(sink.ports())
    driver = sink.driver()
    driver.drain()
    sink.driver().drain()
    assert sink.delivered() == sink.once
    ids = [headers["Nats-Msg-Id"] for _, headers, payload in sink.rows() if payload.startswith(b"0:")]
    assert ids == [f"i.1/{sink.name}/0/{P0.topic}/0/{offset}" for offset in range(12)], "in their order"
    assert driver.ports.target.durability() is Durability.SERVER_WINDOW
    assert driver.ports.target.duplicate_window_ms() == 120_000
    sink.close()


def test_a_stream_that_takes_no_batches_is_taken_and_stays_as_it_is(sink: NatsSink) -> None:
    assert "error" not in sink.create(allow_atomic=False, duplicate_window=5 * 10**9)
    refusal(sink.driver, Reason.SINK_REFUSED)
    sink.changes = WEAK
    driver = sink.driver()
    driver.drain()
    assert sink.delivered() == sink.once
    assert driver.ports.target.duplicate_window_ms() == 5_000
    refusal(driver.ports.check_redrive, Reason.SINK_REFUSED)


def test_what_is_sent_again_within_the_window_is_there_once(nats: LocalNats) -> None:
    """The answers are lost behind the rows, and the rows are sent again."""
    with SqlProxy(nats.port) as proxy:
        sink = NatsSink(proxy.address, direct=nats.address, changes=WEAK)
        driver = sink.driver()
        proxy.lose(b"Nats-Msg-Id", Loss.ANSWER)
        driver.drain()
        assert proxy.caught == 1
        assert sink.delivered() == sink.once
        sink.close()


@pytest.mark.parametrize("window_s", [pytest.param(1, marks=[pytest.mark.thorough("a window is waited for")]), 60])
def test_rows_whose_progress_was_not_written(nats: LocalNats, window_s: int) -> None:
    """They are sent again by the next driver: once within the window, twice behind it."""
    sink = weak(nats)
    sink.create(duplicate_window=window_s * 10**9)
    for writer, offsets in sink.driver().writers():
        writer.write(NatsSink.make(writer._partition, offsets))
        writer.finish()
    if window_s == 1:
        # The server forgets ids about as often as its window is long.
        wait_until(lambda: age_s(sink) > 3, "the window is over", 30)
    sink.driver().drain()
    twice = Counter({each: 1 for each in sink.once if each[1] < 4})
    assert sink.delivered() == sink.once + (twice if window_s == 1 else Counter())
    sink.close()


def age_s(sink: NatsSink) -> float:
    """Of the last message."""
    last = dt.datetime.fromisoformat(sink.info()["state"]["last_ts"][:19] + "+00:00")
    return (dt.datetime.now(dt.timezone.utc) - last).total_seconds()


def test_a_late_writer_of_an_older_driver_moves_no_progress(nats: LocalNats) -> None:
    """Its rows are in the stream already, once; its progress is not written, by the task nor by its driver."""
    sink = weak(nats)
    older = sink.driver()
    receipts = []
    for writer, offsets in older.writers():
        receipts.append(older.write(writer, offsets))
    sink.driver().drain()
    with pytest.raises(Exception, match=r"newer|not confirmed"):
        older.delivery.end(older.plan, receipts)
    refusal(older.delivery.check_world, Reason.SUPERSEDED)
    assert sink.delivered() == sink.once
    sink.close()


def test_a_row_that_the_server_refuses_is_named(nats: LocalNats) -> None:
    """By a limit that the driver does not know of yet: without dead letters the sink stops at that row."""
    sink = weak(nats)
    driver = sink.driver(step=12)
    writer, offsets = next(driver.writers())
    assert isinstance(writer, AtLeastOnceWriter)
    values: list[bytes | None] = [b"0:%d %s" % (each, b"x" * (3_000 if each == 7 else 0)) for each in offsets]
    writer.write(batch(offsets, values))
    sink.update(max_msg_size=2_000)
    error = refusal(writer.finish, Reason.RECORD_REFUSED)
    assert "offset 7" in error.message
    sink.close()


def test_a_record_of_several_rows_has_an_id_for_each(nats: LocalNats) -> None:
    sink = weak(nats, ends={P0: 2})
    driver = sink.driver(step=2)
    writer, _ = next(driver.writers())
    several = replace(batch([0, 1], [b"0:0", b"0:0", b"0:1"]), firsts=[0, 2, 3])
    writer.write(several)
    writer.finish()
    driver.delivery.end(driver.plan, [writer.receipt()])
    ids = [headers["Nats-Msg-Id"].rpartition(f"{P0.topic}/0/")[2] for _, headers, _ in sink.rows()]
    assert ids == ["0", "0/1", "1"]
    sink.close()
