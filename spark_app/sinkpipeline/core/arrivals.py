"""For how long the oldest record waits that a sink has not handled. Pure.

Nothing is read for it. The driver looks at the end of the source anyway: a record was there when the end lay behind it
first. What came before the first look of the driver counts from that look.
"""

from __future__ import annotations

from collections.abc import Mapping

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import Position, is_before, reaches

_MOST = 32
"""Looks that are kept of a partition. Of more every second one goes: the time is then a little too short."""


class Arrivals:
    """Of one sink."""

    def __init__(self) -> None:
        self._looks: dict[SourcePartition, list[tuple[float, Position]]] = {}
        """When each end was seen first, in order."""

    def look(
        self, ends: Mapping[SourcePartition, Position], frontier: Mapping[SourcePartition, Position], now: float
    ) -> float:
        """Looks again; for how many seconds a record of these partitions waits at least, 0 where none does."""
        self._looks = {each: looks for each, looks in self._looks.items() if each in ends}
        oldest = now
        for partition, end in ends.items():
            looks = self._looks.setdefault(partition, [])
            if looks and is_before(end, looks[-1][1]):
                # Other records by now.
                looks.clear()
            if not looks or is_before(looks[-1][1], end):
                looks.append((now, end))
            handled = frontier.get(partition)
            while handled is not None and len(looks) > 1 and reaches(handled, looks[0][1]):
                del looks[0]
            if len(looks) > _MOST:
                del looks[1:-1:2]
            if handled is not None and is_before(handled, looks[0][1]):
                oldest = min(oldest, looks[0][0])
        return now - oldest
