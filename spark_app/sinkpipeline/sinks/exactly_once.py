"""The transactional Kafka sink: the rows of one source partition and its progress, in the same transactions.

    rows of offsets [next, cut) ──┐
    progress record, next = cut ──┴─► one transaction under the partition's own transactional id

After any trouble the transaction may be committed or not. So nothing is guessed: `meta` is read (a newer driver goes
first), a new producer of the same id is made (which ends what was open), the progress is read under that fence, and
what is not in it is replayed from the batches still held.
"""

from __future__ import annotations

import logging
import random
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import check_forward, check_not_removed, encode_partition
from sinkpipeline.core.starting import check_run
from sinkpipeline.kafka.failpoints import failpoint
from sinkpipeline.kafka.producers import Fenced, InDoubt, RecordRefused, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.sinks.contract import BatchPlan, RowBatch, refused, undecodable
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.sink")

_MAX_RECOVERIES = 5
_MAX_DELAY_S = 0.5


class ExactlyOnceWriter:
    """Writes one source partition of one batch.

    Raises (all methods):
        SinkPipelineError: Superseded, RecordUndecodable, RecordRefused, TopicsChanged, TransactionFailed, and what the
            reads of the progress topic raise.
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
        self._plan = plan
        self._settings = plan.settings
        self._partition = partition
        self._worker = worker
        self._cuts = cuts or CutPolicy()
        self._state = plan.frontier[partition]
        self._end = plan.ranges[partition].end
        self._id = plan.settings.id.partition_id(partition)
        self._key = plan.settings.id.partition_key(partition)
        self._token = worker.token(plan.run)
        self._held: list[RowBatch] = []
        self._produced = self._state.next
        """Source offsets below it are in the open transaction, or committed."""
        self._open_rows = self._open_size = 0
        self._opened_at = 0.0
        self._delivered = self._commits = self._claims = self._recoveries = 0
        self._claiming_s = 0.0
        self._verified: int | None = None
        self._in_doubt = False
        self._producer: TransactionalProducer | None = None
        # An earlier attempt of this task may have taken the partition over, and so fenced what is kept here.
        if not retried and plan.owners.get(partition) == self._token:
            self._producer = worker.take(self._id, plan.run)
        if self._producer is None:
            worker.drop(self._id)
            self._guard(self._claim)

    def write(self, batch: RowBatch) -> None:
        self._held.append(batch)
        self._guard(self._produce_held)

    def idle(self) -> None:
        if self._open_rows and self._cuts.is_due(open_s=time.monotonic() - self._opened_at):
            self._guard(self._commit_held)

    def finish(self) -> None:
        if self._open_rows:
            self._guard(self._commit_range)
        if self._producer is not None:
            self._worker.keep(self._producer, self._plan.run)
            self._producer = None

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
        )

    def _guard(self, step: Callable[[], None]) -> None:
        """Runs a step; after trouble, takes the partition over again and repeats it. Steps begin at `_produced`."""
        while True:
            try:
                step()
            except (Fenced, InDoubt) as trouble:
                self._recover(trouble)
            except RecordRefused as refusal:
                # Nobody will take the partition over soon, and an open transaction holds up whoever reads these topics.
                self._owned().abort()
                begin, end = self._state.next, max(self._produced, self._state.next + 1)
                raise refused(self._partition, begin, end, refusal.text) from refusal
            else:
                return

    def _recover(self, trouble: Exception) -> None:
        while True:
            self._recoveries += 1
            if self._recoveries > _MAX_RECOVERIES:
                raise SinkPipelineError(
                    Reason.TRANSACTION_FAILED,
                    f"{self._partition}: gave up after {_MAX_RECOVERIES} attempts, the last one: {trouble}",
                    "look at the broker's log; the batch is tried again",
                ) from trouble
            _LOG.warning("%s: %s: %s; reading the truth", self._partition, type(trouble).__name__, trouble)
            if self._producer is not None:
                self._producer.close()
                self._producer = None
            time.sleep(random.uniform(0, _MAX_DELAY_S))  # noqa: S311 - no secret
            self._check_topics()
            with self._log() as log:
                # Before anything is fenced in return: a newer driver goes first. The claim checks it again for certain.
                check_run(self._settings.id, log.observe(self._settings.id).meta, self._plan.run)
            try:
                self._claim()
            except (Fenced, InDoubt) as again:
                trouble = again
            else:
                return

    def _claim(self) -> None:
        """Takes the partition over: fence, sentinel, read, and the check that the run is still ours."""
        began = time.monotonic()
        self._claims += 1
        self._producer = TransactionalProducer(
            self._settings.connection,
            self._id,
            {**self._settings.properties, "message.max.bytes": str(self._plan.max_message_bytes)},
        )
        with self._log() as log:
            tail = log.resume_since(self._settings.id, self._producer, self._plan.verified)
        self._check_topics()
        check_run(self._settings.id, tail.meta, self._plan.run)
        check_not_removed(tail, [self._partition])
        found = tail.partitions.get(self._partition)
        if found is not None:
            check_forward(self._partition, self._state, found)
            # Committed by an earlier attempt, or by a commit of ours whose answer was lost.
            self._delivered += found.rows - self._state.rows
            self._state = found
        self._verified = tail.end
        self._in_doubt = False
        self._produced = self._state.next
        self._open_rows = self._open_size = 0
        self._claiming_s += time.monotonic() - began
        failpoint("after-init")

    def _check_topics(self) -> None:
        """Leaves it to the driver to decide about topics that are not the ones of the start any more."""
        settings, plan = self._settings, self._plan
        ids = {settings.data.name: plan.data_topic_id, settings.progress.name: plan.progress_topic_id}
        for name, topic in self._worker.admin(settings.connection).topics(ids).items():
            if topic is None or topic.id != ids[name]:
                raise SinkPipelineError(
                    Reason.TOPICS_CHANGED, f"topic {name} was deleted or re-created", "the sink starts again"
                )

    def _log(self) -> ProgressLog:
        return ProgressLog(self._settings.connection, self._settings.progress.name, self._settings.group_id)

    def _produce_held(self) -> None:
        for batch in list(self._held):
            begin = bisect_left(batch.offsets, self._produced)
            while begin < len(batch):
                begin = self._produce_slice(batch, begin)

    def _produce_slice(self, batch: RowBatch, begin: int) -> int:
        """Produces rows from `begin` on, as many as the transaction has room for; returns where to go on."""
        row_size = batch.size / len(batch)
        room = self._cuts.room(rows=self._open_rows, size=self._open_size, row_size=row_size)
        end = min(len(batch), begin + room)
        bad = batch.first_bad(begin, end, self._plan.data_partitions)
        if bad is not None:
            end = bad[0]
        if end > begin:
            self._produce_rows(batch, begin, end)
        if bad is not None:
            self._cut(batch.offsets[end])
            raise undecodable(self._partition, batch.offsets[end], bad[1])
        self._open_size += int((end - begin) * row_size)
        due = self._cuts.is_due(open_s=time.monotonic() - self._opened_at)
        if due or self._cuts.is_full(rows=self._open_rows, size=self._open_size):
            self._cut(self._produced)
        return end

    def _produce_rows(self, batch: RowBatch, begin: int, end: int) -> None:
        producer = self._owned()
        if not producer.in_transaction:
            producer.begin()
            self._opened_at = time.monotonic()
        try:
            producer.produce_rows(self._settings.data.name, batch.rows(begin, end))
        except RecordRefused as refusal:
            if refusal.index is None:
                raise
            # The client refused that one row before it was sent: what stands before it can still be committed.
            index = begin + refusal.index
            self._open_rows += refusal.index
            self._produced = batch.offsets[index]
            self._cut(self._produced)
            raise refused(self._partition, batch.offsets[index], batch.offsets[index] + 1, refusal.text) from refusal
        self._open_rows += end - begin
        self._produced = batch.offsets[end - 1] + 1

    def _commit_held(self) -> None:
        self._produce_held()
        self._cut(self._produced)

    def _commit_range(self) -> None:
        self._produce_held()
        self._cut(self._end)

    def _cut(self, next_offset: int) -> None:
        """Ends the open transaction, if there is one, with the progress record of everything below `next_offset`."""
        if not self._open_rows:
            return
        producer = self._owned()
        new = replace(
            self._state, next=next_offset, rows=self._state.rows + self._open_rows, at=int(time.time() * 1000)
        )
        failpoint("after-rows-before-progress")
        producer.produce_record(self._settings.progress.name, self._key, encode_partition(new))
        failpoint("after-progress-before-commit")
        self._in_doubt = True
        try:
            producer.commit()
        except (RecordRefused, InDoubt) as trouble:
            self._in_doubt = isinstance(trouble, InDoubt) and not trouble.aborted
            raise
        self._in_doubt = False
        failpoint("after-commit")
        self._delivered += self._open_rows
        self._commits += 1
        self._state = new
        self._open_rows = self._open_size = 0
        self._held = [batch for batch in self._held if batch.offsets[-1] >= next_offset]

    def _owned(self) -> TransactionalProducer:
        if self._producer is None:
            raise ValueError("a writer is not used after finish()")
        return self._producer
