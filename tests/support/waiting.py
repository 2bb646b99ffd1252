"""Waiting for the world, with a deadline and a message that says what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from servers.waiting import Patience

T = TypeVar("T")

DEADLINE_S = 30.0
_POLL_S = 0.05
_LOOK_S = 1.0


def wait_until(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S, *, poll_s: float = _POLL_S) -> T:
    """The condition's first true value; one that is dear to ask is asked less often.

    The deadline is for a machine that has nothing else to do: on a crowded one it comes later.
    """
    patience = Patience(deadline_s)
    while True:
        value = condition()
        if value:
            return value
        if patience.is_over():
            raise AssertionError(f"waited {deadline_s:.0f} s in vain until {what}; last: {value!r}")
        time.sleep(poll_s)


def result_of(future: Future[T], deadline_s: float = DEADLINE_S) -> T:
    """What it ends with, or raises; at once, as nothing sleeps between two looks."""
    wait_until(lambda: wait([future], _LOOK_S).done, "the answer is there", deadline_s, poll_s=0)
    return future.result()
