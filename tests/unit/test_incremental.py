"""Rows beside a stream, by snapshots that a test makes: tests/changes and tests/binlog have real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from sinkpipeline.changes import incremental, table_reading
from sinkpipeline.changes.cancellation import Cancellation
from sinkpipeline.changes.incremental import Incremental
from sinkpipeline.changes.ports import Altered, Batch, Read, TableAway
from sinkpipeline.core.changes.incremental import (
    IncrementalMark,
    Listed,
    added_again,
    added_since,
    asked,
    incremental_from_record,
    renamed_since,
)
from sinkpipeline.core.changes.pgoutput import UNCHANGED, Column, Delete, Insert, Relation, Truncate, Update, Values
from sinkpipeline.core.changes.positions import LogPosition
from sinkpipeline.core.changes.values import Change, Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError
from support.waiting import wait_until

TABLE = Relation(7, "s", "t", "d", (Column("id", True, 23), Column("n", False, 23), Column("doc", False, 25)))


def writer() -> Writer:
    made = Writer(lambda _: ("id",))
    made.enter(200, 0, "1")
    made.relation(TABLE)
    made.relation(TABLE._replace(oid=8, name="other"))
    return made


def insert(key: int, table: int = 7) -> list[Change]:
    return writer().changes(Insert(table, [str(key), "9", "new"]))


def delete(key: int) -> list[Change]:
    return writer().changes(Delete(7, [str(key), None, None], False))


def update(key: int, n: int = 9, doc: Any = UNCHANGED, *, before: int | None = None) -> list[Change]:
    """`before`: the key that it had."""
    old: Values | None = None if before is None else [str(before), None, None]
    return writer().changes(Update(7, old, False, [str(key), str(n), doc]))


def truncate() -> list[Change]:
    return writer().changes(Truncate((7,)))


class Snapshot:
    """Of rows 1 to 5."""

    def __init__(self, start: int, key: str = "id 20") -> None:
        self.start = LogPosition(start)
        self.key = key
        self.relation = TABLE
        self.read_at = 0
        self.is_settled = True
        self.is_closed = False
        self.reads = threading.Event()
        self.reads.set()

    def close(self) -> None:
        self.is_closed = True

    def read(self, after: Sequence[str]) -> Iterator[Batch | None]:
        first = int(after[0]) if after else 0
        for number in range(first + 1, 6):
            while not self.reads.wait(0.01):
                yield None
            yield Batch([[str(number), "0", f"doc {number}"]], (str(number),))

    def writer(self) -> Writer:
        return writer()


class Kind:
    """Makes snapshots as it is told to."""

    def __init__(self, *made: Snapshot | SinkPipelineError) -> None:
        self.made = list(made)
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.cancelled = threading.Event()

    def copy_table(self, _database: Any, _table: str, cancellation: Cancellation) -> Snapshot:
        found = self.made.pop(0)
        if not self.may_go_on.is_set():
            cancellation.add(self.cancelled.set)
            self.may_go_on.wait(10)
        if isinstance(found, SinkPipelineError):
            raise found
        return found


class Rows:
    """What a life does with them: each read is counted."""

    alive: ClassVar[list[Rows]] = []

    def __init__(self, kind: Kind, mark: IncrementalMark | None = None) -> None:
        mark = mark or IncrementalMark(waiting=("s.t",), key="id 20")
        self.tables = Incremental(kind, None, mark)  # type: ignore[arg-type]
        self.nth = 50
        self.alive.append(self)

    @property
    def left(self) -> IncrementalMark | None:
        return self.tables.left

    def touch(self, *events: list[Change]) -> None:
        for each in events:
            self.tables.touch(each)

    def look(self, reached: int) -> Read | None:
        read = self.tables.rows(reached, self.nth, is_idle=False)
        self.nth += 0 if read is None else len(read.changes)
        return read

    def until(self, reached: int, is_it: Callable[[Read], object] = bool) -> Read:
        found: list[Read] = []

        def comes() -> bool:
            read = self.look(reached)
            if read is not None and is_it(read):
                found.append(read)
            return bool(found)

        wait_until(comes, "rows come")
        return found[0]

    def until_made(self, reached: int, snapshot: Snapshot) -> None:
        wait_until(lambda: self.look(reached) is None and self.tables._snapshot is snapshot, "it is made")

    def everything(self, reached: int) -> list[Change]:
        found: list[Change] = []
        while not (read := self.until(reached)).is_last:
            found += read.changes
        return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Threads that outlive a test are in the way of others, which have another clock."""
    yield
    while Rows.alive:
        Rows.alive.pop().tables.close()
    wait_until(lambda: all(each.name != "table-reading" for each in threading.enumerate()), "all threads have ended")


def ids(changes: list[Change]) -> list[int]:
    return [int(each.key.decode().split(":")[-1].rstrip("}")) for each in changes]


def places(changes: list[Change]) -> list[tuple[int, int]]:
    return [(each.commit, each.nth) for each in changes]


def test_rows_wait_for_their_place_and_stand_behind_what_was_handed_out() -> None:
    snapshot = Snapshot(100)
    rows = Rows(Kind(snapshot))
    rows.until_made(99, snapshot)
    assert rows.look(99) is None
    rows.touch(delete(2), insert(3, table=8))
    found = rows.everything(120)
    assert ids(found) == [1, 3, 4, 5]
    assert places(found) == [(119, 50), (119, 51), (119, 52), (119, 53)]
    assert rows.left is None
    assert rows.look(120) is None
    wait_until(lambda: snapshot.is_closed, "nobody has it any more")


def test_another_table_comes_behind_the_first_and_knows_nothing_of_its_keys() -> None:
    rows = Rows(
        Kind(Snapshot(1), Snapshot(1)), IncrementalMark(waiting=("s.t", "s.u"), after=("3",), key="id 20", rows=7)
    )
    rows.touch(delete(5))
    first = rows.everything(9)
    assert ids(first) == [4]
    assert rows.left == IncrementalMark(waiting=("s.u",), rows=9)
    second = rows.everything(9)
    assert ids(second) == [1, 2, 3, 4, 5]
    assert places(first + second) == [(8, nth) for nth in range(50, 56)], "positions ascend from table to table"


def test_a_table_that_is_ordered_by_something_else_is_read_from_its_beginning() -> None:
    """Keys that were touched before that are those of other rows; a life may end before the stream has come to it."""
    first, second = Snapshot(50, "id 25"), Snapshot(60, "id 25")
    rows = Rows(Kind(first, second), IncrementalMark(waiting=("s.t",), after=("3",), key="id 20", rows=7))
    rows.until_made(9, first)
    rows.touch(delete(2))
    assert rows.look(49) is None
    assert rows.left == IncrementalMark(waiting=("s.t",), after=("3",), key="id 20", rows=7)
    assert rows.until(50).changes == []
    assert rows.left == IncrementalMark(waiting=("s.t",), key="id 25", rows=7)
    rows.touch(delete(4))
    assert ids(rows.everything(60)) == [1, 2, 3, 5]


def test_a_first_snapshot_is_used_where_nothing_was_touched_by_another_key() -> None:
    first = IncrementalMark(waiting=("s.t",))
    rows = Rows(Kind(Snapshot(50)), first)
    rows.touch(delete(4))
    rows.tables.begin()
    rows.touch(delete(2))
    assert ids(rows.everything(50)) == [1, 3, 4, 5], "what was touched before it was asked for is in it"
    unsettled = Snapshot(50)
    unsettled.is_settled = False
    rows = Rows(Kind(unsettled), first)
    assert len(rows.everything(50)) == 5
    rows = Rows(Kind(unsettled, Snapshot(60)), first)
    rows.tables.begin()
    rows.touch(delete(2))
    assert len(rows.everything(60)) == 5, "by which key that was, nobody knows"


def test_what_was_owed_of_rows_with_other_keys_is_not_looked_for() -> None:
    rows = Rows(Kind(Snapshot(1), Snapshot(2, "id 25"), Snapshot(3, "id 25")))
    assert ids(rows.until(10).changes) == [1]
    rows.touch(update(1, before=4))
    assert ids(rows.everything(40)) == [2, 3, 5, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("limit", ["MOST_TOUCHED", "MOST_BYTES"])
def test_a_snapshot_that_is_made_while_keys_are_forgotten_is_not_used(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(incremental, limit, 2)
    stale, fresh = Snapshot(1), Snapshot(50)
    kind = Kind(stale, fresh)
    kind.may_go_on.clear()
    rows = Rows(kind)
    assert rows.look(10) is None
    wait_until(lambda: kind.made == [fresh], "it is being made")
    rows.touch(delete(1), delete(2), delete(3))
    assert rows.look(40) is None
    assert kind.cancelled.wait(10), "the server is not asked any more"
    kind.may_go_on.set()
    assert ids(rows.everything(60)) == [1, 2, 3, 4, 5]
    wait_until(lambda: stale.is_closed, "nobody has it")


def test_a_snapshot_whose_keys_are_forgotten_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "MOST_TOUCHED", 2)
    first, second = Snapshot(1), Snapshot(50)
    rows = Rows(Kind(first, second))
    assert ids(rows.until(10).changes) == [1]
    rows.touch(delete(3), delete(4), delete(5))
    assert rows.look(40) is None
    rows.until_made(49, second)
    wait_until(lambda: first.is_closed, "nobody has it any more")
    assert rows.look(49) is None, "what was forgotten is in it, and it waits for its place"
    assert ids(rows.everything(60)) == [2, 3, 4, 5]


@pytest.mark.parametrize("how", ["emptied", "altered"])
def test_a_table_that_is_another_one_is_read_from_its_beginning(how: str) -> None:
    """Also where rows of the snapshot before were read and not taken."""
    first, second = Snapshot(1), Snapshot(50)
    rows = Rows(Kind(first, second))
    assert ids(rows.until(10).changes) == [1]
    rows.touch(delete(2))
    rows.tables.touch(Altered("s.other"))
    assert ids(rows.until(10, lambda read: read.changes).changes) == [3]
    rows.tables.touch(truncate() if how == "emptied" else Altered("s.t"))
    assert rows.left == IncrementalMark(waiting=("s.t",), key="id 20", rows=3)
    rows.until_made(49, second)
    assert rows.look(49) is None
    assert ids(rows.everything(60)) == [1, 2, 3, 4, 5]


def test_whatever_is_in_the_way_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "_FIRST_PAUSE_S", 0.01)
    away = SinkPipelineError(Reason.SOURCE_UNREACHABLE, "it is locked", "wait")
    refused = SinkPipelineError(Reason.SOURCE_UNSUITABLE, "no right", "grant it")
    rows = Rows(Kind(away, Snapshot(1), refused), IncrementalMark(waiting=("s.t", "s.u")))
    wait_until(lambda: rows.look(5) is None and rows.tables.waits_for, "it is told")
    assert rows.tables.waits_for == "it is locked; wait"
    assert len(rows.everything(5)) == 5
    assert rows.tables.waits_for == ""
    wait_until(lambda: rows.look(5) is None and rows.tables.waits_for, "the stream goes on, and it is told")
    assert rows.tables.waits_for == "no right; grant it"
    rows.tables.close()


def test_a_row_that_changes_do_not_tell_whole_is_told_with_what_they_lack() -> None:
    """However often it changes."""
    rows = Rows(Kind(Snapshot(1)))
    rows.touch(update(2), update(2, 10), update(4, doc="told"), update(4, 11), update(5), delete(5))
    found = {number: each.value for number, each in zip([1, 2, 3], rows.everything(40), strict=True)}
    assert b'"after":{"id":2,"n":10,"doc":"doc 2"},"unchanged":[]}' in found[2]
    assert rows.left is None


def test_a_row_that_has_another_key_since_and_was_not_told_whole_is_read_once_more() -> None:
    """By its old one the topic had nothing of it, and its new one was perhaps passed before."""
    rows = Rows(Kind(Snapshot(1), Snapshot(30)))
    assert ids(rows.until(10).changes) == [1]
    rows.touch(update(1, before=4))
    assert rows.left is not None
    assert rows.left.more
    assert ids(rows.everything(40)) == [2, 3, 5, 1]


def test_a_key_that_was_another_rows() -> None:
    """The snapshot has a row by it that is gone."""
    rows = Rows(Kind(Snapshot(1), Snapshot(30)))
    rows.touch(delete(2), update(2, before=4), update(2, 10))
    assert ids(rows.until(40, lambda read: read.changes).changes) == [1]
    rows.touch(update(9, before=2))
    assert ids(rows.everything(40)) == [3, 5, 2], "in a real one, it is row 9 by then"
    assert rows.left is None


def test_a_row_of_which_changes_go_by_another_key_than_the_table_is_read_by() -> None:
    """Its primary key may have changed with it; it is read once more until it has come, and then not again."""
    rows = Rows(Kind(Snapshot(1), Snapshot(30)))
    assert ids(rows.until(10).changes) == [1]
    made = Writer(lambda _: ("id",))
    made.enter(200, 0, "1")
    made.relation(TABLE._replace(identity="i"))
    for key in ("1", "3"):
        rows.touch(made.changes(Update(7, None, False, [key, "9", UNCHANGED])))
    assert ids(rows.everything(40)) == [2, 3, 4, 5, 1]


def test_one_of_which_the_topic_has_all_is_not_read_once_more() -> None:
    rows = Rows(Kind(Snapshot(1)))
    rows.touch(update(4, doc="told"), update(2, before=4))
    assert rows.left is not None
    assert not rows.left.more
    assert ids(rows.everything(40)) == [1, 3, 5]


def test_a_row_that_a_filter_lets_through_now_and_that_is_not_told_whole() -> None:
    """It comes as one that is made, with a large value that was not touched, and without another half."""
    rows = Rows(Kind(Snapshot(1), Snapshot(30)))
    rows.touch(delete(3), writer().changes(Insert(7, ["3", "9", UNCHANGED])))
    rows.touch([*delete(8), *writer().changes(Insert(7, ["4", "9", UNCHANGED]))][1:])
    assert ids(rows.everything(40)) == [1, 2, 5, 3, 4]


def test_a_life_that_does_not_know_which_rows_reads_all_of_them() -> None:
    mark = IncrementalMark(waiting=("s.t",), after=("3",), key="id 20", more=True, rows=7)
    rows = Rows(Kind(Snapshot(1), Snapshot(30)), mark)
    assert ids(rows.everything(40)) == [4, 5, 1, 2, 3, 4, 5]


def test_a_snapshot_that_was_used_for_long_is_closed_although_nobody_takes_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stage may be inside a large transaction meanwhile."""
    monkeypatch.setattr(table_reading, "SITTING_S", 0.2)
    monkeypatch.setattr(table_reading, "_AHEAD", 1)
    monkeypatch.setattr(table_reading, "_LOOK_S", 0.01)
    first, second = Snapshot(1), Snapshot(1)
    rows = Rows(Kind(first, second))
    rows.until_made(0, first)
    wait_until(lambda: first.is_closed, "nobody waits for it")
    monkeypatch.setattr(table_reading, "SITTING_S", 60.0)
    assert ids(rows.everything(40)) == [1, 2, 3, 4, 5]


def test_rows_that_do_not_come_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are waited for, however long a snapshot is used else: another one would have to look for as long."""
    monkeypatch.setattr(table_reading, "SITTING_S", 0.01)
    monkeypatch.setattr(incremental, "_TOLD_S", 0.01)
    snapshot = Snapshot(1)
    snapshot.reads.clear()
    rows = Rows(Kind(snapshot, *(Snapshot(1) for _ in range(5))))
    rows.until_made(40, snapshot)
    wait_until(lambda: rows.look(40) is None and rows.tables.waits_for, "it is told")
    assert "has sent no row of table s.t" in rows.tables.waits_for
    snapshot.reads.set()
    assert ids(rows.everything(40)) == [1, 2, 3, 4, 5]
    assert rows.tables.waits_for == ""


def test_a_table_that_was_begun_waits_for_what_its_server_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "_FIRST_PAUSE_S", 0.01)
    full = SinkPipelineError(Reason.SOURCE_UNSUITABLE, "all slots are used", "drop one")
    mark = IncrementalMark(waiting=("s.t", "s.u"), after=("3",), key="id 20")
    rows = Rows(Kind(full, Snapshot(1), Snapshot(1)), mark)
    wait_until(lambda: rows.look(40) is None and rows.tables.waits_for, "it is told")
    assert rows.left == mark
    assert ids(rows.everything(40)) == [4, 5]


def test_a_table_that_can_not_be_read_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "_FIRST_PAUSE_S", 0.01)
    gone = TableAway(Reason.SOURCE_UNSUITABLE, "it is gone", "none")
    rows = Rows(Kind(gone, Snapshot(1), gone, gone), IncrementalMark(waiting=("s.u", "s.t"), after=("3",), key="id 20"))
    assert len(rows.everything(40)) == 5
    wait_until(lambda: rows.look(40) is None and rows.tables.waits_for, "it is told")
    assert rows.left == IncrementalMark(waiting=("s.u",), rows=5)
    rows.tables.close()


def test_one_transaction_touches_no_more_keys_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "MOST_TOUCHED", 10)
    rows = Rows(Kind(Snapshot(1)))
    for number in range(100):
        rows.touch(delete(number))
        assert len(rows.tables._touched) <= 10


def test_one_that_is_left_while_it_is_made_is_closed() -> None:
    snapshot = Snapshot(1)
    kind = Kind(snapshot)
    kind.may_go_on.clear()
    rows = Rows(kind)
    assert rows.look(5) is None
    wait_until(lambda: not kind.made, "it is being made")
    threading.Timer(0.05, kind.may_go_on.set).start()
    rows.tables.close()
    assert kind.cancelled.wait(10)
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
    assert asked(mark, now=["a", "b"], added=["a"]) == IncrementalMark(waiting=("a", "b"), rows=9), "it was added again"


def listed(**tables: str) -> dict[str, Listed]:
    """By `name_oid`, the entry of each."""
    return {f"s.{each.split('_')[0]}": Listed(by, each.split("_")[1]) for each, by in tables.items()}


def test_which_tables_were_added() -> None:
    now = listed(a_1="table 1", b_2="table 2", p1_3="table 3", p2_4="table 3", every_5="*")
    assert added_since(None, now) == []
    assert added_since({}, now) == ["s.a", "s.b", "s.p1", "s.p2"]
    assert added_since(listed(a_1="table 1", p1_3="table 3"), now) == ["s.b"], "a partition of one that was there"
    assert added_since(listed(a_9="table 9", b_2="table 2", p1_3="table 3"), now) == ["s.a"]
    assert added_again(listed(a_9="table 9"), now) == ["s.a"]


def test_which_tables_have_other_names() -> None:
    before = listed(a_1="*", b_2="*", c_3="*")
    now = listed(b_1="*", a_2="*", d_3="*", e_4="*")
    assert renamed_since(before, now) == {"s.c": "s.d"}, "of those that have each other's, the key tells"
    mark = IncrementalMark(waiting=("s.c", "s.x"), after=("5",), key="3: id", rows=9)
    assert mark.renamed({"s.c": "s.d"}) == IncrementalMark(waiting=("s.d", "s.x"), after=("5",), key="3: id", rows=9)
    assert renamed_since(None, now) == {}


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
