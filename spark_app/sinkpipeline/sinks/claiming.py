"""How a task holds its source partition: by the partition's transactional id, under which it alone writes progress.

Fence, sentinel, read, and the question whether the run is still ours: from then on the progress is the task's to write.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from typing_extensions import override

from sinkpipeline.core import troubles
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Meta, PartitionProgress, check_forward, check_not_removed
from sinkpipeline.core.progress_records import encode_partition
from sinkpipeline.core.starting import check_run
from sinkpipeline.kafka.deliveries import RecordRefused
from sinkpipeline.kafka.failpoints import failpoint
from sinkpipeline.kafka.producers import InDoubt, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.transactional import TransactionalWriter
from sinkpipeline.sinks.worker import Worker


class ClaimingWriter(TransactionalWriter):
    """Writes the progress of one source partition, and what else belongs into the same transactions."""

    def __init__(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, cuts: CutPolicy) -> None:
        super().__init__(plan, partition, worker, cuts)
        self._id = plan.settings.id.partition_id(partition)
        self._key = plan.settings.id.partition_key(partition)
        self._token = worker.token(plan.run)
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
            clock_skew=self._worker.clock.is_wrong,
        )

    @override
    def _take_over(self) -> None:
        self._give_up()
        self._check_topics()
        with self._log() as log:
            # Before anything is fenced in return: a newer driver goes first. The claim checks it again for certain.
            self._check_run(log.observe(self._settings.id).meta)
        self._claim()

    def _claim(self) -> None:
        """Takes the partition over, and goes on behind what counts."""
        self._adopt(self._fence())
        self._start_over()
        failpoint("after-init")

    @property
    def _claim_properties(self) -> Mapping[str, str]:
        return self._plan.producer_properties

    def _fence(self) -> PartitionProgress:
        """Fence, sentinel, read, and the check that the run is still ours: the partition's progress."""
        began = time.monotonic()
        self._claims += 1
        self._producer = TransactionalProducer(self._settings.connection, self._id, self._claim_properties)
        with self._log() as log:
            tail = log.resume_since(self._settings.id, self._producer, self._plan.verified, self._check_run)
        self._check_topics()
        self._check_run(tail.meta)
        check_not_removed(tail, [self._partition])
        found = tail.partitions.get(self._partition, self._state)
        check_forward(self._partition, self._state, found)
        self._verified = tail.end
        self._in_doubt = False
        self._claiming_s += time.monotonic() - began
        return found

    def _check_run(self, meta: Meta | None) -> None:
        check_run(self._settings.id, meta, self._plan.run)

    def _adopt(self, found: PartitionProgress) -> None:
        """Committed by an earlier attempt, or by a commit of ours whose answer was lost."""
        self._delivered += found.rows - self._state.rows
        if found.next > self._state.next:
            self._troubles = troubles.NONE
        self._state = found

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

    def _commit(self, new: PartitionProgress) -> None:
        """Ends the transaction with this progress record; from then on it counts."""
        producer = self._owned()
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
