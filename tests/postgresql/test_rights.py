"""The least rights on tables that somebody else has made, and each of them taken away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.postgresql.settings import Upsert
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal

APPEND = {
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


def prepared(sink: SqlSink, upsert: Upsert | None, rights: set[str]) -> None:
    """Both tables are there; a role that owns nothing has these rights."""
    sink.upsert = upsert
    sink.driver()
    sink.sql(f"DELETE FROM {sink.progress}")
    sink.sql("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    sink.sql(f"CREATE ROLE {sink.name} LOGIN")
    for right in rights:
        sink.sql(f"GRANT {grants(sink, right)} TO {sink.name}")
    sink.changes = {"connection": replace(sink.settings.connection, user=sink.name)}


DELETING = Upsert(key=("part", "off"), deletes=True)


def run(sink: SqlSink) -> None:
    driver = sink.driver(
        make=lambda partition, offsets: batch(
            offsets, [(str(partition.partition), str(each), "v", *(["f"] if sink.upsert else [])) for each in offsets]
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
