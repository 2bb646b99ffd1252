"""A stage keeps its word in every run that is tried, and each rule that it keeps is one that the runs need."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase

from model.changes import play
from model.database import Copying as ModelCopying
from model.database import table_of
from model.exploring import LONGER, explore_plays
from model.sought import Sought
from sinkpipeline.changes import snapshot as changes_snapshot
from sinkpipeline.changes.claim import Claim
from sinkpipeline.changes.incremental import Incremental
from sinkpipeline.changes.life import Life
from sinkpipeline.changes.ports import Read
from sinkpipeline.changes.postgresql import exported as changes_exported
from sinkpipeline.changes.postgresql import kind as changes_kind
from sinkpipeline.changes.postgresql import start as changes_start
from sinkpipeline.changes.postgresql.beside import TableExport
from sinkpipeline.changes.postgresql.reader import Reader
from sinkpipeline.changes.postgresql.stream import Stream
from sinkpipeline.changes.snapshot import Copying, TakingBack
from sinkpipeline.core.changes import beginning
from sinkpipeline.core.changes.course import Course
from sinkpipeline.core.changes.positions import LogPosition
from sinkpipeline.core.changes.touched import Touched
from sinkpipeline.core.changes.values import Writer
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.kafka.written import Written

pytestmark = pytest.mark.timeout(1800 * max(1.0, LONGER))

Patch = contextlib.AbstractContextManager[Any]


def explore(
    runs: int, phases: tuple[Phase, ...] = tuple(Phase), *, of: str = "stream", with_seed: int | None = None
) -> None:
    """In the world of this name."""
    explore_plays(partial(play, of=of), runs, phases, with_seed=with_seed)


@pytest.mark.parametrize("runs", [30, pytest.param(1000, marks=pytest.mark.thorough("more of the same runs"))])
def test_a_stage_keeps_its_word(runs: int) -> None:
    explore(runs)


@pytest.mark.parametrize("runs", [20, pytest.param(250, marks=pytest.mark.thorough("more of the same runs"))])
def test_a_snapshot_keeps_its_word(runs: int) -> None:
    explore(runs, of="snapshot")


@pytest.mark.parametrize("runs", [60, pytest.param(1000, marks=pytest.mark.thorough("more of the same runs"))])
def test_rows_beside_the_stream_keep_its_word(runs: int) -> None:
    explore(runs, of="incremental")


def _lsn_alone() -> Patch:
    """A restart inside a transaction does not know where."""
    return mock.patch.object(Course, "next", property(lambda self: LogPosition(self._next[0])))


def _confirmed_first() -> Patch:
    commit = Life._commit

    def confirming(self: Life) -> None:
        self._reader.confirm(self._course.next.commit)
        commit(self)

    return mock.patch.object(Life, "_commit", confirming)


def _received_is_told() -> Patch:
    """As psycopg2 does it by itself."""

    def tell(self: Reader) -> None:
        self._wire.tell(max(self._confirmed, self.heard))

    return mock.patch.object(Reader, "_tell", tell)


def _index_counts_messages() -> Patch:
    relation = Writer.relation

    def counted(self: Writer, said: Any) -> None:
        relation(self, said)
        self._index += 1

    return mock.patch.object(Writer, "relation", counted)


def _lost_slot_is_made_anew() -> Patch:
    begin = changes_start.begin

    def beginning_anew(settings: Any, claim: Any, claimed: Any, reader: Reader) -> Any:
        try:
            return begin(settings, claim, claimed, reader)
        except SinkPipelineError as error:
            if error.reason is not Reason.SLOT_LOST:
                raise
            reader.create_slot(150000)
            return changes_start._started(claimed.session.progress, reader.seen().identity, 150000)

    return mock.patch.object(changes_kind, "begin", beginning_anew)


def _heard_inside_a_transaction() -> Patch:
    def heard(self: Course, wal: int, note: str | None = None) -> None:  # noqa: ARG001
        self._heard = max(self._heard, wal)

    def idle(self: Course) -> bool:
        self._next = max(self._next, (self._heard, 0))
        self._ended = max(self._ended, self._heard)
        return not self.is_open and self.next > self.committed

    return _both(mock.patch.object(Course, "heard", heard), mock.patch.object(Course, "idle", idle))


def _gap_is_not_looked_for() -> Patch:
    return _both(
        mock.patch.object(changes_start, "check_going_on", return_value=None),
        mock.patch.object(changes_kind, "check", return_value=None),
    )


def _slot_is_not_looked_at_again() -> Patch:
    return mock.patch.object(changes_kind, "check", return_value=None)


def _history_is_not_compared() -> Patch:
    return mock.patch.object(beginning, "_check_history", return_value=None)


def _slot_before_it_is_announced() -> Patch:
    announce = Claim.announce

    def late(self: Claim, claimed: Any, source: Any, first: Any = None, tables: Any = None) -> None:
        if first is not None or claimed.progress.exists:
            announce(self, claimed, source, first, tables)

    return mock.patch.object(Claim, "announce", late)


def _nothing_is_skipped() -> Patch:
    make = Stream.__init__

    def from_the_beginning(self: Stream, writer: Writer, _start: LogPosition, where: str) -> None:
        make(self, writer, LogPosition(0), where)

    return mock.patch.object(Stream, "__init__", from_the_beginning)


def _slot_is_confirmed_inside() -> Patch:
    """Beyond the transaction that goes on."""
    commit = Course.has_committed

    def beyond(self: Course) -> None:
        commit(self)
        self.confirmable = self.committed.commit + 5

    return mock.patch.object(Course, "has_committed", beyond)


@contextlib.contextmanager
def _both(*patches: Patch) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


MUTATIONS: list[Callable[[], Patch]] = [
    _lsn_alone,
    _confirmed_first,
    _received_is_told,
    _index_counts_messages,
    _lost_slot_is_made_anew,
    _heard_inside_a_transaction,
    _gap_is_not_looked_for,
    _slot_is_not_looked_at_again,
    _history_is_not_compared,
    _slot_before_it_is_announced,
    _nothing_is_skipped,
    _slot_is_confirmed_inside,
]


def _stream_begins_late() -> Patch:
    """Behind the first transaction that the slot hands out."""
    return _both(
        mock.patch.object(changes_snapshot, "stream_start", lambda at: at.commit + 6),
        mock.patch.object(changes_exported, "check_copied", return_value=None),
    )


def _rows_are_not_taken_back() -> Patch:
    return mock.patch.object(TakingBack, "_events", return_value=())


def _complete_before_the_last_rows() -> Patch:
    events = Copying._events

    def early(self: Copying) -> Iterator[Any]:
        *before, last = [*events(self), None]
        yield from before[:-1]
        self._complete()
        yield from [*before[-1:], last]

    return mock.patch.object(Copying, "_events", early)


def _rows_are_of_another_moment() -> Patch:
    """As they are when they are read."""
    return mock.patch.object(ModelCopying, "rows", lambda wire: table_of(wire.server.log, (wire.server.end, 0)))


def _rows_are_taken_back_again() -> Patch:
    """Those of every epoch, each time."""
    make = Written.__init__

    def from_the_beginning(self: Written, connection: Any, group: str, topic: Any, _: Any, is_wanted: Any) -> None:
        make(self, connection, group, topic, (), is_wanted)

    return mock.patch.object(Written, "__init__", from_the_beginning)


OF_SNAPSHOTS: list[Callable[[], Patch]] = [
    _stream_begins_late,
    _rows_are_not_taken_back,
    _complete_before_the_last_rows,
    _rows_are_of_another_moment,
    _rows_are_taken_back_again,
]


def _touched_rows_are_read() -> Patch:
    return mock.patch.object(Incremental, "touch", return_value=None)


def _rows_do_not_wait_for_their_place() -> Patch:
    make = TableExport.__init__

    def at_once(self: TableExport, settings: Any, name: str, cancellation: Any) -> None:
        make(self, settings, name, cancellation)
        self.start = LogPosition(1)

    return mock.patch.object(TableExport, "__init__", at_once)


def _a_row_is_passed_over_after_an_end() -> Patch:
    sitting = Incremental._sitting

    def beyond(self: Incremental, left: Any) -> Any:
        after = (str(int(left.after[0]) + 1),) if left.after else ()
        return sitting(self, replace(left, after=after))

    return mock.patch.object(Incremental, "_sitting", beyond)


def _complete_with_its_last_but_one_row() -> Patch:
    rows = Incremental.rows

    def early(self: Incremental, reached: int, nth: int, *, is_idle: bool) -> Any:
        found = rows(self, reached, nth, is_idle=is_idle)
        if found is not None and found.changes and self.left is not None:
            self.left = self.left.without_first
            return Read(found.changes[:-1], is_last=True)
        return found

    return mock.patch.object(Incremental, "rows", early)


def _an_emptied_table_is_read_on() -> Patch:
    return mock.patch.object(Incremental, "_begin_anew", return_value=None)


def _large_values_are_left_out() -> Patch:
    row = Touched.row

    def of_nothing(self: Touched, key: bytes, names: Any, values: Any) -> Any:
        return None if key in self._rows else row(self, key, names, values)

    return mock.patch.object(Touched, "row", of_nothing)


def _rows_of_another_key_are_not_read_once_more() -> Patch:
    note = Touched.note

    def of_nothing(self: Touched, changes: Any, is_known: Any) -> list[bytes]:
        note(self, changes, is_known)
        return []

    return mock.patch.object(Touched, "note", of_nothing)


def _keys_are_forgotten_under_a_snapshot() -> Patch:
    return mock.patch.object(Incremental, "_forget", lambda self: self._touched.clear())


def _rows_of_another_key_are_told_with_what_is_there_by_it() -> Patch:
    note = Touched.note

    def as_any_other(self: Touched, changes: Any, is_known: Any) -> list[bytes]:
        owed = note(self, changes, is_known)
        told = {each.key: each.partial for each in changes}
        self._rows |= {key: told[key] for key in owed}
        return owed

    return mock.patch.object(Touched, "note", as_any_other)


OF_ROWS_BESIDE: list[Callable[[], Patch]] = [
    _rows_of_another_key_are_told_with_what_is_there_by_it,
    _keys_are_forgotten_under_a_snapshot,
    _an_emptied_table_is_read_on,
    _large_values_are_left_out,
    _rows_of_another_key_are_not_read_once_more,
    _touched_rows_are_read,
    _rows_do_not_wait_for_their_place,
    _rows_are_of_another_moment,
    _a_row_is_passed_over_after_an_end,
    _complete_with_its_last_but_one_row,
]


def _sought(mutation: Callable[[], Patch], of: str) -> Sought:
    name = mutation.__name__.strip("_")
    return Sought(f"{of}: {name}", mutation, partial(explore, phases=(Phase.generate,), of=of), 1500)


SOUGHT = [
    *(_sought(each, "stream") for each in MUTATIONS),
    *(_sought(each, "snapshot") for each in OF_SNAPSHOTS),
    *(_sought(each, "incremental") for each in OF_ROWS_BESIDE),
]


@pytest.mark.thorough("each mutation; tests/model/test_mutations has those of sinks")
@pytest.mark.parametrize("sought", [pytest.param(each, id=each.name) for each in SOUGHT])
def test_the_model_finds(sought: Sought) -> None:
    sought.find()
