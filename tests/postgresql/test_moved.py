"""A table that is another one by now: dumped and restored elsewhere, or made a partition. Its order goes with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from servers.postgresql import DATABASE, LocalPostgresql
from servers.postgresql_standby import has_program
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.remembered import Remembered
from sinkpipeline.core.targets import parse_targets
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.sinks.contract import RowBatch
from sinkpipeline.sinks.reset import SinkReset
from support.cells import TOPIC
from support.sink.cell_sink import P0, P1
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal

COLUMNS = (Column(name="id", type="bigint"), Column(name="said", type="text"))
ORDERED = Upsert(key=("id",), order_type="bigint", order_by="version")
ENDS = {P0: 12, P1: 12}


def changes(partition: SourcePartition, offsets: range) -> RowBatch:
    """The same keys come from both partitions, and what comes from the first one is newer."""
    newer = 100 if partition == P0 else 0
    return batch(offsets, [(str(each), f"of {partition.partition}", str(newer + each)) for each in offsets])


@pytest.fixture
def ordered(sink: SqlSink) -> SqlSink:
    sink.upsert, sink.columns, sink.ends = ORDERED, COLUMNS, dict(ENDS)
    return sink


def reset(sink: SqlSink, *offsets: int) -> None:
    targets = [f"{TOPIC}:{partition}={offset}" for partition, offset in enumerate(offsets)]
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(parse_targets(targets)))


def next_offsets(sink: SqlSink) -> list[int]:
    partitions = sink.ports().ledger.observe().partitions
    return [partitions[each].next for each in sorted(partitions)]


def the_first_is_ahead(sink: SqlSink) -> Remembered:
    """Of the first partition all is delivered, and nothing of the second: its changes are all older."""
    sink.ends = {P0: 12, P1: 0}
    driver = sink.driver(make=changes, remembered=Remembered())
    driver.drain()
    driver.delivery.close()
    sink.ends = dict(ENDS)
    return Remembered(driver.starter.remembered.memory)


def is_ordered(sink: SqlSink) -> bool:
    """Whether no older change has replaced a newer one."""
    return sink.sql(f"SELECT DISTINCT said FROM {sink.table}") == [("of 0",)]


def typed(told: SinkPipelineError, which: str) -> str:
    """What is to be typed in this case."""
    [found] = re.findall(which, told.remedy)
    return str(found)


KEPT, ANEW = "rows are in this one: (.*?); if older", "written again: (DROP .*)$"


@pytest.fixture
def elsewhere() -> Iterator[LocalPostgresql]:
    with LocalPostgresql() as server:
        yield server


@pytest.mark.thorough("a server of its own; a table that became a partition is another one too, in the next test")
@pytest.mark.skipif(not has_program("pg_dump"), reason="no pg_dump: make postgresql")
@pytest.mark.parametrize("same_server", [False, True], ids=["another server", "another database"])
def test_a_database_that_was_dumped_and_restored_elsewhere(
    ordered: SqlSink, postgresql: LocalPostgresql, elsewhere: LocalPostgresql, same_server: bool
) -> None:
    remembered = the_first_is_ahead(ordered)
    server, name = (postgresql, ordered.name) if same_server else (elsewhere, DATABASE)
    dump = str(postgresql.directory / f"{ordered.name}.dump")
    at = ("-h", "127.0.0.1", "-U", "postgres", "-p")
    schemas = ("-n", ordered.table.rpartition(".")[0], "-n", f"{ordered.name}_progress")
    postgresql.run("pg_dump", *at, str(postgresql.port), "-Fc", "-f", dump, *schemas, DATABASE)
    if same_server:
        ordered.sql(f"CREATE DATABASE {name}")
    # Whoever runs the other server may not read the files of this one.
    postgresql.run("pg_restore", *at, str(server.port), "-d", name, dump)
    moved = SqlSink(server.address, dict(ENDS), upsert=ORDERED, columns=COLUMNS, name=ordered.name, database=name)
    try:
        assert is_ordered(moved)
        refusal(lambda: moved.driver(make=changes, remembered=remembered), Reason.PROGRESS_LOST)
        assert next_offsets(moved) == [12, 0]
        reset(moved, *next_offsets(moved))
        told = refusal(lambda: moved.driver(make=changes), Reason.SINK_REFUSED)
        moved.sql(typed(told, KEPT))
        moved.driver(make=changes).drain()
        assert is_ordered(moved)
        assert moved.sql(f"SELECT count(*) FROM {moved.table}") == [(12,)]
    finally:
        moved.close()
    if same_server:
        ordered.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("anew", [False, True], ids=["with its order", "without it"])
def test_a_table_that_became_a_partition_of_another_one(ordered: SqlSink, anew: bool) -> None:
    remembered = the_first_is_ahead(ordered)
    before = ordered.table.replace(".orders", ".orders_before")
    ordered.sql(
        f"ALTER TABLE {ordered.table} RENAME TO orders_before; "
        f"CREATE TABLE {ordered.table} (id bigint PRIMARY KEY, said text) PARTITION BY RANGE (id); "
        f"ALTER TABLE {ordered.table} ATTACH PARTITION {before} FOR VALUES FROM (0) TO (100)"
    )
    refusal(lambda: ordered.driver(make=changes, remembered=remembered), Reason.DATA_TOPIC_LOST)
    reset(ordered, *next_offsets(ordered))
    told = refusal(lambda: ordered.driver(make=changes), Reason.SINK_REFUSED)
    assert f"is of {ordered.schema}.orders " in told.message
    ordered.sql(typed(told, ANEW if anew else KEPT))
    ordered.driver(make=changes).drain()
    assert is_ordered(ordered) is not anew
    assert ordered.sql(f"SELECT count(*) FROM {ordered.table}") == [(12,)]


def test_a_table_that_begins_anew_needs_nobody(ordered: SqlSink) -> None:
    """It has no rows that could be newer."""
    the_first_is_ahead(ordered)
    ordered.sql(f"DROP TABLE {ordered.table}")
    reset(ordered, 0, 0)
    ordered.driver(make=changes).drain()
    assert is_ordered(ordered)


def test_the_order_of_a_stranger_is_not_taken(ordered: SqlSink) -> None:
    """A restore gives the numbers of tables anew: that of one table may stand in the name of the order of another."""
    the_first_is_ahead(ordered)
    [(oid,)] = ordered.sql(f"SELECT '{ordered.table}'::regclass::oid")
    order = f"{ordered.name}_progress.order_{oid}"
    ordered.sql(f"COMMENT ON TABLE {order} IS E'of public.payments 7/5/{oid}\\nversion'")
    told = refusal(lambda: ordered.driver(make=changes), Reason.SINK_REFUSED)
    assert f"is of public.payments 7/5/{oid}; {ordered.schema}.orders is " in told.message
    ordered.sql(typed(told, r"restored with .*?orders: (COMMENT .*?); if it is of another"))
    ordered.driver(make=changes).drain()
    assert is_ordered(ordered)
