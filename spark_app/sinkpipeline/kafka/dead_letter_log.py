"""Reading a dead-letter topic: letters, redrive records, and what somebody else has put there.

Everything below the last stable offset is final. What a redrive has to know is more: that nothing of an earlier redrive
is still on its way. So it holds their transactional id, writes a sentinel under it, and reads until that comes back
(`read_to_sentinel`), whoever else holds the last stable offset back; a time-out is an error and never "no more".
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from typing_extensions import Self

from sinkpipeline.core.deadletter import reason_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.redrive import Foreign, Found, Ledger, Letter, LetterId, RedriveRecord, encode_sentinel, found_in
from sinkpipeline.core.topics import Topic
from sinkpipeline.kafka.admin import Admin
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import headers_of, make_consumer, offset_of, uncommitted
from sinkpipeline.kafka.errors import translate
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.reading import READ_DEADLINE_S, Answers, Reading, wait_or_give_up
from sinkpipeline.kafka.refused import Patience
from sinkpipeline.kafka.waiting import HELD_BACK, Waiting

_LOG = logging.getLogger("sinkpipeline.dlq")

_LEADERS_S = 3.0


@dataclass(frozen=True)
class Extent:
    """Offsets of one partition."""

    low: int
    stable: int
    """The last stable offset."""
    high: int


class DeadLetterLog:
    """One dead-letter topic, as one reader sees it: one read at a time.

    Every read raises SinkPipelineError: DeadLettersUnreadable where it can't be finished for certain,
    ProgressVersionUnknown and ProgressCorrupt for a redrive record, BrokerUnreachable, AuthorizationFailed.
    """

    def __init__(self, connection: Connection, topic: Topic, group_id: str, *, lenient: bool = False) -> None:
        """Opens a reader; a `lenient` one takes a redrive record that it doesn't understand for a foreign one."""
        self._connection = connection
        self._lenient = lenient
        self._group_id = group_id
        self.topic = topic
        self._admin = Admin(connection)
        self._consumer = make_consumer(connection, group_id, fetch_kib=16_384)
        self._knows_leaders = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def extents(self) -> list[Extent]:
        """Of every partition, as of now."""
        at = [SourcePartition(self.topic.name, number) for number in range(self.topic.partitions)]
        lows = self._admin.beginning_offsets(at)
        stables = self._admin.end_offsets(at, read_committed=True)
        highs = self._admin.end_offsets(at, read_committed=False)
        return [Extent(lows[each], min(stables[each], highs[each]), highs[each]) for each in at]

    def read(self, partition: int, begin: int, end: int) -> Iterator[Found]:
        """What is committed from `begin` on and below `end`, which is no later than the last stable offset was."""
        for message in self._messages(partition, begin, end):
            yield self._found(partition, message)

    def letters(self, partition: int, offsets: Collection[int]) -> Iterator[Letter]:
        """The letters at these offsets, which were read before; without those that were deleted meanwhile."""
        wanted = frozenset(offsets)
        if not wanted:
            return
        for message in self._messages(partition, min(wanted), max(wanted) + 1):
            if offset_of(message) in wanted:
                found = self._found(partition, message)
                if isinstance(found, Letter):
                    yield found

    def read_on(self, ledger: Ledger, partition: int, end: int) -> Iterator[Letter | Foreign]:
        """What is committed from the ledger's position on and below `end`; takes down what redrives have settled."""
        for found in self.read(partition, ledger.position, end):
            if isinstance(found, RedriveRecord):
                ledger.apply(found)
            else:
                yield found
        ledger.position = max(ledger.position, end)

    def read_to_sentinel(
        self, ledger: Ledger, partition: int, producer: TransactionalProducer, sink: SinkId, run: str
    ) -> Iterator[Letter | Foreign]:
        """Likewise, up to a sentinel under the id that `producer` holds: nothing that it fenced can come after it."""
        nonce = str(uuid.uuid4())
        producer.begin()
        producer.produce_rows(self.topic.name, [encode_sentinel(sink, self.topic.id, run, nonce, partition)])
        producer.commit()
        # Asked for after the commit, so it is past the sentinel.
        at = SourcePartition(self.topic.name, partition)
        high = self._admin.end_offsets([at], read_committed=False)[at]
        for message in self._messages(partition, ledger.position, high):
            found = self._found(partition, message)
            ledger.position = max(ledger.position, offset_of(message) + 1)
            if not isinstance(found, RedriveRecord):
                yield found
            else:
                ledger.apply(found)
                if found.nonce == nonce:
                    return
        raise SinkPipelineError(
            Reason.DEAD_LETTERS_UNREADABLE,
            f"what was written to partition {partition} of {self.topic.name} was not read back below offset {high}",
            "somebody deletes its records, or a replica has lost some; run the redrive again",
        )

    def _messages(self, partition: int, begin: int, end: int) -> Iterator[Message]:
        if begin >= end:
            return
        self._learn_leaders()
        patience = Patience(self._connection)

        def held_back(position: int, waiting: Waiting) -> None:
            patience.check()
            self._held_back(partition, position, waiting)

        answers = Answers(
            failed=self._failed,
            held_back=held_back,
            # Deleted meanwhile, by retention or a purge; what a redrive record there settled went before it.
            moved=lambda _: self.extents()[partition].low,
        )
        at = TopicPartition(self.topic.name, partition, begin)
        reading = Reading(self._consumer, at, answers, bound=end, patience_s=READ_DEADLINE_S)
        for message in reading:
            if offset_of(message) < end:
                yield message

    def _learn_leaders(self) -> None:
        """Asks, as a client that has to look for a leader on its own takes most of a second. It may fail."""
        if not self._knows_leaders:
            with suppress(KafkaException):
                self._consumer.list_topics(self.topic.name, _LEADERS_S)
            self._knows_leaders = True

    def _held_back(self, partition: int, position: int, waiting: Waiting) -> None:
        what = f"partition {partition} of {self.topic.name} could not be read beyond offset {position}"
        wait_or_give_up(
            waiting,
            f"offset {position} of {self.topic.name}, partition {partition}",
            _LOG,
            writer=lambda: self._writer_at(partition, position),
            held=lambda writer: SinkPipelineError(
                Reason.DEAD_LETTERS_UNREADABLE,
                f"{what} within {waiting.patience_s:.0f} s: an open transaction of {writer} holds it back",
                HELD_BACK,
            ),
            silent=lambda: SinkPipelineError(
                Reason.DEAD_LETTERS_UNREADABLE,
                f"{what}: no answer from {self._connection.bootstrap_servers} within {waiting.limit_s:.0f} s",
                "check that the partition has a leader",
            ),
        )

    def _writer_at(self, partition: int, offset: int) -> str | None:
        """Whose record stands at an offset, committed or not; None where nothing tells."""
        with uncommitted(self._connection, self._group_id) as consumer:
            consumer.assign([TopicPartition(self.topic.name, partition, offset)])
            message = consumer.poll(5)
            if message is None or message.error() is not None:
                return None
            found = self._found(partition, message)
            if isinstance(found, Letter):
                return reason_of(found.letter.sink.partition_id(found.letter.record.partition))
            return None if isinstance(found, Foreign) else f"a redrive of {reason_of(str(found.sink))}"

    def _found(self, partition: int, message: Message) -> Found:
        id_ = LetterId(partition, offset_of(message))
        try:
            headers = headers_of(message)
        except ValueError as error:
            return Foreign(id_, str(error))
        try:
            return found_in(id_, message.timestamp()[1], message.value(), message.key(), headers)
        except SinkPipelineError as error:
            if not self._lenient:
                raise
            return Foreign(id_, error.message)

    def _failed(self, error: KafkaError) -> SinkPipelineError:
        return translate(
            error,
            f"reading the dead-letter topic {self.topic.name}",
            self._connection.bootstrap_servers,
            Reason.DEAD_LETTERS_UNREADABLE,
            needs=f"Read on topic {self.topic.name}",
        )
