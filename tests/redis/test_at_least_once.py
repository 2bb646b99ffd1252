"""`AtLeastOnce` in a stream of entries: each tells by what it is known, behind them the progress, compared and set."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from servers.redis import LocalRedis
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.redis_streams.settings import Acknowledge, Connection
from sinkpipeline.sinks.reset import SinkReset
from support.sink.cell_sink import P0
from support.sink.redis_sink import RedisSink, batch
from support.sink.starts import refusal

WEAK = {"exactly_once": False}


@pytest.fixture
def weak(sink: RedisSink) -> RedisSink:
    sink.changes = WEAK
    return sink


def keys(sink: RedisSink) -> Counter[str]:
    return Counter(each[b"idempotency_key"].decode() for each in sink.entries())


def test_each_entry_says_by_what_it_is_known(weak: RedisSink) -> None:
    driver = weak.driver()
    driver.drain()
    weak.driver().drain()
    assert weak.delivered() == weak.once, "in their order"
    assert weak.entries()[0] == {b"idempotency_key": f"i/{weak.name}/0/{P0.topic}/0/0".encode(), b"value": b"0/0"}
    assert set(keys(weak).values()) == {1}
    assert driver.ports.target.durability() is None
    assert driver.ports.target.duplicate_window_ms() is None


def test_rows_that_are_sent_again_have_the_same_key(valkey: LocalRedis) -> None:
    """The answers are lost behind the entries: a reader that keeps keys has each row once."""
    with SqlProxy(valkey.port) as proxy:
        sink = RedisSink(proxy.address, changes=WEAK)
        driver = sink.driver()
        proxy.lose(b"0/0", Loss.ANSWER)
        driver.drain()
        assert proxy.caught == 1
        found = sink.counted()
        sink.close()
    again = Counter({(0, each): 1 for each in range(4)})
    assert found == Counter(dict.fromkeys(found, 1)) + again
    assert len(found) == 17


def test_a_reset_delivers_under_other_keys(weak: RedisSink) -> None:
    weak.driver().drain()
    before = set(keys(weak))
    resetting = SinkReset(ports=weak.ports())
    resetting.carry_out(resetting.plan(parse_targets([f"{P0.topic}:0=10"])))
    weak.driver().drain()
    assert set(keys(weak)) - before == {f"i/{weak.name}/1/{P0.topic}/0/{each}" for each in (10, 11)}


def test_a_stream_that_is_gone_is_not_made_by_a_row(weak: RedisSink) -> None:
    driver = weak.driver()
    driver.batch()
    writer, offsets = next(driver.writers())
    weak.run("DEL", weak.name)
    writer.write(RedisSink.make(P0, offsets))
    refusal(writer.finish, Reason.TOPICS_CHANGED)
    assert weak.run("EXISTS", weak.name) == 0
    driver.delivery.close()
    refusal(driver.start, Reason.DATA_TOPIC_LOST)


def test_a_stream_that_is_made_again_with_fewer_entries_is_another_one(weak: RedisSink) -> None:
    """What was added is noted behind the entries, and not only where a script commits them."""
    driver = weak.driver()
    driver.drain()
    weak.run("DEL", weak.name)
    for _ in range(10):
        weak.run("XADD", weak.name, "*", "a", "b")
    refusal(weak.driver, Reason.DATA_TOPIC_LOST)


def test_a_server_that_is_full_is_waited_for_and_rows_are_acknowledged_as_asked() -> None:
    with LocalRedis() as server:
        connection = Connection(server=server.address, acknowledge=Acknowledge(fsync=True))
        sink = RedisSink(server.address, changes={**WEAK, "connection": connection})
        driver = sink.driver()
        driver.batch()
        sink.run("CONFIG", "SET", "maxmemory", "100kb")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sinkpipeline.core.troubles._OUTAGE_S", 0.5)
            refusal(driver.batch, Reason.SINK_FULL)
        sink.run("CONFIG", "SET", "maxmemory", "0")
        driver = sink.driver()
        driver.drain()
        assert set(sink.counted()) == {
            (each.partition, offset) for each, end in sink.ends.items() for offset in range(end)
        }
        sink.close()


def test_a_row_that_can_be_no_entry_is_named_and_the_others_arrive(weak: RedisSink) -> None:
    driver = weak.driver(step=12)
    writer, offsets = next(driver.writers())
    named = replace(
        batch(P0, offsets), headers=[[("idempotency_key", b"x")] if each == 5 else None for each in offsets]
    )
    error = refusal(lambda: (writer.write(named), writer.finish()), Reason.RECORD_REFUSED)
    assert "offset 5" in error.message
    assert sorted(weak.counted()) == [(0, each) for each in range(5)]
