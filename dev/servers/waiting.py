"""Waiting for what programs of this machine and of a node do, with a deadline: the one loop for it in dev/."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

POLL_S: Final = 0.1

T = TypeVar("T")


class InVainError(Exception):
    """What was waited for did not come in time."""


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
        deadline_s: for how long.
        poll_s: how long between two looks.
        check: raises where it can't come any more.

    Raises:
        InVainError: not in time.
    """
    deadline = time.monotonic() + deadline_s
    while (found := look()) is None or found is False:
        check()
        if time.monotonic() > deadline:
            raise InVainError(f"waited {deadline_s:.0f} s in vain until {what}")
        time.sleep(poll_s)
    return found
