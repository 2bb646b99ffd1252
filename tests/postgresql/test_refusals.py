"""Rows that the server refuses for what they are, alone and among others; and what is no row's fault."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace

import pytest

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.postgresql import cells
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.worker import Worker
from support.sink.cell_sink import P0, P1
from support.sink.sql_refused import Wanted, WithLetters, write
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal

BAD = {"22P02": "no number", "22003": "9" * 30, "23514": "-1", "23502": None}
"""Texts of column `off`, by the code with which the server refuses them."""


def constrained(sink: SqlSink) -> None:
    sink.driver()
    sink.sql(f"ALTER TABLE {sink.table} ADD CHECK (off >= 0), ALTER COLUMN off SET NOT NULL")


@pytest.mark.parametrize("code", BAD)
@pytest.mark.parametrize("among", [1, 12])
def test_a_refused_row_is_a_dead_letter_and_the_others_are_delivered(sink: SqlSink, code: str, among: int) -> None:
    constrained(sink)
    kind = WithLetters()
    at = among // 2
    receipt = write(sink, kind, range(among), {at: BAD[code]})
    assert kind.letters == [(at, code)]
    assert sink.delivered()[P0] == [each for each in range(among) if each != at]
    assert receipt.progress is not None
    assert (receipt.progress.next, receipt.progress.rows, receipt.progress.dead) == (among, among - 1, 1)
    assert receipt.commits <= 2, "the server has told which row it was"
    assert all("secret" not in str(header) and "no number" not in str(header) for header in kind.sent[0][4] or ())


def test_rows_that_are_refused_at_the_commit_are_found_by_halves(sink: SqlSink) -> None:
    sink.driver()
    sink.sql(f"ALTER TABLE {sink.table} ADD CONSTRAINT once UNIQUE (off) DEFERRABLE INITIALLY DEFERRED")
    sink.sql(f"INSERT INTO {sink.table} (off) VALUES (103), (109)")
    kind = WithLetters()
    write(sink, kind, range(12), {3: "103", 9: "109"})
    assert kind.letters == [(3, "23505"), (9, "23505")]
    assert sink.sql(f"SELECT count(*) FROM {sink.table}") == [(12,)]


@pytest.mark.parametrize("text", ["a\0b", b"\xff".decode("latin-1")], ids=["NUL", "fine"])
def test_text_that_no_column_can_hold(sink: SqlSink, text: str) -> None:
    sink.driver()
    kind = WithLetters()
    driver = sink.driver()
    plan = driver.delivery.begin({P0: OffsetRange(0, 3)})
    plan = replace(plan, kind=kind, settings=replace(sink.settings, dead_letter=Wanted()))
    writer = ExactlyOnceWriter(plan, P0, driver.worker)
    values: Collection[tuple[str, str, str]] = [("0", "0", "v"), ("0", "1", text), ("0", "2", "v\\.\n\t")]
    writer.write(batch(range(3), values))
    writer.finish()
    assert kind.letters == ([(1, "22021")] if "\0" in text else [])
    assert sink.sql(f"SELECT value FROM {sink.table} WHERE off = 2") == [("v\\.\n\t",)]


def test_without_dead_letters_the_sink_stops_at_the_row(sink: SqlSink) -> None:
    constrained(sink)
    error = refusal(lambda: write(sink, None, range(12), {5: "no number"}), Reason.RECORD_REFUSED)
    assert "offset 5 was refused: invalid_text_representation" in error.message
    assert "no number" not in error.message
    assert sink.delivered()[P0] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("letters", [True, False])
def test_changes_that_exchange_a_value_of_another_unique_column_come_through(sink: SqlSink, letters: bool) -> None:
    """The last changes of both keys can't be written by one statement, and the changes themselves one by one."""
    sink.upsert = Upsert(key=("off",))
    driver = sink.driver()
    sink.sql(f"ALTER TABLE {sink.table} ADD UNIQUE (value)")
    sink.sql(f"INSERT INTO {sink.table} (part, off, value) VALUES (0, 1, 'a'), (0, 2, 'b')")
    kind = WithLetters()
    plan = driver.delivery.begin({P0: OffsetRange(0, 3)})
    if letters:
        plan = replace(plan, kind=kind, settings=replace(sink.settings, dead_letter=Wanted()))
    writer = ExactlyOnceWriter(plan, P0, driver.worker)
    writer.write(batch(range(3), [("0", "1", "c"), ("0", "2", "a"), ("0", "1", "b")]))
    writer.finish()
    assert kind.letters == []
    assert sink.sql(f"SELECT off, value FROM {sink.table} ORDER BY off") == [(1, "b"), (2, "a")]


def test_rows_that_are_refused_by_a_merge(sink: SqlSink) -> None:
    sink.upsert = Upsert(key=("part", "off"))
    constrained(sink)
    kind = WithLetters()
    receipt = write(sink, kind, range(12), {2: "-1", 7: "no number", 11: None})
    assert receipt.progress is not None
    assert receipt.progress.dead == 3
    assert sorted(kind.letters) == [(2, "23514"), (7, "22P02"), (11, "23502")], "each once"
    assert len(sink.delivered()[P0]) == 9


def test_two_partitions_that_would_deadlock_come_through(
    sink: SqlSink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each changes, in every commit, the keys that the other one changes, in another order."""
    both, met = threading.Barrier(2), threading.local()

    def together(reached: str) -> None:
        """Their first commits begin so; what follows a deadlock is for one of them alone."""
        if reached == "sql-after-cell" and not hasattr(met, "other"):
            met.other = True
            both.wait(30)

    monkeypatch.setattr(cells, "failpoint", together)
    sink.upsert = Upsert(key=("off",), deletes=True)
    sink.ends = {P0: 40, P1: 40}
    driver = sink.driver(step=40)
    sink.sql(
        f'CREATE FUNCTION "{sink.name}"() RETURNS trigger LANGUAGE plpgsql AS '
        "'BEGIN PERFORM pg_sleep(0.02); RETURN coalesce(NEW, OLD); END'"
    )
    sink.sql(
        f'CREATE TRIGGER slow AFTER UPDATE OR DELETE ON {sink.table} FOR EACH ROW EXECUTE FUNCTION "{sink.name}"()'
    )
    sink.sql(f"INSERT INTO {sink.table} (part, off) SELECT 9, n FROM generate_series(0, 9) n")
    plan = driver.delivery.begin({each: OffsetRange(0, 40) for each in sink.ends})

    def drive(partition: SourcePartition) -> None:
        worker = Worker()
        sink.workers.append(worker)
        writer = ExactlyOnceWriter(plan, partition, worker)
        # What one deletes the other one inserts: a transaction deletes first, so their orders differ.
        turn = partition.partition
        changes = [(str(turn), str(each % 10), "v", "t" if (each + turn) % 2 else "f") for each in range(40)]
        writer.write(batch(range(40), changes))
        writer.finish()
        assert writer.receipt().progress is not None

    threads = [threading.Thread(target=drive, args=(each,)) for each in sink.ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert driver.starter.start().progress.rows == 80
    assert "deadlock_detected" in caplog.text


def test_a_table_that_is_not_what_the_manifest_says_is_refused_at_the_start(sink: SqlSink) -> None:
    sink.sql(f"CREATE TABLE {sink.table} (part int, other text)")
    error = refusal(sink.driver, Reason.SINK_REFUSED)
    assert 'column "off"' in error.message
    sink.sql(f"DROP TABLE {sink.table}; CREATE TABLE {sink.table} (part int, off bigint, value text)")
    sink.upsert = Upsert(key=("off",))
    assert "unique" in refusal(sink.driver, Reason.SINK_REFUSED).message
    sink.upsert = None
    assert sink.driver().started.drift == ()
    for there, asked in (("bytea", "text"), ("text", "bytea")):
        sink.sql(f"ALTER TABLE {sink.table} ALTER value TYPE {there} USING NULL")
        sink.columns = (*sink.columns[:2], Column(name="value", type=asked))
        told = refusal(sink.driver, Reason.SINK_REFUSED)
        assert f'column "value" {there}, and the manifest says {asked}' in told.message


def test_a_column_of_another_type_is_told(sink: SqlSink) -> None:
    sink.sql(f"CREATE TABLE {sink.table} (part int, off numeric(20,0), value text)")
    told = sink.driver().started.drift
    assert told == (f"{sink.schema}.orders has column off=numeric(20,0), the manifest says bigint",)


def test_a_column_that_keeps_less_than_the_manifest_says_is_told(sink: SqlSink) -> None:
    """It rounds and cuts without a word: that is seen by what stands in parentheses alone."""
    asked = {"a": "numeric(10,2)", "b": "timestamp", "c": "varchar(9)[]", "d": "numeric(9)", "e": "no_such_type"}
    sink.columns = tuple(Column(name=name, type=kind) for name, kind in asked.items())
    label = f"{sink.schema}.orders"
    sink.sql(f"CREATE TABLE {sink.table} (a numeric(10,0), b timestamp(0), c varchar(3)[], d decimal(9, 0), e text)")
    assert [each.removeprefix(f"{label} has column ") for each in sink.driver().started.drift] == [
        "a=numeric(10,0), the manifest says numeric(10,2)",
        "b=timestamp(0) without time zone, the manifest says timestamp",
        "c=character varying(3)[], the manifest says varchar(9)[]",
        "e=text, the manifest says no_such_type",
    ]
    sink.sql(f"DROP TABLE {sink.table}; CREATE TABLE {sink.table} (a numeric(10,2), b timestamp, c varchar(9)[])")
    sink.columns = sink.columns[:3]
    assert sink.driver().started.drift == ()
