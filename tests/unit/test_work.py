"""Whether a driver gets anything done: clocks of executors and sinks, played in milliseconds."""

from __future__ import annotations

import pytest

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.status import executors_of, told_executors
from sinkpipeline.core.work import LOST_AFTER_S, Executors, StageWork, StillClock, proves, who_moved, who_works

S = 1000
HOUR = 3600 * S


def progress(offset: int) -> Progress:
    return Progress(partitions={SourcePartition("in", 0): PartitionProgress(epoch=0, next=offset)})


# --- executors ---


def test_executors_are_lost_when_none_is_there_for_half_a_minute_while_there_is_work() -> None:
    seen = Executors(registered=2, wanted=2)
    for now in range(0, HOUR, 60 * S):
        seen = seen.seen(0, needed=False, now_ms=now)
        assert not seen.are_lost(now), "nobody needs one"
    seen = seen.seen(0, needed=True, now_ms=HOUR)
    assert not seen.are_lost(HOUR)
    later = seen.seen(0, needed=True, now_ms=HOUR + 29 * S)
    assert not later.are_lost(HOUR + 29 * S)
    assert later.are_lost(HOUR + int(LOST_AFTER_S) * S)
    assert not later.seen(1, needed=True, now_ms=HOUR + 31 * S).are_lost(HOUR + 99 * S), "one has come"


def test_a_lag_that_is_not_known_neither_starts_nor_ends_that_clock() -> None:
    seen = Executors(registered=1).seen(0, needed=None, now_ms=0)
    assert seen.none_since is None
    seen = seen.seen(0, needed=True, now_ms=5 * S).seen(0, needed=None, now_ms=HOUR)
    assert seen.none_since == 5 * S


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({}, None),
        ({"executors": None}, None),
        ({"executors": {"registered": -1}}, None),
        ({"executors": {"registered": True}}, None),
        ({"executors": {"registered": 2**40}}, None),
        ({"executors": {"registered": 0, "wanted": "many", "noneSince": "long ago"}}, Executors(registered=0)),
        (
            {"executors": told_executors(Executors(registered=0, wanted=2, none_since=HOUR))},
            Executors(registered=0, wanted=2, none_since=HOUR),
        ),
    ],
    ids=["older", "null", "negative", "bool", "large", "partly", "sound"],
)
def test_what_a_driver_says_of_executors_is_believed_as_far_as_it_is_sound(
    document: dict[str, object], found: Executors | None
) -> None:
    assert executors_of(document) == found


@pytest.mark.parametrize(
    ("idled", "lag", "executors", "proved"),
    [
        (True, 0, 1, True),
        (True, 0, None, True),
        (True, 0, 0, False),
        (True, 5, 1, False),
        (True, None, 1, False),
        (False, 0, 1, False),
    ],
    ids=["idle", "Spark does not tell", "nobody", "records wait", "unknown lag", "no trigger yet"],
)
def test_an_idle_sink_is_proved_by_a_trigger_and_somebody_who_would_work(
    idled: bool, lag: int | None, executors: int | None, proved: bool
) -> None:
    assert proves(idled=idled, lag=lag, executors=executors) is proved


# --- tasks ---


def stage(number: int, sink: str = "out", *, active: int = 1, completed: int = 0) -> StageWork:
    return StageWork(id=(number, 0), sink=sink, active=active, completed=completed)


@pytest.mark.parametrize(
    ("before", "after", "moved", "work"),
    [
        ([], [], set(), set()),
        ([], [stage(1)], {"out"}, {"out"}),
        ([stage(1)], [stage(1)], set(), {"out"}),
        ([stage(1)], [stage(1, completed=1)], {"out"}, {"out"}),
        ([stage(1)], [], set(), set()),
        ([stage(1, active=0)], [stage(1, active=0)], set(), set()),
        ([stage(1), stage(2, "b", active=0)], [stage(1), stage(2, "b", active=0)], set(), {"out", "b"}),
        ([stage(1), stage(2, "b")], [stage(1, completed=1), stage(2, "b")], {"out"}, {"out", "b"}),
    ],
    ids=[
        "nothing",
        "a batch begins",
        "a task runs",
        "a task ends",
        "a batch ends, which a frontier tells",
        "no executor takes a task",
        "one waits for the cores of another",
        "two sinks",
    ],
)
def test_who_moves_and_who_works(
    before: list[StageWork], after: list[StageWork], moved: set[str], work: set[str]
) -> None:
    assert (who_moved(before, after), who_works(after)) == (moved, work)


# --- sinks ---


def test_a_batch_of_an_hour_whose_tasks_run_does_not_stand_still() -> None:
    clock = StillClock()
    for now in range(0, HOUR + 1, 10 * S):
        assert clock.seen("out", progress(7), waits=True, moved=now == 0, works=True, now_ms=now) is None


def test_a_task_that_runs_for_two_hours_hangs_from_its_beginning() -> None:
    clock = StillClock()
    for now in range(0, 2 * HOUR, 60 * S):
        assert clock.seen("out", progress(7), waits=True, moved=now == 0, works=True, now_ms=now) is None
    assert clock.seen("out", progress(7), waits=True, moved=False, works=True, now_ms=2 * HOUR) == 0
    assert clock.seen("out", progress(7), waits=True, moved=True, works=True, now_ms=2 * HOUR + S) is None


def test_a_sink_stands_still_from_its_last_move_and_not_while_nothing_waits() -> None:
    clock = StillClock()

    def seen(name: str, offset: int, now: int, *, waits: bool | None = True, moved: bool = False) -> int | None:
        return clock.seen(name, progress(offset), waits=waits, moved=moved, works=False, now_ms=now)

    for now in range(0, HOUR, 60 * S):
        assert seen("out", 7, now, waits=False) is None
    begins = HOUR
    assert seen("out", 7, begins) == begins
    assert seen("out", 7, begins + 99 * S) == begins
    assert seen("out", 7, begins + 100 * S, waits=None) == begins
    moves = begins + 101 * S
    assert seen("out", 8, moves) == moves
    assert seen("other", 7, moves + S) == moves + S
    assert seen("out", 8, moves + HOUR) == moves
    assert seen("out", 8, moves + HOUR + S, moved=True) == moves + HOUR + S
