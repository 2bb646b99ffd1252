"""The exactly-once sink: the rows of one source partition and its progress, in the same transactions.

    rows of offsets [next, cut) ──┐
    their dead letters ───────────┼─► one transaction of the partition's session
    progress, next = cut ─────────┘

After any trouble the transaction may be committed or not. So nothing is guessed: `meta` is read (a newer driver goes
first), the partition is claimed again (which ends what was open), the progress is read under that fence, and what is
not in it is replayed from the batches still held.

No transaction says more than the rows that were given: its progress ends behind the last of them. Whether there were
more, only Spark knows: the end of a range is written by the driver, once the task has come to its end (record 0108).
"""

from __future__ import annotations

import time

from typing_extensions import override

from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.sinks.claiming import ClaimingWriter
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.worker import Worker


class ExactlyOnceWriter(ClaimingWriter):
    """Writes one source partition of one batch.

    Raises (all methods):
        SinkPipelineError: Superseded, RecordUndecodable, RecordRefused, DeadLetterFailed, TopicsChanged,
            BrokerUnreachable, TransactionFailed, and what the reads of the progress topic and of the source raise.
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
        super().__init__(plan, partition, worker, cuts)
        # An earlier attempt of this task may have taken the partition over, and so fenced what is kept here.
        if not retried and plan.owners.get(partition) == self._token:
            self._session = worker.take(self._place().key, plan.term)
        if self._session is None:
            worker.drop(self._place().key)
            self._guard(self._claim)

    def write(self, batch: RowBatch) -> None:
        self._hold(batch)
        self._guard(self._produce_held)

    def idle(self) -> None:
        if self._is_open and self._cuts.is_due(open_s=time.monotonic() - self._opened_at):
            self._guard(self._commit_held)

    def finish(self) -> None:
        if self._hold_rest() or self._is_open:
            self._guard(self._commit_held)
        if self._letters is not None:
            self._letters.close()
        if self._session is not None:
            self._worker.keep(self._session, self._plan.term)
            self._session = None

    def _commit_held(self) -> None:
        self._produce_held()
        self._cut(self._produced)

    @override
    def _cut(self, next_offset: int) -> None:
        """Ends the open transaction, if there is one, with the progress record of everything below `next_offset`."""
        if self._is_open:
            self._commit(self._advanced(next_offset))
