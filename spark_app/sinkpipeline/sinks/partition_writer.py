"""What writers of all kinds have in common: rows in offset order, cut where they must be, bad ones to dead letters.

    row ─► target ──────────────────┐
    bad row ─► dead letters ────────┼─► `_cut` ends what is open: all of it counts, or nothing
    no dead letter either ─► dropped┘   (or the sink stops)

What the sink refuses together, without telling which record it was, is tried again in halves (`held.Bisection`).
"""

from __future__ import annotations

import abc
import logging
import math
import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from sinkpipeline.core.batch import Counted
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.order import after, index_of, latest, reaches
from sinkpipeline.core.ports import NoDeadLetter, ProgressRefused, RecordRefused
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.core.row_limits import Limits
from sinkpipeline.sinks.contract import CLOCK_SKEW, BatchPlan, RowBatch
from sinkpipeline.sinks.dead_letters import DeadLetters
from sinkpipeline.sinks.held import Bisection, Held
from sinkpipeline.sinks.stops import not_dead_lettered, refused, stopped
from sinkpipeline.sinks.whole_records import WholeRecords
from sinkpipeline.sinks.worker import Worker

_LOG = logging.getLogger("sinkpipeline.sink")

_STEP_BYTES = 256 * 1024
_LIMITS_HOLD_S = 10.0


class JudgedAnew(Exception):
    """What is held has other verdicts than before: a step begins again, with a producer by the limits of now."""


class PartitionWriter(abc.ABC):
    """Writes one source partition of one batch. All of it can be repeated: it goes on at `_produced`."""

    def __init__(self, plan: BatchPlan, partition: SourcePartition, worker: Worker, cuts: CutPolicy | None) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._partition = partition
        self._worker = worker
        self._cuts = cuts or plan.kind.cuts()
        self._state = plan.frontier[partition]
        self._held: list[Held] = []
        self._records = WholeRecords()
        self._produced = self._state.next
        """Source offsets below it are open, or count already."""
        self._sent = self._state.next
        """Source offsets below it may have been sent since the last cut."""
        self._open = Counted()
        self._open_size = 0
        self._opened_at = 0.0
        self._delivered = 0
        self._limits_read_at = -math.inf
        self._client_is_new = False
        self._bisection = Bisection()
        letters = plan.settings.dead_letter
        self._letters = None if letters is None else DeadLetters(plan, letters, partition, worker)

    @abc.abstractmethod
    def _begin(self) -> None:
        """Opens what `_cut` ends."""

    @abc.abstractmethod
    def _send(self, rows: Iterable[Row]) -> None: ...

    @abc.abstractmethod
    def _send_dead(self, rows: Iterable[Row]) -> None: ...

    @abc.abstractmethod
    def _cut(self, next_offset: int) -> None:
        """Ends what is open, if anything is: everything below `next_offset` was handled."""

    @abc.abstractmethod
    def _would_refuse(self, timestamp: int) -> Verdict | None:
        """Asks the brokers about a record with such a timestamp, of which nothing stays; nothing is open."""

    @property
    def _is_open(self) -> bool:
        return self._open.handled > 0

    def _hold(self, batch: RowBatch) -> None:
        self._held += (Held(each, self._limits) for each in self._records.add(batch))

    def _hold_rest(self) -> bool:
        """There are no more rows, so the last record is whole; whether it was not held before."""
        rest = [Held(each, self._limits) for each in self._records.rest()]
        self._held += rest
        return bool(rest)

    @property
    def _limits(self) -> Limits:
        return self._plan.limits(of_time=not self._worker.clock.is_wrong)

    def _advanced(self, next_offset: int) -> PartitionProgress:
        """The progress once what is open counts."""
        return self._open.on(self._state, next_offset, at=int(time.time() * 1000))

    def _count(self, state: PartitionProgress) -> None:
        """What was open counts, by this progress."""
        self._delivered += self._open.rows
        self._state = state
        self._forget_open()
        self._held = [held for held in self._held if reaches(held.batch.offsets[-1], state.next)]

    def _forget_open(self) -> None:
        self._open = Counted()
        self._open_size = 0

    def _start_over(self) -> None:
        """Behind what counts: what was open is sent again."""
        self._produced = self._sent = self._state.next
        self._forget_open()
        if self._letters is not None:
            self._letters.look_again()

    def _produce_held(self) -> None:
        for held in list(self._held):
            begin = bisect_left(held.batch.offsets, self._produced)
            while begin < len(held.batch):
                begin = self._produce_slice(held, begin)

    def _produce_slice(self, held: Held, begin: int) -> int:
        """Produces records from `begin` on, as many as there is room for; returns where to go on."""
        batch = held.batch
        if self._bisection.is_due(batch.offsets[begin]):
            self._cut(self._produced)
            self._bisection.was_cut(batch.offsets[begin])
        row_size = batch.size / batch.count(0, len(batch))
        room = self._room(row_size)
        if room < batch.count(begin, begin + 1) and self._is_open:
            self._cut(self._produced)
            room = self._room(row_size)
        # In small steps: it may take long to produce them, and a cut may be due before the batch is through.
        step = max(1, int(_STEP_BYTES / max(1.0, row_size)))
        end = batch.within(begin, min(room, step))
        if self._bisection.cut is not None:
            end = min(end, index_of(batch.offsets, self._bisection.cut))
        good = held.next_bad(begin, end)
        if good > begin:
            end = self._produce_rows(held, begin, good)
        else:
            if held.is_beyond_limits(begin):
                self._ask_about(held, begin)
            self._produce_dead_letter(held, begin)
            end = begin + 1
        self._open_size += int(batch.count(begin, end) * row_size)
        due = self._cuts.is_due(open_s=time.monotonic() - self._opened_at)
        if due or self._cuts.is_full(rows=self._open.handled, size=self._open_size):
            self._cut(self._produced)
        return end

    def _room(self, row_size: float) -> int:
        """How many more rows may be open."""
        return self._cuts.room(rows=self._open.handled, size=self._open_size, row_size=row_size)

    def _produce_rows(self, held: Held, begin: int, end: int) -> int:
        """Returns the record before which it stopped: one that the client refused, as nothing of it was sent.

        Raises:
            JudgedAnew: something of that record was sent.
        """
        batch = held.batch
        self._begin()
        self._sent = after(batch.offsets[end - 1])
        try:
            self._send(batch.rows(begin, end))
        except RecordRefused as refusal:
            if refusal.index is None:
                raise
            end, is_first = batch.record_of(begin, refusal.index)
            self._doubt_client()
            held.refuse(end, refusal.verdict)
            if not is_first:
                # None of its rows may count, and none can be taken back alone.
                raise JudgedAnew from refusal
            self._open.rows += refusal.index
            self._produced = self._sent = batch.offsets[end]
        else:
            self._open.rows += batch.count(begin, end)
            self._produced = self._sent
        return end

    def _produce_dead_letter(self, held: Held, index: int) -> None:
        """The dead letter of a bad row, or what the manifest says of a row that can have none.

        Raises:
            SinkPipelineError: the sink stops at this row; everything before it counts.
        """
        offset, verdict = held.batch.offsets[index], held.verdict(index)
        if self._letters is None:
            self._cut(offset)
            raise stopped(self._partition, offset, verdict, self._plan.kind.cure)
        try:
            self._send_dead_letter(self._letters, held, index)
            self._open.by_class.add(verdict.error_class.value, dead=1)
        except NoDeadLetter as failure:
            self._look_at_limits()
            if not self._letters.drop:
                self._cut(offset)
                raise not_dead_lettered(self._partition, offset, verdict, failure) from failure
            self._letters.dropped(offset, verdict, failure)
            self._begin()
            self._open.by_class.add(verdict.error_class.value, dropped=1)
        except SinkPipelineError:
            self._cut(offset)
            raise
        self._produced = after(offset)

    def _send_dead_letter(self, letters: DeadLetters, held: Held, index: int) -> None:
        before = held.refused_letter(index)
        if before is not None:
            raise letters.refused(before)
        row = letters.row(held.batch, index, held.verdict(index))
        self._begin()
        self._sent = after(held.batch.offsets[index])
        try:
            self._send_dead([row])
        except RecordRefused as refusal:
            if refusal.index is None:
                raise
            raise letters.refused(refusal.verdict) from refusal

    def _ask_about(self, held: Held, index: int) -> None:
        """A row is refused by nobody but us: by limits that may be old, or by a clock that may be wrong.

        Raises:
            JudgedAnew: it is so, or was found not to be.
        """
        self._look_at_limits()
        beyond_ms = held.beyond_ms(index)
        if not beyond_ms or self._worker.clock.is_proved(beyond_ms):
            return
        # If the brokers refuse the one that is nearest to the limit, they refuse the others too.
        nearest = held.nearest(index)
        beyond_ms = held.beyond_ms(nearest)
        self._cut(self._produced)
        verdict = self._would_refuse(held.timestamp(nearest))
        if verdict is not None and verdict.error_class is ErrorClass.INVALID_TIMESTAMP:
            self._worker.clock = self._worker.clock.refused(beyond_ms)
        else:
            self._worker.clock = self._worker.clock.taken()
            _LOG.warning("%s: ClockSkew: %s", self._partition, CLOCK_SKEW, extra={"reason": "ClockSkew"})
        self._judge_anew()

    def _doubt_client(self) -> None:
        """A row is refused by our client: by limits and by a number of partitions that it may have had for long.

        Raises:
            JudgedAnew: it is to be another one, which knows those of now.
        """
        self._look_at_limits()
        if not self._client_is_new:
            self._client_is_new = True
            self._judge_anew()

    def _look_at_limits(self) -> None:
        """Reads the limits again, now and then.

        Raises:
            JudgedAnew: they are others.
        """
        if time.monotonic() - self._limits_read_at < _LIMITS_HOLD_S:
            return
        self._limits_read_at = time.monotonic()
        plan = self._plan
        try:
            data, dead = self._read_limits()
        except SinkPipelineError as error:
            _LOG.warning("%s: the limits of the topics can't be read again: %s", self._partition, error)
            return
        self._plan = replace(plan, data_limits=data or plan.data_limits, letter_limits=dead or plan.letter_limits)
        if (self._plan.data_limits, self._plan.letter_limits) != (plan.data_limits, plan.letter_limits):
            _LOG.info("%s: the topics have other limits than before", self._partition)
            self._judge_anew()

    def _read_limits(self) -> tuple[TopicLimits | None, TopicLimits | None]:
        """Of the data topic and of the dead-letter topic."""
        return self._plan.kind.read_limits(self._plan, self._worker)

    def _judge_anew(self) -> NoReturn:
        for held in self._held:
            held.judge(self._limits)
        if self._letters is not None:
            self._letters.most_bytes = self._plan.letter_limits.message_bytes
        raise JudgedAnew

    def _can_do_without_letters(self, error: SinkPipelineError) -> bool:
        """Whether only the open dead letters may not be written any more: `onFailure` says what becomes of them."""
        is_theirs = error.reason is Reason.AUTHORIZATION_FAILED and self._open.dead > 0
        return is_theirs and self._letters is not None and self._letters.are_refused()

    def _isolate(self, refusal: RecordRefused) -> None:
        """Nothing of what was open counts, as one of its records was refused: which one is told, or found by halves.

        Without dead letters too: a sink stops at that record, behind all that can be delivered. And of records that can
        only not be written together, such as two that exchange a unique value, each half may well come through.

        Raises:
            SinkPipelineError: RecordRefused, where it was no row, or no record is left that it could have been.
        """
        begin, end = self._state.next, latest(self._sent, after(self._state.next))
        offsets = [offset for held in self._held for offset in held.between(begin, end)]
        told = self._told_by(refusal, begin, end)
        if told is not None:
            if self._blame(told, refusal):
                self._bisection.told(told, offsets[index_of(offsets, after(told)) :])
                return
            begin, end = told, after(told)
        elif not isinstance(refusal, ProgressRefused):
            if len(offsets) > 1:
                self._bisection.split(offsets)
                return
            if offsets and self._blame(offsets[0], refusal):
                return
        cure = self._plan.kind.cure(refusal.text)
        raise refused(self._partition, begin, end, refusal.text, cure) from refusal

    def _told_by(self, refusal: RecordRefused, begin: int, end: int) -> int | None:
        """The offset of the row that the server has named."""
        if refusal.open_index is None:
            return None
        rows = [offset for held in self._held for offset in held.good_between(begin, end)]
        return rows[refusal.open_index] if refusal.open_index < len(rows) else None

    def _blame(self, offset: int, refusal: RecordRefused) -> bool:
        """Of the only record that was open, the row was refused, or else its dead letter; false where both were."""
        for held in self._held:
            index = index_of(held.batch.offsets, offset)
            if index < len(held.batch) and held.batch.offsets[index] == offset:
                return held.refuse(index, refusal.verdict)
        return False
