"""Another server takes over, by GTIDs: the topic has each change once, whatever place it has in the new log."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from servers.local_kafka import LocalKafka
from sinkpipeline.changes.binlog import stream
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.changes.binlog import BOTH
from support.changes.binlog_load import SMALL, Load, claimed, insert
from support.changes.lab import CUT_AT_ONE, Life
from support.changes.takeover import (
    FIRST_FREE,
    CutAt,
    TwoServers,
    caught_up,
    execute,
    inserting,
    promote,
    replicate,
    rows_of,
    server,
    two,
)
from support.waiting import wait_until

pytestmark = pytest.mark.kafka
SEED = 20261128
ANOTHER_PLACE = pytest.mark.thorough("another place of the same transaction")


def swap(servers: TwoServers) -> None:
    """The first one is gone, and the other one has all of it."""
    caught_up(servers.first, servers.other)
    promote(servers.other)
    servers.first.kill()
    servers.take_over()


@BOTH
@pytest.mark.thorough("the other server; tests/model has MySQL's in make test", after=1)
def test_a_replica_takes_over(servers: TwoServers) -> None:
    lab = servers.lab
    lab.live()
    insert(lab, 0, 100)
    lab.live()
    insert(lab, 1000, 30)
    swap(servers)
    insert(lab, 2000, 40)
    assert lab.position().shift == 0
    lab.live()
    assert lab.check() == 170
    insert(lab, 3000, 5)
    lab.live()
    assert lab.check() == 175
    assert lab.position().shift > 0, "files of the new server count behind those of the former one"


@pytest.mark.thorough("each of the places takes two servers")
@pytest.mark.parametrize("index", [1, 50, *(pytest.param(each, marks=ANOTHER_PLACE) for each in (37, 38, 99))])
@pytest.mark.parametrize("kind", ["mariadb", "mysql"], indirect=True)
def test_in_the_middle_of_a_transaction(servers: TwoServers, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new server has the same changes in it, in events of its own."""
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    lab = servers.lab
    lab.live()
    with lab.connected(autocommit=False) as session, session.cursor() as cursor:
        for first in (0, 1000):
            cursor.execute(f"INSERT INTO orders SELECT {first} + seq, repeat('x', 190) FROM seq_1_to_50")
        session.commit()
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=index))
    assert len(lab.found()) == index
    swap(servers)
    insert(lab, 2000, 10)
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=3))
    lab.live()
    assert lab.check() == 110


@pytest.mark.thorough("another order; the model has it in make test")
@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
def test_what_the_new_server_has_in_another_order(apart: TwoServers) -> None:
    """What the topic has already stands behind what it lacks, also for the lives that follow."""
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2, 3)
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3)
    execute(apart.other, "FLUSH BINARY LOGS")
    apart.give_rows(apart.other, 4, 2, 1, 5)
    execute(apart.other, "FLUSH BINARY LOGS")
    apart.give_rows(apart.other, 3, 6)
    apart.take_over()
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=1))
    assert lab.position().ahead, "it stands before some that the topic has"
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3, 4, 5, 6)
    assert not lab.position().ahead
    # And back again.
    apart.give_rows(apart.first, 6, 5, 7, 4)
    apart.back()
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3, 4, 5, 6, 7)


@pytest.mark.thorough("another order; the model has it in make test")
@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
def test_domains_have_an_order_each(apart: TwoServers) -> None:
    lab = apart.lab
    for number, domain in ((1, 0), (1, 7), (2, 0), (2, 7)):
        apart.give(apart.first, inserting(lab, number, domain))
    lab.live()
    for number, domain in ((1, 7), (2, 7), (3, 7), (1, 0), (4, 7), (2, 0), (3, 0)):
        apart.give(apart.other, inserting(lab, number, domain))
    apart.take_over()
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=1))
    assert lab.position().ahead
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3) + rows_of(1, 2, 3, 4, domain=7)


@pytest.mark.thorough("chance finds what nobody has thought of; each round takes a second")
@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
def test_any_order_and_any_cut(apart: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one server to the other and back, each with an order of its own."""
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    chance, lab = random.Random(SEED), apart.lab
    has: dict[bool, list[int]] = {True: [], False: []}
    now, made, refused = True, 0, 0
    for _ in range(12):
        on = apart.first if now else apart.other
        made += 3
        more = [each for each in range(1, made + 1) if each not in has[now]]
        chance.shuffle(more)
        for each in more:
            if chance.random() < 0.2:
                execute(on, "FLUSH BINARY LOGS")
            apart.give_rows(on, each)
        has[now] += more
        apart.back() if now else apart.take_over()
        try:
            if chance.random() < 0.7:
                lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=chance.randrange(1, 8)))
            if chance.random() < 0.5:
                lab.live()
        except SinkPipelineError as error:
            if error.reason is not Reason.SOURCE_RECREATED:
                raise
            # A part of a transaction is in the topic, which the other one has behind others.
            refused += 1
            apart.take_over() if now else apart.back()
            lab.live()
        assert set(apart.ids().values()) <= {1}
        now = not now
    lab.live()
    assert refused < 8
    assert apart.ids() == rows_of(*has[lab.server is apart.first])


@pytest.mark.thorough("another fact that is told")
def test_a_server_that_lacks_something_is_told_and_may_get_it_yet(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2)
    lab.live()
    apart.give_rows(apart.other, 1)
    apart.take_over()
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_ROLLED_BACK
    assert f"{FIRST_FREE + 2}" in error.message, error
    assert "lacks" in error.message
    apart.give_rows(apart.other, 2, 3)
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3)


@pytest.mark.thorough("another fact that is told")
def test_a_server_that_has_removed_what_the_topic_lacks(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1)
    lab.live()
    apart.give_rows(apart.other, 1, 2)
    execute(apart.other, "FLUSH BINARY LOGS")
    file, _ = apart.other.end()

    def is_alone() -> bool:
        # MariaDB keeps the one before until it needs it no more for its own recovery.
        execute(apart.other, f"PURGE BINARY LOGS TO '{file}'")
        return (apart.other.told("SHOW BINARY LOGS") or ("",))[0] == file

    wait_until(is_alone, "the former file is removed")
    apart.give_rows(apart.other, 3)
    apart.take_over()
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_DATA_LOST
    assert f"{FIRST_FREE + 2}" in error.message, error


@pytest.mark.thorough("another fact that is told")
@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
def test_a_part_of_a_transaction_that_the_new_server_has_behind_others(
    apart: TwoServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    lab = apart.lab
    apart.give_rows(apart.first, 1)
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=2))
    apart.give_rows(apart.other, 2, 1)
    apart.take_over()
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_RECREATED
    assert "a part of transaction" in error.message, error
    apart.back()
    lab.live()
    apart.take_over()
    lab.live()
    assert apart.ids() == rows_of(1, 2)


@pytest.mark.thorough("another fact that is told")
@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
def test_without_gtids_nobody_takes_over(kafka: LocalKafka, kind: str, tmp_path: Path) -> None:
    off = {"gtid-mode": "OFF_PERMISSIVE"}
    with server(kind, 1, **off) as first, server(kind, 2) as other:
        found = two(kafka.bootstrap_servers, tmp_path, [first, other], follows=False)
        found.lab.live()
        found.take_over()
        error = found.lab.refusal()
        assert error.reason is Reason.SOURCE_RECREATED
        assert "the former server gave none" in error.message
        execute(other, *(f"SET GLOBAL gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")))
        error = found.lab.refusal()
        assert error.reason is Reason.SOURCE_RECREATED
        assert "SET GLOBAL gtid_mode = 'ON'" in error.remedy
        found.lab.end_stages()


@pytest.mark.thorough("rows that are read beside the stream are placed by the server that has them")
@pytest.mark.thorough("of two servers that the same code reads one", after=1)
@BOTH
def test_rows_beside_the_stream(servers: TwoServers) -> None:
    lab = servers.lab
    insert(lab, 0, 3000)
    stage = lab.start("incremental-after-opening", cuts=SMALL, database={"incremental": True})
    stage.wait_at("incremental-after-opening")
    insert(lab, 10_000, 50)
    stage.kill()
    swap(servers)
    insert(lab, 20_000, 50)
    stage = lab.start(cuts=SMALL, database={"incremental": True})
    insert(lab, 30_000, 50)
    lab.rows_read()
    assert stage.end() == 0
    lab.check_tables("orders")


@pytest.mark.thorough("a load with servers that are killed and take over by turns: half a minute")
@pytest.mark.thorough("of two servers that the same code reads one", after=1)
@BOTH
def test_a_load_while_servers_take_over_by_turns(servers: TwoServers) -> None:
    lab, chance = servers.lab, random.Random(SEED)
    lab.live()
    stage = lab.start(cuts=SMALL)
    source, replica = servers.first, servers.other
    for turn in range(4):
        with Load(lab, rows=4_000, seed=turn, pause_s=0.002, base=100_000_000 * (turn + 1)) as load:
            while load.is_running:
                threading.Event().wait(chance.uniform(0.2, 0.8))
                stage.kill()
                stage = claimed(lab, lab.start(cuts=SMALL))
        if chance.random() < 0.5:
            stage.kill()
        caught_up(source, replica)
        promote(replica)
        source.kill()
        servers.lab.server = replica
        source.start()
        replicate(replica, source)
        source, replica = replica, source
        stage.wait()
        stage = claimed(lab, lab.start(cuts=SMALL))
    insert(lab, 1, 1)
    lab.caught_up()
    assert stage.end() == 0
    lab.begins_at = 0
    assert lab.check() > 4 * 4_000
    lab.check_tables("orders")
