from __future__ import annotations

import itertools

import pytest

from servers import waiting
from servers.waiting import InVainError, Patience, wait_for


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


@pytest.mark.parametrize(("load", "wanted"), [(0.5, 1.0), (8.0, 4.0), (99.0, 6.0)])
def test_a_deadline_comes_later_on_a_crowded_machine(
    monkeypatch: pytest.MonkeyPatch, load: float, wanted: float
) -> None:
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr(waiting.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(waiting.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: next(clock))
    patience = Patience(10.0)
    looks = sum(1 for _ in itertools.takewhile(lambda over: not over, iter(patience.is_over, None)))
    assert looks == 10 * wanted
