"""The one place that reads: a partition up to a bound, or single records of many partitions.

from an offset ──► record after record ──► the bound, which may become known on the way
                         │ no more come, though it is not reached
                         ▼
                     `held_back`: wait, do something about it, or give up

from an offset of each ──► the first record of each (`first_records`), for as long as one waits for them
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.kafka.consumers import offset_of, passes, take
from sinkpipeline.kafka.waiting import Waiting

READ_DEADLINE_S = 90.0
"""Longer than any transaction of ours may stay open (60 s), so a crashed writer's is waited out."""

_POLL_S = 0.1
_TELL_AFTER_S = 3.0
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a reader does about what is no record."""

    failed: Callable[[KafkaError], Exception]
    """What to raise for an error that does not pass."""

    held_back: Callable[[int, Waiting], None] = lambda *_: None
    """Called again and again while the read stands still before its bound, with the position. It may raise."""

    at_the_end: Callable[[], int] | None = None
    """Tells the bound where none is known, when the end of the partition is reached first."""

    moved: Callable[[KafkaError], int] | None = None
    """Where the partition begins now, where records may be deleted before they are read; else that is an error."""


class Reading:
    """One read of one partition: iterate over it for the records.

    It stops once its bound is reached. Given another bound, it goes on where it stopped, or was left.
    """

    def __init__(
        self,
        consumer: Consumer,
        at: TopicPartition,
        answers: Answers,
        *,
        bound: int | None = None,
        patience_s: float = 0.0,
    ) -> None:
        """Begins to read.

        Args:
            consumer: is assigned here, and nobody else's during this read.
            at: the partition, and the offset of the first record.
            answers: what to do about what is no record.
            bound: every record below it is read.
            patience_s: how long it may stand still; `held_back` acts by it.
        """
        self.position = max(0, at.offset)
        """Every record below it was seen."""
        self.bound = bound
        self._consumer = consumer
        self._at = at
        self._answers = answers
        self._patience_s = patience_s
        self._is_at_the_end = False
        self._fetched: deque[Message] = deque()
        self._assign(at.offset)

    def __iter__(self) -> Iterator[Message]:
        waiting = self._waiting()
        while not self._is_done():
            before = self.position
            self._fetch(_POLL_S)
            yield from self._records()
            if self.position > before:
                waiting = self._waiting()
            elif not self._is_done():
                waiting.at_the_end = self._is_at_the_end
                self._answers.held_back(self.position, waiting)

    def arrived(self, timeout_s: float) -> Iterator[Message]:
        """What can be had without waiting for longer than that, whatever the bound."""
        while self._fetch(timeout_s):
            yield from self._records()

    def _is_done(self) -> bool:
        return self.bound is not None and self.position >= self.bound

    def _fetch(self, timeout_s: float) -> bool:
        if not self._fetched:
            self._fetched.extend(take(self._consumer, timeout_s))
        return bool(self._fetched)

    def _records(self) -> Iterator[Message]:
        # All of them: records can stand behind an end-of-partition event that was not the last one.
        while self._fetched:
            message = self._fetched.popleft()
            error = message.error()
            if error is not None:
                self._event(error, message)
            elif (offset := offset_of(message)) >= self.position:
                self._is_at_the_end = False
                self.position = offset + 1
                yield message

    def _event(self, error: KafkaError, event: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self.position = max(self.position, offset_of(event))
            # It is told once for each position, so it counts until a record comes.
            self._is_at_the_end = offset_of(event) == self.position
            if self.bound is None and self._answers.at_the_end is not None:
                self.bound = self._answers.at_the_end()
        elif error.code() in _OUT_OF_RANGE and self._answers.moved is not None:
            self.position = max(self.position, self._answers.moved(error))
            self._assign(self.position)
        elif not passes(error):
            raise self._answers.failed(error)

    def _assign(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._at.topic, self._at.partition, offset)])

    def _waiting(self) -> Waiting:
        return Waiting(self._patience_s, at_the_end=self._is_at_the_end)


def first_records(
    consumer: Consumer, wanted: Mapping[SourcePartition, int], patience_s: float
) -> dict[SourcePartition, Message]:
    """The first record at each offset, or after it; without those of which nothing is known within `patience_s`.

    `consumer` is assigned here. What is told instead of a record (the end, an offset that is not there, a refusal) is
    no error: nothing is known then.
    """
    found: dict[SourcePartition, Message] = {}
    waiting = set(wanted)
    if waiting:
        consumer.assign([TopicPartition(each.topic, each.partition, offset) for each, offset in wanted.items()])
    deadline = time.monotonic() + patience_s
    while waiting and time.monotonic() < deadline:
        for message in take(consumer, _POLL_S):
            error, at = message.error(), _partition_of(message)
            if error is not None and passes(error):
                continue
            if at is None:
                # Of the whole client, such as a refused log-in.
                return found
            if error is None and at in waiting and offset_of(message) >= wanted[at]:
                found[at] = message
            if error is not None or at in found:
                waiting.discard(at)
    return found


def _partition_of(message: Message) -> SourcePartition | None:
    topic, number = message.topic(), message.partition()
    return None if topic is None or number is None else SourcePartition(topic, number)


def wait_or_give_up(
    waiting: Waiting,
    place: str,
    log: logging.Logger,
    *,
    writer: Callable[[], str | None],
    held: Callable[[str], Exception],
    silent: Callable[[], Exception],
) -> None:
    """What every reader does while an open transaction holds it back, or nobody answers.

    Args:
        waiting: since when.
        place: where the read stands.
        log: is told of an open transaction after a while.
        writer: whose record stands there.
        held: the error for a transaction of somebody that stays open for too long.
        silent: the error for a broker that does not answer for too long.
    """
    if waiting.at_the_end and waiting.is_due("tell", _TELL_AFTER_S):
        log.warning("waiting for the open transaction of %s, at %s", writer() or "somebody unknown", place)
    if waiting.is_over():
        raise held(writer() or "somebody unknown") if waiting.at_the_end else silent()
