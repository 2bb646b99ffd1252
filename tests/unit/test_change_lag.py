"""For how long a change may have waited: never less than it has, by one clock, and 0 only where nothing is missing."""

from __future__ import annotations

from sinkpipeline.core.changes.lag import End, Lag

S = 1_000


def test_nothing_is_known_before_anything_is_seen() -> None:
    assert Lag().seconds is None
    seen = Lag().after(End(100, 7_000 * S), reached=60, committed_at=None)
    assert seen.seconds is None, "something is missing, and nobody knows since when"


def test_it_is_the_age_of_the_last_change_rounded_up() -> None:
    seen = Lag().after(End(100, 7_000 * S), reached=60, committed_at=6_990 * S)
    assert seen.seconds == 10
    assert seen.after(End(120, 7_000 * S + 1), reached=60, committed_at=6_990 * S).seconds == 11
    assert seen.after(End(120, 7_005 * S), reached=80, committed_at=7_004 * S).seconds == 1


def test_it_is_none_where_nothing_is_missing_however_old_the_last_change_is() -> None:
    at_the_end = Lag().after(End(100, 7_000 * S), reached=100, committed_at=10 * S)
    assert at_the_end.seconds == 0
    assert at_the_end.after(End(100, 9_000 * S), reached=100, committed_at=10 * S).seconds == 0
    assert Lag().after(End(100, 7_000 * S), reached=100, committed_at=None).seconds == 0


def test_it_counts_from_the_moment_at_which_nothing_was_missing() -> None:
    """Of a database in which only others write, hours after the last change."""
    seen = Lag().after(End(100, 7_000 * S), reached=100, committed_at=10 * S)
    seen = seen.after(End(150, 7_005 * S), reached=140, committed_at=10 * S)
    assert seen.seconds == 5
    # The end of the look before was reached since; that of this look was not, as others write on.
    seen = seen.after(End(250, 7_010 * S), reached=200, committed_at=10 * S)
    assert seen.seconds == 5
    stands_still = seen.after(End(300, 7_015 * S), reached=200, committed_at=10 * S)
    assert stands_still.seconds == 10
    assert stands_still.after(End(400, 7_020 * S), reached=200, committed_at=10 * S).seconds == 15


def test_a_clock_that_goes_back_tells_nothing_below_none() -> None:
    seen = Lag().after(End(100, 7_000 * S), reached=100, committed_at=None)
    assert seen.after(End(150, 6_000 * S), reached=100, committed_at=None).seconds == 0
