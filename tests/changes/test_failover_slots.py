"""Slots that standbys have too, of PostgreSQL 17: a failover after which the stage goes on, as docs/changes.md says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typing_extensions import override

from servers.local_kafka import LocalKafka
from servers.local_process import HOST
from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql, major_version
from servers.postgresql_standby import STANDBY, LocalStandby, has_program
from servers.sql_proxy import SqlProxy
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.core.changes.positions import lsn_text
from sinkpipeline.core.errors import Reason
from support.changes.lab import LOGICAL, Lab
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(major_version() < 17, reason="PostgreSQL before 17: make test-newer-databases"),
    pytest.mark.skipif(not has_program("pg_basebackup"), reason="no pg_basebackup"),
]

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
WAITS = {"synchronized_standby_slots": STANDBY}
"""What the primary hands out to a stage, the standby has."""


class FailoverLab(Lab):
    addresses: str = ""
    """Of both servers."""

    @override
    def settings(self, **changes: Any) -> StageSettings:
        found = super().settings(**changes)
        database = found.postgresql
        connection = replace(database.connection, servers=self.addresses or self.server.address)
        slot = replace(database.slot, failover=True)
        return replace(found, database=replace(database, connection=connection, slot=slot))

    def insert(self, first: int, count: int = 5) -> None:
        self.sql(f"INSERT INTO orders SELECT g, 'x' FROM generate_series({first}, {first + count - 1}) AS g")

    def ids(self) -> list[int]:
        """Of the rows in the topic, in the order of the commits."""
        return [each.record.document["after"]["id"] for each in sorted(self.found(), key=lambda each: each.place)]


class Pair:
    """A primary and its standby, behind a proxy."""

    def __init__(self, primary: LocalPostgresql, standby: LocalStandby, proxy: SqlProxy, lab: FailoverLab) -> None:
        self.primary, self.standby, self.proxy, self.lab = primary, standby, proxy, lab

    def sync(self) -> None:
        """Until the standby has the slot, with all that the stage has confirmed until now.

        It takes a slot over only once that has gone on: by itself that takes a quarter of a minute, or a checkpoint.
        """
        wanted, stage = self.lab.slot_lsn(), self.lab.start()
        query = (
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
            " AND confirmed_flush_lsn >= %s::pg_lsn AND invalidation_reason IS NULL"
        )
        with psycopg.connect(
            host=HOST, port=self.standby.port, user=SUPERUSER, dbname=DATABASE, autocommit=True
        ) as session:

            def has_it() -> bool:
                self.lab.sql("SELECT pg_log_standby_snapshot()")
                return session.execute(query, (self.lab.slot, lsn_text(wanted))).fetchone() == (1,)

            wait_until(has_it, "the standby has the slot", 60, poll_s=0.5)
        stage.end()

    def take_over(self) -> None:
        self.primary.kill()
        self.proxy.close()
        self.standby.promote()
        self.lab.server = self.standby


@pytest.fixture(params=[{}, WAITS], ids=["", "the primary waits"])
def pair(request: pytest.FixtureRequest, kafka: LocalKafka, tmp_path: Path) -> Iterator[Pair]:
    with LocalPostgresql(settings={**LOGICAL}) as primary, SqlProxy(primary.port) as proxy:
        lab = FailoverLab(primary, kafka.bootstrap_servers, tmp_path)
        lab.sql(TABLE)
        with LocalStandby(primary, through=proxy.port, slots=True) as standby:
            lab.addresses = f"{standby.address},{primary.address}"
            for name, value in request.param.items():
                lab.sql(f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
            lab.live()
            lab.insert(0)
            lab.live()
            yield Pair(primary, standby, proxy, lab)
            lab.end_stages()


def test_also_of_a_snapshot(kafka: LocalKafka, logical: LocalPostgresql, tmp_path: Path) -> None:
    with closing(FailoverLab(logical, kafka.bootstrap_servers, tmp_path)) as lab:
        lab.sql(TABLE)
        lab.insert(0)
        lab.live(database={"snapshot": True})
        made = f"SELECT failover, temporary FROM pg_replication_slots WHERE slot_name = '{lab.slot}'"
        assert lab.sql(made) == [(True, False)]
        assert lab.ids() == list(range(5))


def test_it_goes_on_with_the_slot_of_the_standby(pair: Pair) -> None:
    lab = pair.lab
    pair.sync()
    # Behind what the slot has there.
    lab.insert(5)
    lab.live()
    lab.insert(10)
    pair.standby.catch_up()
    pair.take_over()
    lab.insert(15)
    lab.live()
    lab.insert(20)
    lab.live()
    assert lab.ids() == list(range(25))


@pytest.mark.parametrize("pair", [WAITS], indirect=True, ids=["the primary waits"])
def test_what_the_standby_lacks_was_not_delivered(pair: Pair) -> None:
    lab = pair.lab
    pair.sync()
    stage = lab.start()
    stage.wait_for("claimed")
    pair.proxy.hold()
    lab.insert(100)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation'"
    wait_until(lambda: lab.sql(waits) == [(1,)], "the primary waits for its standby")
    stage.kill()
    pair.take_over()
    lab.insert(5)
    lab.live()
    assert lab.ids() == list(range(10))


@pytest.mark.parametrize("pair", [{}], indirect=True, ids=["the primary does not wait"])
def test_what_was_delivered_and_the_standby_lacks_is_told(pair: Pair) -> None:
    lab = pair.lab
    pair.sync()
    pair.standby.catch_up()
    pair.proxy.hold()
    lab.insert(100)
    lab.live()
    pair.take_over()
    error = lab.refusal()
    assert error.reason is Reason.SOURCE_ROLLED_BACK, error
    assert lab.ids() == [*range(5), *range(100, 105)]
