"""What was seen from outside while something was broken, and what follows from it; pure.

All times are seconds since the run began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

QUIET_S: Final = 60.0
"""For how long nothing may come in silence: 30 s without executors are allowed (0023), once Spark misses them."""


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
    problems: tuple[str, ...]


def find(span: Span, arrivals: Sequence[float], told: Sequence[Told]) -> Finding:
    """`arrivals` are the moments at which rows came; `told` are changes, in order."""
    gap_s = _longest_gap(span, arrivals)
    words = next((each for each in _within(told, span) if each.not_ready), None)
    problems = []
    if span.fresh is None:
        problems.append("no row came any more")
    if span.ready is None:
        problems.append("it was not Ready again")
    if gap_s > QUIET_S and words is None:
        problems.append(f"nothing came for {gap_s:.0f} s, and the status did not say so")
    return Finding(
        first_row_s=None if span.fresh is None else span.fresh - span.began,
        gap_s=gap_s,
        told_s=None if words is None else max(0.0, words.at - span.began),
        told="" if words is None else words.text.partition(" ")[2],
        ready_s=None if span.ready is None or span.fresh is None else max(0.0, span.ready - span.fresh),
        problems=tuple(problems),
    )


def _longest_gap(span: Span, arrivals: Sequence[float]) -> float:
    moments = [span.began, *(each for each in arrivals if span.began < each < span.ended), span.ended]
    return max(after - before for before, after in pairwise(moments))


def _within(told: Sequence[Told], span: Span) -> list[Told]:
    """What was told when it began, and since."""
    before = [each for each in told if each.at <= span.began][-1:]
    return [*before, *(each for each in told if span.began < each.at <= span.ended)]
