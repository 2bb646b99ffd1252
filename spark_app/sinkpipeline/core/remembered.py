"""What a driver remembers of a sink beside its progress topic, for the case that this is gone.

Writing back a frontier that is older than what was delivered repeats rows. So what is remembered is one of three:

    told      A status document tells it, or an attempt of a start has read it before the topic vanished. Others may
              have delivered since. It is written back, with the number of records whose rows may
              be duplicated.
    doubtful  It is this driver's own frontier, and something may have been delivered beyond it. It is not written back.
    exact     It is this driver's own frontier, and no outcome is in doubt. It is written back after a proof that nobody
              has taken the control id since: the topic, which would tell of a newer driver, may be gone together with
              what that one wrote.

    told ──► `started` ──► doubtful ──► `left`, certain ──► exact ──► `started`, or the proof fails ──► doubtful

A proof counts for the attempt that gives it, and no longer: somebody may come in afterwards. An attempt takes the
control id again, so the next one proves with that (`taken_again`). It may do so only where the attempt has read its
topic after that: who came in between its proof and its own id stands there, or is fenced.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from sinkpipeline.core.progress import Progress
from sinkpipeline.core.source_marks import newest
from sinkpipeline.core.starting import without_leftovers
from sinkpipeline.core.topics import Memory, is_older, remember


class ControlId(Protocol):
    """A sink's control id, as this driver has taken it."""

    def still_holds(self) -> bool:
        """Whether nobody has taken it since: what is written under it counts."""

    def close(self) -> None:
        """Gives it up."""


class Remembered:
    """For one thread at a time, for as long as its driver lives."""

    def __init__(self, memory: Memory | None = None) -> None:
        """`memory`: what a status document tells."""
        self.memory = memory
        self.is_ours = False
        """Whether it is this driver's own frontier, as a start of it came through."""
        self._control: ControlId | None = None
        """Only where it is exact: the control id as this driver took it last."""

    def read(self, progress: Progress) -> None:
        """An attempt has read the progress. Nothing of that is news to who is exact, nor what is of an earlier time.

        The marks that this driver has noted stay: a source that has lost its end is refused only after several looks,
        and each of them compares what the driver knew.
        """
        found = remember(progress)
        if self._control is None and found is not None and not is_older(found, self.memory):
            noted = {} if self.memory is None else self.memory.marks_in(found.epoch)
            self.memory = replace(found, marks=MappingProxyType(newest(found.marks, noted)))

    def is_proved(self) -> bool:
        """Whether it is exact, now; if it was thought to be, and is not, it is doubtful from here on."""
        if self._control is not None and not self._control.still_holds():
            self.let_go()
        return self._control is not None

    def believed(self, progress: Progress, topic_id: str) -> Progress:
        """Of what was found in a progress topic, what tells more than what this driver and its tasks wrote into it."""
        if self._control is None or self.memory is None:
            return progress
        return without_leftovers(progress, self.memory, topic_id)

    def taken_again(self, control: ControlId) -> None:
        """An attempt holds the control id, and has read that nobody delivered between its proof and that."""
        older = self._control
        if older is not None and older is not control:
            self._control = control
            older.close()

    def keeps(self, control: ControlId) -> bool:
        """Whether it is needed after the attempt that took it."""
        return self._control is control

    def started(self, progress: Progress) -> None:
        """A start came through. It has the control id; from here on its batches may be delivered."""
        self.memory, self.is_ours, self._control = remember(progress), True, None

    def left(self, progress: Progress, control: ControlId, *, certain: bool) -> None:
        """What a start began is over. `certain`: nobody has delivered beyond this progress, or will."""
        self.memory, self.is_ours, self._control = remember(progress), True, control
        if not certain:
            self.let_go()

    def let_go(self) -> None:
        """Nothing can be proved any more."""
        control, self._control = self._control, None
        if control is not None:
            control.close()
