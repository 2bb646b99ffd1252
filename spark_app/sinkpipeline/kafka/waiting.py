"""How long somebody waits who reads to a bound."""

from __future__ import annotations

import time
from typing import Final

_ANSWER_S = 10.0

HELD_BACK: Final = (
    "start the writer again, which ends it, or wait for its time-out, 15 minutes at most; only if it is there after "
    "that, see kafka-transactions.sh find-hanging and abort: before, what is aborted by hand may count elsewhere"
)
"""What to do about a transaction that stays open."""


class Waiting:
    """How long a read has stood still at one position."""

    def __init__(self, patience_s: float, *, at_the_end: bool = False) -> None:
        self.patience_s = patience_s
        self.at_the_end = at_the_end
        """Whether the broker said that nothing committed is beyond the position: a transaction there is open."""
        self._since = time.monotonic()
        self._done: set[str] = set()

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._since

    def is_due(self, step: str, after_s: float) -> bool:
        """True once, when the read has stood still for so long."""
        due = step not in self._done and self.waited_s > after_s
        if due:
            self._done.add(step)
        return due

    @property
    def limit_s(self) -> float:
        """`patience_s`; a broker that doesn't answer at all is given the time for another connection."""
        return self.patience_s if self.at_the_end else max(self.patience_s, _ANSWER_S)

    def is_over(self) -> bool:
        return self.waited_s > self.limit_s
