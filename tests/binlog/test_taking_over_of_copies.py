"""Servers that were made of another one take over, and others whose log does not tell all; who reads them is told."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import pytest

from servers.binlog_server import SUPERUSER
from servers.sql_proxy import SqlProxy
from sinkpipeline.changes import kinds
from sinkpipeline.changes.binlog import reader, stream
from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.changes.ports import AnotherServer
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.changes.positions import BinlogPosition
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.changes.binlog import BOTH
from support.changes.binlog_load import SMALL, insert
from support.changes.lab import CUT_AT_ONE, Killed, Life
from support.changes.takeover import FIRST_FREE, CutAt, Transaction, TwoServers, execute, inserting, rows_of

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.thorough("what an attack has found: two servers each; the usual way is in make test"),
]
MYSQL = pytest.mark.parametrize("kind", ["mysql"], indirect=True)
MARIADB = pytest.mark.parametrize("kind", ["mariadb"], indirect=True)


@BOTH
def test_a_copy_of_more_than_the_topic_has_can_t_tell_the_rest(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2)
    lab.live()
    apart.give_rows(apart.first, 3, 4)
    apart.copy(apart.first, apart.other)
    apart.give_rows(apart.other, 5)
    apart.take_over()
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_DATA_LOST, error
    assert str(FIRST_FREE + 4) in error.message or str(FIRST_FREE + 5) in error.message, error
    assert apart.ids() == rows_of(1, 2)


@BOTH
def test_a_copy_of_what_the_topic_has(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2)
    apart.copy(apart.first, apart.other)
    apart.give_rows(apart.first, 3)
    lab.live()
    apart.give_rows(apart.other, 3, 4)
    apart.take_over()
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3, 4)
    assert not lab.position().ahead, "nothing is waited for that never comes"


@MARIADB
def test_a_copy_that_has_committed_something_itself(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2)
    lab.live()
    apart.copy(apart.first, apart.other)
    apart.give(apart.other, inserting(lab, 3, server=2))
    apart.take_over()
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3)


@BOTH
def test_a_first_start_at_a_copy_and_then_the_older_server(apart: TwoServers) -> None:
    """What was there before the beginning does not come, although that one's log has it."""
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2)
    apart.copy(apart.first, apart.other)
    apart.take_over()
    lab.name_anew()
    lab.live()
    apart.give_rows(apart.first, 3)
    apart.back()
    lab.live()
    assert apart.ids() == rows_of(3)


@MARIADB
def test_a_copy_that_has_logged_nothing_yet(apart: TwoServers) -> None:
    lab = apart.lab
    for each in (apart.first, apart.other):
        execute(each, "RESET MASTER")
    lab.name_anew()
    lab.live()
    apart.give_rows(apart.first, 1, 2)
    apart.copy(apart.first, apart.other)
    apart.give_rows(apart.other, 3)
    apart.take_over()
    assert lab.refusal().reason is Reason.SOURCE_DATA_LOST


@MYSQL
def test_a_part_of_a_transaction_that_the_copy_can_t_tell(apart: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    lab = apart.lab
    apart.give_rows(apart.first, 1)
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=2))
    apart.copy(apart.first, apart.other)
    apart.give_rows(apart.other, 2)
    apart.take_over()
    assert lab.refusal().reason is Reason.SOURCE_DATA_LOST


@MARIADB
def test_who_is_killed_while_much_is_passed_over(apart: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the topic has stays what it has, wherever the position is."""
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2, 3, 4)
    lab.live()
    apart.give_rows(apart.other, 1, 2, 3, 4)
    apart.take_over()
    receive = Wire.receive

    def slowly(self: Wire) -> bytes:
        time.sleep(0.05)
        return receive(self)

    def at_first(event: dict[str, object]) -> None:
        if event["event"] == "committed":
            raise Killed

    with monkeypatch.context() as patches:
        patches.setattr(Wire, "receive", slowly)
        lab.live(Life(at_first), database={"idle_advance_s": 0.3})
    assert lab.position().ahead, "it was killed meanwhile"
    apart.give_rows(apart.first, 5)
    apart.back()
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3, 4, 5)


@MARIADB
@pytest.mark.parametrize("in_a_former_file", [False, True])
def test_another_writer_of_the_domain_with_a_lower_number(apart: TwoServers, *, in_a_former_file: bool) -> None:
    """As gtid_strict_mode lets it be, which is off by default."""
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2, 3, 4)
    lab.live()
    apart.give_rows(apart.other, 1)
    lower = replace(inserting(lab, 900, server=2), number=FIRST_FREE + 2)
    apart.give(apart.other, lower)
    if in_a_former_file:
        execute(apart.other, "FLUSH BINARY LOGS")
    apart.give_rows(apart.other, 2, 3, 4, 5)
    apart.take_over()
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3, 4, 5, 900)


class Endless(Life):
    """It lives on when it has everything."""

    def set(self) -> None:
        """Nobody ends it."""


def _with_items(apart: TwoServers) -> None:
    for each in (apart.first, apart.other):
        with each.connected(apart.lab.name) as session, session.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute("CREATE TABLE items (id bigint PRIMARY KEY, note varchar(200))")


@BOTH
@pytest.mark.parametrize("more", [False, True])
def test_other_tables_while_the_topic_has_a_part_of_a_transaction(
    apart: TwoServers, monkeypatch: pytest.MonkeyPatch, *, more: bool
) -> None:
    """A start in between knows the new tables, and so the count of the part says nothing any more."""
    monkeypatch.setattr(stream, "_AT_ONCE", 1)
    lab = apart.lab
    _with_items(apart)
    lab.tables = ("orders",) if more else ("orders", "items")
    lab.live()
    statements = [
        f"INSERT INTO {lab.name}.{table} VALUES ({n}, 'x')" for n in range(10) for table in ("items", "orders")
    ]
    for each in (apart.first, apart.other):
        apart.give(each, Transaction(FIRST_FREE + 1, statements))
    lab.live(Life(CutAt()), cuts=replace(CUT_AT_ONE, rows=4))
    lab.tables = ("orders", "items") if more else ("orders",)
    stage = lab.start("stage-after-meta")
    stage.wait_at("stage-after-meta")
    stage.kill()
    apart.take_over()
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_RECREATED
    assert "other tables" in error.message
    apart.back()
    lab.live()
    apart.take_over()
    lab.live()
    orders = [int(dict(each.told.row)["id"]) for each in lab.found() if each.told.table.endswith(".orders")]
    assert orders == list(range(10))


@BOTH
def test_a_life_that_has_made_a_snapshot_knows_what_it_has(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1)
    lab.name_anew()
    stage = lab.start(cuts=SMALL, database={"snapshot": True})
    stage.wait_for("claimed")
    lab.caught_up()
    apart.give_rows(apart.first, 2)
    lab.caught_up()
    stage.kill()
    apart.give_rows(apart.other, 1, 2, 3)
    apart.take_over()
    lab.live(database={"snapshot": True})
    assert apart.ids() == rows_of(1, 2, 3)


@BOTH
def test_an_address_that_leads_elsewhere_is_noticed(apart: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to the former server stay, as those of a Service do."""
    monkeypatch.setattr(reader, "_WHO_S", 0.5)
    lab = apart.lab
    with SqlProxy(apart.first.port) as proxy:
        through = {"connection": BinlogConnection(server=proxy.address, user=SUPERUSER)}

        def leads_elsewhere(event: dict[str, object]) -> None:
            if event["event"] == "claimed":
                proxy.leads_to(apart.other.port)

        with pytest.raises(SinkPipelineError) as refused:
            lab.live(Endless(leads_elsewhere), database=through)
        assert refused.value.reason is Reason.SOURCE_UNREACHABLE
        assert "another server" in refused.value.message
        apart.give_rows(apart.other, 1)
        apart.take_over()
        lab.live(database=through)
    assert apart.ids() == rows_of(1)


@MYSQL
def test_an_address_where_nobody_answers_any_more(apart: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stage reads comes all the same."""
    monkeypatch.setattr(reader, "_WHO_S", -1.0)
    with SqlProxy(apart.first.port) as proxy:
        connection = BinlogConnection(server=proxy.address, user=SUPERUSER)
        settings = apart.lab.settings(database={"connection": connection}).database
        with closing(kinds.of(settings).connect(settings)) as found:
            place = apart.lab.position()
            proxy.leads_to(1)
            assert found.look(place).told is not None
            proxy.leads_to(apart.other.port)
            with pytest.raises(AnotherServer):
                found.look(place)


@BOTH
def test_gtids_that_are_learnt_are_noted_at_once(apart: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of progress of a release that noted none, also where nothing changes."""
    lab = apart.lab
    record = BinlogPosition.to_record

    def without(self: BinlogPosition) -> list[str | int]:
        return record(replace(self, note="@".join(self.note.split("@")[:2]), inside=0))

    with monkeypatch.context() as patches:
        patches.setattr(BinlogPosition, "to_record", without)
        apart.give_rows(apart.first, 1)
        lab.live()
    assert not lab.position().executed
    lab.live()
    apart.give_rows(apart.other, 1, 2)
    apart.take_over()
    lab.live()
    assert apart.ids() == rows_of(1, 2)


@BOTH
def test_what_is_passed_over_need_not_be_readable(apart: TwoServers) -> None:
    lab = apart.lab
    apart.give_rows(apart.first, 1, 2)
    lab.live()
    execute(apart.other, "SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    apart.give_rows(apart.other, 1, 2)
    execute(apart.other, "SET GLOBAL binlog_row_metadata = 'FULL'")
    apart.give_rows(apart.other, 3)
    apart.take_over()
    lab.live()
    assert apart.ids() == rows_of(1, 2, 3)


@MYSQL
def test_what_is_read_beside_the_stream_ends_a_life_at_another_server(apart: TwoServers) -> None:
    lab = apart.lab
    insert(lab, 0, 50)
    lab.name_anew()
    with SqlProxy(apart.first.port) as proxy:
        through = {"connection": BinlogConnection(server=proxy.address, user=SUPERUSER), "incremental": True}

        def leads_elsewhere(event: dict[str, object]) -> None:
            if event["event"] == "claimed":
                proxy.leads_to(apart.other.port)

        with pytest.raises(SinkPipelineError, match="another server"):
            lab.live(Life(leads_elsewhere), database=through)
