"""The driver's side of one started sink's delivery: what happens before and after the tasks of each micro-batch.

    begin:   compare the topic ids ─► ranges begin at the frontier? ─► the plan for the tasks
    end:     fold their receipts ─► advance what nobody reported
    deliver: in place of the tasks, where the batch is small and all that was before is certain

Whatever goes wrong ends the delivery. The next start fences every partition and reads the truth before it goes on, so
nothing here has to be undone. It knows nothing of Spark: who calls it has cut the batch and runs the tasks.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sinkpipeline.core.batch import (
    OffsetRange,
    Receipt,
    check_contiguous,
    first_error,
    fold_receipts,
    is_certain,
    unfinished,
)
from sinkpipeline.core.commit_counts import CommitCounts
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import is_before
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.progress import PartitionProgress, Progress, check_not_removed, is_behind
from sinkpipeline.core.schemas import in_turns
from sinkpipeline.core.starting import check_run, partition_counts
from sinkpipeline.sinks.beside import Beside, Marks
from sinkpipeline.sinks.contract import CLOCK_SKEW, BatchPlan, OversizedRecord, Restart, Stop, UnknownSchemas
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.small_batches import NO_STOPS, Collected, SmallBatches, before_stops
from sinkpipeline.sinks.starting import SinkStarter, StartedSink, now_ms
from sinkpipeline.sinks.world import World

_LOG = logging.getLogger("sinkpipeline.sink")

SNAPSHOT_EVERY = 20_000
"""Progress records of ours after which all keys are written again, so that the suffix a start must read stays short."""


_ANNOUNCED_S = 10.0
"""How long a driver takes at most from its first fence to its announcement, also over a slow link."""
_ANNOUNCED_STEP_S = 0.2
_LIMITS_HOLD_S = 10.0
"""How long the limits of topics are believed; a task that finds a row beyond them looks itself."""


class _WentBack(Restart):
    """A store is as it was at an earlier time."""


class SinkDelivery:
    """From one start of a sink to the next. Any thread may read `progress` and `exact`; the rest is for one at a time.

    Raises (all methods):
        Restart: the next start reads the truth, with our frontier as its memory.
        SinkPipelineError: what ends the query with a reason.
    """

    def __init__(
        self,
        starter: SinkStarter,
        started: StartedSink,
        on_progress: Callable[[Progress, int], None],
        small: SmallBatches | None = None,
    ) -> None:
        """`small`: which batches this side delivers itself; by default none."""
        self._settings = starter.settings
        self._small = small or SmallBatches(starter.settings, most_offsets=0)
        self._starter = starter
        self._started = started
        self._ports = starter.ports
        self._hold = started.hold
        self._on_progress = on_progress
        self._costs = CommitCounts()
        self.progress = started.progress
        self.exact = True
        """Whether `progress` is certain: not from before a batch until every outcome of it is known."""
        self._owners: dict[SourcePartition, str] = {}
        self._records_since_snapshot = 0
        self._follower = self._ports.ledger.follow(started.progress.end)
        self._verified = started.progress.end
        self._data_limits, self._letter_limits = started.data_limits, started.letter_limits
        self._limits_read_at = time.monotonic()
        meta = started.progress.meta
        self._beside = Beside(self._ports, {} if meta is None else meta.marks)
        self._world = World(self._ports, started)
        self._told_skew = False

    @property
    def frontier(self) -> Mapping[SourcePartition, PartitionProgress]:
        """The progress of every partition that the source has now."""
        return {each: state for each, state in self.progress.partitions.items() if each.topic in self._started.source}

    def close(self) -> None:
        """Leaves to the next start what this driver knows."""
        self._follower.close()
        self._note(self._beside.found())
        self._starter.remembered.left(self.progress, self._hold, certain=self.exact)

    def begin(self, ranges: Mapping[SourcePartition, OffsetRange]) -> BatchPlan:
        """The plan for the tasks of a batch; empty ranges get none. A range that starts below 0 is of a new partition.

        Raises:
            SinkPipelineError: SourceDataLost, Superseded, and as `check_world`.
        """
        # 1. Is the world still the one that we started in?
        self.check_world()
        # 2. Does Spark go on where we are?
        ranges = self._with_new_partitions(ranges)
        check_contiguous(ranges, self.progress.partitions)
        ranges = {partition: offsets for partition, offsets in ranges.items() if not offsets.is_empty}
        # 3. From here on somebody may write rows and progress.
        certain, self.exact = self.exact, False
        return BatchPlan(
            kind=self._ports.kind,
            settings=self._settings,
            run=self._started.run,
            data_limits=self._data_limits,
            letter_limits=self._letter_limits,
            data_topic_id=self._started.data_topic.id,
            progress_topic_id=self._started.progress_topic.id,
            verified=self._verified,
            ranges=ranges,
            frontier={each: self.progress.partitions[each] for each in ranges},
            # Where the frontier is not certain, a kept session may be beyond it: all is claimed, and read.
            owners={each: owner for each, owner in self._owners.items() if certain and each in ranges},
            certain=certain,
            store=self._follower.store,
        )

    def end(self, plan: BatchPlan, receipts: Iterable[Receipt]) -> None:
        """Takes the receipts of all tasks, and advances the ranges that nobody reported.

        Raises:
            SinkPipelineError: the error of a task.
        """
        receipts = list(receipts)
        self._small.told(plan, receipts)
        self._take(receipts, plan.ranges)
        error = first_error(receipts)
        if error is not None:
            raise self.explained(error)
        if any(receipt.oversized for receipt in receipts):
            raise OversizedRecord
        unknown = in_turns([bytes.fromhex(each) for each in receipt.unknown] for receipt in receipts)
        if unknown:
            raise UnknownSchemas(unknown)
        self._advance(plan.ranges)
        self._ended()

    @property
    def largest(self) -> float | None:
        """The bytes that an offset gave in the last batches, at most; None where that is not known."""
        return self._small.largest

    def takes(self, plan: BatchPlan) -> bool:
        """Whether the batch that has begun is delivered here, in place of the tasks."""
        return self._hold.delivers and self._small.takes(plan)

    def deliver(self, plan: BatchPlan, collected: Collected, stops: Mapping[SourcePartition, Stop] = NO_STOPS) -> bool:
        """Delivers a batch that it takes; of a partition with a stop, what comes before that.

        Returns:
            False where it is for the tasks after all; nothing of it was written then.

        Raises:
            UnknownSchemas: what comes before the stops counts, and all is certain.
            SinkPipelineError: a row is not of the batch, the dead-letter topic can't be looked at, or the cluster does
                not answer.
        """
        plan = before_stops(plan, stops)
        if not plan.ranges:
            # Nothing was written, and nothing was in doubt before.
            self.exact = plan.certain
        elif not self._deliver(plan, collected):
            return False
        if stops:
            raise UnknownSchemas(in_turns(each.frames for each in stops.values()))
        self._ended()
        return True

    def _deliver(self, plan: BatchPlan, collected: Collected) -> bool:
        try:
            prepared = self._small.prepared(plan, collected, at=now_ms())
        except SinkPipelineError as error:
            raise self.explained(error) from error
        if prepared is None:
            self._small.left_to_tasks()
            return False
        began = time.monotonic()
        try:
            self._hold.deliver(prepared.rows, prepared.progress)
        except (Fenced, InDoubt) as trouble:
            self._small.failed(trouble)
            if isinstance(trouble, InDoubt) and trouble.outage is not None:
                # It is waited for, and opens no circuit.
                raise trouble.outage from trouble
            raise self._unconfirmed("a small batch", trouble) from trouble
        except (RecordRefused, SinkPipelineError) as refusal:
            # The tasks find out which record it is. Who has aborted a transaction may not write another one.
            self._small.failed(refusal)
            raise Restart("a small batch was refused, and the control id is taken anew") from refusal
        self._costs = self._costs.with_commit(time.monotonic() - began, prepared.delivered)
        self._small.succeeded()
        partitions = MappingProxyType({**self.progress.partitions, **prepared.progress})
        self.progress = replace(self.progress, partitions=partitions)
        self.exact = True
        self._records_since_snapshot += len(prepared.progress)
        self._on_progress(self.progress, prepared.delivered)
        return True

    def take_costs(self) -> CommitCounts:
        """Of its own commits, since it was asked last."""
        taken, self._costs = self._costs, CommitCounts()
        return taken

    def not_collected(self, why: Exception) -> None:
        """The rows of a batch that it takes could not be had: tasks, which do without that, deliver for a while."""
        self._small.failed(why)

    def check_world(self) -> None:
        """Are the topics still the same ones, is the sink still ours?

        Raises:
            SinkPipelineError: SourceTopicMissing, SourceRecreated, DataTopicLost, BrokerUnreachable, Superseded.
        """
        self._world.check(delivered=self.progress.rows > 0)
        self._observe()
        self._world.look_for_topics()
        self._note(self._beside.marks(self.frontier))
        if time.monotonic() - self._limits_read_at > _LIMITS_HOLD_S:
            self._limits_read_at = time.monotonic()
            target = self._ports.target
            self._data_limits = self._limits(target.limits, self._data_limits)
            self._letter_limits = self._limits(target.letter_limits, self._letter_limits)

    def _note(self, marks: Marks) -> None:
        """Of what was handled, for the next snapshot."""
        meta = self.progress.meta
        if meta is not None and marks != meta.marks:
            self.progress = replace(self.progress, meta=replace(meta, marks=MappingProxyType({**marks})))

    def explained(self, error: SinkPipelineError) -> Exception:
        """An error of a task or of Spark, or what the topics have to say about it, which neither of them can tell."""
        if error.reason is Reason.PROGRESS_REGRESSED and self.progress.counted is not None:
            # Whether rows went back with it, the next start knows.
            return _WentBack(error.message)
        if error.reason is Reason.SUPERSEDED:
            try:
                self._observe()
            except _WentBack as back:
                return back
            except (Restart, SinkPipelineError):
                pass
            return error
        try:
            self._world.check(delivered=self.progress.rows > 0)
            self._world.check_retained(self.frontier)
        except Restart as restart:
            return restart
        except SinkPipelineError as truth:
            return error if truth.reason.retry else truth
        return error

    def snapshot(self) -> None:
        """Writes all keys in one control transaction; nothing while an outcome is in doubt, as it could move back."""
        if not self.exact:
            return
        self._note(self._beside.marks_now(self.frontier))
        self._write(self.progress)
        self._records_since_snapshot = 0

    def _ended(self) -> None:
        failpoint("after-batch")
        if self._records_since_snapshot >= SNAPSHOT_EVERY:
            self.snapshot()

    def _limits(self, read: Callable[[], TopicLimits | None], known: TopicLimits) -> TopicLimits:
        """What is not known now is what it was."""
        try:
            return read() or known
        except SinkPipelineError as error:
            _LOG.warning("%s: the limits of its topics can't be read again: %s", self._settings.id, error)
            return known

    def _take(self, receipts: list[Receipt], ranges: Mapping[SourcePartition, OffsetRange]) -> None:
        """Believes the receipts: what they report was committed, or acknowledged under AtLeastOnce.

        What was acknowledged to a task that did not take its partition's id, is written here: nobody else writes it.
        """
        before = self.progress.partitions
        partitions = fold_receipts(before, receipts)
        unwritten = [receipt for receipt in receipts if not receipt.claims and not self._settings.exactly_once]
        changed = {each: state for each, state in fold_receipts({}, unwritten).items() if state != before[each]}
        if changed:
            self._write(Progress(partitions=MappingProxyType(changed)))
        self.progress = self._world.counted(replace(self.progress, partitions=MappingProxyType(partitions)))
        self.exact = is_certain(receipts, ranges, partitions)
        if not self._told_skew and any(receipt.clock_skew for receipt in receipts):
            self._told_skew = True
            _LOG.warning("%s: ClockSkew: %s", self._settings.id, CLOCK_SKEW, extra={"reason": "ClockSkew"})
        for receipt in receipts:
            if receipt.partition is not None and receipt.owner is not None:
                self._owners[receipt.partition] = receipt.owner
            self._verified = max(self._verified, receipt.verified or 0)
            self._records_since_snapshot += receipt.commits
        self._on_progress(self.progress, sum(receipt.delivered for receipt in receipts))

    def _advance(self, ranges: Mapping[SourcePartition, OffsetRange]) -> None:
        rest = unfinished(ranges, self.progress.partitions, at=now_ms())
        if not rest:
            return
        if not self.exact:
            # An attempt that was lost may have delivered rows of these: they are fenced and read first.
            raise Restart("a task was tried again, and a partition reported nothing")
        self._write(Progress(partitions=MappingProxyType(rest)))
        known = {**self.progress.partitions, **rest}
        self.progress = self._world.counted(replace(self.progress, partitions=MappingProxyType(known)))
        self._on_progress(self.progress, 0)

    def _with_new_partitions(self, ranges: Mapping[SourcePartition, OffsetRange]) -> dict[SourcePartition, OffsetRange]:
        """Writes partitions that appeared under control, before their first row is delivered."""
        new = sorted(ranges.keys() - self.progress.partitions.keys())
        if not new:
            return dict(ranges)
        meta = self.progress.meta
        if meta is None or any(partition.topic not in self._started.source for partition in new):
            raise Restart("Spark reads a topic that was not there at the start")
        beginnings = self._ports.source.beginnings(new)
        if any(beginnings.values()):
            raise Restart("a new partition has lost records, which a start tells or counts")
        states = {each: PartitionProgress(epoch=meta.epoch, next=beginnings[each], at=now_ms()) for each in new}
        partitions = {**self.progress.partitions, **states}
        grown = replace(meta, partitions=MappingProxyType(partition_counts(partitions)))
        self._write(Progress(meta=grown, partitions=MappingProxyType(states)))
        self.progress = replace(self.progress, meta=grown, partitions=MappingProxyType(partitions))
        return {
            partition: replace(offsets, start=states[partition].next) if offsets.is_new else offsets
            for partition, offsets in ranges.items()
        }

    def _observe(self) -> None:
        """Reads on in the progress topic, so that tasks need not read far; a newer driver shows here first."""
        seen, known = self._follower.poll(), self.progress.partitions
        # First: the `meta` of an earlier time looks like a newer driver's, who leaves no partition behind us.
        is_back = self._follower.tells_all and any(
            is_behind(state, known.get(each)) for each, state in seen.partitions.items()
        )
        if is_back or self._starter.is_older(seen.meta):
            raise _WentBack("the sink has lost what it acknowledged: its store went back")
        check_run(self._settings.id, seen.meta, self._started.run)
        check_not_removed(seen, known)
        if any(each not in known or is_before(known[each].next, state.next) for each, state in seen.partitions.items()):
            raise Restart("the progress topic knows more than this driver")
        self._verified = max(self._verified, self._follower.position)

    def _unconfirmed(self, what: str, trouble: Fenced | InDoubt) -> Restart:
        """What follows trouble with the control id."""
        if isinstance(trouble, Fenced):
            self._let_a_newer_one_speak()
        return Restart(f"{what} was not confirmed ({type(trouble).__name__})")

    def _let_a_newer_one_speak(self) -> None:
        """Whoever took the control id says so in `meta` next. Fenced back before that, it would give way to us.

        Nobody says anything where the broker has ended a transaction that took too long.

        Raises:
            SinkPipelineError: Superseded, and what the read raises.
        """
        deadline = time.monotonic() + _ANNOUNCED_S
        while time.monotonic() < deadline:
            # What it tells of progress is for the next start.
            with contextlib.suppress(Restart):
                self._observe()
            time.sleep(_ANNOUNCED_STEP_S)

    def _write(self, progress: Progress) -> None:
        try:
            self._hold.write(progress, self.progress.partitions)
        except (Fenced, InDoubt) as trouble:
            raise self._unconfirmed("the control transaction", trouble) from trouble
        if self._hold.takes_what_it_writes:
            self._owners = {each: owner for each, owner in self._owners.items() if each not in progress.partitions}
        self._records_since_snapshot += len(progress.partitions) + (progress.meta is not None)
