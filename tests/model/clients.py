"""The part of confluent_kafka that the product uses, on the model's broker.

Errors are the client's own types. What a client does in the background (sending, fetching) happens within the calls
that the product makes anyway, so each of them is one request at one moment.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, ConfigResource, NewTopic, OffsetSpec

from model.broker import Broker, Headers, Record, Refused, Row, Transaction
from model.scheduler import Fate, Scheduler
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark

T = TypeVar("T")


@dataclass
class Cluster:
    """What the fakes talk to: the one of the run that is going on."""

    broker: Broker
    scheduler: Scheduler
    on_init: Callable[[str], None] = lambda _: None
    on_fenced: Callable[[str], None] = lambda _: None
    on_read: Callable[[str, int], None] = lambda *_: None
    refuses_row: Callable[[], bool] = lambda: False
    """Whether the cluster refuses the next row of a plain producer."""
    topics_known: Callable[[], Collection[str] | None] = lambda: None
    """The topics of which the broker that answers next knows; None: all that are there."""
    has_leaders: bool = False
    """Whether logs may lose their ends; where they don't, drivers are not asked to look for that."""
    on_lost_end: Callable[[], None] = lambda: None
    """Somebody has seen it."""
    on_marked: Callable[[SourcePartition, Mark, Mark], None] = lambda *_: None
    """A mark in the source is another one now."""
    on_create: Callable[[str], None] = lambda _: None
    """A topic that is missing is about to be created by the product."""
    on_second_verdict: Callable[[Exception], None] = lambda _: None
    """A query that a look has ended looked again."""
    row_s: Callable[[str], float] = lambda _: 0.0
    """How long a row takes on its way to a topic; others wait meanwhile."""
    looks: Iterator[int] = field(default_factory=itertools.count)
    """Numbers those that a driver takes beside its batches."""


_cluster: Cluster | None = None


def connect(cluster: Cluster | None) -> None:
    global _cluster  # noqa: PLW0603 - clients are made by the product, which names no cluster but by address
    _cluster = cluster


def cluster() -> Cluster:
    if _cluster is None:
        raise RuntimeError("no run is going on")
    return _cluster


def failure(code: int, *, retriable: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, KafkaError(code).str(), retriable=retriable))


def no_answer(_fate: Fate) -> NoReturn:
    raise failure(KafkaError._TIMED_OUT)


def ask(label: str, effect: Callable[[], T], *, timeout_s: float = 10.0) -> T:
    """A request whose answer may not come, with which its caller has nothing more to do."""
    try:
        return cluster().scheduler.call(label, effect, no_answer, timeout_s=timeout_s)
    except Refused as error:
        raise failure(error.code) from error


class Producer:
    """Rows are sent when the product polls, flushes or commits."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._id: str | None = config.get("transactional.id")
        self._timeout_s = config.get("transaction.timeout.ms", 60_000) / 1000
        self._on_delivery: Callable[[KafkaError | None, object], None] = config.get("on_delivery", lambda *_: None)
        self._epoch = -1
        self._begun = False
        self._transaction: Transaction | None = None
        self._rows: list[Row] = []
        self._sent = 0
        """Rows that have arrived: the sequence number of the first one that waits."""
        self._through_at = 0.0
        """When the first of them is through, on a slow link."""
        self._fatal: int | None = None

    def init_transactions(self, timeout_s: float) -> None:
        world = cluster()
        transactional_id, timeout = self._transactional_id, self._timeout_s

        def effect() -> int:
            epoch = world.broker.init(transactional_id, timeout, world.scheduler.now)
            world.on_init(transactional_id)
            return epoch

        def lost(_fate: Fate) -> NoReturn:
            raise failure(KafkaError._TIMED_OUT, retriable=True)

        self._epoch = world.scheduler.call("init", effect, lost, timeout_s=timeout_s)

    def begin_transaction(self) -> None:
        self._refuse_if_fatal()
        self._begun, self._transaction = True, None

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        _callback: None,
        _on_delivery: None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        if self._fatal is not None:
            raise failure(KafkaError._FATAL)
        if partition < 0:
            found = cluster().broker.topics.get(topic)
            partition = zlib.crc32(key or b"") % (1 if found is None else len(found.logs))
        self._rows.append(Row(topic, partition, key, value, headers, timestamp))

    def poll(self, timeout_s: float) -> int:
        if self._is_slow():
            self._trickle(timeout_s)
        elif self._rows:
            self._send()
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        world = cluster()
        if self._is_slow():
            self._trickle(timeout_s)
        elif self._rows:
            self._send()
        self._refuse_if_fatal()
        if self._rows:
            raise failure(KafkaError._TIMED_OUT, retriable=True)
        transactional_id, epoch, transaction = self._transactional_id, self._epoch, self._transaction

        def effect() -> None:
            world.broker.commit(transactional_id, epoch, transaction, world.scheduler.now)

        def lost(fate: Fate) -> None:
            slowly = fate in (Fate.TIMED_OUT, Fate.LOST_LONG)
            raise failure(KafkaError._TIMED_OUT if slowly else KafkaError._TRANSPORT, retriable=slowly)

        try:
            world.scheduler.call("commit", effect, lost, timeout_s=timeout_s)
        except Refused as error:
            self._fail(error.code)
            self._refuse_if_fatal()
        self._begun = False

    def abort_transaction(self, timeout_s: float) -> None:
        world, transactional_id, epoch = cluster(), self._transactional_id, self._epoch
        if self._fatal == KafkaError._FENCED:
            raise failure(self._fatal)
        self._rows.clear()
        self._epoch = ask(
            "abort", lambda: world.broker.abort(transactional_id, epoch, world.scheduler.now), timeout_s=timeout_s
        )
        self._begun, self._fatal = False, None

    def flush(self, timeout_s: float) -> int:
        if self._is_slow():
            self._trickle(timeout_s)
        elif self._rows:
            self._send(timeout_s)
        return len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def purge(self) -> None:
        self._rows.clear()

    @property
    def _transactional_id(self) -> str:
        if self._id is None:
            raise ValueError("no transactional producer")
        return self._id

    def _is_slow(self) -> bool:
        return bool(self._rows) and cluster().row_s(self._rows[0].topic) > 0

    def _trickle(self, timeout_s: float) -> None:
        """For so long what waits goes out over a slow link, one row after the other."""
        scheduler = cluster().scheduler
        end = scheduler.now + timeout_s
        while self._rows and self._fatal is None and scheduler.now < end:
            self._through_at = self._through_at or scheduler.now + cluster().row_s(self._rows[0].topic)
            scheduler.wait("slow", None, min(self._through_at, end) - scheduler.now)
            if scheduler.now >= self._through_at:
                self._through_at = 0.0
                self._send(most=1)

    def _send(self, timeout_s: float = 10.0, *, most: int | None = None) -> None:
        """Sends what waits. What isn't answered is sent again later, and stands in the log once."""
        world, rows, sequence, epoch = cluster(), self._rows[:most], self._sent, self._epoch

        def effect() -> None:
            # Of a request that arrives late, the broker drops what the next one has brought.
            new = rows[self._sent - sequence :] if epoch == self._epoch else rows
            if rows and not new:
                return
            if self._id is None:
                self._send_plainly(new)
            else:
                self._transaction = world.broker.send(self._id, epoch, new, world.scheduler.now)
            self._sent += len(new)
            del self._rows[: len(new)]

        def lost(fate: Fate) -> None:
            if self._id is None and fate in (Fate.FAILED, Fate.TIMED_OUT):
                self._on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), Message(topic=rows[0].topic))
                del self._rows[: len(rows)]

        try:
            world.scheduler.call("send", effect, lost, timeout_s=timeout_s)
        except Refused as error:
            self._rows.clear()
            self._on_delivery(KafkaError(error.code), Message(topic=error.topic or rows[0].topic))
            self._fail(error.code)

    def _send_plainly(self, rows: Iterable[Row]) -> None:
        """What is refused, only the delivery callback tells."""
        world = cluster()
        for row in rows:
            if world.refuses_row():
                self._on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), Message(topic=row.topic))
            elif world.broker.refuses(row):
                self._on_delivery(KafkaError(KafkaError.INVALID_RECORD), Message(topic=row.topic))
            else:
                world.broker.append([row])

    def _fail(self, code: int) -> None:
        self._fatal = code
        if code == KafkaError._FENCED and self._id is not None:
            cluster().on_fenced(self._id)

    def _refuse_if_fatal(self) -> None:
        if self._fatal is not None and self._id is not None:
            raise failure(self._fatal)


class Message:
    """A record, or an event."""

    def __init__(
        self,
        record: Record | None = None,
        *,
        offset: int = -1,
        code: int | None = None,
        topic: str = "",
        partition: int = 0,
    ) -> None:
        self._record = record
        self._topic, self._partition = topic, partition
        self._offset = offset if record is None else record.offset
        self._code = code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def leader_epoch(self) -> int | None:
        return None if self._record is None else self._record.leader_epoch

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None if self._record is None else self._record.key

    def value(self) -> bytes | None:
        return None if self._record is None else self._record.value

    def timestamp(self) -> tuple[int, int]:
        return 1, -1 if self._record is None else self._record.timestamp

    def headers(self) -> Headers:
        return None if self._record is None else self._record.headers


@dataclass
class _Place:
    """Where a consumer stands in a partition that it is assigned."""

    topic: str
    partition: int
    position: int
    told_end: int = -1
    broken: bool = False


def _listed(topic: str, timeout: float) -> SimpleNamespace:
    topics = dict(cluster().broker.topics)
    return ask(
        "describe",
        lambda: SimpleNamespace(brokers={1: topic}, topics=topics, cluster_id="model"),
        timeout_s=timeout,
    )


class Consumer:
    """Reads what it is assigned. The end is told once for each position."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._committed = config.get("isolation.level", "read_committed") == "read_committed"
        self._reset = config.get("auto.offset.reset", "latest")
        self._places: list[_Place] = []
        self._fetched: list[Message] = []

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._places = [
            _Place(at.topic, at.partition, 0 if at.offset == OFFSET_BEGINNING else at.offset) for at in partitions
        ]
        self._fetched = []

    def consume(self, count: int, _timeout_s: float) -> list[Message]:
        """What was fetched before, up to a record that readers act on; nothing, where the background is late."""
        if not self._fetched:
            cluster().scheduler.call("read", self._fetch, lambda _: None)
        stops = (
            at for at, each in enumerate(self._fetched, 1) if (each.key() or b"").endswith((b"/meta", b"/sentinel"))
        )
        return self._take(next(stops, count))

    def poll(self, timeout_s: float) -> Message | None:
        if not self._fetched:
            cluster().scheduler.wait("poll", lambda: any(map(self._is_there, self._places)), timeout_s)
            self._fetch()
        return next(iter(self._take(1)), None)

    def _take(self, count: int) -> list[Message]:
        found, self._fetched = self._fetched[:count], self._fetched[count:]
        if found:
            # The event of the end tells where the next record will stand.
            cluster().on_read(found[-1].topic(), found[-1].offset() + (found[-1].error() is None))
        return found

    def get_watermark_offsets(self, at: TopicPartition, timeout: float, *, cached: bool = False) -> tuple[int, int]:
        if cached:
            raise ValueError("what is cached may be old")
        log = ask("offsets", lambda: cluster().broker.log(at.topic, at.partition), timeout_s=timeout)
        return log.low, log.stable if self._committed else log.high

    def list_topics(self, topic: str = "", *, timeout: float) -> SimpleNamespace:
        return _listed(topic, timeout)

    def close(self) -> None:
        pass

    def _is_there(self, place: _Place) -> bool:
        topic = cluster().broker.topics.get(place.topic)
        if topic is None or place.broken:
            return not place.broken
        log = topic.logs[place.partition]
        end = log.stable if self._committed else log.high
        return end != place.position or place.told_end != place.position

    def _fetch(self) -> None:
        for place in self._places:
            if not place.broken:
                self._fetch_from(place)

    def _fetch_from(self, place: _Place) -> None:
        topic = cluster().broker.topics.get(place.topic)
        if topic is None:
            self._event(place, KafkaError.UNKNOWN_TOPIC_OR_PART)
            return
        log = topic.logs[place.partition]
        if not log.low <= place.position <= log.high and not self._find_position(place, log.low, log.high):
            return
        records, end = log.read(place.position, committed=self._committed)
        self._fetched += [Message(record, topic=place.topic, partition=place.partition) for record in records]
        place.position = end
        if place.told_end != end:
            place.told_end = end
            self._event(place, KafkaError._PARTITION_EOF, end)

    def _find_position(self, place: _Place, low: int, high: int) -> bool:
        """The position is out of range: what auto.offset.reset says."""
        if self._reset == "error":
            self._event(place, KafkaError._AUTO_OFFSET_RESET)
            return False
        place.position = low if self._reset in ("earliest", "smallest", "beginning") else high
        return True

    def _event(self, place: _Place, code: int, offset: int = -1) -> None:
        place.broken = code != KafkaError._PARTITION_EOF
        self._fetched.append(Message(offset=offset, code=code, topic=place.topic, partition=place.partition))


class AdminClient:
    def __init__(self, _config: Mapping[str, Any]) -> None:
        pass

    def poll(self, _timeout_s: float) -> int:
        return 0

    def list_topics(self, topic: str = "", *, timeout: float) -> SimpleNamespace:
        return _listed(topic, timeout)

    def describe_topics(
        self, names: TopicCollection, *, request_timeout: float, include_authorized_operations: bool = False
    ) -> dict[str, Future[Any]]:
        allowed = [AclOperation.READ, AclOperation.WRITE] if include_authorized_operations else None

        known = cluster().topics_known()

        def describe(name: str) -> SimpleNamespace:
            if known is not None and name not in known:
                raise Refused(KafkaError.UNKNOWN_TOPIC_OR_PART, name)
            topic = cluster().broker.topic(name)
            replicas = SimpleNamespace(replicas=[1])
            return SimpleNamespace(
                topic_id=topic.id, partitions=[replicas for _ in topic.logs], authorized_operations=allowed
            )

        return _answers("describe", names.topic_names, describe, request_timeout)

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        def describe(resource: ConfigResource) -> dict[str, SimpleNamespace]:
            config = {"max.message.bytes": "1048588", **cluster().broker.topic(resource.name).config}
            return {name: SimpleNamespace(value=value) for name, value in config.items()}

        return _answers("describe", resources, describe, request_timeout)

    def create_topics(
        self, topics: list[NewTopic], *, request_timeout: float, validate_only: bool = False
    ) -> dict[str, Future[Any]]:
        asked = {topic.topic: topic for topic in topics}

        def create(name: str) -> None:
            new = asked[name]
            if not validate_only:
                if name not in cluster().broker.topics:
                    cluster().on_create(name)
                cluster().broker.create(name, max(1, new.num_partitions), new.config)

        return _answers("create", list(asked), create, request_timeout)

    def list_offsets(
        self,
        asked: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel,
        request_timeout: float,
    ) -> dict[TopicPartition, Future[Any]]:
        def offset(at: TopicPartition) -> SimpleNamespace:
            log = cluster().broker.log(at.topic, at.partition)
            if asked[at] is OffsetSpec.earliest():
                return SimpleNamespace(offset=log.low)
            return SimpleNamespace(offset=log.stable if isolation_level is IsolationLevel.READ_COMMITTED else log.high)

        return _answers("list", list(asked), offset, request_timeout)


K = TypeVar("K")


def _answers(label: str, asked: list[K], answer: Callable[[K], object], timeout_s: float) -> dict[K, Future[Any]]:
    """One request about several things, each with an answer of its own."""
    futures: dict[K, Future[Any]] = {each: Future() for each in asked}

    def effect() -> dict[K, object]:
        answers: dict[K, object] = {}
        for each in asked:
            try:
                answers[each] = answer(each)
            except Refused as error:
                answers[each] = failure(error.code)
        return answers

    try:
        answers = ask(label, effect, timeout_s=timeout_s)
    except KafkaException as error:
        answers = dict.fromkeys(asked, error)
    for each, future in futures.items():
        found = answers[each]
        if isinstance(found, KafkaException):
            future.set_exception(found)
        else:
            future.set_result(found)
    return futures
