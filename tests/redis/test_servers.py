"""Servers that are refused, that lose what they have acknowledged, that say nothing, that allow what they must."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from servers.redis import LocalRedis
from servers.sql_proxy import SqlProxy
from servers.waiting import wait_for
from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Row
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.rolled_back import RolledBack
from sinkpipeline.redis_streams import client as clients
from sinkpipeline.redis_streams import look
from sinkpipeline.redis_streams.settings import Acknowledge, Connection
from sinkpipeline.redis_streams.where import where_of
from sinkpipeline.sinks.contract import Restart
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.worker import Worker
from support.sink.cell_sink import P0
from support.sink.redis_sink import RedisSink
from support.sink.starts import refusal

PAGE = Path(__file__).parents[2] / "docs" / "redis.md"


@contextmanager
def on(server: LocalRedis, name: str | None = None) -> Iterator[RedisSink]:
    sink = RedisSink(server.address) if name is None else RedisSink(server.address, name=name)
    try:
        yield sink
    finally:
        sink.close()


def test_servers_that_keep_nothing_or_evict_are_refused() -> None:
    with LocalRedis(settings={"appendonly": "no"}) as server, on(server) as sink:
        assert "keeps nothing" in str(refusal(sink.driver, Reason.SINK_REFUSED))
        sink.changes = {"connection": Connection(server=server.address, acknowledge=Acknowledge(fsync=True))}
        assert "append-only" in str(refusal(sink.driver, Reason.SINK_REFUSED))
        sink.changes = {}
        sink.run("CONFIG", "SET", "save", "3600 1")
        sink.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert "evicts the progress" in str(refusal(sink.driver, Reason.SINK_REFUSED))
        assert "evicts the progress" in str(refusal(lambda: look.check_rights(sink.ports()), Reason.SINK_REFUSED))
        sink.run("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        sink.driver().drain()
        assert sink.delivered() == sink.once
        [fear] = look.fears(sink.ports())
        assert "snapshots alone" in fear


def test_a_server_that_has_just_started_is_waited_for(valkey: LocalRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of itself that it has no append-only file, until it has read it."""
    info = clients.Client.info
    loading = {"loading": "1", "aof_enabled": "0"}
    monkeypatch.setattr(clients.Client, "info", lambda self: {**info(self), **loading})
    with on(valkey) as sink:
        refusal(lambda: look.check_rights(sink.ports()), Reason.SINK_UNREACHABLE)


@pytest.mark.thorough("another server that is refused")
def test_a_node_of_a_cluster_and_a_replica_are_refused(valkey: LocalRedis) -> None:
    with LocalRedis(settings={"cluster-enabled": "yes"}) as server, on(server) as sink:
        sink.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: b"cluster_state:ok" in sink.run("CLUSTER", "INFO"), "the cluster is up", 30)
        assert "node of a cluster" in str(refusal(sink.driver, Reason.SINK_REFUSED))
    with LocalRedis(settings={"replicaof": f"127.0.0.1 {valkey.port}"}) as replica, on(replica) as sink:
        refusal(sink.driver, Reason.SINK_UNREACHABLE)


@contextmanager
def after_a_failover(remembered: Remembered) -> Iterator[RedisSink]:
    """The sink on a server that has its first batch of two."""
    with LocalRedis() as master, LocalRedis(settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica:
        with on(master) as sink:
            driver = sink.driver(remembered=remembered)
            driver.batch()
            with on(replica, sink.name) as there:
                wait_for(lambda: len(there.entries()) == 8, "the replica has the first batch", 30)
                wait_for(lambda: is_on_disk(there), "so has its append-only file", 30)
            replica.kill()
            driver.batch()
            assert len(sink.entries()) == 13
            driver.delivery.close()
        master.kill()
        replica.start()
        with on(replica, sink.name) as again:
            again.run("REPLICAOF", "NO", "ONE")
            wait_for(lambda: len(again.entries()) == 8, "the replica is the master, and acknowledged rows are gone", 30)
            yield again


def is_on_disk(sink: RedisSink) -> bool:
    """A replica begins its append-only file anew after it has copied its master."""
    info = sink.run("INFO", "persistence")
    return info["aof_enabled"] == 1 and not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])


def test_a_failover_to_a_replica_that_lags() -> None:
    """Rows and progress of the lost commits go together; what is delivered again is in the stream once."""
    remembered = Remembered()
    with after_a_failover(remembered) as sink:
        driver = sink.driver(remembered=remembered)
        assert driver.started.rolled_back == RolledBack(rows=5, offsets=5, partitions=2)
        driver.drain()
        assert sink.delivered() == sink.once


@pytest.mark.thorough("the same without a reset")
def test_a_failover_that_nobody_remembers_is_made_whole() -> None:
    with after_a_failover(Remembered()) as sink:
        sink.driver().drain()
        assert sink.delivered() == sink.once


def test_a_task_that_meets_another_server_than_its_driver_writes_nothing() -> None:
    """As an old master that is back, where the address leads to both."""
    with (
        LocalRedis() as master,
        LocalRedis(settings={"replicaof": f"127.0.0.1 {master.port}"}) as replica,
        on(master) as sink,
        on(replica, sink.name) as other,
    ):
        driver = sink.driver()
        driver.batch()
        wait_for(lambda: len(other.entries()) == 8, "the replica has it", 30)
        other.run("REPLICAOF", "NO", "ONE")
        with pytest.MonkeyPatch.context() as patch:
            made = clients.Client._made
            patch.setattr(clients.Client, "_made", lambda self: made(elsewhere(self, replica.address)))
            driver.worker = Worker()
            refusal(driver.batch, Reason.SINK_UNREACHABLE)
        assert len(other.entries()) == 8
        driver.worker = Worker()
        driver.start()
        driver.drain()
        assert sink.delivered() == sink.once


def test_a_worker_that_stays_at_an_old_master_is_led_to_the_new_one() -> None:
    """The driver has started again there: its run is not in the old one's cells, and nobody has taken its place."""
    with (
        LocalRedis() as old,
        LocalRedis(settings={"replicaof": f"127.0.0.1 {old.port}"}) as successor,
        SqlProxy(old.port) as proxy,
        on(old) as sink,
        on(successor, sink.name) as there,
    ):
        sink.address = proxy.address
        driver = sink.driver()
        driver.batch()
        wait_for(lambda: len(there.entries()) == 8, "the replica has it", 30)
        there.run("REPLICAOF", "NO", "ONE")
        proxy.leads_to(successor.port)
        sink.clients[0].close()
        driver.start()
        driver.drain()
        assert there.delivered() == there.once
        assert sink.run("XLEN", sink.name, address=old.address) == 8


def elsewhere(client: clients.Client, address: str) -> clients.Client:
    client._places = where_of(replace(client._connection, server=address))
    return client


def test_a_server_that_went_back_is_noticed_where_no_record_comes() -> None:
    """It was made a replica, and a master again, of another one that had less: connections stay."""
    with (
        LocalRedis() as master,
        LocalRedis(settings={"replicaof": f"127.0.0.1 {master.port}"}) as less,
        on(master) as sink,
        on(less, sink.name) as other,
    ):
        driver = sink.driver(remembered=Remembered())
        driver.batch()
        wait_for(lambda: len(other.entries()) == 8, "the other one has the first batch", 30)
        other.run("REPLICAOF", "NO", "ONE")
        driver.drain()
        sink.run("REPLICAOF", *less.address.split(":"))
        wait_for(lambda: sink.run("INFO", "replication")["master_link_status"] == "up", "it follows", 30)
        refusal(driver.ports.target.id, Reason.SINK_UNREACHABLE)
        sink.run("REPLICAOF", "NO", "ONE")
        assert len(sink.entries()) == 8
        with pytest.raises((Restart, SinkPipelineError)):
            driver.delivery.begin({})
        driver.delivery.close()
        driver.start()
        assert driver.started.rolled_back is not None
        driver.drain()
        assert sink.delivered() == sink.once


def test_a_row_that_is_longer_than_the_server_takes_is_refused_and_not_waited_for() -> None:
    with LocalRedis() as server, on(server) as sink:
        driver = sink.driver()
        plan = driver.delivery.begin({P0: OffsetRange(0, 4)})
        session = driver.ports.kind.claim(plan, P0, driver.worker).take()
        sink.run("CONFIG", "SET", "proto-max-bulk-len", "1mb")
        rows: list[Row] = [(b"v", None, -1, 0, None), (b"x" * 2_000_000, None, -1, 0, None)]
        with pytest.raises(RecordRefused, match="proto-max-bulk-len"):
            session._cells.commit(session.key, b"{}", session._version, rows)
        assert sink.entries() == []
        assert session._cells.commit(session.key, b"{}", session._version, rows[:1])


def test_a_server_that_says_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalRedis() as server, on(server) as sink:
        driver = sink.driver()
        driver.batch()
        target = driver.ports.target
        # Only here, and of a connection of its own: one that answers may take longer on a busy machine.
        with monkeypatch.context() as shortly:
            shortly.setattr(clients, "ANSWER_S", 1.0)
            target.client.close()
            assert target.id() is not None
        server.pause()
        try:
            refusal(target.id, Reason.SINK_UNREACHABLE)
        finally:
            server.resume()
        driver.drain()
        assert sink.delivered() == sink.once


def test_a_user_that_may_do_what_the_page_says(valkey: LocalRedis, tmp_path: Path) -> None:
    [rule] = re.findall(r"^ACL SETUSER sinkpipeline (.*)$", PAGE.read_text(), re.MULTILINE)
    with on(valkey) as sink:
        words = rule.replace("PASSWORD", "secret").replace("orders", sink.name).split()
        sink.run("ACL", "SETUSER", sink.name, *words, "+del")
        (tmp_path / "password").write_text("secret\n")
        connection = Connection(server=valkey.address, user=sink.name, password_file=str(tmp_path / "password"))
        sink.changes = {"connection": connection}
        look.check_rights(sink.ports())
        sink.driver().batch()
        for right in ("xadd", "xinfo", "hset", "hget", "evalsha"):
            sink.run("ACL", "SETUSER", sink.name, f"-{right}")
            before = sink.counted()
            refusal(sink.driver, Reason.SINK_REFUSED)
            assert sink.counted() == before
            sink.run("ACL", "SETUSER", sink.name, f"+{right}")
        sink.driver().drain()
        assert sink.delivered() == sink.once
        assert SinkRemoval(ports=sink.ports()).carry_out() is None
        (tmp_path / "password").write_text("wrong")
        refusal(sink.driver, Reason.AUTHENTICATION_FAILED)
