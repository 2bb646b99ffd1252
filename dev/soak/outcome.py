"""What a soak did and found, and how it is shown."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table

from support.kafka.streams import EXACTLY_ONCE, Verdict

MAY_END_WITH: Final = {1}
"""What is tried again by whoever runs the command: no broker answered while it started."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Judged:
    """What an independent count found in one place."""

    what: str
    total: int
    """How many there should be."""
    verdict: Verdict
    exact: bool
    """Whether one may not be there twice, nor out of order."""

    @property
    def holds(self) -> bool:
        if self.exact:
            return self.verdict == EXACTLY_ONCE
        return not (self.verdict.missing or self.verdict.foreign)


@dataclass
class Outcome:
    """Of one soak."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    """By SIGKILL, of what."""
    starts: int = 0
    ends: list[tuple[int, str]] = field(default_factory=list)
    """Of commands that ended by themselves."""
    judged: list[Judged] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def judge(self) -> None:
        self.seconds = time.monotonic() - self._began
        self.problems += [f"{each.what}: {each.verdict}" for each in self.judged if not each.holds]
        for code, word in self.ends:
            if code not in MAY_END_WITH:
                self.problems.append(f"the command ended by itself with {code}: {word}")

    def sayer(self, console: Console) -> Say:
        def say(text: str) -> None:
            console.print(f"[dim]{time.monotonic() - self._began:7.1f} s[/dim]  {text}", highlight=False)

        return say


def show(outcome: Outcome, console: Console) -> None:
    faults = Table(title=f"seed {outcome.seed}, {outcome.seconds:.0f} s", box=None, title_justify="left")
    faults.add_column("fault")
    faults.add_column("times", justify="right")
    for name, times in sorted(outcome.faults.items()):
        faults.add_row(name.replace("_", " "), str(times))
    console.print(faults)
    kills = ", ".join(f"{times} of a {what}" for what, times in sorted(outcome.kills.items()))
    console.print(f"\n{outcome.kills.total()} kills by SIGKILL: {kills or 'none'}", highlight=False)
    console.print(f"the command was started {outcome.starts} times, and ended by itself {len(outcome.ends)} times")
    for code, word in outcome.ends:
        console.print(f"  with {code}: {word}", markup=False, highlight=False)
    rows = Table(box=None)
    for name in ("what", "rows", "duplicates", "missing", "out of order", "foreign"):
        rows.add_column(name, justify="left" if name == "what" else "right")
    for each in outcome.judged:
        verdict = each.verdict
        counts = (each.total, verdict.duplicates, verdict.missing, verdict.disorder, verdict.foreign)
        rows.add_row(each.what, *(f"{count:,}" for count in counts))
    console.print(rows)
    for note in outcome.notes:
        console.print(note, markup=False, highlight=False)
    for problem in outcome.problems:
        console.print(f"problem: {problem}", style="red", markup=False)
