"""The least rights on tables that somebody else has made, and each of them taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.targets import Targets
from sinkpipeline.postgresql.settings import Upsert
from sinkpipeline.sinks.removal import SinkRemoval
from sinkpipeline.sinks.reset import SinkReset
from support.sink.cell_sink import P0, P1
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal

APPEND = {
    "CONNECT ON database",
    "SELECT ON progress",
    "INSERT ON progress",
    "UPDATE ON progress",
    "USAGE ON progress schema",
    "INSERT ON table",
    "USAGE ON schema",
}
UPSERT = APPEND | {"SELECT ON table", "UPDATE ON table", "DELETE ON table", "TEMPORARY ON database"}


def grants(sink: SqlSink, right: str) -> str:
    what, _, where = right.partition(" ON ")
    schema = sink.table.rpartition(".")[0]
    places = {
        "progress": f"TABLE {sink.progress}",
        "progress schema": f"SCHEMA {sink.progress.rpartition('.')[0]}",
        "table": f"TABLE {sink.table}",
        "schema": f"SCHEMA {schema}",
        "database": "DATABASE postgres",
    }
    return f"{what} ON {places[where]}"


@pytest.fixture(autouse=True)
def nobody_has_rights_unasked(sink: SqlSink) -> Iterator[None]:
    sink.sql("REVOKE CONNECT, TEMPORARY ON DATABASE postgres FROM PUBLIC")
    yield
    sink.sql("GRANT CONNECT, TEMPORARY ON DATABASE postgres TO PUBLIC")


def grant(sink: SqlSink, right: str) -> None:
    if right == OWNER:
        sink.sql(f"ALTER TABLE {sink.table} OWNER TO {sink.name}")
    else:
        sink.sql(f"GRANT {grants(sink, right)} TO {sink.name}")


def prepared(sink: SqlSink, upsert: Upsert | None, rights: set[str], *, has_started: bool = False) -> None:
    """Both tables are there; a role that owns nothing has these rights. `has_started`: by somebody else."""
    sink.upsert = upsert
    sink.driver()
    if not has_started:
        sink.sql(f"DELETE FROM {sink.progress}")
    sink.sql(f"CREATE ROLE {sink.name} LOGIN")
    for right in rights:
        grant(sink, right)
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}


DELETING = Upsert(key=("part", "off"), deletes=True)
ORDERED = replace(DELETING, order_type="bigint")
OWNER = "OWNER ON table"


def changed(upsert: Upsert | None, offset: int) -> list[str]:
    """What a merge reads behind the columns of a row: it deletes nothing, and orders changes by offset."""
    if upsert is None:
        return []
    return ["f"] if upsert.order_type is None else ["f", str(offset)]


def run(sink: SqlSink) -> None:
    driver = sink.driver(
        make=lambda partition, offsets: batch(
            offsets, [(str(partition.partition), str(each), "v", *changed(sink.upsert, each)) for each in offsets]
        )
    )
    driver.drain()


@pytest.mark.parametrize(("upsert", "rights"), [(None, APPEND), (DELETING, UPSERT)], ids=["Append", "Upsert"])
def test_the_least_rights_are_enough(sink: SqlSink, upsert: Upsert | None, rights: set[str]) -> None:
    prepared(sink, upsert, rights)
    run(sink)
    assert sink.delivered() == sink.once


@pytest.mark.thorough("one right after the other", after=2)
@pytest.mark.parametrize("right", sorted(UPSERT))
def test_without_one_of_them_the_sink_is_refused(sink: SqlSink, right: str) -> None:
    prepared(sink, DELETING, UPSERT - {right})
    error = refusal(lambda: run(sink), Reason.SINK_REFUSED)
    assert "permission denied" in error.message
    assert sink.name in error.remedy
    assert sink.sql(f"SELECT count(*) FROM {sink.table}") == [(0,)]


def drop_what_orders(sink: SqlSink) -> None:
    schema = sink.progress.rpartition(".")[0]
    [(name,)] = sink.sql(
        f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relname LIKE 'order\\_%' "
        "AND relkind = 'r'"
    )
    sink.sql(f"DROP TABLE {schema}.{name}")


def ordered(sink: SqlSink) -> None:
    """The table that orders changes is made by the role itself."""
    run(sink)
    assert sink.delivered() == sink.once


def reset_without_a_partition(sink: SqlSink) -> None:
    sink.ends.pop(P1, None)
    resetting = SinkReset(ports=sink.ports())
    resetting.carry_out(resetting.plan(Targets(everywhere=StartingOffsets.EARLIEST)))
    assert list(sink.driver().delivery.progress.partitions) == [P0]


def removal(sink: SqlSink) -> None:
    assert SinkRemoval(ports=sink.ports()).carry_out() is None
    assert sink.sql(f"SELECT count(*) FROM {sink.progress}") == [(0,)]
    assert sink.ports().target.id() is None


REMOVING = APPEND | {"DELETE ON progress", OWNER}


@pytest.mark.thorough("what fewer sinks need", after=1)
@pytest.mark.parametrize(
    ("upsert", "does", "rights", "right"),
    [
        # Its lock any of three rights gives.
        (None, removal, REMOVING | {"TRUNCATE ON table"}, OWNER),
        (None, removal, REMOVING, "DELETE ON progress"),
        (None, reset_without_a_partition, APPEND | {"DELETE ON progress"}, "DELETE ON progress"),
        (ORDERED, ordered, UPSERT | {"CREATE ON progress schema"}, "CREATE ON progress schema"),
    ],
)
def test_what_needs_one_more_right_is_refused_without_it(
    sink: SqlSink, upsert: Upsert | None, does: Callable[[SqlSink], None], rights: set[str], right: str
) -> None:
    prepared(sink, upsert, rights - {right}, has_started=upsert is None)
    if upsert is not None:
        drop_what_orders(sink)
    error = refusal(lambda: does(sink), Reason.SINK_REFUSED)
    assert ("must be owner" if right == OWNER else "permission denied") in error.message, error.message
    assert sink.name in error.remedy
    grant(sink, right)
    does(sink)
