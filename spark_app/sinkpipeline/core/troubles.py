"""How long a task goes on by itself when its transactions don't come through, before its sink is told."""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 5
_OUTAGE_S = 30.0
"""Longer than brokers take to change places; a task that waits holds a core that other sinks need."""


@dataclass(frozen=True)
class Troubles:
    """Those since something last came through."""

    count: int = 0
    since: float = 0.0
    """When the first of them was met."""

    def met(self, now: float) -> Troubles:
        """With one more."""
        return Troubles(self.count + 1, self.since if self.count else now)

    def are_enough(self, now: float, *, outage: bool) -> bool:
        """Whether to give up; `outage` where the last of them was one of the cluster."""
        return self.count > _MOST or (outage and now - self.since > _OUTAGE_S)


NONE = Troubles()
