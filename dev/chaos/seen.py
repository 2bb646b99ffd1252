"""What was seen from outside while something was broken, and what follows from it; pure.

All times are seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

QUIET_S: Final = 60.0
"""For how long it may be Ready without rows: 30 s without executors are allowed (0023), once Spark misses them."""


@dataclass(frozen=True)
class Told:
    """What the condition Ready said from then on."""

    at: float
    text: str
    """`<status> <reason>`, or why nothing was told."""

    @property
    def ready(self) -> bool:
        return self.text.startswith("True")

    @property
    def not_ready(self) -> bool:
        return self.text.startswith(("False", "Unknown"))


@dataclass(frozen=True)
class Span:
    """One fault, from its beginning until all was well again."""

    fault: str
    began: float
    over: float
    fresh: float | None
    """When the first row came that was fed after the fault had taken hold."""
    ready: float | None
    """When it was Ready, then or later."""
    ended: float
    """When the source was paused to count."""


@dataclass(frozen=True)
class Finding:
    first_row_s: float | None
    gap_s: float
    """The longest time without a row."""
    told_s: float | None
    """Until it was not Ready; None where it never was otherwise."""
    told: str
    ready_s: float | None
    """From the first new row until it was Ready."""
    untold_s: float
    """The longest time within one gap without rows in which it said Ready, without a break."""
    problems: tuple[str, ...]


def find(span: Span, arrivals: Sequence[float], told: Sequence[Told]) -> Finding:
    """`arrivals` are the moments at which rows came; `told` are changes, in order."""
    gaps = _gaps(span, arrivals)
    untold_s = max(_longest_ready(gap, told) for gap in gaps)
    words = next((each for each in _within(told, span) if each.not_ready), None)
    problems = []
    if span.fresh is None:
        problems.append("no row came any more")
    if span.ready is None:
        problems.append("it was not Ready again")
    if untold_s > QUIET_S:
        problems.append(f"it was Ready for {untold_s:.0f} s while nothing came")
    return Finding(
        first_row_s=None if span.fresh is None else span.fresh - span.began,
        gap_s=max(after - before for before, after in gaps),
        told_s=None if words is None else max(0.0, words.at - span.began),
        told="" if words is None else words.text.partition(" ")[2],
        ready_s=None if span.ready is None or span.fresh is None else max(0.0, span.ready - span.fresh),
        untold_s=untold_s,
        problems=tuple(problems),
    )


def _gaps(span: Span, arrivals: Sequence[float]) -> list[tuple[float, float]]:
    """From each moment at which a row came to the next one."""
    return list(pairwise([span.began, *(each for each in arrivals if span.began < each < span.ended), span.ended]))


def _longest_ready(gap: tuple[float, float], told: Sequence[Told]) -> float:
    """While nothing is told, the last word stands: who has read Ready, and can't look again, still believes it."""
    began, ended = gap
    longest = 0.0
    since: float | None = None
    for each in told:
        if each.at >= ended:
            break
        if each.ready and since is None:
            since = max(each.at, began)
        elif each.not_ready and since is not None:
            longest, since = max(longest, each.at - since), None
    return longest if since is None else max(longest, ended - since)


def _within(told: Sequence[Told], span: Span) -> list[Told]:
    """What was told when it began, and since."""
    before = [each for each in told if each.at <= span.began][-1:]
    return [*before, *(each for each in told if span.began < each.at <= span.ended)]
