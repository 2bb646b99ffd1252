"""The protocol, broken on purpose: each mutation patches the product's own modules, and the model is to find it.

A mutation breaks one rule of design §4 and leaves the rest as it is, so it also shows what that rule alone holds up.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from greenlet import getcurrent
from pyspark.errors import PySparkException
from typing_extensions import override

from model import little_spark, machine
from model.cells import Store
from model.rules import Calm
from sinkpipeline.cells.ledger import CellHold
from sinkpipeline.cells.sending import CellSender
from sinkpipeline.cells.session import CellClaim, CellSession
from sinkpipeline.core import remembered, rolled_back
from sinkpipeline.core import reset as core_reset
from sinkpipeline.core import starting as core_starting
from sinkpipeline.core import topics as core_topics
from sinkpipeline.core.batch import Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.progress_records import ProgressFold
from sinkpipeline.core.remembered import ControlId, Remembered
from sinkpipeline.core.topic_ids import by_name, ids_of, joined
from sinkpipeline.core.topics import TopicDecision
from sinkpipeline.kafka import consumers, deliveries, ledger, producers, progress_log, target
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.control import ControlProducer
from sinkpipeline.kafka.ledger import KafkaHold
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.kafka.progress_log import ProgressLog
from sinkpipeline.kafka.session import KafkaClaim, KafkaSession
from sinkpipeline.kafka.source import marks as source_marks
from sinkpipeline.kafka.target import KafkaTarget
from sinkpipeline.sinks import delivery, looks, reset, small_batches, starting, takeover
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.beside import Beside
from sinkpipeline.sinks.contract import Restart, RowBatch
from sinkpipeline.sinks.delivery import SinkDelivery
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.partition_writer import PartitionWriter
from sinkpipeline.sinks.reset import SinkReset
from sinkpipeline.sinks.small_batches import SmallBatches
from sinkpipeline.sinks.starting import SinkStarter
from sinkpipeline.sinks.takeover import SinkTakeover
from sinkpipeline.sinks.transactional import TransactionalWriter
from sinkpipeline.sinks.whole_records import WholeRecords
from sinkpipeline.sinks.world import World
from sinkpipeline.spark import query as spark_query
from sinkpipeline.spark.query import SinkQuery
from sinkpipeline.spark.runner import SinkRunner

Patch = contextlib.AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutation:
    name: str
    breaks: str
    patches: Callable[[], list[Patch]]
    machine: type[Calm]
    """Where it shows soonest."""

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTATIONS: list[Mutation] = []
_Maker = Callable[[], list[Patch]]


def mutation(breaks: str, shows_in: type[Calm] = machine.LateTasks) -> Callable[[_Maker], _Maker]:
    def add(patches: _Maker) -> _Maker:
        MUTATIONS.append(Mutation(patches.__name__, breaks, patches, shows_in))
        return patches

    return add


def put(target: object, name: str, value: object) -> Patch:
    """Puts a mutation in place of what it breaks.

    Raises TypeError if it could not be called as that can be: it would be found by its crash, and show nothing.
    """
    original = inspect.getattr_static(target, name)
    if inspect.isfunction(original) and inspect.isfunction(value):
        taken = inspect.signature(original).parameters.values()
        by_place = [each for each in taken if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        by_name = {each.name: each for each in taken if each.kind is each.KEYWORD_ONLY}
        inspect.signature(value).bind(*by_place, **by_name)
    return mock.patch.object(target, name, value)


def nothing(*_: object, **__: object) -> None:
    """In place of a check, or of a step."""


# Owners


@dataclass(frozen=True)
class _ByIndex(SinkId):
    index: int = 0

    @override
    def partition_id(self, partition: SourcePartition) -> str:
        return f"{self.prefix}{self.index}"


@mutation("a task's id is that of its index in the batch, which the next start doesn't know")
def ids_by_task_index() -> list[Patch]:
    original = ExactlyOnceWriter.__init__

    def init(self: ExactlyOnceWriter, plan: Any, partition: SourcePartition, *args: Any, **named: Any) -> None:
        sink = plan.settings.id
        by_index = _ByIndex(sink.identity, sink.sink, sorted(plan.ranges).index(partition))
        original(self, replace(plan, settings=replace(plan.settings, id=by_index)), partition, *args, **named)

    return [put(ExactlyOnceWriter, "__init__", init)]


@mutation("a task that is tried again uses the producer that its worker has kept", machine.Attempts)
def kept_producer_for_a_retried_task() -> list[Patch]:
    original = ExactlyOnceWriter.__init__

    def init(self: ExactlyOnceWriter, *args: Any, retried: bool = False, **named: Any) -> None:  # noqa: ARG001
        original(self, *args, **named)

    return [put(ExactlyOnceWriter, "__init__", init)]


@mutation("a run for every driver, not for every start (docs/design/0004)")
def one_run_for_every_driver() -> list[Patch]:
    original = SinkStarter.__init__

    def init(self: SinkStarter, **named: Any) -> None:
        original(self, **named)
        run = self.new_run()
        self.new_run = lambda: run

    return [put(SinkStarter, "__init__", init)]


# Fencing and reading


@mutation("a start doesn't fence the partitions")
def no_fence_of_the_partitions() -> list[Patch]:
    return [put(SinkTakeover, "_fence", nothing)]


@mutation("a reset doesn't fence the partitions", machine.Resets)
def no_fence_in_a_reset() -> list[Patch]:
    return [put(SinkReset, "_fence", nothing)]


@mutation("a read ends at its sentinel, whatever was compacted away before it got there", machine.Readers)
def nothing_is_read_beyond_the_sentinel() -> list[Patch]:
    def after(_log: ProgressLog, position: int) -> int:
        return position

    return [put(ProgressLog, "_after", after), put(progress_log, "_READ_ATTEMPTS", 1)]


@mutation("a start announces itself only after it has fenced")
def announced_after_the_fence() -> list[Patch]:
    original, fence = SinkTakeover._take_over, SinkTakeover._fence

    def take_over(self: Any, hold: Any, topic: Any, known: Progress, meta: Any, partitions: Any) -> Progress:
        partitions = set(partitions)
        fence(self, hold, {*known.partitions, *meta.source_partitions(), *partitions})
        self._fence = nothing
        try:
            return original(self, hold, topic, known, meta, partitions)
        finally:
            del self._fence

    return [put(SinkTakeover, "_take_over", take_over)]


@mutation("a task reads, and then fences", machine.Attempts)
def read_before_the_fence_in_a_task() -> list[Patch]:
    original = KafkaClaim.take

    def take(self: Any) -> KafkaSession:
        settings = self._settings
        with ProgressLog(settings.connection, settings.progress.name, settings.group_id) as log:
            start = self._plan.verified
            found = log._fold(settings.id, log._read(settings.id, start, bound=max(start, log._extent().high)))

        class Found(ProgressLog):
            @override
            def resume_since(self, *_: object) -> Progress:
                return found

        self._log = lambda: Found(settings.connection, settings.progress.name, settings.group_id)
        try:
            return original(self)
        finally:
            del self._log

    return [put(KafkaClaim, "take", take)]


@mutation("a start reads, and then fences the partitions")
def read_before_the_fence_in_a_start() -> list[Patch]:
    fence, resume_since = SinkTakeover._fence, ProgressLog.resume_since
    waiting: dict[object, Callable[[], None]] = {}

    def later(self: SinkTakeover, hold: Any, partitions: Iterable[SourcePartition]) -> None:
        waiting[getcurrent()] = lambda: fence(self, hold, partitions)

    def read(self: ProgressLog, *args: Any) -> Progress:
        found = resume_since(self, *args)
        waiting.pop(getcurrent(), nothing)()
        return found

    return [put(SinkTakeover, "_fence", later), put(ProgressLog, "resume_since", read)]


class _NoMeta(ProgressLog):
    @override
    def resume_since(self, *args: Any) -> Progress:
        return replace(super().resume_since(*args), meta=None)


class _NoLook(ProgressLog):
    @override
    def observe(self, sink: SinkId) -> Progress:
        return Progress()


def _reads_with(kind: type[ProgressLog]) -> Patch:
    def log(self: Any) -> ProgressLog:
        return kind(self._settings.connection, self._settings.progress.name, self._settings.group_id)

    return put(KafkaClaim, "_log", log)


@mutation("a task doesn't check `run` after its init")
def no_check_of_run_after_init() -> list[Patch]:
    return [_reads_with(_NoMeta)]


@mutation("a fenced task takes its id back before it reads `meta`")
def init_before_meta_in_a_task() -> list[Patch]:
    return [_reads_with(_NoLook)]


@mutation("a fenced start takes the control id back before it reads `meta`", machine.Starts)
def init_before_meta_in_a_start() -> list[Patch]:
    return [put(SinkTakeover, "_still_ours", nothing), put(SinkTakeover, "_meet", nothing)]


@mutation("a driver that was superseded comes back", machine.Starts)
def superseded_driver_comes_back() -> list[Patch]:
    return [put(SinkStarter, "_meet", SinkTakeover._meet)]


@mutation("tasks read from the highest offset that the driver knows of (docs/design/0002)", machine.Starts)
def reads_from_the_highest_offset() -> list[Patch]:
    original = SinkDelivery._take

    def take(self: Any, receipts: Any, ranges: Any) -> None:
        original(self, receipts, ranges)
        end = SourcePartition(self._settings.progress.name, 0)
        self._verified = self._ports.admin.end_offsets([end], read_committed=False)[end]

    return [put(SinkDelivery, "_take", take)]


@mutation("a reader ends its own transaction, where only the marker is late", Calm)
def reader_fences_itself() -> list[Patch]:
    original = ProgressLog._fence_writer

    def fence(self: ProgressLog, sink: SinkId, position: int, holder: Any) -> None:
        original(self, sink, position, replace(holder, transactional_id=""))

    return [put(ProgressLog, "_fence_writer", fence)]


@mutation("who reads of a newer run ends a task of it that holds the read back", machine.Starts)
def newer_run_s_task_is_ended() -> list[Patch]:
    original = ProgressLog._fence_writer

    def fence(self: ProgressLog, sink: SinkId, position: int, holder: Any) -> None:
        original(self, sink, position, replace(holder, check_meta=nothing))

    return [put(ProgressLog, "_fence_writer", fence)]


@mutation("the default auto.offset.reset", machine.Truncations)
def default_offset_reset() -> list[Patch]:
    original = consumers.Consumer

    def consumer(config: dict[str, Any]) -> Any:
        return original({name: value for name, value in config.items() if name != "auto.offset.reset"})

    return [put(consumers, "Consumer", consumer)]


@mutation("progress is read before it is committed", machine.Kills)
def reads_what_is_not_committed() -> list[Patch]:
    original = progress_log.make_consumer

    def make(connection: Any, group: str, _level: str = "", **more: Any) -> Any:
        return original(connection, group, "all", **more)

    return [put(progress_log, "make_consumer", make)]


@mutation("only the nonce ends a read, though another reader's sentinel may have compacted ours away", machine.Readers)
def only_the_nonce_ends_a_read() -> list[Patch]:
    return [put(ProgressLog, "_uncommitted_end", lambda _: 1_000_000)]


@mutation("the end of a read is the last stable offset", machine.ForeignTransactions)
def reads_to_the_last_stable_offset() -> list[Patch]:
    return [put(ProgressLog, "_uncommitted_end", lambda self: self._extent().high)]


@mutation("a time-out is no progress", machine.ForeignTransactions)
def time_out_is_no_progress() -> list[Patch]:
    original = ProgressLog._read

    def read(self: ProgressLog, *args: Any, **named: Any) -> Any:
        try:
            return original(self, *args, **named)
        except SinkPipelineError as error:
            if error.reason is Reason.PROGRESS_UNREADABLE:
                return progress_log._Found([], 0)
            raise

    return [put(ProgressLog, "_read", read)]


@mutation("a missing key is the beginning", machine.Tombstones)
def missing_key_is_the_beginning() -> list[Patch]:
    return [put(starting, "check", nothing), put(progress_log, "check", nothing)]


@mutation("a tombstone is no news", machine.TombstonesMet)
def tombstone_is_no_news() -> list[Patch]:
    original = ProgressFold.result

    def result(self: ProgressFold, *args: Any, **named: Any) -> Progress:
        return replace(original(self, *args, **named), removed=frozenset())

    return [put(ProgressFold, "result", result)]


@mutation("a suffix that holds `meta` is enough", machine.Readers)
def suffix_without_all_keys() -> list[Patch]:
    return [put(Progress, "complete", property(lambda self: self.exists))]


# Transactions


@mutation("progress in another transaction than its rows", Calm)
def progress_in_another_transaction() -> list[Patch]:
    original = TransactionalProducer.produce_record

    def produce(self: TransactionalProducer, topic: str, key: str, value: bytes | None) -> None:
        if not self.transactional_id.endswith("/control"):
            self.commit()
            self.begin()
        original(self, topic, key, value)

    return [put(TransactionalProducer, "produce_record", produce)]


@mutation("meta and its keys in several transactions", machine.Kills)
def snapshot_in_several_transactions() -> list[Patch]:
    original = TransactionalProducer.write

    def write(self: TransactionalProducer, topic: str, records: Iterable[tuple[str, bytes | None]]) -> None:
        for record in reversed(list(records)):
            original(self, topic, [record])

    return [put(TransactionalProducer, "write", write)]


@mutation("every transaction of a range says that the whole range was handled", machine.Kills)
def every_cut_is_the_last() -> list[Patch]:
    original = ExactlyOnceWriter._cut
    return [put(ExactlyOnceWriter, "_cut", lambda self, _next: original(self, self._end))]


@mutation("rows below the frontier are produced again", machine.Attempts)
def rows_below_the_frontier() -> list[Patch]:
    original = ExactlyOnceWriter._claim

    def claim(self: Any) -> None:
        original(self)
        self._produced = self._plan.frontier[self._partition].next

    return [put(ExactlyOnceWriter, "_claim", claim)]


@mutation("an answer that doesn't come is a failure: the rows are written again, unread", machine.Answers)
def time_out_is_failure() -> list[Patch]:
    def recover(self: Any, trouble: Exception) -> None:
        self._troubles = self._troubles.met(0.0)
        if self._troubles.count > 5:
            raise SinkPipelineError(Reason.TRANSACTION_FAILED, str(trouble), "")
        producer = TransactionalProducer(self._settings.connection, self._place().key)
        self._session = KafkaSession(self._settings, producer, self._settings.id.partition_key(self._partition))
        self._produced = self._state.next
        self._forget_open()

    return [put(ExactlyOnceWriter, "_recover", recover)]


@mutation("an answer that doesn't come is a success", machine.Answers)
def time_out_is_success() -> list[Patch]:
    original = TransactionalProducer.commit

    def commit(self: TransactionalProducer, *args: Any) -> None:
        with contextlib.suppress(InDoubt):
            original(self, *args)

    return [put(TransactionalProducer, "commit", commit)]


@mutation("a refused row of AtLeastOnce is not looked for", machine.Refusals)
def no_delivery_callback() -> list[Patch]:
    return [put(deliveries.Deliveries, "report", nothing)]


@mutation("what goes out over a slow link has so long for all of it, not for each row", machine.SlowLinks)
def patience_is_absolute() -> list[Patch]:
    original = PlainProducer.flush

    def flush(self: Any, *_: Any) -> None:
        self._producer.flush(producers.COMMIT_DEADLINE_S)
        original(self, 0.1)

    return [put(PlainProducer, "flush", flush)]


@mutation("AtLeastOnce writes its progress at the end of a batch only", machine.SlowLinks)
def a_batch_of_at_least_once_is_one_cut() -> list[Patch]:
    original = AtLeastOnceWriter.__init__

    def uncut(self: AtLeastOnceWriter, *given: Any, **more: Any) -> None:
        original(self, *given, **{**more, "cuts": CutPolicy()})

    return [put(AtLeastOnceWriter, "__init__", uncut)]


@mutation("progress of AtLeastOnce is written before its rows are acknowledged", machine.AtLeastOnce)
def progress_before_acknowledgement() -> list[Patch]:
    return [put(AtLeastOnceWriter, "_acknowledge", nothing)]


@mutation("rows beside cells are sent, and nobody waits for them", machine.CellsAtLeastOnce)
def rows_beside_cells_are_not_waited_for() -> list[Patch]:
    return [put(CellSender, "_publish", lambda self: self._waiting.clear())]


@mutation("a row beside cells that is refused counts as if it were there", machine.CellsAtLeastOnce)
def a_refused_row_beside_cells_counts() -> list[Patch]:
    original = CellSender._publish

    def published(self: CellSender[Any]) -> None:
        with contextlib.suppress(RecordRefused):
            original(self)

    return [put(CellSender, "_publish", published)]


# The driver


@mutation("a snapshot in the middle of a batch")
def snapshot_in_the_middle_of_a_batch() -> list[Patch]:
    def check_world(self: SinkQuery) -> None:
        self.delivery._write(self.delivery.progress)

    return [put(SinkQuery, "check_world", check_world)]


@mutation("a batch begins though a look has ended the query", machine.Deletions)
def a_batch_begins_after_a_verdict() -> list[Patch]:
    def check_world(self: SinkQuery) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.delivery.check_world()
        finally:
            self._lock.release()
        return True

    return [put(SinkQuery, "check_world", check_world)]


@mutation("a snapshot at a stop, though an outcome is in doubt")
def snapshot_in_doubt() -> list[Patch]:
    def end(_: SinkRunner, query: SinkQuery) -> None:
        query.stop()
        query.delivery._write(query.delivery.progress)

    return [put(SinkRunner, "_end", end)]


@mutation("a driver's own memory is taken for exact, though an outcome is in doubt", machine.Losses)
def memory_is_always_exact() -> list[Patch]:
    original = Remembered.left

    def left(self: Remembered, progress: Progress, control: ControlId, *, certain: bool) -> None:  # noqa: ARG001
        original(self, progress, control, certain=True)

    return [put(Remembered, "left", left)]


@mutation("a driver's own memory is exact though an attempt that was given up may go on", machine.Losses)
def attempts_given_up_are_forgotten() -> list[Patch]:
    def is_certain(receipts: Iterable[Receipt], *_: object) -> bool:
        return not any(receipt.in_doubt for receipt in receipts)

    return [put(delivery, "is_certain", is_certain)]


@mutation("a seed is taken for certain progress by the next attempt, or by the next start", machine.Losses)
def seeds_are_forgotten() -> list[Patch]:
    original = core_starting.take_over

    def take_over(*args: Any, **named: Any) -> Any:
        return replace(original(*args, **named), restored=None)

    return [put(core_starting, "take_over", take_over)]


@mutation("what a driver remembers is exact though another one may have taken the sink", machine.Losses)
def nobody_proves_to_hold_the_sink() -> list[Patch]:
    return [put(ControlProducer, "still_holds", lambda *_: True)]


@mutation("one proof is enough for all attempts of a start, and for those that follow it", machine.WriteBacks)
def proved_once_is_proved() -> list[Patch]:
    is_proved, started = Remembered.is_proved, Remembered.started
    proved: set[Remembered] = set()

    def once(self: Remembered) -> bool:
        if self not in proved and is_proved(self):
            proved.add(self)
        return self in proved

    def forget(self: Remembered, progress: Progress) -> None:
        proved.discard(self)
        started(self, progress)

    return [put(Remembered, "is_proved", once), put(Remembered, "started", forget)]


@mutation("an attempt's control id proves before the attempt has read who came in between", machine.WriteBacks)
def proves_before_it_has_read() -> list[Patch]:
    original = SinkStarter._read

    def read(self: SinkStarter, hold: Any, topic: Any) -> Progress:
        self.remembered.taken_again(hold)
        return original(self, hold, topic)

    return [put(SinkStarter, "_read", read)]


@mutation("a first start forgets that it has met a progress topic which is gone", machine.FirstStarts)
def vanished_progress_is_forgotten() -> list[Patch]:
    return [put(core_starting, "check_vanished", nothing)]


@mutation("Spark's memory competes: ranges are not compared with the frontier", machine.SparkElsewhere)
def ranges_are_not_compared() -> list[Patch]:
    return [put(delivery, "check_contiguous", nothing)]


@mutation("the progress topic's id is not compared", machine.Deletions)
def topic_ids_are_not_compared() -> list[Patch]:
    return [
        put(World, "_check_ids", nothing),
        put(SinkTakeover, "_check_same", nothing),
        put(KafkaClaim, "_check_topics", nothing),
    ]


@mutation("a reset stays in its epoch", machine.Resets)
def reset_within_the_epoch() -> list[Patch]:
    original = reset.plan_reset

    def plan_reset(*args: Any, **named: Any) -> Any:
        plan = original(*args, **named)
        return replace(plan, epoch=plan.old_epoch)

    return [put(reset, "plan_reset", plan_reset), put(core_reset, "plan_reset", plan_reset)]


@mutation("what is remembered of an earlier epoch is compared with this one", machine.Resets)
def epoch_of_the_memory_is_ignored() -> list[Patch]:
    original = starting.decide

    def decide(*, progress: Progress, memory: Any, **named: Any) -> TopicDecision:
        if memory is not None and progress.meta is not None:
            memory = replace(memory, epoch=progress.meta.epoch)
        return original(progress=progress, memory=memory, **named)

    return [put(starting, "decide", decide)]


# Inputs that end early


def _cut_looks_whole() -> Patch:
    return put(little_spark.ReadAhead, "cut", lambda _: None)


@mutation("a connection that ends between two Arrow batches is the end of the rows", machine.CutInputs)
def cut_input_looks_whole() -> list[Patch]:
    """A record with several rows ends with those that were given."""
    return [_cut_looks_whole()]


@mutation("and a task counts to the end of its range, whatever it was given", machine.CutInputs)
def task_counts_to_the_end_of_its_range() -> list[Patch]:
    def finish(self: Any) -> None:
        def end() -> None:
            self._produce_held()
            self._cut(self._plan.ranges[self._partition].end)

        if self._hold_rest() or self._is_open:
            self._guard(end)
        if self._session is not None:
            self._worker.keep(self._session, self._plan.term)
            self._session = None

    return [_cut_looks_whole(), put(ExactlyOnceWriter, "finish", finish)]


# Small batches


@mutation("the driver delivers a batch whose tasks have failed, and may live on", machine.SmallBatches)
def small_batch_while_uncertain() -> list[Patch]:
    def run_batch(self: Any, wire: Any, batch_id: int) -> None:
        plan = self.delivery.begin(self._checkpoint.ranges(batch_id))
        try:
            told = wire.mapInArrow(spark_query.make_task(plan), "").collect()
        except PySparkException:
            self.delivery.deliver(plan, spark_query.collected(wire, plan).rows)
        else:
            self.delivery.end(plan, [Receipt.from_json(row.receipt) for row in told])

    return [put(SinkQuery, "_run_batch", run_batch)]


@mutation("a start whose batches are small fences no partition, as no task will write", machine.SmallBatches)
def tasks_of_the_batch_before_are_not_fenced() -> list[Patch]:
    original, begun = SmallBatches.takes, set()

    def takes(self: SmallBatches, *args: Any, **named: Any) -> bool:
        first, _ = self not in begun, begun.add(self)
        return first or original(self, *args, **named)

    return [put(SinkTakeover, "_fence", nothing), put(SmallBatches, "takes", takes)]


@mutation("a task of an earlier batch that wakes up believes its plan, not what it reads", machine.SmallBatches)
def late_task_believes_its_plan() -> list[Patch]:
    original = ExactlyOnceWriter._adopt

    def adopt(self: Any, found: Any) -> None:
        original(self, replace(found, next=self._plan.frontier[self._partition].next))

    return [put(ExactlyOnceWriter, "_adopt", adopt)]


@mutation("a small batch in doubt goes to tasks, whose kept producers believe the frontier", machine.SmallBatches)
def kept_producers_are_believed_after_doubt() -> list[Patch]:
    original = SinkDelivery._deliver

    def deliver(self: SinkDelivery, *args: Any) -> bool:
        try:
            return original(self, *args)
        except (Restart, SinkPipelineError):
            return False

    return [put(SinkDelivery, "_deliver", deliver)]


@mutation("a small batch is written before its ranges are compared with the frontier", machine.SmallBatches)
def small_batch_before_the_range_check() -> list[Patch]:
    waiting: dict[object, Callable[[], None]] = {}
    original, deliver, run_batch = delivery.check_contiguous, SinkDelivery.deliver, SinkQuery._run_batch

    def later(ranges: Any, frontier: Any) -> None:
        waiting[getcurrent()] = lambda: original(ranges, frontier)

    def checked(self: SinkDelivery, *args: Any) -> bool:
        try:
            return deliver(self, *args)
        finally:
            waiting.pop(getcurrent(), nothing)()

    def checked_for_tasks(self: Any, *args: Any) -> None:
        run_batch(self, *args)
        waiting.pop(getcurrent(), nothing)()

    return [
        put(delivery, "check_contiguous", later),
        put(SinkDelivery, "deliver", checked),
        put(SinkQuery, "_run_batch", checked_for_tasks),
    ]


@mutation("the progress of a small batch in another transaction than its rows", machine.SmallBatches)
def small_batch_in_two_transactions() -> list[Patch]:
    original = ControlProducer.deliver

    def deliver(self: ControlProducer, rows: Any, topic: str, records: Any) -> None:
        original(self, [], topic, records)
        original(self, rows, topic, [])

    return [put(ControlProducer, "deliver", deliver)]


@mutation("a driver that was fenced in a small batch takes the control id back, and repeats it", machine.SmallBatches)
def fenced_driver_repeats_a_small_batch() -> list[Patch]:
    original = ControlProducer.deliver

    def deliver(self: ControlProducer, *args: Any) -> None:
        try:
            original(self, *args)
        except (Fenced, InDoubt):
            again = ControlProducer(self._connection, self.transactional_id)
            original(again, *args)

    return [put(ControlProducer, "deliver", deliver)]


@mutation("a small batch that the cluster refuses is taken for delivered", machine.SmallBatches)
def refused_small_batch_counts() -> list[Patch]:
    original = ControlProducer.deliver

    def deliver(self: ControlProducer, *args: Any) -> None:
        with contextlib.suppress(deliveries.RecordRefused):
            original(self, *args)

    return [put(ControlProducer, "deliver", deliver)]


@mutation("the rows of a small batch are not counted", machine.SmallBatches)
def small_batch_miscounts() -> list[Patch]:
    original = small_batches.completed

    def completed(ranges: Any, frontier: Any, _counts: Any, *, at: int) -> Any:
        return original(ranges, frontier, {}, at=at)

    return [put(small_batches, "completed", completed)]


# Topics


@mutation("one answer that a topic is missing is believed", machine.OldAnswers)
def one_look_is_a_verdict() -> list[Patch]:
    return [put(looks, "_LOOKS", 1)]


@mutation("clusters are told apart by their addresses", machine.TwoNames)
def addresses_are_clusters() -> list[Patch]:
    apart = [put(module, "check_ids_apart", nothing) for module in (target, ledger)]
    return [put(target, "check_names_apart", nothing), *apart]


@mutation("marks in the source are written, and not compared", machine.LostEnds)
def marks_are_not_compared() -> list[Patch]:
    return [put(source_marks, "check_marks", nothing)]


@mutation("marks are noted anew before they are compared", machine.LostEnds)
def marks_are_renewed_first() -> list[Patch]:
    original = source_marks.where_to_look

    def renewed_first(frontier: Any, beginnings: Any, _known: Any) -> Any:
        return original(frontier, beginnings, {})

    return [put(source_marks, "check_marks", nothing), put(source_marks, "where_to_look", renewed_first)]


@mutation("a driver that has seen the source lose an end forgets by what it saw that", machine.LostEnds)
def noted_marks_are_forgotten() -> list[Patch]:
    return [put(takeover, "newest", lambda written, _noted: dict(written))]


@mutation("what an attempt reads takes the place of the marks that its driver has noted", machine.LostEnds)
def read_marks_replace_noted_ones() -> list[Patch]:
    return [put(each, "newest", lambda found, _noted: dict(found)) for each in (remembered, takeover)]


@mutation("a mark that nobody could compare is noted anew", machine.LostEnds)
def marks_are_renewed_unseen() -> list[Patch]:
    original = source_marks.after_a_look
    return [put(source_marks, "after_a_look", lambda known, _compared, *more: original(known, known, *more))]


@mutation("what may become a mark is read after the marks were compared", machine.LostEnds)
def marks_are_compared_first() -> list[Patch]:
    original = source_marks._read_both

    def the_other_way_round(consumer: Any, candidates: Any, there: Any) -> Any:
        return tuple(reversed(original(consumer, there, candidates)))

    return [put(source_marks, "_read_both", the_other_way_round)]


@mutation("a look compares the marks of the look before the last one", machine.LostEnds)
def looks_compare_older_marks() -> list[Patch]:
    original, given = Beside._looked, "given"

    def looked(self: Beside, known: Any, frontier: Any) -> Any:
        older = vars(self).get(given, known)
        vars(self)[given] = known
        return original(self, older, frontier)

    return [put(Beside, "_looked", looked)]


# Dead letters


@mutation("a dead letter is written beside the transaction of its rows", machine.DeadLetters)
def dead_letters_beside_the_transaction() -> list[Patch]:
    def send(self: Any, rows: Iterable[Any]) -> None:
        producer = producers.PlainProducer(self._settings.connection)
        producer.produce_rows(self._settings.dead_letter.topic.name, rows)
        producer.flush()

    return [put(KafkaSession, "send_dead", send)]


@mutation("a refused transaction goes on behind what was sent in it", machine.DeadLetters)
def refused_rows_are_passed_over() -> list[Patch]:
    original = PartitionWriter._isolate

    def isolate(self: PartitionWriter, refusal: Any) -> None:
        original(self, refusal)
        self._state = replace(self._state, next=self._sent)

    return [put(PartitionWriter, "_isolate", isolate)]


@mutation("of records that were refused together all are blamed", machine.DeadLetters)
def all_are_blamed() -> list[Patch]:
    def isolate(self: PartitionWriter, refusal: Any) -> None:
        for held in self._held:
            for offset in held.between(self._state.next, self._sent):
                held.refuse(held.batch.offsets.index(offset), refusal.verdict)

    return [put(PartitionWriter, "_isolate", isolate)]


@mutation("a bad record is counted, and nothing is written", machine.DeadLetters)
def dead_letters_are_only_counted() -> list[Patch]:
    def send(self: PartitionWriter, letters: Any, held: Any, index: int) -> None:  # noqa: ARG001
        self._begin()

    return [put(PartitionWriter, "_send_dead_letter", send)]


# Cells


@mutation("a commit takes the cell as it is, and not as the session has left it", machine.Cells)
def version_not_compared() -> list[Patch]:
    commit = CellSession.commit

    def as_it_is(self: CellSession, new: PartitionProgress) -> None:
        self._version = self._cells.read([self.key])[self.key].version
        commit(self, new)

    return [put(CellSession, "commit", as_it_is)]


@mutation("a time-out is taken for an abort: the same rows are sent again at once", machine.Cells)
def time_out_taken_for_an_abort() -> list[Patch]:
    commit = CellSession.commit

    def again(self: CellSession, new: PartitionProgress) -> None:
        for _ in range(3):
            try:
                return commit(self, new)
            except InDoubt:
                self._version = self._cells.read([self.key])[self.key].version
        raise InDoubt("three times", aborted=True)

    return [put(CellSession, "commit", again)]


@mutation("a time-out is taken for a commit", machine.Cells)
def time_out_taken_for_a_commit() -> list[Patch]:
    commit = CellSession.commit

    def done(self: CellSession, new: PartitionProgress) -> None:
        with contextlib.suppress(InDoubt):
            commit(self, new)

    return [put(CellSession, "commit", done)]


@mutation("the first error is taken for a fence, and a fence for a newer driver's", machine.Cells)
def first_error_taken_for_a_fence() -> list[Patch]:
    commit = CellSession.commit

    def superseded(self: CellSession, new: PartitionProgress) -> None:
        try:
            commit(self, new)
        except (Fenced, InDoubt) as error:
            raise core_starting.superseded(SinkId("i", "s0"), "somebody") from error

    return [put(CellSession, "commit", superseded)]


@mutation(
    "a store that went back gives versions again, and a claim is good for whatever has its number", machine.CellsLost
)
def claim_not_renewed_after_a_reconnect() -> list[Patch]:
    go_back = Store.went_back

    def counts_again(self: Store, changes: int) -> None:
        go_back(self, changes)
        self._versions = itertools.count(next(self._versions) - changes)

    return [put(Store, "went_back", counts_again)]


@mutation("what the store counts is not asked: whatever is behind went back with its rows", machine.CellsPutBack)
def counter_not_asked() -> list[Patch]:
    return [put(rolled_back, "_unproved", nothing)]


@mutation("a store that counts less has lost all rows in between, however many these are", machine.CellsPutBack)
def any_smaller_counter_will_do() -> list[Patch]:
    compared = rolled_back.compared

    def lowered(*args: Any, counted: int | None, remembered_count: int | None) -> Any:
        is_less = counted is not None and remembered_count is not None and counted < remembered_count
        return compared(*args, counted=-1_000_000 if is_less else counted, remembered_count=remembered_count)

    return [put(rolled_back, "compared", lowered)]


@mutation("what the store counts is not remembered, so that nothing is ever proved", machine.CellsRolledBack)
def counter_not_remembered() -> list[Patch]:
    return [put(World, "counted", lambda _, progress: replace(progress, counted=None))]


@mutation("`meta` is written before the cells that it lists", machine.TornStarts)
def meta_written_first() -> list[Patch]:
    put_all = CellHold._put_all

    def reversed_order(self: CellHold, cells: Any) -> Any:
        meta = {key: each for key, each in cells.items() if key == self._sink.meta_key}
        return put_all(self, {**meta, **cells})

    return [put(CellHold, "_put_all", reversed_order)]


@mutation("a claim does not read what counts", machine.Cells)
def claim_reads_nothing() -> list[Patch]:
    take = CellClaim.take

    def unread(self: CellClaim) -> CellSession:
        session = take(self)
        session.progress = None
        return session

    return [put(CellClaim, "take", unread)]


@mutation("a start reads the cells and does not take them", machine.Cells)
def cells_not_taken() -> list[Patch]:
    def only_read(self: CellHold, partitions: Iterable[SourcePartition]) -> None:
        self._fenced = self._reading.of(set(partitions) & self._owned().source_partitions(), {}).progress

    return [put(CellHold, "fence", only_read)]


@mutation("a driver writes its progress without asking whose the cells are", machine.CellsLost)
def cells_written_by_whoever() -> list[Patch]:
    def anybody(self: CellHold, partitions: Iterable[SourcePartition], _run: str) -> Any:
        return self._reading.of(partitions, {})

    put_all = CellHold._put_all

    def any_meta(self: CellHold, cells: Any) -> Any:
        key = self._sink.meta_key
        now = self._cells.read([key])[key].version
        return put_all(self, {**cells, key: (cells[key][0], now)})

    return [put(CellHold, "_ours", anybody), put(CellHold, "_put_all", any_meta)]


@mutation("a driver writes what it knows over cells that went back", machine.CellsLost)
def cells_not_compared_with_what_is_known() -> list[Patch]:
    write = CellHold.write

    def nothing_known(self: CellHold, progress: Progress, _known: object = None) -> None:
        write(self, progress)

    return [put(CellHold, "write", nothing_known)]


# Several rows of a record


@mutation("rows are written as they come, though the last record may go on in the next ones", machine.SeveralRows)
def parts_of_records() -> list[Patch]:
    return [
        put(WholeRecords, "add", lambda _, batch: iter([batch])),
        put(WholeRecords, "rest", lambda _: iter([])),
    ]


@mutation("the last row of a slice goes with the next one, whatever record it is of", machine.SeveralRows)
def cut_inside_a_record() -> list[Patch]:
    original = TransactionalWriter._send

    def send(self: Any, rows: Iterable[Any]) -> None:
        found = [*vars(self).pop("carried", []), *rows]
        self.carried = found[1:][-1:]
        original(self, found[:-1] or found)

    return [put(TransactionalWriter, "_send", send)]


@mutation("the frontier goes past a record of which a row is missing", machine.SeveralRows)
def first_rows_only() -> list[Patch]:
    original = RowBatch.rows

    def rows(self: RowBatch, begin: int, end: int) -> Iterator[Any]:
        return (next(original(self, each, each + 1)) for each in range(begin, end))

    return [put(RowBatch, "rows", rows)]


@mutation("only the bad row of a record is kept back", machine.SeveralRows)
def a_bad_row_alone_is_dead_lettered() -> list[Patch]:
    original = PartitionWriter._produce_dead_letter

    def produce(self: PartitionWriter, held: Any, index: int) -> None:
        if held.batch.count(index, index + 1) > 1:
            self._begin()
            self._send(list(held.batch.rows(index, index + 1))[:-1])
        original(self, held, index)

    return [put(PartitionWriter, "_produce_dead_letter", produce)]


@mutation("rows are counted by their records", machine.SeveralRows)
def rows_are_counted_by_records() -> list[Patch]:
    return [put(RowBatch, "count", lambda _, begin, end: end - begin)]


# Several topics


def _checked_by(known: Callable[[dict[str, str], dict[str, str], list[str]], dict[str, str]]) -> list[Patch]:
    """What is compared of the topics that are known: of these, those that are there, and the names in the list."""
    original = core_topics.check_several

    def check(before: str | None, rows: int, there: Any, declared: Any, *args: Any) -> None:
        found = by_name(before, there)
        original(joined(known(found, there, declared)) if found else before, rows, there, declared, *args)

    return [put(core_topics, "check_several", check)]


@mutation("where the id of one topic is as it was, those of the others are believed", machine.ListedTopics)
def one_id_stands_for_all() -> list[Patch]:
    def known(found: dict[str, str], there: dict[str, str], declared: list[str]) -> dict[str, str]:
        if all(there.get(name) != each for name, each in found.items()):
            return found
        return {name: each for name, each in found.items() if there.get(name) == each or name not in declared}

    return _checked_by(known)


@mutation("a topic is believed by its name, whatever its id is", machine.ListedTopics)
def names_are_enough() -> list[Patch]:
    return _checked_by(lambda found, there, _: {name: there.get(name, each) for name, each in found.items()})


@mutation("a topic that is left out of the list is forgotten, with its rows", machine.ListedTopics)
def a_removed_topic_is_forgotten() -> list[Patch]:
    return _checked_by(lambda found, _, declared: {name: each for name, each in found.items() if name in declared})


@mutation("only the first topic is compared", machine.ListedTopics)
def verdict_of_the_first_topic() -> list[Patch]:
    def known(found: dict[str, str], _: dict[str, str], declared: list[str]) -> dict[str, str]:
        return {name: each for name, each in found.items() if name in declared[:1] or name not in declared}

    return _checked_by(known)


@mutation("a topic that is missing is taken for one that is new", machine.ListedTopics)
def a_lost_topic_is_taken_for_a_new_one() -> list[Patch]:
    def known(found: dict[str, str], there: dict[str, str], declared: list[str]) -> dict[str, str]:
        return {name: each for name, each in found.items() if name in there or name not in declared}

    return _checked_by(known)


@mutation("what the list leaves out is told, and not that another topic is lost", machine.ListedTopics)
def the_lesser_verdict_is_told() -> list[Patch]:
    original = core_topics.check_several

    def check(before: str | None, rows: int, there: Any, declared: Any, *args: Any) -> None:
        found = by_name(before, there)
        if gone := {name: each for name, each in found.items() if name not in declared}:
            original(joined(gone), rows, {**there, **gone}, declared, *args)
        original(before, rows, there, declared, *args)

    return [put(core_topics, "check_several", check)]


@mutation(
    "only a first start notes ids: rows go into a topic that was added, of which nobody knows", machine.AddedTopics
)
def an_added_topic_is_not_noted() -> list[Patch]:
    original = KafkaHold.write

    def write(self: KafkaHold, progress: Progress, *more: Any) -> None:
        meta = progress.meta
        # The announcement comes first, and has what the start before has noted.
        before = vars(self).setdefault("noted", None if meta is None else meta.data)
        if meta is not None and ids_of(before) is not None:
            known = ids_of(before) or {}
            kept = {name: each for name, each in (ids_of(meta.data) or {}).items() if name in known}
            progress = replace(progress, meta=replace(meta, data=joined(kept) or before))
        original(self, progress, *more)

    return [put(KafkaHold, "write", write)]


@mutation("a start that creates a topic creates those too that were lost since it looked", machine.AddedTopics)
def lost_topics_are_created_beside_new_ones() -> list[Patch]:
    original = KafkaTarget.create

    def create(self: KafkaTarget, _there: Any = None) -> Any:
        return original(self, self.describe({}))

    return [put(KafkaTarget, "create", create)]


@mutation("a start that was overtaken while it made its dead-letter topic creates data topics", machine.AddedTopics)
def overtaken_starts_create() -> list[Patch]:
    return [put(SinkStarter, "_check_not_overtaken", nothing)]


@mutation("a creation whose answer was lost is asked for again, whatever became of the topic", machine.AddedTopics)
def creations_are_asked_for_twice() -> list[Patch]:
    return [put(Admin, "create_topic_once", Admin.create_topic), put(target, "asked_once", contextlib.nullcontext)]


@mutation("the rows of a slice go where its first one goes", machine.ListedTopics)
def rows_follow_the_first() -> list[Patch]:
    original = deliveries.columns

    def columns(rows: Any) -> Any:
        given = original(rows)
        return given if not given.topics else replace(given, topics=[given.topics[0]] * len(given.topics))

    return [put(deliveries, "columns", columns)]
