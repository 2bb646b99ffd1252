"""Rows beside a stream, by snapshots that a test makes: tests/changes and tests/binlog have real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sinkpipeline.changes import incremental
from sinkpipeline.changes.incremental import Incremental
from sinkpipeline.changes.ports import Chunk, Read, Where
from sinkpipeline.core.changes.incremental import IncrementalMark, added_since, added_to, asked, incremental_from_record
from sinkpipeline.core.changes.positions import LogPosition, Position
from sinkpipeline.core.changes.values import Change
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.waiting import wait_until


def change(key: int, at: Position, table: str = "s.t", op: str = "r") -> Change:
    value = b',"unchanged":["doc"]}' if op == "u" else b',"unchanged":[]}'
    return Change(at.commit, at.index, f'["{at.place}",{at.index}]', op, table, b"%d" % key, value, 0)


class Snapshot:
    """Of rows 1 to 5."""

    def __init__(self, start: int, key: str = "id 20") -> None:
        self.start = LogPosition(start)
        self.key = key
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def read(self, after: Sequence[str], where: Where, wait_s: float) -> Iterator[Chunk | None]:
        _ = wait_s
        first = int(after[0]) if after else 0
        for number in range(first + 1, 6):
            yield Chunk([change(number, where(number - first - 1))], (str(number),))


class Kind:
    """Makes snapshots as it is told to."""

    def __init__(self, *made: Snapshot | SinkPipelineError) -> None:
        self.made = list(made)
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def copy_table(self, _database: Any, _table: str) -> Snapshot:
        self.may_go_on.wait(10)
        found = self.made.pop(0)
        if isinstance(found, SinkPipelineError):
            raise found
        return found


def rows_of(kind: Kind, mark: IncrementalMark | None = None) -> Incremental:
    return Incremental(kind, None, mark or IncrementalMark(waiting=("s.t",)))  # type: ignore[arg-type]


def until(tables: Incremental, reached: int, is_it: Callable[[Read | None], object] = bool) -> Read:
    found: list[Read] = []

    def comes() -> bool:
        read = tables.rows(reached)
        if read is not None and is_it(read):
            found.append(read)
        return bool(found)

    wait_until(comes, "rows come")
    return found[0]


def everything(tables: Incremental, reached: int) -> list[tuple[bytes, int, int]]:
    found: list[tuple[bytes, int, int]] = []
    while not (read := until(tables, reached)).is_last:
        found += [(each.key, each.commit, each.nth) for each in read.changes]
    return found


def test_rows_wait_for_their_place_and_stand_behind_what_was_handed_out() -> None:
    snapshot = Snapshot(100)
    tables = rows_of(Kind(snapshot))
    wait_until(lambda: tables.rows(99) is None and tables._snapshot is not None, "it is there")
    assert tables.rows(99) is None
    tables.touch([change(2, LogPosition(100), op="d"), change(3, LogPosition(100), "s.other", "d")])
    assert everything(tables, 120) == [(b"1", 119, 0), (b"3", 119, 2), (b"4", 119, 3), (b"5", 119, 4)]
    assert tables.left is None
    assert tables.rows(120) is None
    assert snapshot.is_closed


def test_another_table_comes_behind_the_first_and_knows_nothing_of_its_keys() -> None:
    tables = rows_of(
        Kind(Snapshot(1), Snapshot(1)), IncrementalMark(waiting=("s.t", "s.u"), after=("3",), key="id 20", rows=7)
    )
    tables.touch([change(5, LogPosition(1), op="d")])
    assert everything(tables, 9) == [(b"4", 8, 7)]
    assert tables.left == IncrementalMark(waiting=("s.u",), rows=9)
    assert [key for key, *_ in everything(tables, 9)] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_table_that_is_ordered_by_something_else_is_read_from_its_beginning() -> None:
    tables = rows_of(Kind(Snapshot(1, "id 25")), IncrementalMark(waiting=("s.t",), after=("3",), key="id 20", rows=7))
    until(tables, 9)
    assert tables.left == IncrementalMark(waiting=("s.t",), after=("1",), key="id 25", rows=8)
    assert [key for key, *_ in everything(tables, 9)] == [b"2", b"3", b"4", b"5"]


def test_a_snapshot_that_is_made_while_keys_are_forgotten_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "MOST_TOUCHED", 2)
    stale, fresh = Snapshot(1), Snapshot(50)
    kind = Kind(stale, fresh)
    kind.may_go_on.clear()
    tables = rows_of(kind)
    assert tables.rows(10) is None
    tables.touch([change(each, LogPosition(20), op="d") for each in (1, 2, 3)])
    assert tables.rows(40) is None
    kind.may_go_on.set()
    assert [key for key, *_ in everything(tables, 60)] == [b"1", b"2", b"3", b"4", b"5"]
    assert stale.is_closed


def test_a_snapshot_whose_keys_are_forgotten_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "MOST_TOUCHED", 2)
    first, second = Snapshot(1), Snapshot(50)
    tables = rows_of(Kind(first, second))
    assert [each.key for each in until(tables, 10).changes] == [b"1"]
    tables.touch([change(each, LogPosition(20), op="d") for each in (3, 4, 5)])
    assert tables.rows(40) is None
    assert first.is_closed
    wait_until(lambda: tables.rows(49) is None and tables._snapshot is second, "another one is made")
    assert tables.rows(49) is None, "what was forgotten is in it, and it waits for its place"
    assert [key for key, *_ in everything(tables, 60)] == [b"2", b"3", b"4", b"5"]


def test_whatever_is_in_the_way_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "_FIRST_PAUSE_S", 0.01)
    away = SinkPipelineError(Reason.SOURCE_UNREACHABLE, "it is locked", "wait")
    refused = SinkPipelineError(Reason.SOURCE_UNSUITABLE, "no right", "grant it")
    tables = rows_of(Kind(away, Snapshot(1), refused), IncrementalMark(waiting=("s.t", "s.u")))
    wait_until(lambda: tables.rows(5) is None and tables.waits_for, "it is told")
    assert tables.waits_for == "it is locked"
    assert len(everything(tables, 5)) == 5
    assert tables.waits_for == ""
    wait_until(lambda: tables.rows(5) is None and tables.waits_for == "no right", "the stream goes on, and it is told")
    tables.close()


def test_a_row_that_a_change_does_not_tell_whole_is_read_once_more() -> None:
    tables = rows_of(Kind(Snapshot(1), Snapshot(30)))
    tables.touch([change(2, LogPosition(1), op="u"), change(4, LogPosition(1), op="d")])
    assert tables.left is not None
    assert tables.left.more
    assert [key for key, *_ in everything(tables, 40)] == [b"1", b"3", b"5", b"2"]
    assert tables.left is None


def test_a_life_that_does_not_know_which_rows_reads_all_of_them() -> None:
    mark = IncrementalMark(waiting=("s.t",), after=("3",), key="id 20", more=True, rows=7)
    tables = rows_of(Kind(Snapshot(1), Snapshot(30)), mark)
    assert [key for key, *_ in everything(tables, 40)] == [b"4", b"5", b"1", b"2", b"3", b"4", b"5"]


def test_one_that_is_left_while_it_is_made_is_closed() -> None:
    snapshot = Snapshot(1)
    kind = Kind(snapshot)
    kind.may_go_on.clear()
    tables = rows_of(kind)
    assert tables.rows(5) is None
    threading.Timer(0.05, kind.may_go_on.set).start()
    tables.close()
    wait_until(lambda: snapshot.is_closed, "nobody has it")


def test_which_tables_are_asked_for() -> None:
    mark = IncrementalMark(waiting=("a", "b"), after=("5",), key="k", rows=9)
    assert asked(None, now=["a"], added=[]) is None
    assert asked(None, now=["a"], added=["a"]) == IncrementalMark(waiting=("a",))
    assert asked(mark, now=["a", "b", "c"], added=["c"]) == IncrementalMark(
        waiting=("a", "b", "c"), after=("5",), key="k", rows=9
    )
    assert asked(mark, now=["b"], added=[]) == IncrementalMark(waiting=("b",), rows=9)
    assert asked(mark, now=["b", "c"], added=["c", "b"]) == IncrementalMark(waiting=("b", "c"), rows=9)
    assert asked(mark, now=[], added=[]) is None
    assert added_since(None, ["a"]) == []
    assert added_since(("a",), ["a", "b"]) == ["b"]


def test_which_tables_of_a_publication_were_added() -> None:
    published = {"s.a": "s.a", "s.b": "s.b", "s.p1": "s.p", "s.p2": "s.p", "s.every": ""}
    assert added_to(None, published) == []
    assert added_to(["s.a", "s.p1"], published) == ["s.b"]
    assert added_to(["s.a"], published) == ["s.b", "s.p1", "s.p2"]


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"waiting": [], "after": [], "key": "", "rows": 0},
        {"waiting": ["a"], "after": [5], "key": "", "rows": 0},
        {"waiting": ["a"], "after": [], "key": "", "rows": -1},
        {"waiting": ["a"], "after": [], "key": "", "rows": True},
        {"waiting": "a", "after": [], "key": "", "rows": 1},
        {"waiting": ["a"], "after": [], "rows": 1},
    ],
)
def test_what_is_no_mark_is_refused(record: Any) -> None:
    with pytest.raises(ValueError, match="no mark"):
        incremental_from_record(record)


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = IncrementalMark(waiting=("a", "b"), after=("5", ""), key="x 1, y 2", more=True, rows=9)
    assert incremental_from_record(mark.to_record()) == mark
