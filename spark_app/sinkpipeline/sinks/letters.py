"""Dead letters of a sink whose own commits can't hold them: they go to a topic of the source's cluster.

    letters ─► acknowledged ─► rows and progress in one commit     a crash in between repeats letters, which count once

A kind says so by `LettersElsewhere`, and gives its claims what that makes; its settings have a `LetterService`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Protocol

from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.records import Row
from sinkpipeline.core.task_ports import LetterBox, Outbox, RecordReader
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.worker import Worker


class LetterService(Protocol):
    """What a sink's settings say of its dead letters. Travels with a plan: it pickles, and holds no connection."""

    @property
    def drop(self) -> bool:
        """Whether a record is dropped that can't even be dead-lettered; else it stops the sink."""

    def box(self, worker: Worker) -> LetterBox: ...

    def outbox(self, worker: Worker, limits: TopicLimits) -> Outbox:
        """The one that this worker has kept, or a new one; `limits` of the topic."""

    def reader(self, partition: SourcePartition) -> RecordReader:
        """Of the source."""

    def limits(self, worker: Worker) -> TopicLimits | None:
        """Of the topic; None where that is missing."""


class SentLetters:
    """The outbox of one source partition. What was acknowledged and counts not yet is not sent again by this worker."""

    def __init__(self, make: Callable[[], Outbox], acknowledged: set[Hashable]) -> None:
        self._make = make
        self._acknowledged = acknowledged
        self._open: list[Hashable] = []
        """Those of what is open, sent now or before."""
        self._waiting: list[Hashable] = []
        self._outbox: Outbox | None = None

    def send(self, rows: Iterable[Row]) -> None:
        for row in rows:
            value, key, _, _, headers = row
            same = value, key, tuple(headers or ())
            self._open.append(same)
            if same in self._acknowledged:
                continue
            if self._outbox is None:
                self._outbox = self._make()
            self._outbox.send([row])
            self._waiting.append(same)

    def flush(self) -> None:
        """Returns only if every letter is there."""
        if self._outbox is not None:
            self._outbox.flush()
            self._acknowledged.update(self._waiting)
            self._outbox.keep()
            self._outbox, self._waiting = None, []

    def counted(self) -> None:
        """What is open counts. Of what was tried with it, and refused, some may still be to come."""
        self._acknowledged.difference_update(self._open)
        self._open = []

    def drop(self) -> None:
        """What was not acknowledged may be there or not."""
        self._open = []
        if self._outbox is not None:
            self._outbox.close()
            self._outbox, self._waiting = None, []


def service_of(plan: BatchPlan) -> LetterService:
    found = plan.settings.dead_letter
    if found is None:
        raise ValueError("only a sink with dead letters sends some")
    service: LetterService = found  # type: ignore[assignment]  # a kind with letters elsewhere has no other settings
    return service


class LettersElsewhere:
    """What every such kind has in common."""

    def letter_box(self, plan: BatchPlan, worker: Worker) -> LetterBox:
        return service_of(plan).box(worker)

    def reader(self, plan: BatchPlan, partition: SourcePartition) -> RecordReader:
        return service_of(plan).reader(partition)

    def letters_of(self, plan: BatchPlan, partition: SourcePartition, worker: Worker) -> SentLetters | None:
        """For a session of this partition; None where the sink has no dead letters."""
        if plan.settings.dead_letter is None:
            return None
        by_run: dict[str, set[Hashable]] = worker.shared(("letters", plan.settings.id, partition), dict)
        # What an earlier run has sent counts for nothing here: a reset may lie in between.
        acknowledged = by_run.get(plan.run, set())
        by_run.clear()
        by_run[plan.run] = acknowledged
        return SentLetters(partial(service_of(plan).outbox, worker, plan.letter_limits), acknowledged)

    def limits_of_letters(self, plan: BatchPlan, worker: Worker) -> TopicLimits | None:
        return None if plan.settings.dead_letter is None else service_of(plan).limits(worker)
