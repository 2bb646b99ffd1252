"""Sentinels, a master and its replica: the sink goes on at whoever is the master, with each row once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

import redis
from servers.redis import LocalRedis, program
from servers.redis_groups import LocalSentinel, LocalSentinels, run
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import RolledBack
from sinkpipeline.redis_streams import look, where
from sinkpipeline.redis_streams.addresses import host_and_port
from sinkpipeline.redis_streams.client import Client
from sinkpipeline.redis_streams.settings import Acknowledge, Connection, Sentinels
from support.runs.keeper import KEEPER
from support.sink.cell_sink import P0, P1
from support.sink.delivering import delivering
from support.sink.redis_sink import RedisSink
from support.sink.starts import refusal
from support.waiting import wait_until

ENDS = {P0: 3_000, P1: 300}
LOST = 22 * 1_500 + 3_996
"""What a master has acknowledged alone: of both partitions."""
EachKind = pytest.mark.parametrize(
    "group", ["valkey", pytest.param("debian", marks=[pytest.mark.thorough("Redis 7.0")])], indirect=True
)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[LocalSentinels]:
    """A master, its replica and three sentinels, that all tests in a row share; whoever was killed is back."""
    kind = getattr(request, "param", "valkey")
    if program(kind) is None:
        pytest.skip("no such server: make install, or make redis-old")
    found = KEEPER.get(f"{kind}_sentinels", lambda: LocalSentinels(kind))
    yield found
    found.mend()


@contextmanager
def sink_of(group: LocalSentinels, replicas: int = 1) -> Iterator[RedisSink]:
    """It counts at the master of now, until `address` is another one's."""
    sink = RedisSink(group.master.address, dict(ENDS))
    sink.changes = {
        "connection": Connection(
            server=group.address, sentinels=Sentinels(master=group.name), acknowledge=Acknowledge(replicas=replicas)
        )
    }
    with closing(sink):
        yield sink


@EachKind
def test_failovers_during_delivery(group: LocalSentinels) -> None:
    """By a sentinel, and as the master is killed. What counts was acknowledged by the replica, so nothing is lost."""
    with sink_of(group) as sink:
        assert look.fears(sink.ports()) == ()
        driver = sink.driver(step=10)
        with delivering(driver):
            new = group.fail_over()
            group.mend()
            [other] = [each for each in group.servers if each is not new]
            new.kill()
            wait_until(lambda: group.is_led_by(other), "the sentinels have made the other one the master")
            new.start()
        sink.address = other.address
        assert sink.delivered() == sink.once


@pytest.mark.thorough("the same where no replica is waited for")
def test_a_failover_that_lost_commits_is_told_and_made_whole(group: LocalSentinels) -> None:
    """The replica had lost its master; what the master has acknowledged alone is gone with it, rows and progress."""
    with sink_of(group, replicas=0) as sink:
        sink.ends = {P0: 40_000, P1: 4_000}
        [fear] = look.fears(sink.ports())
        assert "set acknowledge.replicas" in fear, "it was foreseen"
        remembered = Remembered()
        driver = sink.driver(remembered=remembered)
        driver.batch()
        old = group.master
        [new] = [each for each in group.servers if each is not old]
        wait_until(lambda: len(at(new, sink)) == 8, "the replica has the first batch")
        run(new.address, "REPLICAOF", "NO", "ONE")
        driver.step = 1_500
        for _ in range(22):
            driver.batch()
        assert len(sink.entries()) == 8 + LOST
        old.kill()
        wait_until(lambda: group.is_led_by(new), "the replica leads")
        sink.address = new.address
        driver.delivery.close()
        driver.start()
        # Of a start that a failover interrupts the next attempt finds only what it has written.
        assert driver.started.rolled_back in (RolledBack(rows=LOST, offsets=LOST, partitions=2), None)
        meta = driver.started.progress.meta
        assert meta is not None
        assert meta.rolled_back == LOST
        driver.drain()
        assert sink.delivered() == sink.once


def at(server: LocalRedis, sink: RedisSink) -> list[dict[bytes, bytes]]:
    return RedisSink(server.address, name=sink.name).entries()


@pytest.mark.thorough("an old master that is not told yet")
def test_an_old_master_that_is_back_is_not_believed(group: LocalSentinels) -> None:
    """For some seconds it is a master still, by its own words, and the connections to it never broke."""
    with sink_of(group, replicas=0) as sink:
        driver = sink.driver()
        driver.batch()
        old = group.master
        [new] = [each for each in group.servers if each is not old]
        wait_until(lambda: len(at(new, sink)) == 8, "the replica has the first batch")
        old.pause()
        wait_until(lambda: group.is_led_by(new), "the replica leads")
        old.resume()
        driver.step = 100
        driver.pause_s = 0.1
        driver.drain()
        sink.address = new.address
        assert sink.delivered() == sink.once


@pytest.mark.thorough("an outage")
def test_while_no_master_is_known_the_sink_waits(group: LocalSentinels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "BELIEVED_S", 0.0)
    with sink_of(group) as sink:
        driver = sink.driver()
        driver.batch()
        # Only behind this: one that answers may take longer on a busy machine.
        monkeypatch.setattr(where, "ASKED_S", 0.5)
        for each in group.sentinels:
            each.pause()
        try:
            driver.batch()
            assert len(sink.entries()) == 16, "where sentinels are away, what is connected goes on"
            told = refusal(sink.driver, Reason.SINK_UNREACHABLE)
            assert "no sentinel answers" in str(told)
            assert not told.reason.counted
        finally:
            for each in group.sentinels:
                each.resume()
        for each in group.servers:
            each.kill()
        refusal(sink.driver, Reason.SINK_UNREACHABLE)


@pytest.fixture
def one(valkey: LocalRedis) -> Iterator[tuple[RedisSink, ExitStack]]:
    sink = RedisSink(valkey.address)
    with ExitStack() as stack:
        stack.callback(sink.close)
        yield sink, stack


@pytest.mark.thorough("what is wrong with a manifest")
def test_what_is_refused_and_what_to_write(one: tuple[RedisSink, ExitStack], valkey: LocalRedis) -> None:
    sink, stack = one
    sentinel = stack.enter_context(LocalSentinel("valkey", "shop", valkey.port, 1))

    def refused(server: str, master: str | None, reason: Reason = Reason.SINK_REFUSED) -> str:
        sentinels = None if master is None else Sentinels(master=master)
        found = Connection(server=server, sentinels=sentinels)
        sink.changes = {"connection": found}
        return str(refusal(lambda: look.check_reached(sink.settings), reason))

    assert "write masterName: shop below sentinel" in refused(sentinel.address, "sho")
    assert "name sentinels in servers" in refused(valkey.address, "shop")
    assert "write mode: Sentinel" in refused(sentinel.address, None)
    sentinel.kill()
    assert "no sentinel answers" in refused(sentinel.address, "shop", Reason.SINK_UNREACHABLE)


@pytest.mark.thorough("users of sentinels")
def test_sentinels_that_ask_who_we_are(
    one: tuple[RedisSink, ExitStack], valkey: LocalRedis, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _, stack = one
    rules = "user asking on >secret ~* &* +sentinel|master", "requirepass other"
    sentinel = stack.enter_context(LocalSentinel("valkey", "shop", valkey.port, 1, rules))
    path = tmp_path_factory.mktemp("secrets") / "password"
    path.write_text("secret\n")
    known = Sentinels(master="shop", user="asking", password_file=str(path))

    def connect(sentinels: Sentinels) -> None:
        with closing(Client(Connection(server=sentinel.address, sentinels=sentinels))) as client:
            assert client.read("PING") == b"PONG"

    assert "sentinel.auth" in str(refusal(lambda: connect(Sentinels(master="shop")), Reason.AUTHENTICATION_FAILED))
    remedy = refusal(lambda: connect(known), Reason.SINK_REFUSED).remedy
    assert remedy == "ACL SETUSER asking +sentinel|get-master-addr-by-name +sentinel|master"
    host, port = host_and_port(sentinel.address)
    with redis.Redis(host=host, port=port, password="other") as admin:
        admin.execute_command(*remedy.split())
    connect(known)
