"""Waiting for what programs of this machine and of a node do, with a deadline: the one loop for it in dev/."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

POLL_S: Final = 0.1
_MOST_CROWDED: Final = 6.0

T = TypeVar("T")


class InVainError(Exception):
    """What was waited for did not come in time."""


class Patience:
    """A deadline that is meant for an idle machine: where more wants to run than there are cores, time passes slower.

    Who does not get a core for ten seconds has not failed for ten seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._left, self._looked_at = seconds, time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        self._left -= (now - self._looked_at) / crowding()
        self._looked_at = now
        return self._left < 0


def crowding() -> float:
    """How many processes share a core, by the load of the last minute: 1 to 6."""
    return min(_MOST_CROWDED, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def wait_for(
    look: Callable[[], T | None],
    what: str,
    deadline_s: float,
    *,
    poll_s: float = POLL_S,
    check: Callable[[], None] = lambda: None,
) -> T:
    """What `look` finds, as soon as that is neither None nor False.

    Args:
        look: finds it.
        what: a clause, such as "the node is Ready".
        deadline_s: for how long, on a machine that has nothing else to do.
        poll_s: how long between two looks.
        check: raises where it can't come any more.

    Raises:
        InVainError: not in time.
    """
    patience = Patience(deadline_s)
    while (found := look()) is None or found is False:
        check()
        if patience.is_over():
            raise InVainError(f"waited {deadline_s:.0f} s in vain until {what}")
        time.sleep(poll_s)
    return found
