"""Changes that are without a value which did not change: it stays in the table, on a real server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from servers.postgresql import LocalPostgresql
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.lines import row
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.postgresql.statements import CellStatements, TableStatements
from sinkpipeline.postgresql.target import oid_of
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_sink import P0
from support.sink.sql_sink import SqlSink, batch

COLUMNS = (Column(name="id", type="bigint"), Column(name="big", type="text"), Column(name="note 100%", type="text"))
KEEPING = Upsert(key=("id",), deletes=True, keeps=True)
ORDERED = Upsert(key=("id",), deletes=True, keeps=True, order_type="bigint", order_by="at")

Put = Callable[..., None]


def nothing(partition: SourcePartition, offsets: range) -> RowBatch:  # noqa: ARG001 - a table of changes
    return batch([], [])


@pytest.fixture
def table(postgresql: LocalPostgresql) -> Iterator[Callable[[Upsert], tuple[SqlSink, Put]]]:
    opened: list[SqlSink] = []

    def make(upsert: Upsert) -> tuple[SqlSink, Put]:
        sink = SqlSink(postgresql.address, upsert=upsert, columns=COLUMNS)
        sink.create_schema()
        opened.append(sink)
        driver = sink.driver(make=nothing)
        settings = sink.settings
        cells = PostgresqlCells(
            driver.ports.client,  # type: ignore[attr-defined]  # the ports of this kind have one
            CellStatements(settings.progress_schema),
            TableStatements(settings.table, settings.progress_schema, oid_of(driver.started.data_topic.id)),
        )
        key = settings.id.partition_key(P0)

        def put(*changes: Sequence[str | None]) -> None:
            cells.commit(key, b"{}", cells.read([key])[key].version, [row(each) for each in changes])

        return sink, put

    yield make
    for each in opened:
        each.close()


def rows(sink: SqlSink) -> list[tuple[object, ...]]:
    return sink.sql(f"SELECT * FROM {sink.table} ORDER BY 1")


def test_a_value_that_is_not_there_stays_as_it_was(table: Callable[[Upsert], tuple[SqlSink, Put]]) -> None:
    sink, put = table(KEEPING)
    put(["1", "big 1", "a", "f", "{}"], ["2", "big 2", "a", "f", "{}"])
    put(["1", None, "b", "f", "{2}"], ["2", "new", None, "f", "{3}"])
    assert rows(sink) == [(1, "big 1", "b"), (2, "new", "a")]
    put(["1", None, None, "f", "{2,3}"])
    assert rows(sink)[0] == (1, "big 1", "b")


def test_it_is_that_of_an_earlier_change_in_the_same_commit(table: Callable[[Upsert], tuple[SqlSink, Put]]) -> None:
    sink, put = table(KEEPING)
    put(
        ["1", "first", "a", "f", "{}"],
        ["1", None, "b", "f", "{2}"],
        ["2", "other", "a", "f", "{}"],
        ["1", "second", "c", "f", "{}"],
        ["1", None, "d", "f", "{2}"],
        ["1", None, "e", "f", "{2}"],
        ["2", None, None, "t", "{}"],
    )
    assert rows(sink) == [(1, "second", "e")]


@pytest.mark.parametrize("before", [[], [["1", None, None, "t", "{}"]]])
def test_without_a_row_there_is_no_such_value(
    table: Callable[[Upsert], tuple[SqlSink, Put]], before: list[Sequence[str | None]]
) -> None:
    """A key that changed has its row deleted and another one made, which may be without the value."""
    sink, put = table(KEEPING)
    put(["7", "big 7", "a", "f", "{}"])
    with pytest.raises(RecordRefused) as caught:
        put(["7", "new", "b", "f", "{}"], *before, ["1", None, "b", "f", "{2,3}"])
    assert caught.value.index == 1 + len(before)
    assert caught.value.verdict.error_class is ErrorClass.UNAVAILABLE_VALUE
    assert "big, note 100% did not change" in caught.value.verdict.text
    assert "REPLICA IDENTITY FULL" in caught.value.verdict.text
    assert rows(sink) == [(7, "big 7", "a")]


def test_an_older_change_keeps_and_replaces_nothing(table: Callable[[Upsert], tuple[SqlSink, Put]]) -> None:
    sink, put = table(ORDERED)
    put(["1", "big", "a", "f", "5", "{}"])
    put(["1", None, "older", "f", "4", "{2}"], ["1", "old", "older", "f", "3", "{}"], ["1", None, "b", "f", "6", "{2}"])
    assert rows(sink) == [(1, "big", "b")]
    put(["1", None, None, "t", "8", "{}"])
    # It lost, so that there is nothing to keep is nobody's business.
    put(["1", None, "late", "f", "7", "{2}"])
    assert rows(sink) == []


@pytest.mark.parametrize("upsert", [KEEPING, ORDERED])
def test_commits_of_any_size_are_the_changes_one_by_one(
    table: Callable[[Upsert], tuple[SqlSink, Put]], upsert: Upsert
) -> None:
    """Also where a connector went back, and says what it has said before."""
    sink, put = table(upsert)
    chance = random.Random(6)
    log, truth = [], {}
    for at in range(400):
        key = str(chance.randrange(6))
        order = [str(at)] if upsert is ORDERED else []
        if key in truth and chance.random() < 0.15:
            del truth[key]
            log.append([key, None, None, "t", *order, "{}"])
        elif key in truth and chance.random() < 0.6:
            kept = chance.choice(["{2}", "{3}", "{2,3}"])
            big, note = truth[key]
            truth[key] = (big if "2" in kept else f"big {at}", note if "3" in kept else f"note {at}")
            log.append([key, *(None if p in kept else truth[key][i] for i, p in enumerate("23")), "f", *order, kept])
        else:
            truth[key] = (f"big {at}", f"note {at}")
            log.append([key, *truth[key], "f", *order, "{}"])
    replayed = [*log[:200], *(log[100:] if upsert is ORDERED else log[200:])]
    at = 0
    while at < len(replayed):
        size = chance.randrange(1, 60)
        put(*replayed[at : at + size])
        at += size
    assert rows(sink) == sorted((int(key), *values) for key, values in truth.items())
