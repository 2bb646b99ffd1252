"""A partitioned table as the target: rows find their partitions, and what has none is told by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from servers.postgresql import DATABASE, SUPERUSER, LocalPostgresql
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_sink import P0
from support.sink.sql_refused import WithLetters, write
from support.sink.sql_sink import SqlSink, batch, of_offsets
from support.sink.starts import refusal

PAGE = Path(__file__).parents[2] / "docs" / "postgresql.md"
SECTION = PAGE.read_text().partition("\n## Partitioned tables\n")[2].partition("\n## ")[0]
RANGE, HASH = "RANGE (off)", "HASH (off)"
FOURS = tuple(f"FOR VALUES FROM ({each}) TO ({each + 4})" for each in range(0, 12, 4))
HALVES = tuple(f"FOR VALUES WITH (MODULUS 2, REMAINDER {each})" for each in range(2))
KEYED = ", PRIMARY KEY (part, off)"
UPSERT = Upsert(key=("part", "off"))
ALL = Upsert(key=("part", "off"), deletes=True, order_type="bigint", keeps=True)


def partitioned(sink: SqlSink, by: str = RANGE, bounds: Sequence[str] = FOURS, more: str = "") -> None:
    """The table, with a partition for each of these bounds."""
    sink.sql(f"CREATE TABLE {sink.table} (part int, off bigint, value text{more}) PARTITION BY {by}")
    for number, each in enumerate(bounds):
        sink.sql(f"CREATE TABLE {part(sink, number)} PARTITION OF {sink.table} {each}")


def part(sink: SqlSink, number: int) -> str:
    return sink.table.replace(".orders", f".orders_{number}")


def changes(partition: SourcePartition, offsets: range) -> RowBatch:
    """Of `ALL`: each is made twice, and of one of them nothing is left."""
    made = [(str(partition.partition), str(each), f"v{each}", "f", str(each), "{}") for each in offsets]
    again = [(*each[:2], None, "t" if each[1] == "3" else "f", str(int(each[1]) + 1), "{3}") for each in made]
    return batch(
        [each for each in offsets for _ in range(2)], [each for pair in zip(made, again, strict=True) for each in pair]
    )


def values(sink: SqlSink) -> list[tuple[object, ...]]:
    return sink.sql(f"SELECT part, off, value FROM {sink.table} ORDER BY part, off")


@pytest.mark.parametrize(("by", "bounds"), [(RANGE, FOURS), (HASH, HALVES)], ids=["range", "hash"])
@pytest.mark.parametrize("upsert", [None, ALL], ids=["append", "upsert"])
def test_rows_find_their_partitions(sink: SqlSink, by: str, bounds: Sequence[str], upsert: Upsert | None) -> None:
    partitioned(sink, by, bounds, KEYED)
    sink.upsert = upsert
    sink.driver(make=of_offsets if upsert is None else changes).drain()
    gone = set() if upsert is None else {3}
    assert values(sink) == [
        (each.partition, off, f"v{off}") for each, offsets in sink.once.items() for off in offsets if off not in gone
    ]
    assert all(sink.sql(f"SELECT EXISTS (SELECT FROM {part(sink, each)})") == [(True,)] for each in range(len(bounds)))


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_a_row_for_which_there_is_no_partition_is_a_dead_letter_that_says_so(
    sink: SqlSink, upsert: Upsert | None
) -> None:
    partitioned(sink, bounds=FOURS[:2], more=KEYED)
    sink.upsert = upsert
    kind = WithLetters()
    receipt = write(sink, kind, range(10), {})
    assert kind.letters == [(8, "23514"), (9, "23514")]
    assert sink.delivered()[P0] == [*range(8)]
    assert receipt.progress is not None
    assert (receipt.progress.rows, receipt.progress.dead) == (8, 2)
    assert [each.verdict.text for each in kind.parsed] == [
        f"check_violation: no partition of table {sink.schema}.orders takes it"
    ] * 2

    told = refusal(lambda: write(sink, None, range(10, 12), {}), Reason.RECORD_REFUSED)
    assert f"no partition of table {sink.schema}.orders takes it" in told.message
    assert told.remedy.startswith("create the partition, or a DEFAULT one;")
    sink.sql(f"CREATE TABLE {part(sink, 9)} PARTITION OF {sink.table} DEFAULT")
    write(sink, None, range(10, 12), {})
    assert sink.delivered()[P0] == [*range(8), 10, 11]


def test_a_partition_that_is_dropped_or_detached_takes_its_rows_with_it(sink: SqlSink) -> None:
    """The table is the same one: what was delivered is not delivered again, and what comes needs another partition."""
    partitioned(sink, bounds=(*FOURS[:1], "DEFAULT"))
    driver = sink.driver()
    driver.batch()
    sink.sql(f"ALTER TABLE {sink.table} DETACH PARTITION {part(sink, 0)}; DROP TABLE {part(sink, 1)}")
    told = refusal(driver.drain, Reason.RECORD_REFUSED)
    assert "no partition of table" in told.message
    sink.sql(f"CREATE TABLE {part(sink, 2)} PARTITION OF {sink.table} DEFAULT")
    sink.driver().drain()
    assert sink.delivered() == {each: offsets[4:] for each, offsets in sink.once.items()}
    sink.sql(f"ALTER TABLE {sink.table} ATTACH PARTITION {part(sink, 0)} {FOURS[0]}")
    assert sink.delivered() == sink.once


# What a start, and each look after it, refuses


def lacks_a_column(sink: SqlSink) -> str:
    partitioned(sink, more=KEYED)
    sink.upsert = Upsert(key=("part",))
    return "no valid unique key of table.primaryKey (part), and can have none, as it is partitioned by off"


def of_an_expression(sink: SqlSink) -> str:
    partitioned(sink, "RANGE ((off + 1))")
    return "can have none, as it is partitioned by an expression"


def of_one_partition(sink: SqlSink) -> str:
    """Of the others there is none, so the one of the table counts for nothing."""
    partitioned(sink)
    sink.sql(f"CREATE UNIQUE INDEX ON ONLY {sink.table} (part, off)")
    return "no valid unique key of table.primaryKey (part, off)"


@pytest.mark.parametrize("lacking", [lacks_a_column, of_an_expression, of_one_partition])
def test_a_table_without_the_key_of_an_upsert_is_refused(sink: SqlSink, lacking: Callable[[SqlSink], str]) -> None:
    sink.upsert = UPSERT
    fact = lacking(sink)
    told = refusal(sink.driver, Reason.SINK_REFUSED)
    assert fact in told.message
    if told.remedy.startswith("ALTER TABLE"):
        sink.sql(told.remedy)
        sink.driver().drain()
        assert sink.delivered() == sink.once


def test_a_column_that_every_row_of_one_partition_would_lack_is_refused(sink: SqlSink) -> None:
    partitioned(sink, more=", must int")
    sink.sql(f"ALTER TABLE {part(sink, 1)} ALTER must SET NOT NULL, ALTER must SET DEFAULT 7")
    told = refusal(sink.driver, Reason.SINK_REFUSED)
    assert "orders_1 of " in told.message
    assert 'has column "must", which may not be null' in told.message
    sink.sql(told.remedy.partition(": ")[2].replace("...", "7"))
    sink.driver().drain()
    assert sink.delivered() == sink.once


@pytest.mark.parametrize(("sort", "fact"), [("UNLOGGED", "is UNLOGGED"), ("FOREIGN", "is no table of this server")])
def test_a_partition_that_does_not_keep_what_it_takes_is_refused_as_soon_as_it_is_there(
    sink: SqlSink, sort: str, fact: str
) -> None:
    """What it took would be gone after a crash, or be committed while the rest is not."""
    partitioned(sink, bounds=FOURS[:2])
    driver = sink.driver()
    driver.batch()
    server = ""
    if sort == "FOREIGN":
        sink.sql(f"CREATE FOREIGN DATA WRAPPER {sink.name}; CREATE SERVER {sink.name} FOREIGN DATA WRAPPER {sink.name}")
        server = f"SERVER {sink.name}"
    sink.sql(f"CREATE {sort} TABLE {part(sink, 2)} PARTITION OF {sink.table} {FOURS[2]} {server}")
    assert fact in refusal(driver.batch, Reason.SINK_REFUSED).message
    refusal(sink.driver, Reason.SINK_REFUSED)
    sink.sql(f"ALTER TABLE {sink.table} DETACH PARTITION {part(sink, 2)}")
    sink.sql(f"CREATE TABLE {part(sink, 3)} PARTITION OF {sink.table} {FOURS[2]}")
    sink.driver().drain()
    assert sink.delivered() == sink.once


def test_a_trigger_of_one_partition_that_leaves_rows_out_stops_the_sink(sink: SqlSink) -> None:
    partitioned(sink)
    sink.sql(
        f'CREATE FUNCTION "{sink.name}"() RETURNS trigger LANGUAGE plpgsql AS '
        "'BEGIN IF NEW.off = 6 THEN RETURN NULL; END IF; RETURN NEW; END'"
    )
    sink.sql(f'CREATE TRIGGER t BEFORE INSERT ON {part(sink, 1)} FOR EACH ROW EXECUTE FUNCTION "{sink.name}"()')
    assert "took 3 of 4 rows" in refusal(sink.driver().drain, Reason.SINK_REFUSED).message


def test_a_policy_of_one_partition_hides_no_row_of_the_table(sink: SqlSink) -> None:
    partitioned(sink, more=KEYED)
    sink.upsert = Upsert(key=("part", "off"), deletes=True)
    sink.driver()
    sink.sql(f"CREATE ROLE {sink.name} LOGIN")
    sink.sql(f"GRANT USAGE ON SCHEMA {sink.table.rpartition('.')[0]}, {sink.name}_progress TO {sink.name}")
    sink.sql(f"GRANT ALL ON {sink.table}, {sink.progress} TO {sink.name}")
    sink.sql(f"CREATE POLICY nobody ON {part(sink, 0)} USING (false); INSERT INTO {sink.table} VALUES (0, 3, 'x')")
    sink.sql(f"ALTER TABLE {part(sink, 0)} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}
    sink.driver(
        make=lambda at, offsets: batch(
            offsets, [(str(at.partition), str(each), "v", "t" if each == 3 else "f") for each in offsets]
        )
    ).drain()
    assert sink.delivered() == {each: [off for off in offsets if off != 3] for each, offsets in sink.once.items()}


def test_the_statements_of_the_page(sink: SqlSink) -> None:
    new, before = re.findall(r"```sql\n(.*?)```", SECTION, re.DOTALL)
    sink.columns = (Column(name="id", type="bigint"), Column(name="day", type="date"))
    sink.upsert = Upsert(key=("id", "day"))
    sink.ends = {P0: 3}
    here = f"SET search_path = {sink.table.rpartition('.')[0]};"

    def deliver() -> None:
        days = ("2024-02-29", "2026-06-01", "2031-01-01")
        sink.driver(make=lambda _, offsets: batch(offsets, [(str(each), days[each]) for each in offsets])).drain()

    sink.sql(here + new)
    deliver()
    assert sink.sql(f"SELECT tableoid::regclass::text ~ 'orders_2026', count(*) FROM {sink.table} GROUP BY 1") == [
        (False, 2),
        (True, 1),
    ]
    sink.sql(f"DROP TABLE {sink.table}; DELETE FROM {sink.progress}")
    sink.sql(here + "CREATE TABLE orders (id bigint, day date, amount numeric(10,2), PRIMARY KEY (id, day))")
    sink.sql(f"{here} INSERT INTO orders VALUES (9, '2025-01-01', 1)")
    sink.sql(here + before)
    sink.sql(f"{here} CREATE TABLE orders_rest PARTITION OF orders DEFAULT")
    deliver()
    assert sink.sql(f"SELECT id FROM {sink.table} ORDER BY id") == [(0,), (1,), (2,), (9,)]


@pytest.mark.thorough("a server of its own, with room for few locks; every other table fits")
def test_more_partitions_than_the_server_has_locks_for_are_told_as_that() -> None:
    few = {"max_locks_per_transaction": "10", "max_connections": "10", "max_wal_senders": "0"}
    with LocalPostgresql(settings=few) as server:
        sink = SqlSink(server.address)
        sink.create_schema()
        partitioned(sink, bounds=())
        at = {"host": "127.0.0.1", "port": server.port, "user": SUPERUSER, "dbname": DATABASE}
        with psycopg.connect(**at, autocommit=True) as session:
            for each in range(400):
                bounds = f"FOR VALUES FROM ({each}) TO ({each + 1})"
                session.execute(f"CREATE TABLE {part(sink, each)} PARTITION OF {sink.table} {bounds}".encode())
        told = refusal(sink.driver, Reason.SINK_FULL)
        sink.close()
    assert "out of shared memory" in told.message
    assert "raise max_locks_per_transaction" in told.remedy
