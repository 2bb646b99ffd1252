"""How a task holds its source partition: by a session, in which it alone writes the partition's progress.

A claim fences, reads, and asks whether the run is still ours: from then on the progress is the task's to write.
"""

from __future__ import annotations

import time

from typing_extensions import override

from sinkpipeline.core import troubles
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import is_before
from sinkpipeline.core.progress import PartitionProgress, check_forward
from sinkpipeline.core.task_ports import Claim
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.transactional import TransactionalWriter
from sinkpipeline.sinks.worker import Worker


class ClaimingWriter(TransactionalWriter):
    """Writes the progress of one source partition, and what else belongs into the same transactions."""

    def __init__(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, cuts: CutPolicy | None) -> None:
        super().__init__(plan, partition, worker, cuts)
        self._token = worker.token(plan.term)
        self._commits = self._claims = 0
        self._claiming_s = 0.0
        self._verified: int | None = None
        self._in_doubt = False

    def receipt(self) -> Receipt:
        return Receipt(
            partition=self._partition,
            progress=self._state,
            delivered=self._delivered,
            commits=self._commits,
            owner=self._token,
            verified=self._verified,
            in_doubt=self._in_doubt,
            claims=self._claims,
            claiming_s=self._claiming_s,
            costs=self._costs,
            clock_skew=self._worker.clock.is_wrong,
        )

    @override
    def _take_over(self) -> None:
        self._give_up()
        self._place().check()
        self._claim()

    def _claim(self) -> None:
        """Takes the partition over, and goes on behind what counts."""
        self._adopt(self._fence())
        self._start_over()
        failpoint("after-init")

    def _place(self) -> Claim:
        """By the plan as it is now."""
        return self._plan.kind.claim(self._plan, self._partition, self._worker)

    def _fence(self) -> PartitionProgress:
        """Takes a session: the partition's progress."""
        began = time.monotonic()
        self._claims += 1
        self._session = self._place().take()
        found = self._session.progress or self._state
        check_forward(self._partition, self._state, found)
        self._verified = self._session.verified
        self._in_doubt = False
        self._claiming_s += time.monotonic() - began
        return found

    def _adopt(self, found: PartitionProgress) -> None:
        """Committed by an earlier attempt, or by a commit of ours whose answer was lost."""
        self._delivered += found.rows - self._state.rows
        if is_before(self._state.next, found.next):
            self._troubles = troubles.NONE
        self._state = found

    def _commit(self, new: PartitionProgress) -> None:
        """Ends what is open with this progress; from then on it counts."""
        session, rows = self._owned(), new.rows - self._state.rows
        failpoint("after-rows-before-progress")
        began = time.monotonic()
        try:
            session.commit(new)
        finally:
            self._in_doubt = session.in_doubt
            if self._in_doubt:
                self._costs = self._costs.with_doubt()
        self._costs = self._costs.with_commit(time.monotonic() - began, rows)
        failpoint("after-commit")
        self._commits += 1
        self._count(new)
