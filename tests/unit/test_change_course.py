"""Cuts and confirmations, on streams and lives of any kind: each change once, and the slot never ahead."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.changes.course import Course
from sinkpipeline.core.changes.positions import ZERO, LogPosition, Position
from sinkpipeline.core.cuts import CutPolicy

CUTS = CutPolicy(rows=3, bytes=100, seconds=0.5)
Event = tuple[str, int, int]
"""What comes (begin, change, end, keepalive), its LSN, its index or size."""


@dataclass
class Server:
    """Transactions in the order of their commits, a slot whose confirmation a crash may take back, and keepalives."""

    sizes: list[int]
    confirmed: int = 0
    flushed: int = 0
    """What of the confirmation a crash leaves."""
    log: list[tuple[int, int, int]] = field(default_factory=list)
    """LSN and end of each commit record, and the number of changes."""

    def __post_init__(self) -> None:
        lsn = 10
        for size in self.sizes:
            self.log.append((lsn, lsn + 5, size))
            # The next record may follow at once, or after WAL of others.
            lsn += 5 if size % 2 else 9

    def stream(self) -> Iterator[Event]:
        before = self.confirmed
        for lsn, end, size in self.log:
            if lsn < self.confirmed:
                continue
            yield "keepalive", max(before, lsn - 2), 0
            yield "begin", lsn, 0
            for index in range(size):
                yield "change", lsn, index
                yield "keepalive", max(before, lsn - 2), 0
            yield "end", end, 0
            before = end
        for _ in range(2):
            yield "keepalive", max(before, self.log[-1][1] + 3 if self.log else 3), 0

    def crash(self, forgets: bool) -> None:
        """What it forgets was not on its disk yet."""
        if forgets:
            self.confirmed = self.flushed
        self.flushed = self.confirmed

    @property
    def changes(self) -> list[tuple[int, int]]:
        return [(lsn, index) for lsn, _, size in self.log for index in range(size)]


class Stopped(Exception):
    """A life ended."""


@dataclass
class Lives:
    """Lives of a stage, each of which goes on at the progress of the one before."""

    server: Server
    draw: st.DataObject
    whole: bool
    topic: list[tuple[int, int]] = field(default_factory=list)
    progress: Position = ZERO
    is_last: bool = False

    def live(self, steps: int) -> None:
        course = Course(self.progress, CUTS, whole=self.whole)
        open_: list[tuple[int, int]] = []
        self._confirm(course)
        for _, event in zip(range(steps), self.server.stream(), strict=False):
            self._meet(course, open_, event)
            is_late = self.is_last or self.draw.draw(st.booleans())
            if course.is_full() or (is_late and course.is_due(1.0)):
                self._commit(course, open_)
            elif is_late and course.idle():
                assert not open_
                self._commit(course, open_)

    @staticmethod
    def _meet(course: Course, open_: list[tuple[int, int]], event: Event) -> None:
        kind, lsn, index = event
        if kind == "begin":
            course.begun()
        elif kind == "end":
            course.ended(lsn)
        elif kind == "keepalive":
            course.heard(lsn)
        elif (lsn, index) >= (course.next.commit, course.next.index):
            open_.append((lsn, index))
            course.handed(lsn, index, 20)

    def _commit(self, course: Course, open_: list[tuple[int, int]]) -> None:
        assert course.next > self.progress
        assert not (self.whole and course.is_inside)
        self.topic += open_
        open_.clear()
        self.progress = course.next
        if not self.is_last and self.draw.draw(st.integers(0, 4)) == 0:
            raise Stopped
        course.has_committed()
        self._confirm(course)

    def _confirm(self, course: Course) -> None:
        assert course.confirmable <= self.progress.lsn, "the slot follows the progress"
        self.server.confirmed = max(self.server.confirmed, course.confirmable)


@given(st.lists(st.integers(0, 8), max_size=6), st.booleans(), st.data())
def test_each_change_is_there_once_and_in_order(sizes: list[int], whole: bool, draw: st.DataObject) -> None:
    server = Server(sizes)
    stage = Lives(server, draw, whole)
    for _ in range(draw.draw(st.integers(0, 8))):
        with contextlib.suppress(Stopped):
            stage.live(draw.draw(st.integers(0, 40)))
        server.crash(draw.draw(st.booleans()))
    stage.is_last = True
    stage.live(10_000)

    assert stage.topic == server.changes
    assert all(one < two for one, two in pairwise(stage.topic))
    assert server.confirmed == stage.progress.lsn, "while nothing comes the slot goes on to the end"


def test_what_is_inside_is_confirmed_up_to_the_transaction_before() -> None:
    course = Course(LogPosition(100), CUTS)
    course.begun()
    for index in range(2):
        course.handed(110, index, 1)
    course.ended(115)
    course.begun()
    course.handed(120, 0, 1)
    assert course.is_full()
    assert course.next == LogPosition(120, 1)
    course.has_committed()
    assert course.confirmable == 115
    assert course.committed == LogPosition(120, 1)


def test_a_start_inside_a_transaction_confirms_nothing_before_its_end() -> None:
    course = Course(LogPosition(110, 2), CUTS)
    course.begun()
    course.handed(110, 2, 1)
    assert course.is_due(0.5)
    assert not course.is_due(0.4)
    course.has_committed()
    assert course.confirmable == 0
    course.ended(115)
    assert course.idle()
    course.has_committed()
    assert course.confirmable == 115


def test_a_keepalive_counts_only_where_nothing_is_open() -> None:
    course = Course(LogPosition(100), CUTS)
    course.begun()
    course.heard(200)
    course.handed(110, 0, 1)
    course.ended(115)
    course.heard(300)
    assert not course.idle()
    course.has_committed()
    assert not course.idle()
    course.heard(116)
    assert course.idle()
    assert course.next == LogPosition(116)
    course.has_committed()
    assert course.confirmable == 116
    assert not course.idle()


def test_a_keepalive_of_before_takes_nothing_back() -> None:
    course = Course(LogPosition(100), CUTS)
    course.heard(90)
    assert not course.idle()
    assert course.next == LogPosition(100)


@pytest.mark.parametrize("whole", [False, True])
def test_whole_transactions_are_not_cut(whole: bool) -> None:
    course = Course(ZERO, CUTS, whole=whole)
    course.begun()
    for index in range(4):
        course.handed(10, index, 60)
    assert course.is_full() is not whole
    assert course.is_due(9.0) is not whole
    course.ended(15)
    assert course.is_full()
