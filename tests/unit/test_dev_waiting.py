from __future__ import annotations

import itertools

import pytest

from servers.waiting import InVainError, wait_for


def test_what_is_found_is_given_back_also_where_it_is_nothing_much() -> None:
    looks = itertools.chain([None, False], itertools.repeat(0))
    assert wait_for(lambda: next(looks), "it is there", 5, poll_s=0) == 0


def test_what_does_not_come_in_time_is_told() -> None:
    with pytest.raises(InVainError, match="waited 0 s in vain until it is there"):
        wait_for(lambda: None, "it is there", 0, poll_s=0)


def test_nobody_waits_for_what_cannot_come() -> None:
    def check() -> None:
        raise LookupError("it ended")

    with pytest.raises(LookupError, match="it ended"):
        wait_for(lambda: False, "it is there", 60, check=check)
