"""`Upsert` on a real server: of several changes of a key the last one counts, or the newest by its order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from servers.postgresql import LocalPostgresql
from sinkpipeline.cells.store import Cells
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.postgresql import cells
from sinkpipeline.postgresql.cells import PostgresqlCells
from sinkpipeline.postgresql.lines import row
from sinkpipeline.postgresql.settings import Column, Upsert
from sinkpipeline.postgresql.statements import ORDER, CellStatements, Merge, TableStatements
from sinkpipeline.postgresql.target import oid_of
from sinkpipeline.sinks.contract import RowBatch
from support.sink.cell_sink import P0, P1
from support.sink.sql_sink import SqlSink, batch
from support.sink.starts import refusal

COLUMNS = (Column(name="a", type="integer"), Column(name="b 100%", type="text"), Column(name="value", type="text"))
KEY = ("a", "b 100%")
Change = Sequence[str | None]


class Merging:
    """Commits to one table, by the cells of one partition."""

    def __init__(self, sink: SqlSink) -> None:
        self.sink = sink
        driver = sink.driver(make=nothing)
        self.client = driver.ports.client  # type: ignore[attr-defined]  # the ports of this kind have one
        settings = sink.settings
        place = CellStatements(settings.progress_schema)
        self.cells: Cells = PostgresqlCells(
            self.client,
            place,
            TableStatements(settings.table, settings.progress_schema, oid_of(driver.started.data_topic.id)),
        )

    def commit(self, *changes: Change, partition: SourcePartition = P0) -> None:
        key = self.sink.settings.id.partition_key(partition)
        self.cells.commit(key, b"{}", self.cells.read([key])[key].version, [row(each) for each in changes])

    def rows(self) -> list[tuple[object, ...]]:
        return self.sink.sql(f"SELECT * FROM {self.sink.table} ORDER BY 1, 2")


def nothing(partition: SourcePartition, offsets: range) -> RowBatch:  # noqa: ARG001 - a table of changes
    return batch([], [])


def merging(postgresql: LocalPostgresql, upsert: Upsert, columns: tuple[Column, ...] = COLUMNS) -> Merging:
    sink = SqlSink(postgresql.address, upsert=upsert, columns=columns)
    sink.create_schema()
    _OPEN.append(sink)
    return Merging(sink)


_OPEN: list[SqlSink] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def test_of_several_changes_of_a_key_the_last_one_counts(postgresql: LocalPostgresql) -> None:
    at = merging(postgresql, Upsert(key=KEY))
    at.commit(["1", "x", "first"], ["2", "x", "other"], ["1", "x", "second"])
    assert at.rows() == [(1, "x", "second"), (2, "x", "other")]
    at.commit(["1", "x", "third"], ["1", "y\t\\", None])
    assert at.rows() == [(1, "x", "third"), (1, "y\t\\", None), (2, "x", "other")]


def test_a_table_of_keys_alone(postgresql: LocalPostgresql) -> None:
    at = merging(postgresql, Upsert(key=KEY), COLUMNS[:2])
    at.commit(["1", "x"], ["1", "x"])
    at.commit(["1", "x"])
    assert at.rows() == [(1, "x")]


def test_a_deletion_counts_in_its_turn(postgresql: LocalPostgresql) -> None:
    at = merging(postgresql, Upsert(key=KEY, deletes=True))
    at.commit(["1", "x", "a", "f"], ["1", "y", "stays", "f"], ["2", "x", "a", "f"], ["3", "x", "a", "f"])
    at.commit(["1", "x", None, "t"], ["2", "x", None, "t"], ["2", "x", "again", "f"], ["9", "x", None, "t"])
    assert at.rows() == [(1, "y", "stays"), (2, "x", "again"), (3, "x", "a")]
    at.commit(["3", "x", "b", "f"], ["3", "x", None, "t"])
    assert at.rows() == [(1, "y", "stays"), (2, "x", "again")]


ORDERED = Upsert(key=KEY, deletes=True, order_type="bigint")


def test_an_older_change_never_replaces_a_newer_one(postgresql: LocalPostgresql) -> None:
    at = merging(postgresql, ORDERED)
    at.commit(["1", "x", "at 20", "f", "20"], ["1", "x", "at 9", "f", "9"])
    assert at.rows() == [(1, "x", "at 20")]
    at.commit(["1", "x", "at 10", "f", "10"], ["1", "x", None, "t", "19"])
    assert at.rows() == [(1, "x", "at 20")], "also where it comes with a later commit, or deletes"
    at.commit(["1", "x", "at 20 too", "f", "20"])
    assert at.rows() == [(1, "x", "at 20 too")], "of what is equally new the last one counts"
    at.commit(["1", "x", None, "t", "30"])
    at.commit(["1", "x", "at 29", "f", "29"])
    assert at.rows() == [], "what was deleted later does not come back"
    at.commit(["1", "x", "at 31", "f", "31"])
    assert at.rows() == [(1, "x", "at 31")]


def test_what_another_partition_deletes_at_this_moment_does_not_come_back(
    postgresql: LocalPostgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting = merging(postgresql, ORDERED)
    older = Merging(deleting.sink)
    deleting.commit(["1", "x", "at 1", "f", "1"])
    reached, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == "sql-before-commit" and not reached.is_set():
            reached.set()
            assert go_on.wait(30)

    monkeypatch.setattr(cells, "failpoint", hold)
    first = threading.Thread(target=deleting.commit, args=(["1", "x", None, "t", "10"],))
    second = threading.Thread(target=older.commit, args=(["1", "x", "at 5", "f", "5"],), kwargs={"partition": P1})
    first.start()
    assert reached.wait(30)
    second.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    while deleting.sink.sql(waiting) == [(0,)]:
        assert second.is_alive()
        time.sleep(0.005)
    go_on.set()
    first.join()
    second.join()
    assert deleting.rows() == []


def leaving_out(at: Merging, event: str, how: str) -> None:
    """A trigger or a rule of the table that leaves out whatever has the key (1, x)."""
    name = f'"{at.sink.name}"'
    if how == "rule":
        at.sink.sql(f"CREATE RULE r AS ON {event} TO {at.sink.table} WHERE OLD.a = 1 DO INSTEAD NOTHING")
        return
    row = "NEW" if event == "INSERT" else "OLD"
    at.sink.sql(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"'BEGIN IF {row}.a = 1 THEN RETURN NULL; END IF; RETURN {'OLD' if event == 'DELETE' else 'NEW'}; END'"
    )
    at.sink.sql(f"CREATE TRIGGER t BEFORE {event} ON {at.sink.table} FOR EACH ROW EXECUTE FUNCTION {name}()")


@pytest.mark.parametrize(
    ("columns", "event", "how"),
    [
        (COLUMNS, "INSERT", "trigger"),
        (COLUMNS, "UPDATE", "trigger"),
        (COLUMNS, "DELETE", "trigger"),
        (COLUMNS, "DELETE", "rule"),
        (COLUMNS[:2], "INSERT", "trigger"),
    ],
)
def test_what_the_table_leaves_out_of_a_merge_does_not_count(
    postgresql: LocalPostgresql, columns: tuple[Column, ...], event: str, how: str
) -> None:
    at = merging(postgresql, Upsert(key=KEY, deletes=True), columns)
    value = ["v"] * (len(columns) - 2)
    if event != "INSERT":
        at.commit(["1", "x", *value, "f"])
    leaving_out(at, event, how)
    deleted = "t" if event == "DELETE" else "f"
    changed = ["w"] * len(value)
    told = refusal(lambda: at.commit(["1", "x", *changed, deleted], ["2", "x", *changed, "f"]), Reason.SINK_REFUSED)
    assert "0 of 1 rows" in told.message or "1 of 2 rows" in told.message
    at.commit(["2", "x", *value, "f"], ["3", "x", *value, "t"])


def test_what_changes_nothing_may_be_left_out(postgresql: LocalPostgresql) -> None:
    at = merging(postgresql, Upsert(key=KEY), (*COLUMNS, Column(name="more", type="json")))
    redundant = "BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    at.sink.sql(f"CREATE TRIGGER t {redundant.format(at.sink.table)}")
    at.commit(["1", "x", "v", "{}"], ["2", "x", None, None])
    at.commit(["1", "x", "v", "{}"], ["2", "x", None, None])
    at.commit(["1", "x", "v", "{}"], ["2", "x", "new", None], ["3", "x", None, None])
    assert [each[2] for each in at.rows()] == ["v", "new", None]


BROKEN = [
    ("DESC", "ASC", test_of_several_changes_of_a_key_the_last_one_counts),
    ('AND t."b 100%" = b."b 100%"', "", test_a_deletion_counts_in_its_turn),
    (f"WHERE o.{ORDER} <= EXCLUDED.{ORDER}", "", test_an_older_change_never_replaces_a_newer_one),
    (f" <= EXCLUDED.{ORDER}", f" < EXCLUDED.{ORDER}", test_an_older_change_never_replaces_a_newer_one),
    (f"{ORDER} DESC, ", "", test_an_older_change_never_replaces_a_newer_one),
]


@pytest.mark.thorough("the merge as it is was shown by the tests above", after=1)
@pytest.mark.parametrize(("part", "by", "finds"), BROKEN)
def test_a_merge_that_is_broken_is_found(
    postgresql: LocalPostgresql,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    by: str,
    finds: Callable[[LocalPostgresql], None],
) -> None:
    real = TableStatements.merge

    def merge(self: TableStatements, upsert: Upsert, wave: int | None = None) -> Merge:
        merge = real(self, upsert, wave)._asdict()
        return Merge(
            **{name: each.replace(part, by) if isinstance(each, str) else each for name, each in merge.items()}
        )

    monkeypatch.setattr(TableStatements, "merge", merge)
    with pytest.raises(AssertionError):
        finds(postgresql)


@pytest.mark.parametrize(
    "change", [[None, "x", "v", "f", "1"], ["1", "x", "v", "f", None], ["no number", "x", "v", "f", "1"]]
)
def test_a_change_without_a_key_or_an_order_is_refused_by_its_place(
    postgresql: LocalPostgresql, change: Change
) -> None:
    at = merging(postgresql, ORDERED)
    with pytest.raises(RecordRefused) as caught:
        at.commit(["1", "x", "v", "f", "1"], change)
    assert (caught.value.index, at.rows()) == (1, [])
    assert "no number" not in caught.value.text
