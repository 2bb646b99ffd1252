"""For how long the oldest record waits, from looks at the source's end alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.arrivals import _MOST, Arrivals
from sinkpipeline.core.naming import SourcePartition

A, B = SourcePartition("in", 0), SourcePartition("in", 1)


def test_a_record_waits_since_the_end_first_lay_behind_it() -> None:
    seen = Arrivals()
    assert seen.look({A: 10, B: 5}, {A: 10, B: 5}, 100.0) == 0
    assert seen.look({A: 12, B: 5}, {A: 10, B: 5}, 102.0) == 0, "it may have come this moment"
    assert seen.look({A: 20, B: 6}, {A: 10, B: 5}, 104.0) == 2
    assert seen.look({A: 20, B: 6}, {A: 12, B: 5}, 106.0) == 2, (
        "the oldest one is handled, the next came with the next look"
    )
    assert seen.look({A: 20, B: 6}, {A: 20, B: 5}, 110.0) == 6, "of the other partition"
    assert seen.look({A: 20, B: 6}, {A: 20, B: 6}, 112.0) == 0


def test_what_was_there_at_the_first_look_counts_from_it() -> None:
    seen = Arrivals()
    assert seen.look({A: 10}, {A: 0}, 100.0) == 0
    assert seen.look({A: 10}, {A: 4}, 130.0) == 30


def test_other_records_at_the_same_offsets_have_come_later() -> None:
    seen = Arrivals()
    seen.look({A: 10}, {A: 0}, 100.0)
    assert seen.look({A: 3}, {A: 0}, 130.0) == 0
    assert seen.look({}, {A: 0}, 131.0) == 0
    assert seen.look({A: 3}, {A: 0}, 140.0) == 0


def test_a_partition_that_has_no_progress_yet_waits_for_nobody() -> None:
    seen = Arrivals()
    seen.look({A: 10}, {}, 100.0)
    assert seen.look({A: 10}, {}, 130.0) == 0
    for number in range(100):
        seen.look({A: 10 + number}, {}, 140.0 + number)
    assert len(seen._looks[A]) <= _MOST


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=200))
def test_it_is_never_too_long_and_little_is_kept(steps: list[tuple[int, int]]) -> None:
    seen, end, frontier, came = Arrivals(), 0, 0, [0.0]
    for number, (more, handled) in enumerate(steps):
        now = 2.0 * number
        end += more
        came += [now] * more
        frontier = min(end, frontier + handled)
        told = seen.look({A: end}, {A: frontier}, now)
        waits = now - came[frontier + 1] if frontier < end else 0.0
        assert 0 <= told <= waits
        assert len(seen._looks[A]) <= _MOST
