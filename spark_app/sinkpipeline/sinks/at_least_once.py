"""The at-least-once sink: rows are acknowledged before their progress is written; a crash between repeats them.

    rows of offsets [next, cut), their dead letters ─► acknowledged ─► progress record, next = cut
                                                                       └ the last of a batch: by the driver, with others

A batch that is one cut needs no session, and its progress is the driver's to write. The first cut that is not the last
claims the partition, and writes the progress as `ExactlyOnce` does, so that a batch that takes hours is not repeated
from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from typing_extensions import override

from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import Verdict
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.ports import Fenced, InDoubt
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.core.task_ports import Claim
from sinkpipeline.sinks.claiming import ClaimingWriter
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.worker import Worker


class AtLeastOnceWriter(ClaimingWriter):
    """What is open was produced, and may be acknowledged or not; a cut waits until it is.

    Raises (all methods) SinkPipelineError: as ExactlyOnceWriter.
    """

    def __init__(
        self,
        plan: BatchPlan,
        partition: SourcePartition,
        worker: Worker,
        *,
        retried: bool = False,
        cuts: CutPolicy | None = None,
    ) -> None:
        # What is sent needs no room in a commit, whatever a kind takes in one.
        super().__init__(plan, partition, worker, cuts or CutPolicy())
        self._rows = plan.kind.sender(plan, partition, worker)
        self._writes_progress = retried
        """Whether the progress of this attempt is its own to write: so where another attempt may be doing the same."""
        if retried:
            self._guard(self._claim)

    def write(self, batch: RowBatch) -> None:
        self._hold(batch)
        self._guard(self._produce_held)

    def idle(self) -> None:
        if self._is_open and self._cuts.is_due(open_s=time.monotonic() - self._opened_at):
            self._guard(self._cut_held)

    def finish(self) -> None:
        self._hold_rest()
        self._guard(self._end_range)
        if self._letters is not None:
            self._letters.close()
        self._give_up()
        self._rows.keep()

    def _cut_held(self) -> None:
        self._produce_held()
        self._cut(self._produced)

    def _end_range(self) -> None:
        self._produce_held()
        if self._is_open:
            self._acknowledge()
            self._settle(self._advanced(self._produced))

    @override
    def _cut(self, next_offset: int) -> None:
        if not self._is_open:
            return
        self._acknowledge()
        self._hold_id()
        self._settle(self._advanced(next_offset))

    def _hold_id(self) -> None:
        if not self._writes_progress:
            self._writes_progress = True
            found = self._fence()
            if found.next != self._state.next:
                raise Fenced(f"{self._partition}: another attempt came further")

    def _settle(self, new: PartitionProgress) -> None:
        """What is open counts, by this progress."""
        if self._writes_progress:
            self._owned().begin()
            self._commit(new)
        else:
            self._count(new)

    def _acknowledge(self) -> None:
        self._rows.flush()

    def _renew_rows(self) -> None:
        """A sender that lost a row never says again that all is well."""
        self._rows.close()
        self._rows = self._plan.kind.sender(self._plan, self._partition, self._worker)

    @override
    def _go_on(self) -> None:
        self._renew_rows()
        self._start_over()

    @override
    def _given_up(self, trouble: Fenced | InDoubt) -> SinkPipelineError:
        self._rows.close()
        return super()._given_up(trouble)

    @override
    def _take_over(self) -> None:
        self._renew_rows()
        if self._writes_progress:
            super()._take_over()
        else:
            self._start_over()

    @override
    def _abort(self) -> None:
        """Of rows that were sent nothing can be taken back."""
        if self._session is not None and self._session.is_open:
            self._session.abort()

    @override
    def _would_refuse(self, timestamp: int) -> Verdict | None:
        self._hold_id()
        return super()._would_refuse(timestamp)

    @override
    def _place(self) -> Claim:
        return self._plan.kind.claim(self._plan, self._partition, self._worker, rows=False)

    @override
    def _begin(self) -> None:
        if not self._is_open:
            self._opened_at = time.monotonic()

    @override
    def _send(self, rows: Iterable[Row]) -> None:
        self._rows.send(rows)

    @override
    def _send_dead(self, rows: Iterable[Row]) -> None:
        self._rows.send_dead(rows)
