"""A Kafka cluster as far as the protocol can tell: logs, transactions, fencing, time-outs, compaction, topic ids.

It has no clock, no network and no threads: every method is one moment of the cluster, and is told what time it is.
What is refused raises Refused with the client's own error code.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

Headers = list[tuple[str, bytes | None]] | None


class Refused(Exception):
    """The cluster's answer is an error; `topic` where it is about one."""

    def __init__(self, code: int, topic: str | None = None) -> None:
        super().__init__(code, topic)
        self.code = code
        self.topic = topic


class Decision(enum.Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """Decided at one moment for all of its partitions; its markers may be written to them later."""

    transactional_id: str
    ends_at: float
    """When the coordinator aborts it."""
    decision: Decision = Decision.OPEN
    unmarked: dict[Log, int] = field(default_factory=dict)
    """Where no marker stands yet, with the offset of its first record there."""
    marked_at: float = 0.0


@dataclass(frozen=True, eq=False)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    transaction: Transaction | None
    leader_epoch: int = 0

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.decision is Decision.COMMITTED


class Log:
    """One partition. Offsets of markers and of compacted records stay empty."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.low = 0
        self.high = 0
        self.leader_epoch = 0
        self.open: dict[Transaction, int] = {}
        self.history: list[Record] = []
        """Everything that was ever appended, for the judge: compaction doesn't touch it."""

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.high)

    def append(self, row: Row, transaction: Transaction | None) -> None:
        record = Record(self.high, row.key, row.value, row.headers, row.timestamp, transaction, self.leader_epoch)
        self.records.append(record)
        self.history.append(record)
        if transaction is not None and transaction not in self.open:
            self.open[transaction] = self.high
            transaction.unmarked[self] = self.high
        self.high += 1

    def mark(self, transaction: Transaction) -> None:
        del self.open[transaction]
        self.high += 1

    def read(self, position: int, *, committed: bool) -> tuple[list[Record], int]:
        """What a fetch from `position` gives, and where the reader stands then."""
        end = self.stable if committed else self.high
        found = [
            record
            for record in self.records
            if position <= record.offset < end and (not committed or record.is_committed)
        ]
        return found, max(position, end)

    def compact(self, bound: int) -> None:
        """Removes what was aborted, and what a newer committed record of its key supersedes, below `bound`."""
        bound = min(bound, self.stable)
        newest = {record.key: record.offset for record in self.records if record.is_committed and record.offset < bound}
        self.records = [
            record
            for record in self.records
            if record.offset >= bound or (record.is_committed and newest[record.key] == record.offset)
        ]

    def truncate(self, before: int) -> None:
        self.low = max(self.low, min(before, self.stable))
        self.records = [record for record in self.records if record.offset >= self.low]

    def lose_end(self, at: int) -> None:
        """A leader that doesn't have the records from this offset on takes over. Nothing is open there."""
        self.high = max(self.low, at)
        self.records = [record for record in self.records if record.offset < self.high]
        self.leader_epoch += 1


@dataclass(frozen=True, eq=False)
class Topic:
    name: str
    id: str
    logs: list[Log]
    config: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """A record on its way to the cluster."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = None
    timestamp: int = 0


@dataclass
class _Id:
    """What the coordinator knows of a transactional id."""

    epoch: int = -1
    timeout_s: float = 60.0
    transaction: Transaction | None = None


class Broker:
    def __init__(self, *, marker_delay_s: float = 0.0) -> None:
        self.topics: dict[str, Topic] = {}
        self.marker_delay_s = marker_delay_s
        """Markers are written so much later than the transaction is decided, unless somebody waits for them."""
        self.on_commit: Callable[[], None] = lambda: None
        """Called after each moment that shows something new to read_committed consumers, or soon will."""
        self.refuses: Callable[[Row], bool] = lambda _: False
        """Whether a record is refused for what it is."""
        self.version = 0
        """Grows whenever a committed record comes or goes."""
        self._ids: dict[str, _Id] = {}
        self._numbers = itertools.count()

    # Topics

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        if name in self.topics:
            raise Refused(KafkaError.TOPIC_ALREADY_EXISTS)
        logs = [Log() for _ in range(partitions)]
        self.topics[name] = Topic(name, f"id-{next(self._numbers)}-of-{name}", logs, dict(config or {}))
        self.version += 1
        return self.topics[name]

    def delete(self, name: str) -> None:
        """The topic and what stands in it is gone; open transactions go on without it."""
        for log in self.topics.pop(name).logs:
            for transaction in log.open:
                transaction.unmarked.pop(log, None)
        self.version += 1

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise Refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self.topics[name]

    def log(self, name: str, partition: int) -> Log:
        logs = self.topic(name).logs
        if partition >= len(logs):
            raise Refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return logs[partition]

    # Transactions

    def init(self, transactional_id: str, timeout_s: float, now: float) -> int:
        """InitProducerId: aborts what is open, fences who held the id, and returns the epoch of the new holder."""
        self.pass_time(now)
        known = self._ids.setdefault(transactional_id, _Id())
        if known.transaction is not None:
            self._settle(known.transaction, now)
        known.timeout_s = timeout_s
        known.epoch += 1
        return known.epoch

    def send(self, transactional_id: str, epoch: int, rows: Iterable[Row], now: float) -> Transaction | None:
        """Appends rows to the id's transaction, which begins with its first row."""
        self.pass_time(now)
        known = self._held(transactional_id, epoch)
        rows = list(rows)
        for row in rows:
            self.check(row)
        for row in rows:
            log = self.log(row.topic, row.partition)
            transaction = known.transaction
            if transaction is None or transaction.decision is not Decision.OPEN:
                if transaction is not None:
                    self._settle(transaction, now)
                transaction = known.transaction = Transaction(transactional_id, now + known.timeout_s)
            log.append(row, transaction)
        return known.transaction

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction | None, now: float) -> None:
        """EndTxn of this very transaction; asked for twice, it answers twice."""
        self.pass_time(now)
        self._held(transactional_id, epoch)
        if transaction is None or transaction.decision is Decision.COMMITTED:
            return
        if transaction.decision is Decision.ABORTED:
            raise Refused(KafkaError._FENCED)
        self._decide(transaction, Decision.COMMITTED, now)

    def abort(self, transactional_id: str, epoch: int, now: float) -> int:
        """EndTxn of what is open, if anything is; and the holder's next epoch, in which nothing sent before counts."""
        self.pass_time(now)
        known = self._held(transactional_id, epoch)
        transaction = known.transaction
        if transaction is not None and transaction.decision is Decision.OPEN:
            self._decide(transaction, Decision.ABORTED, now)
        known.epoch += 1
        return known.epoch

    def check(self, row: Row) -> None:
        if self.refuses(row):
            raise Refused(KafkaError.INVALID_RECORD, row.topic)

    def append(self, rows: Iterable[Row]) -> None:
        """Records outside of transactions."""
        for row in rows:
            self.log(row.topic, row.partition).append(row, None)
        self._changed()

    def forget(self, transactional_id: str) -> None:
        """The id expires (transactional.id.expiration.ms); nothing of it may be open."""
        known = self._ids.get(transactional_id)
        if known is not None and (known.transaction is None or not known.transaction.unmarked):
            # A new holder gets another producer id, which here is an epoch that nobody had.
            known.epoch += 1000

    def pass_time(self, now: float) -> None:
        """What the cluster does by itself: late markers, and the time-out of transactions, which fences their owner."""
        for known in self._ids.values():
            transaction = known.transaction
            if transaction is None:
                continue
            if transaction.decision is Decision.OPEN and transaction.ends_at <= now:
                known.epoch += 1
                self._settle(transaction, now)
            elif transaction.unmarked and transaction.decision is not Decision.OPEN and transaction.marked_at <= now:
                self._mark(transaction)

    def next_event(self) -> float:
        """When `pass_time` will have something to do next."""
        found = [known.transaction for known in self._ids.values() if known.transaction is not None]
        times = [each.ends_at if each.decision is Decision.OPEN else each.marked_at for each in found if each.unmarked]
        return min(times, default=float("inf"))

    def holder(self, transactional_id: str) -> int:
        return self._ids[transactional_id].epoch if transactional_id in self._ids else -1

    def _changed(self) -> None:
        self.version += 1
        self.on_commit()

    def _held(self, transactional_id: str, epoch: int) -> _Id:
        known = self._ids[transactional_id]
        if known.epoch != epoch:
            raise Refused(KafkaError._FENCED)
        return known

    def _settle(self, transaction: Transaction, now: float) -> None:
        """Somebody waits for the end of a transaction: it is aborted if it is open, and its markers are written."""
        if transaction.decision is Decision.OPEN:
            self._decide(transaction, Decision.ABORTED, now)
        self._mark(transaction)

    def _decide(self, transaction: Transaction, decision: Decision, now: float) -> None:
        transaction.decision = decision
        transaction.marked_at = now + self.marker_delay_s
        if self.marker_delay_s == 0:
            self._mark(transaction)
        if decision is Decision.COMMITTED:
            self._changed()

    def _mark(self, transaction: Transaction) -> None:
        for log in transaction.unmarked:
            log.mark(transaction)
        transaction.unmarked.clear()
