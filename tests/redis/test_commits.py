"""Rows and progress in one script, on a real server: what is there after each trouble is there once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servers.redis import LocalRedis, program
from servers.sql_proxy import Loss, SqlProxy
from sinkpipeline.cells.store import Moved
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.core.records import Row
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.redis_streams import client as clients
from sinkpipeline.redis_streams import scripts
from sinkpipeline.redis_streams.cells import RedisCells
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.entries import MOST_FIELDS, words_of
from sinkpipeline.redis_streams.scripts import COMMIT, Script
from sinkpipeline.redis_streams.settings import Acknowledge, Connection, Stream
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.removal import SinkRemoval
from support.sink.cell_sink import P0
from support.sink.redis_sink import RedisSink, of_offsets
from support.sink.starts import refusal


@pytest.fixture
def proxied(valkey: LocalRedis, sink: RedisSink) -> Iterator[tuple[RedisSink, SqlProxy]]:
    """The sink of this test, by way of a proxy."""
    with SqlProxy(valkey.port) as proxy:
        found = RedisSink(proxy.address, name=sink.name)
        yield found, proxy
        found.close()


def test_a_first_start_and_its_batches_and_a_resume(sink: RedisSink) -> None:
    first = sink.driver()
    first.batch()
    second = sink.driver()
    second.drain()
    assert sink.delivered() == sink.once, "each once, and in the order of the source"
    meta = second.delivery.progress.meta
    assert meta is not None
    assert (meta.data, meta.created) == (second.ports.target.id(), second.ports.target.id())
    refusal(first.batch, Reason.SUPERSEDED)
    assert sink.delivered() == sink.once
    assert second.starter.durability() is Durability.AS_HELD_BY_SINK


@pytest.mark.thorough("the request of a commit, of a first start and of a resume", after=2)
@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("nth", range(8))
def test_an_answer_that_is_lost(proxied: tuple[RedisSink, SqlProxy], loss: Loss, nth: int) -> None:
    """Of the writes of a start and its batches, each in turn."""
    sink, proxy = proxied
    write, left = Client.write, nth

    def losing(self: Client, *of: Any, **at: Any) -> Any:
        nonlocal left
        if left == 0:
            proxy.lose(COMMIT.digest.encode(), loss)
        left -= 1
        return write(self, *of, **at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "write", losing)
        for _ in range(20):
            try:
                driver = sink.driver(step=2)
                driver.drain()
                break
            except Restart:
                pass
            except SinkPipelineError as error:
                # An announcement that came through, and was not seen to, looks like a newer driver's.
                if not error.reason.retry and error.reason is not Reason.SUPERSEDED:
                    raise
    assert (proxy.caught, sink.delivered()) == (1, sink.once)


def test_a_commit_of_a_version_that_is_not_there_writes_nothing(sink: RedisSink) -> None:
    driver = sink.driver()
    plan = driver.delivery.begin({P0: OffsetRange(0, 4)})
    claim = driver.ports.kind.claim(plan, P0, driver.worker)
    session, late = claim.take(), claim.take()
    rows = list(of_offsets(P0, range(4)).rows(0, 4))
    with pytest.raises(Moved):
        session._cells.commit(session.key, b"{}", session._version, rows)
    assert sink.delivered()[P0] == []
    assert late._cells.commit(late.key, b"{}", late._version, rows)
    assert sink.delivered()[P0] == [0, 1, 2, 3]


def test_a_right_that_is_missing_is_found_out_before_anything_is_written(sink: RedisSink) -> None:
    """As of a redrive, which removes cells. A script that fails leaves what it has written."""
    driver = sink.driver()
    plan = driver.delivery.begin({P0: OffsetRange(0, 4)})
    claim = driver.ports.kind.claim(plan, P0, driver.worker)
    session = claim.take()
    beside = session._cells.put({"beside": (b"x", None)})
    rows = list(of_offsets(P0, range(4)).rows(0, 4))
    removed = {"beside": (None, beside["beside"])}
    sink.run("ACL", "SETUSER", "default", "-hdel")
    try:
        refusal(lambda: session._cells.commit(session.key, b"{}", session._version, rows, removed), Reason.SINK_REFUSED)
        assert sink.delivered()[P0] == []
    finally:
        sink.run("ACL", "SETUSER", "default", "+hdel")
    session._cells.commit(session.key, b"{}", session._version, rows, removed)
    assert sink.delivered()[P0] == [0, 1, 2, 3]


def test_a_stream_that_is_made_again_after_a_claim(sink: RedisSink) -> None:
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    plan = driver.delivery.begin({P0: OffsetRange(4, 8)})
    session = driver.ports.kind.claim(plan, P0, driver.worker).take()
    sink.run("DEL", sink.stream.key)
    sink.run("XADD", sink.stream.key, "*", "value", "9/9")
    rows = list(of_offsets(P0, range(4, 8)).rows(0, 4))
    refusal(lambda: session._cells.commit(session.key, b"{}", session._version, rows), Reason.TOPICS_CHANGED)
    assert sink.counted() == {(9, 9): 1}, "nothing is written into another stream"
    refusal(driver.start, Reason.DATA_TOPIC_LOST)


def test_a_stream_that_others_write_trim_and_delete_from_is_the_same(sink: RedisSink) -> None:
    driver = sink.driver()
    driver.batch()
    sink.run("XADD", sink.stream.key, "*", "value", "9/9")
    sink.run("XTRIM", sink.stream.key, "MAXLEN", "0")
    driver.batch()
    [(last, _)] = sink.run("XREVRANGE", sink.stream.key, "+", "-", "COUNT", "1")
    sink.run("XDEL", sink.stream.key, last)
    sink.driver().drain()
    assert len(sink.delivered()[P0]) == 8 - 0


def test_a_length_is_kept_to_about(valkey: LocalRedis) -> None:
    sink = RedisSink(valkey.address, ends={P0: 900})
    sink.changes = {"stream": Stream(key=sink.name, maxlen=100)}
    sink.driver(step=300).drain()
    assert 100 <= sink.run("XLEN", sink.name) < 300
    sink.close()


def test_progress_that_is_dropped_while_it_runs_is_lost(sink: RedisSink) -> None:
    """With the cells goes what would tell of a newer driver, so nobody can prove that there was none."""
    driver = sink.driver(remembered=Remembered())
    driver.batch()
    writer, offsets = next(driver.writers())
    sink.run("DEL", sink.stream.progress)
    refusal(lambda: driver.write(writer, offsets), Reason.TOPICS_CHANGED)
    driver.delivery.close()
    refusal(driver.start, Reason.PROGRESS_LOST)
    # A server that took over without this sink looks so, too: what a status remembers may not be true there.
    refusal(lambda: sink.driver(remembered=Remembered(driver.starter.remembered.memory)), Reason.PROGRESS_LOST)


def test_a_removal_leaves_nothing_of_the_sink(sink: RedisSink) -> None:
    driver = sink.driver()
    driver.batch()
    assert SinkRemoval(ports=driver.ports).carry_out() is None
    assert sink.run("HKEYS", sink.stream.progress) == [b"id"]
    assert sink.run("EXISTS", sink.stream.key, sink.stream.known) == 0


def test_a_commit_that_too_few_replicas_have_does_not_count_yet(valkey: LocalRedis) -> None:
    sink = RedisSink(valkey.address)
    sink.changes = {"connection": Connection(server=valkey.address, acknowledge=Acknowledge(replicas=1))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "ACKNOWLEDGED_MS", 50)
        refusal(sink.driver, Reason.SINK_UNDER_REPLICATED)
    with LocalRedis(settings={"replicaof": f"127.0.0.1 {valkey.port}"}):
        sink.driver().drain()
    assert sink.delivered() == sink.once
    sink.close()


def test_a_commit_that_waits_for_the_disk(valkey: LocalRedis) -> None:
    sink = RedisSink(valkey.address, ends={P0: 4})
    sink.changes = {"connection": Connection(server=valkey.address, acknowledge=Acknowledge(fsync=True))}
    sink.driver().drain()
    assert sink.delivered() == sink.once
    sink.close()


def test_scripts_are_sent_again_where_the_server_forgot_them(sink: RedisSink) -> None:
    driver = sink.driver()
    driver.batch()
    sink.run("SCRIPT", "FLUSH")
    driver.drain()
    assert sink.delivered() == sink.once


def test_an_entry_has_a_field_for_each_header(sink: RedisSink) -> None:
    assert words_of((b"v", b"k", -1, 0, [("country", b"de"), ("none", None)])) == [
        *("key", b"k", "value", b"v", "country", b"de", "none", b""),
    ]
    refused: tuple[Row, ...] = (
        (None, None, -1, 0, None),
        (b"v", None, -1, 0, [("value", b"w")]),
        (b"v", None, -1, 0, [(f"h{each}", b"") for each in range(MOST_FIELDS)]),
    )
    for row in refused:
        with pytest.raises(ValueError, match=r"header|field"):
            words_of(row)
    driver = sink.driver()
    plan = driver.delivery.begin({P0: OffsetRange(0, 1)})
    session = driver.ports.kind.claim(plan, P0, driver.worker).take()
    full = (b"v", b"k", -1, 0, [(f"h{each}", b"x") for each in range(MOST_FIELDS - 2)])
    assert session._cells.commit(session.key, b"{}", session._version, [full])
    [entry] = sink.entries()
    assert len(entry) == MOST_FIELDS, "the server takes as many as we do"


@pytest.mark.thorough("other servers that are served")
def test_redis_8() -> None:
    if program("redis") is None:
        pytest.skip("no Redis server: make install")
    with LocalRedis("redis") as server:
        sink = RedisSink(server.address)
        test_a_first_start_and_its_batches_and_a_resume(sink)
        sink.close()
        again = RedisSink(server.address)
        test_a_stream_that_is_made_again_after_a_claim(again)
        again.close()


# The commit, broken on purpose: what is above finds it.


def without(text: str) -> Script:
    assert text in COMMIT.text
    return Script(COMMIT.text.replace(text, "" if "~=" not in text else "false"))


WRITE, PUT = Client.write, RedisCells._write


def success(self: Client, *args: Any, **at: Any) -> Any:
    with contextlib.suppress(InDoubt):
        return WRITE(self, *args, **at)
    return [b"OK"]


def test_a_commit_that_is_broken_is_found(sink: RedisSink, proxied: tuple[RedisSink, SqlProxy]) -> None:
    version = "(there[i] and string.match(there[i], '^%d+') or '') ~= ARGV[at + 1]"
    stream = "known_as(redis.call('HGET', KEYS[3], KEYS[2]), stream) ~= ARGV[1]"
    finds: Callable[[RedisSink], None]
    for name, by, finds in (
        ("COMMIT", without(version), test_a_commit_of_a_version_that_is_not_there_writes_nothing),
        ("COMMIT", without(stream), test_a_stream_that_is_made_again_after_a_claim),
        ("write", success, lambda _: test_an_answer_that_is_lost(proxied, Loss.REQUEST, 5)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(by, Script):
                patch.setattr("sinkpipeline.redis_streams.cells.COMMIT", by)
            else:
                patch.setattr(Client, name, by)
            with pytest.raises(BaseException):  # noqa: B017, PT011 - a failed test raises what it likes
                finds(sink)
    assert scripts.COMMIT is COMMIT
