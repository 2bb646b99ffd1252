"""A cluster: the sink goes on at whoever has the slot of its stream, with each row once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from servers.redis import LocalRedis, program
from servers.redis_groups import LocalCluster, follows, run
from sinkpipeline.core.errors import Reason
from sinkpipeline.redis_streams import look
from sinkpipeline.redis_streams.addresses import slot_of
from sinkpipeline.redis_streams.settings import Acknowledge, Connection
from support.runs.keeper import KEEPER
from support.sink.cell_sink import P0, P1
from support.sink.delivering import delivering
from support.sink.redis_sink import RedisSink
from support.sink.starts import refusal
from support.waiting import wait_until

ENDS = {P0: 3_000, P1: 300}
PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
EachKind = pytest.mark.parametrize(
    "cluster", ["valkey", pytest.param("debian", marks=[pytest.mark.thorough("Redis 7.0")])], indirect=True
)
_names = itertools.count()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three masters and a replica of that one which has slot 0; whoever was killed is back."""
    kind = getattr(request, "param", "valkey")
    if program(kind) is None:
        pytest.skip("no such server: make install, or make redis-old")
    found = KEEPER.get(f"{kind}_cluster", lambda: LocalCluster(kind))
    yield found
    for each in found.servers:
        if each.pid is None:
            each.start()
    wait_until(lambda: any(follows(each.address) for each in found.servers), "there is a replica again")
    wait_until(found.is_up, "all slots are served")


def name_in(cluster: LocalCluster, server: LocalRedis) -> str:
    """Of a stream whose slot that server has."""
    return next(
        name for name in (f"s{next(_names)}" for _ in itertools.count()) if cluster.owner(slot_of(name)) is server
    )


@contextmanager
def sink_of(cluster: LocalCluster, server: LocalRedis, replicas: int = 0) -> Iterator[RedisSink]:
    """Its stream is at that server, where it is counted until `address` is another one's."""
    sink = RedisSink(server.address, dict(ENDS), name_in(cluster, server))
    connection = Connection(server=cluster.address, slot=slot_of(sink.name), acknowledge=Acknowledge(replicas=replicas))
    sink.changes = {"connection": connection}
    with closing(sink):
        yield sink


@EachKind
def test_a_failover_and_a_resharding_during_delivery(cluster: LocalCluster) -> None:
    with sink_of(cluster, cluster.owner(0), replicas=1) as sink:
        slot = slot_of(sink.name)
        driver = sink.driver(step=10)
        with delivering(driver):
            old = cluster.owner(slot)
            old.kill()
            wait_until(lambda: cluster.has_owner(slot), "the replica has its slots")
            old.start()
        sink.address = cluster.owner(slot).address
        assert sink.delivered() == sink.once
    with sink_of(cluster, cluster.owner(0)) as sink:
        slot = slot_of(sink.name)
        driver = sink.driver(step=10)
        with delivering(driver):
            source, to = cluster.owner(slot), cluster.owner(16_383)
            cluster.begin_move(slot, to)
            while cluster.move_keys(slot, source, to, 1):
                pass
            cluster.end_move(slot, to)
        sink.address = to.address
        assert sink.delivered() == sink.once


@pytest.mark.thorough("each point at which a resharding can stand still")
@pytest.mark.parametrize("moved", range(4))
def test_a_resharding_that_stands_still_is_waited_for(cluster: LocalCluster, moved: int) -> None:
    """So many of the three keys are at the new owner. Nothing is written twice, and nothing into a new stream."""
    with sink_of(cluster, cluster.owner(16_383)) as sink:
        slot = slot_of(sink.name)
        driver = sink.driver(step=100)
        driver.batch()
        source, to = cluster.owner(slot), cluster.owner(0)
        cluster.begin_move(slot, to)
        cluster.move_keys(slot, source, to, moved)
        if moved:
            refusal(sink.driver, Reason.SINK_UNREACHABLE)
        else:
            driver.batch()
        while cluster.move_keys(slot, source, to, 10):
            pass
        refusal(driver.batch, Reason.SINK_UNREACHABLE)
        cluster.end_move(slot, to)
        driver.drain()
        sink.address = to.address
        assert sink.delivered() == sink.once


@pytest.mark.thorough("how newer servers do it")
def test_a_slot_that_is_moved_at_once(cluster: LocalCluster) -> None:
    """Valkey 9: the owner sends it all, and hands it over."""
    with sink_of(cluster, cluster.owner(16_383)) as sink:
        slot = slot_of(sink.name)
        driver = sink.driver(step=10)
        source, to = cluster.owner(slot), cluster.owner(0)
        with delivering(driver):
            try:
                words = ("SLOTSRANGE", slot, slot, "NODE", cluster.id_of(to))
                run(source.address, "CLUSTER", "MIGRATESLOTS", *words)
            except ResponseError as error:
                pytest.skip(f"this server can't: {error}")
            # For a moment nobody says so.
            wait_until(lambda: cluster.says_it_has(to, slot), "it is handed over")
        sink.address = to.address
        assert sink.delivered() == sink.once


@pytest.mark.thorough("what is wrong with a manifest")
def test_what_is_refused_and_what_to_write(cluster: LocalCluster, valkey: LocalRedis) -> None:
    with sink_of(cluster, cluster.owner(0)) as sink:
        sink.changes = {"connection": Connection(server=cluster.owner(0).address)}
        assert "write mode: Cluster" in str(refusal(lambda: look.check_rights(sink.ports()), Reason.SINK_REFUSED))
        sink.changes = {"connection": Connection(server=valkey.address, slot=1)}
        told = str(refusal(lambda: look.check_reached(sink.settings), Reason.SINK_REFUSED))
        assert "remove mode: Cluster" in told


@pytest.mark.thorough("what a user may do")
def test_a_user_that_may_do_what_the_page_says_and_not_ask_for_slots(cluster: LocalCluster, tmp_path: Path) -> None:
    [rule] = re.findall(r"^ACL SETUSER sinkpipeline (.*)$", PAGE.read_text(), re.MULTILINE)
    with sink_of(cluster, cluster.owner(0)) as sink:
        words = rule.replace("PASSWORD", "secret").replace("orders", sink.name).split()
        for each in cluster.servers:
            run(each.address, "ACL", "SETUSER", sink.name, *words)
        (tmp_path / "password").write_text("secret")
        found = replace(sink.settings.connection, user=sink.name, password_file=str(tmp_path / "password"))
        sink.changes = {"connection": found}
        told = refusal(sink.driver, Reason.SINK_REFUSED)
        for each in cluster.servers:
            run(each.address, *told.remedy.split())
        sink.driver(step=1_000).drain()
        assert sink.delivered() == sink.once
