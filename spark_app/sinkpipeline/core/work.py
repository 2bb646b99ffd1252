"""Whether a driver gets anything done: the executors that it has, tasks that run. Pure; times are in Unix ms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override

LONGEST_TASK_S = 7200.0
"""A task that runs so long hangs, for all that anybody can tell: Spark does not say how far one is."""
LOST_AFTER_S = 30.0
"""So long a driver may be without any executor while there is work: one that dies is replaced in less."""


@dataclass(frozen=True, kw_only=True)
class Executors:
    """The executors of one driver. A local master counts as one."""

    registered: int
    wanted: int | None = None
    """None where Spark asks for as many as there is work for."""
    none_since: int | None = None
    """Since when none is registered while there is work for one."""

    def seen(self, registered: int, *, needed: bool | None, now_ms: int) -> Executors:
        """At the next look.

        Args:
            registered: how many there are now.
            needed: whether there is work for one; None where that is not known: then the clock neither begins nor ends.
            now_ms: when.
        """
        since = self.none_since
        if registered > 0 or needed is False:
            since = None
        elif needed and since is None:
            since = now_ms
        return replace(self, registered=registered, none_since=since)

    def missing_s(self, now_ms: int) -> float:
        """For how long there has been work and nobody to do it."""
        return 0.0 if self.none_since is None else max(0.0, (now_ms - self.none_since) / 1000)

    def are_lost(self, now_ms: int) -> bool:
        return self.none_since is not None and self.missing_s(now_ms) >= LOST_AFTER_S

    @override
    def __str__(self) -> str:
        of = "" if self.wanted is None else f" of {self.wanted}"
        return f"{self.registered or 'none'}{of} executors registered"


def proves(*, idled: bool, lag: int | None, executors: int | None) -> bool:
    """Whether a sink that has committed no batch yet has shown to work all the same: there is nothing for it to do.

    Args:
        idled: whether a trigger of its query found no record.
        lag: how many records wait; None while unknown.
        executors: how many are registered; None where Spark does not tell.
    """
    return idled and lag == 0 and executors != 0


@dataclass(frozen=True, kw_only=True)
class StageWork:
    """One stage that Spark has begun and not ended, as it was at one look."""

    id: tuple[int, int]
    """Stage and attempt."""
    sink: str
    active: int
    """Tasks that have a core."""
    completed: int
    """Tasks."""


def who_works(stages: Sequence[StageWork]) -> frozenset[str]:
    """The sinks of which a task runs, or waits for cores on which another sink's tasks run."""
    return frozenset(stage.sink for stage in stages) if any(stage.active for stage in stages) else frozenset()


def who_moved(before: Iterable[StageWork], after: Sequence[StageWork]) -> frozenset[str]:
    """The sinks of which a batch has begun, or a task has ended, between two looks."""
    known = {stage.id: stage.completed for stage in before}
    return frozenset(stage.sink for stage in after if known.get(stage.id) != stage.completed)


@dataclass
class StillClock:
    """Since when each sink stands still although records wait."""

    _since: dict[str, int] = field(default_factory=dict)
    _progress: dict[str, object] = field(default_factory=dict)

    def seen(
        self, sink: str, progress: object, *, waits: bool | None, moved: bool, works: bool, now_ms: int
    ) -> int | None:
        """At the next look; None where nothing waits, or somebody works on it.

        Args:
            sink: its name.
            progress: is another one after each commit.
            waits: whether its query runs and records wait for it; None where that is not known.
            moved: whether a batch of it has begun, or a task ended, since the last look.
            works: whether a task of it runs now.
            now_ms: when.
        """
        moved = moved or progress != self._progress.get(sink)
        self._progress[sink] = progress
        if waits is False:
            self._since.pop(sink, None)
        elif sink in self._since and moved:
            self._since[sink] = now_ms
        elif waits:
            self._since.setdefault(sink, now_ms)
        since = self._since.get(sink)
        return None if since is None or (works and now_ms - since < LONGEST_TASK_S * 1000) else since
