"""The rows of redriven letters and the record that settles them, in the same transactions.

    rows of pending letters ──────┐
    letters of what fails again ──┼─► one transaction under the id of <sink>.redrive and the letters' partition
    redrive record ───────────────┘

It is the transactional sink with the dead-letter topic as its source: its partition and its offsets are the letters'.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from sinkpipeline.core.deadletter import DeadLetter, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import NoDeadLetter
from sinkpipeline.core.progress import Meta, PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.core.redrive import Foreign, Ledger, Letter, Outcome, Span, encode_spans, redrive_of, spans_of
from sinkpipeline.core.topic_ids import changed
from sinkpipeline.core.topics import Topic, TopicRequest
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.data_topics import target_id
from sinkpipeline.kafka.dead_letter_log import DeadLetterLog
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.session import KafkaSession, producer_properties
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.dead_letters import DeadLetters
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.held import Held
from sinkpipeline.sinks.transactional import TransactionalWriter
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.dlq")

LEFT = "Left"
"""Of a letter that fails again and can't be dead-lettered again: it stays pending where it is, and so isn't lost."""
UNCOUNTED = "Uncounted"
"""Of a letter of which nothing says that its record was handled as one: likewise."""
GONE = "Gone"
"""Of a letter that retention or a purge has taken before it was read: nothing can be done for it."""


@dataclass(frozen=True)
class Destination:
    """Where rows of letters go: the topic of the plan's `data`, and what is said of it."""

    outcome: Outcome
    own_id: Callable[[Meta], str | None]
    """The id of the topic that the sink knows."""
    lost: Callable[[str, str], SinkPipelineError]
    """The error for a topic, by its name, that is not that one: why."""


DATA = Destination(Outcome.DELIVERED, lambda meta: meta.data, data_topic_lost)


@dataclass(frozen=True)
class Doubt:
    """A transaction whose commit was asked for."""

    outcomes: dict[int, Outcome]
    left: frozenset[int]
    state: PartitionProgress

    @property
    def tally(self) -> Counter[str]:
        return Counter([*(each.value for each in self.outcomes.values()), *(LEFT for _ in self.left)])


class RedriveWriter(TransactionalWriter):
    """Redrives letters of one partition, chunk by chunk. What it has settled, and how, is in `tally`.

    Raises (all methods):
        SinkPipelineError: Superseded, DeadLetterFailed, RecordRefused, DataTopicLost, TransactionFailed, and what reads
            of the dead-letter topic raise.
    """

    _again = "run the redrive again: what was settled stays settled"

    def __init__(
        self,
        plan: BatchPlan,
        log: SinkSettings,
        topic: Topic,
        number: int,
        ledger: Ledger,
        note: Callable[[Letter | Foreign], None],
        admin: Admin,
        *,
        destination: Destination = DATA,
    ) -> None:
        """Claims the partition: fences whoever redrives it, and reads what they have settled.

        `log` is the sink as its dead letters are read. `note` is given what is read beyond the ledger's position, some
        of it perhaps twice.
        """
        self._topic = topic
        self._number = number
        self._ledger = ledger
        self._note = note
        self._admin = admin
        self._destination = destination
        self._chunk: list[Letter] = []
        self._offsets: list[int] = []
        self._dead: set[int] = set()
        self._left: set[int] = set()
        self._doubt: Doubt | None = None
        self.tally: Counter[str] = Counter()
        self._sink: SinkId = plan.settings.id
        super().__init__(plan, SourcePartition(topic.name, number), Worker(), cuts=None)
        self._kafka = log
        letters = log.dead_letter
        if letters is None:
            raise ValueError("only a sink with dead letters has some to redrive")
        self._letters = _Again(self, plan, letters, self._partition, self._worker)
        self._id = redrive_of(self._sink).partition_id(self._partition)
        self._met = ledger.runs(self._sink)
        """Runs that were there before this one: any other is a newer redrive's."""
        self._interrupted = False
        self._guard(self._claim)

    def sift(self, chunk: Sequence[Letter]) -> tuple[Sequence[Letter], Sequence[Letter]]:
        """Which of these letters are to be settled, and which of them by rows."""
        return chunk, chunk

    def deliver(self, chunk: Sequence[Letter], rows: RowBatch | None) -> None:
        """Settles these letters, which follow all that were given before; their rows have the letters' offsets."""
        self._chunk, self._offsets = list(chunk), [each.id.offset for each in chunk]
        if rows is not None and len(rows):
            self._hold(rows)
            self._hold_rest()
        self._guard(self._settle_chunk)

    def close(self) -> None:
        """Ends what an error left open: nobody may take the partition over soon, and readers would wait for it."""
        if self._session is not None and self._session.is_open:
            self._session.abort()
        self._give_up()

    def letter_at(self, offset: int) -> Letter:
        return self._chunk[bisect_left(self._offsets, offset)]

    def leave(self, offset: int) -> None:
        self._left.add(offset)

    def _settle_chunk(self) -> None:
        self._produce_held()
        self._cut(self._offsets[-1] + 1)

    @override
    def _send_dead_letter(self, letters: DeadLetters, held: Held, index: int) -> None:
        super()._send_dead_letter(letters, held, index)
        self._dead.add(held.batch.offsets[index])

    @override
    def _forget_open(self) -> None:
        super()._forget_open()
        self._dead, self._left = set(), set()

    @override
    def _cut(self, next_offset: int) -> None:
        """Ends the open transaction with the redrive records of every letter of the chunk below `next_offset`."""
        begin, end = (bisect_left(self._offsets, each) for each in (self._state.next, next_offset))
        below = self._offsets[begin:end]
        if not below:
            return
        doubt = Doubt(self._outcomes(below), frozenset(self._left), self._advanced(next_offset))
        if doubt.outcomes:
            self._commit(doubt)
        self._settled(doubt)

    def _commit(self, doubt: Doubt) -> None:
        self._begin()
        producer = self._held_producer()
        producer.produce_rows(self._topic.name, self._saying(spans_of(doubt.outcomes)))
        failpoint("redrive-before-commit")
        self._doubt = doubt
        producer.commit()
        failpoint("redrive-after-commit")

    def _saying(self, outcomes: Mapping[str, Iterable[Span]]) -> list[Row]:
        """The redrive records of these."""
        return encode_spans(
            self._sink,
            self._topic.id,
            self._plan.run,
            outcomes,
            partition=self._number,
            most_bytes=self._plan.letter_limits.message_bytes,
        )

    def _outcomes(self, offsets: Sequence[int]) -> dict[int, Outcome]:
        rows = {offset for held in self._held for offset in held.batch.offsets}
        found = {}
        for offset in offsets:
            if offset in self._dead:
                found[offset] = Outcome.DEAD_LETTERED
            elif offset not in self._left:
                found[offset] = self._destination.outcome if offset in rows else Outcome.FILTERED
        return found

    def _settled(self, doubt: Doubt) -> None:
        self._doubt = None
        self.tally += doubt.tally
        self._count(doubt.state)

    def _held_producer(self) -> TransactionalProducer:
        session = self._owned()
        if not isinstance(session, KafkaSession):
            raise TypeError("a redrive writes to Kafka")
        return session.producer

    @override
    def _take_over(self) -> None:
        self._give_up()
        self._interrupted = True
        self._claim()

    def _claim(self) -> None:
        """Fence, sentinel, read; and whether a redrive that began later is to go on instead of this one."""
        self.check_topics()
        with DeadLetterLog(self._kafka.connection, self._topic, self._kafka.group_id) as log:
            if self._interrupted:
                # Before anything is fenced in return.
                self._read(log.read_on(self._ledger, self._number, log.extents()[self._number].stable))
                self._check_newest()
            producer = TransactionalProducer(self._kafka.connection, self._id, self._properties())
            self._hold_id(producer)
            failpoint("redrive-after-claim")
            run = self._plan.run
            self._read(log.read_to_sentinel(self._ledger, self._number, producer, self._sink, run))
        self.check_topics()
        if self._interrupted:
            self._check_newest()
        else:
            self._met |= self._ledger.runs(self._sink)
        self._claim_target()
        doubt, self._doubt = self._doubt, None
        if doubt is not None and self._came_through(doubt):
            # Only the answer was lost.
            self._settled(doubt)
        self._start_over()

    def _properties(self) -> dict[str, str]:
        """Of the producer that holds the partition."""
        return producer_properties(self._plan)

    def _hold_id(self, producer: TransactionalProducer) -> None:
        """The partition is ours: rows go by this producer too."""
        self._session = KafkaSession(self._kafka, producer, record_key="")

    def _claim_target(self) -> None:
        """Where rows go another way than letters: takes that as well, once all was read that was settled before."""

    def _came_through(self, doubt: Doubt) -> bool:
        """Whether it was committed, by all that was read since."""
        return self._ledger.outcome(self._sink, next(iter(doubt.outcomes))) is not None

    def _read(self, found: Iterable[Letter | Foreign]) -> None:
        for each in found:
            self._note(each)

    def _check_newest(self) -> None:
        newer = self._ledger.runs(self._sink) - self._met - {self._plan.run}
        if newer:
            raise SinkPipelineError(
                Reason.SUPERSEDED,
                f"a newer redrive of {self._sink} has taken partition {self._number} of {self._topic.name} over",
                "nothing, if that was intended: it goes on where this one was",
            )

    def check_topics(self) -> None:
        """What was read of another topic means nothing, and what was delivered into a deleted one is lost."""
        self._check_target(self._settings.data)
        dead = self._topic.name
        dead_topic = self._admin.topics([dead])[dead]
        if dead_topic is None or dead_topic.id != self._topic.id:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED,
                f"the dead-letter topic {dead} was deleted or re-created while it was redriven",
                "look at what is there now: `sinkpipeline dlq list`",
            )

    def _check_target(self, data: TopicRequest) -> None:
        found = self._target_id(data)
        if found != self._plan.data_topic_id:
            what = changed(self._plan.data_topic_id, found)
            raise self._destination.lost(data.name, f"it was {what} while letters were redriven into it")

    def _target_id(self, data: TopicRequest) -> str | None:
        return target_id(self._admin, data)


class _Again(DeadLetters):
    """Dead letters of letters: with the source's record, as the letter has it."""

    def __init__(
        self,
        writer: RedriveWriter,
        plan: BatchPlan,
        settings: DeadLetterSettings,
        partition: SourcePartition,
        worker: Worker,
    ) -> None:
        super().__init__(plan, settings, partition, worker)
        self._writer = writer

    @override
    def _letter(self, batch: RowBatch, index: int, verdict: Verdict) -> DeadLetter:
        before = self._writer.letter_at(batch.offsets[index]).letter
        return replace(before, verdict=verdict, redrives=before.redrives + 1)

    @override
    def dropped(self, offset: int, verdict: Verdict, failure: NoDeadLetter) -> None:
        self._writer.leave(offset)
        why = verdict.error_class.error(verdict.text)
        _LOG.warning("%s: letter %d stays: %s; %s", self._partition, offset, why, failure.fact)
