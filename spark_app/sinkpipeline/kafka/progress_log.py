"""Reading the progress topic for certain.

    write a sentinel with a nonce ──► read from a known offset ──► the nonce came back, or the position
                                                                   is past where the sentinel stands

That is the only way a read succeeds; a time-out is an error and never "no progress". Three reads share it:

- *resume*: the sentinel is written under a transactional id that the reader holds, so nobody who was fenced by that can
  add anything after it. Only this one may conclude "no progress".
- *decide*: an unfenced sentinel; exact at the sentinel, a lower bound while a driver runs.
- *observe* (also `ProgressFollower`): up to the end, writing nothing.

The sentinel read is Materialize's idea (2023), and so is that the end offset is asked for without `read_committed`: the
last stable offset can be held back by a foreign open transaction, below our own last record.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from typing_extensions import Self, override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SENTINEL_KEY, SinkId, is_meta_key, writer_of
from sinkpipeline.core.progress import Meta, Progress, check
from sinkpipeline.core.progress_records import WRITER_HEADER, ProgressFold, encode_sentinel, is_sentinel, writer_header
from sinkpipeline.core.removal import newest_metas
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.consumers import extent, headers_of, make_consumer, offset_of, read_failed, uncommitted
from sinkpipeline.kafka.control import explained
from sinkpipeline.kafka.errors import repeated, translate
from sinkpipeline.kafka.producers import PlainProducer, TransactionalProducer
from sinkpipeline.kafka.reading import READ_DEADLINE_S, Answers, Reading, wait_or_give_up
from sinkpipeline.kafka.refused import check_not_refused
from sinkpipeline.kafka.waiting import HELD_BACK, Waiting

_COMMIT_IS_SHORTER_S = 1.0
_LOG = logging.getLogger("sinkpipeline.progress")

_FIRST_SUFFIX = 1024
_READ_ATTEMPTS = 3


class OpenTransaction(SinkPipelineError):
    """ProgressUnreadable, because somebody's open transaction holds the read back."""

    def __init__(self, topic: str, offset: int, waited_s: float, writer: str) -> None:
        super().__init__(
            Reason.PROGRESS_UNREADABLE,
            f"progress topic {topic} could not be read to its end within {waited_s:.0f} s: an open transaction of "
            f"{writer} holds offset {offset} back",
            HELD_BACK,
        )

    @override
    def __reduce__(self) -> tuple[type[SinkPipelineError], tuple[Reason, str, str]]:
        return SinkPipelineError, (self.reason, self.message, self.remedy)


@dataclass(frozen=True)
class _Extent:
    low: int
    high: int


class _Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    offset: int


@dataclass(frozen=True)
class _Found:
    """The records of one sink, in log order, and the position after all that were read."""

    records: list[_Record]
    end: int


@dataclass(frozen=True)
class _Holder:
    """Who reads under an id that it holds."""

    transactional_id: str
    check_meta: Callable[[Meta | None], None]
    """Raises where the sink is somebody else's now, whose tasks must not be fenced."""


class ProgressLog:
    """The progress topic of one cluster, as one reader sees it. Not for several threads at a time.

    Every read raises SinkPipelineError: ProgressUnreadable where it can't be finished for certain, ProgressCorrupt,
    ProgressRegressed or ProgressVersionUnknown for what it found, BrokerUnreachable, AuthorizationFailed.
    """

    def __init__(self, connection: Connection, topic: str, group_id: str, *, with_faults: bool = False) -> None:
        """Opens a reader; `with_faults`, it returns progress that can't be believed, for a reset to replace it."""
        self._connection = connection
        self._group_id = group_id
        self._with_faults = with_faults
        self.topic = topic
        self._servers = connection.bootstrap_servers
        self._consumer = make_consumer(connection, group_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def resume(
        self,
        sink: SinkId,
        producer: TransactionalProducer,
        believe: Callable[[Progress], Progress] = lambda progress: progress,
        check_meta: Callable[[Meta | None], None] = lambda _: None,
    ) -> Progress:
        """Reads the truth under the id that `producer` holds.

        Suffixes of doubling length from the end, until one holds `meta` and the key of every partition that it lists,
        or the whole log.

        Args:
            sink: whose progress.
            producer: what fences everybody whose records count.
            believe: what of it must be sound; all of it is returned.
            check_meta: called before a task is fenced that holds the read back, with the `meta` that everybody sees;
                raises where a newer run has the sink.
        """
        holder = _Holder(producer.transactional_id, check_meta)

        def read() -> Progress:
            return self._search(sink, self._fenced_sentinel(producer), holder=holder)

        return self._until_sound(read, believe)

    def resume_since(
        self,
        sink: SinkId,
        producer: TransactionalProducer,
        offset: int,
        check_meta: Callable[[Meta | None], None] = lambda _: None,
    ) -> Progress:
        """Like `resume`, but only what was written from `offset` on: what the caller knows already isn't read again."""
        nonce = self._fenced_sentinel(producer)
        holder = _Holder(producer.transactional_id, check_meta)
        return self._fold(sink, self._read(sink, offset, nonce=nonce, holder=holder))

    def _fenced_sentinel(self, producer: TransactionalProducer) -> str:
        nonce = str(uuid.uuid4())
        headers = writer_header(producer.transactional_id)
        producer.begin()
        producer.produce_rows(self.topic, [(encode_sentinel(nonce), SENTINEL_KEY.encode(), 0, 0, headers)])
        producer.commit()
        return nonce

    def observe(self, sink: SinkId) -> Progress:
        """Reads to the end offset and writes nothing; never a basis for creating or starting anything."""
        return self._search(sink, None)

    def metas(self, sink: SinkId, producer: TransactionalProducer | None = None) -> Mapping[str, Meta | None]:
        """The newest `meta` of every sink that keeps its progress here, by key; None for one that can't be read.

        Reads the whole log.

        Args:
            sink: who asks.
            producer: holds its control id; then all is seen that was committed before. Without it nothing is written.
        """
        nonce = None if producer is None else self._fenced_sentinel(producer)
        bounds = self._extent()
        found = self._read(
            sink,
            bounds.low,
            nonce=nonce,
            bound=bounds.high if nonce is None else None,
            holder=None if producer is None else _Holder(producer.transactional_id, lambda _: None),
            wanted=lambda key: is_meta_key(key.decode(errors="replace")),
        )
        return newest_metas(found.records)

    def decide(
        self,
        sink: SinkId,
        patience_s: float | None = None,
        believe: Callable[[Progress], Progress] = lambda progress: progress,
    ) -> Progress:
        """Reads with an unfenced sentinel: exact at the sentinel, a lower bound for a running driver.

        Args:
            sink: whose progress.
            patience_s: how long an open transaction may hold the read back.
            believe: what of it must be sound; all of it is returned.

        Raises:
            OpenTransaction: one holds the read back for longer than `patience_s`.
        """
        producer = PlainProducer(self._connection, idempotent=False)

        def read() -> Progress:
            nonce = str(uuid.uuid4())
            with explained(self.topic, self._servers):
                producer.produce_rows(self.topic, [(encode_sentinel(nonce), SENTINEL_KEY.encode(), 0, 0, None)])
                producer.flush()
            return self._search(sink, nonce, patience_s=patience_s)

        try:
            return self._until_sound(read, believe)
        finally:
            producer.close()

    def _until_sound(self, read: Callable[[], Progress], believe: Callable[[Progress], Progress]) -> Progress:
        """Reads again where the progress contradicts itself, as it may while somebody else goes on writing.

        An unfenced sentinel may stand in the middle of a running driver's transaction of several records. And what a
        newer driver has superseded beyond a slow reader's sentinel may be compacted away before the reader gets there:
        its next sentinel tells that it is fenced.
        """
        for _ in range(_READ_ATTEMPTS - 1):
            progress = read()
            with suppress(SinkPipelineError):
                check(believe(progress))
                return progress
        progress = read()
        if not self._with_faults:
            check(believe(progress))
        return progress

    def _search(
        self, sink: SinkId, nonce: str | None, *, holder: _Holder | None = None, patience_s: float | None = None
    ) -> Progress:
        """Suffixes of doubling length, up to the sentinel with this nonce, or to the end offset as of now.

        A longer one is the shorter one with what stands before it: no record is read twice.
        """
        bounds = self._extent()
        length = _FIRST_SUFFIX
        start = max(bounds.low, bounds.high - length)
        bound = None if nonce is not None else bounds.high
        found = self._read(sink, start, nonce=nonce, bound=bound, holder=holder, patience_s=patience_s)
        while not (progress := self._fold(sink, found)).complete and start > bounds.low:
            length *= 2
            end, start = start, max(bounds.low, bounds.high - length)
            before = self._read(sink, start, bound=end, patience_s=patience_s)
            found = _Found([*(each for each in before.records if each.offset < end), *found.records], found.end)
        if bounds.low > 0 and not progress.complete:
            raise SinkPipelineError(
                Reason.PROGRESS_UNREADABLE,
                f"progress topic {self.topic} begins at offset {bounds.low}: records were deleted, and what is left "
                f"does not hold the whole progress of {sink}",
                "a progress topic may only be compacted; name another progress topic for a new sink",
            )
        return progress

    @repeated
    def _extent(self) -> _Extent:
        try:
            low, high = extent(self._consumer, self.topic, 0)
        except KafkaException as exception:
            doing, needs = f"reading the offsets of {self.topic}", f"Describe on topic {self.topic}"
            check_not_refused(self._connection)
            raise translate(exception, doing, self._servers, needs=needs) from exception
        return _Extent(low, high)

    def _read(
        self,
        sink: SinkId,
        start: int,
        *,
        nonce: str | None = None,
        bound: int | None = None,
        holder: _Holder | None = None,
        patience_s: float | None = None,
        wanted: Callable[[bytes], bool] | None = None,
    ) -> _Found:
        """Reads from `start` on: to the sentinel and what is committed by then, or to `bound`, perhaps beyond.

        What the compaction took before a slow reader got there was superseded beyond the sentinel: it must not end
        there, or it would miss both.

        `wanted` says which keys to return; by default those of the sink.
        """
        prefix = sink.prefix.encode()
        is_wanted = wanted or (lambda key: key.startswith(prefix))
        answers = Answers(
            failed=self._failed,
            held_back=partial(self._held_back, sink, holder),
            # Taken after the sentinel was acknowledged, so it is past the sentinel: another reader's sentinel may have
            # compacted ours away, and then the position proves as much.
            at_the_end=self._uncommitted_end,
        )
        patience_s = READ_DEADLINE_S if patience_s is None else patience_s
        at = TopicPartition(self.topic, 0, start)
        reading = Reading(self._consumer, at, answers, bound=bound, patience_s=patience_s)
        found: list[_Record] = []
        for message in reading:
            if nonce is not None and is_sentinel(message.key(), message.value(), nonce):
                reading.bound = self._after(reading.position)
            elif is_wanted(message.key() or b""):
                found.append(_Record(message.key(), message.value(), offset_of(message)))
        return _Found(found, reading.position)

    def _after(self, position: int) -> int:
        """Up to where everything is committed that a sentinel's reader must see beyond it."""
        stable = self._extent().high
        # One offset is the marker of the sentinel's own transaction: any other takes two.
        return stable if stable > position + 1 else position

    def _fold(self, sink: SinkId, found: _Found) -> Progress:
        fold = ProgressFold(sink)
        for record in found.records:
            fold.apply(*record)
        return fold.result(found.end, with_faults=self._with_faults)

    def _held_back(self, sink: SinkId, holder: _Holder | None, position: int, waiting: Waiting) -> None:
        """What to do while nothing more comes, though there is more: wait, end it, say it, or give up."""
        if waiting.at_the_end and holder is not None and waiting.is_due("fence", _COMMIT_IS_SHORTER_S):
            self._fence_writer(sink, position, holder)
        wait_or_give_up(
            waiting,
            f"offset {position} of {self.topic}",
            _LOG,
            writer=lambda: self._writer_at(position),
            held=lambda writer: OpenTransaction(self.topic, position, waiting.patience_s, writer),
            silent=lambda: SinkPipelineError(
                Reason.PROGRESS_UNREADABLE,
                f"progress topic {self.topic} could not be read beyond offset {position}: "
                f"no answer from {self._servers} within {waiting.limit_s:.0f} s",
                "check that the partition has a leader",
            ),
        )

    def _fence_writer(self, sink: SinkId, position: int, holder: _Holder) -> None:
        """Ends a transaction of one of this sink's own tasks that holds the read back.

        Its task is dead, or would be fenced by the next start anyway; waiting for its time-out could take a minute, and
        for as long the very task that would end it may find no free core. A live task of ours reads the truth and goes
        on. What the reader itself wrote is committed, and only its marker is late: ending that would fence the reader.
        And a task of a newer run is left alone: who reads of that run goes.
        """
        writer = self._writer_at(position)
        ours = (sink.control_id, holder.transactional_id)
        if writer is not None and writer.startswith(sink.prefix) and writer not in ours:
            with ProgressLog(self._connection, self.topic, self._group_id, with_faults=self._with_faults) as log:
                holder.check_meta(log.observe(sink).meta)
            _LOG.info("ending the open transaction of %s, which holds %s back", writer, self.topic)
            TransactionalProducer(self._connection, writer).close()

    def _failed(self, error: KafkaError) -> SinkPipelineError:
        return read_failed(error, f"reading progress topic {self.topic}", self.topic, self._servers)

    @repeated
    def _uncommitted_end(self) -> int:
        with uncommitted(self._connection, self._group_id) as consumer:
            try:
                _, high = extent(consumer, self.topic, 0)
            except KafkaException as exception:
                doing, needs = f"reading the end of {self.topic}", f"Describe on topic {self.topic}"
                raise translate(exception, doing, self._servers, needs=needs) from exception
        return high

    def _writer_at(self, offset: int) -> str | None:
        """The transactional id that wrote the record at an offset, committed or not; None where nothing tells."""
        with uncommitted(self._connection, self._group_id) as consumer:
            consumer.assign([TopicPartition(self.topic, 0, offset)])
            message = consumer.poll(5)
            if message is None or message.error() is not None:
                return None
            with suppress(ValueError):
                writer = dict(headers_of(message) or []).get(WRITER_HEADER)
                if isinstance(writer, bytes):
                    return writer.decode(errors="replace")
            return writer_of((message.key() or b"").decode(errors="replace"))
