"""The transactional Kafka sink: the rows of one source partition and its progress, in the same transactions.

    rows of offsets [next, cut) ──┐
    their dead letters ───────────┼─► one transaction under the partition's own transactional id
    progress record, next = cut ──┘

After any trouble the transaction may be committed or not. So nothing is guessed: `meta` is read (a newer driver goes
first), a new producer of the same id is made (which ends what was open), the progress is read under that fence, and
what is not in it is replayed from the batches still held.
"""

from __future__ import annotations

import abc
import logging
import random
import time
from collections.abc import Callable, Iterable

from typing_extensions import override

from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import check_forward, check_not_removed
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline.core.records import Row
from sinkpipeline.core.starting import check_run
from sinkpipeline.kafka.failpoints import failpoint
from sinkpipeline.kafka.producers import Fenced, InDoubt, RecordRefused, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.partition_writer import PartitionWriter
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.sink")

_MAX_RECOVERIES = 5
_MAX_DELAY_S = 0.5


class TransactionalWriter(PartitionWriter):
    """What is open is a transaction of one id; after trouble that is taken over again, and the truth is read."""

    _again = "the batch is tried again"

    def __init__(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, cuts: CutPolicy) -> None:
        super().__init__(plan, partition, worker, cuts)
        self._recoveries = 0
        self._producer: TransactionalProducer | None = None

    @abc.abstractmethod
    def _take_over(self) -> None:
        """Gives up the producer, and makes another one that holds the id, behind all that counts."""

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
                self._isolate(refusal)
                self._go_on()
            except SinkPipelineError as error:
                if not self._can_do_without_letters(error):
                    raise
                self._owned().abort()
                self._go_on()
            else:
                return

    def _go_on(self) -> None:
        """After a transaction that was refused: that is no trouble, and is not counted as one."""
        try:
            self._take_over()
        except (Fenced, InDoubt) as trouble:
            self._recover(trouble)

    def _recover(self, trouble: Exception) -> None:
        if self._is_open:
            self._cuts = self._cuts.after_trouble(rows=self._open_handled, size=self._open_size)
        while True:
            self._recoveries += 1
            if self._recoveries > _MAX_RECOVERIES:
                raise SinkPipelineError(
                    Reason.TRANSACTION_FAILED,
                    f"{self._partition}: gave up after {_MAX_RECOVERIES} attempts, the last one: {trouble}",
                    f"look at the broker's log; {self._again}",
                ) from trouble
            _LOG.warning("%s: %s: %s; reading the truth", self._partition, type(trouble).__name__, trouble)
            self._give_up()
            time.sleep(random.uniform(0, _MAX_DELAY_S))  # noqa: S311 - no secret
            try:
                self._take_over()
            except (Fenced, InDoubt) as again:
                trouble = again
            else:
                return

    def _give_up(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    @override
    def _begin(self) -> None:
        producer = self._owned()
        if not producer.in_transaction:
            producer.begin()
            self._opened_at = time.monotonic()

    @override
    def _send(self, topic: str, rows: Iterable[Row]) -> None:
        self._owned().produce_rows(topic, rows)

    def _owned(self) -> TransactionalProducer:
        if self._producer is None:
            raise ValueError("a writer is not used after finish()")
        return self._producer


class ExactlyOnceWriter(TransactionalWriter):
    """Writes one source partition of one batch.

    Raises (all methods):
        SinkPipelineError: Superseded, RecordUndecodable, RecordRefused, DeadLetterFailed, TopicsChanged,
            TransactionFailed, and what the reads of the progress topic and of the source raise.
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
        super().__init__(plan, partition, worker, cuts or CutPolicy())
        self._end = plan.ranges[partition].end
        self._id = plan.settings.id.partition_id(partition)
        self._key = plan.settings.id.partition_key(partition)
        self._token = worker.token(plan.run)
        self._commits = self._claims = 0
        self._claiming_s = 0.0
        self._verified: int | None = None
        self._in_doubt = False
        # An earlier attempt of this task may have taken the partition over, and so fenced what is kept here.
        if not retried and plan.owners.get(partition) == self._token:
            self._producer = worker.take(self._id, plan.run)
        if self._producer is None:
            worker.drop(self._id)
            self._guard(self._claim)

    def write(self, batch: RowBatch) -> None:
        self._hold(batch)
        self._guard(self._produce_held)

    def idle(self) -> None:
        if self._is_open and self._cuts.is_due(open_s=time.monotonic() - self._opened_at):
            self._guard(self._commit_held)

    def finish(self) -> None:
        if self._is_open:
            self._guard(self._commit_range)
        if self._letters is not None:
            self._letters.close()
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

    @override
    def _take_over(self) -> None:
        self._give_up()
        self._check_topics()
        with self._log() as log:
            # Before anything is fenced in return: a newer driver goes first. The claim checks it again for certain.
            check_run(self._settings.id, log.observe(self._settings.id).meta, self._plan.run)
        self._claim()

    def _claim(self) -> None:
        """Takes the partition over: fence, sentinel, read, and the check that the run is still ours."""
        began = time.monotonic()
        self._claims += 1
        self._producer = TransactionalProducer(self._settings.connection, self._id, self._plan.producer_properties)
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
        self._start_over()
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

    def _commit_held(self) -> None:
        self._produce_held()
        self._cut(self._produced)

    def _commit_range(self) -> None:
        self._produce_held()
        self._cut(self._end)

    @override
    def _cut(self, next_offset: int) -> None:
        """Ends the open transaction, if there is one, with the progress record of everything below `next_offset`."""
        if not self._is_open:
            return
        producer = self._owned()
        new = self._advanced(next_offset)
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
        self._commits += 1
        self._count(new)
