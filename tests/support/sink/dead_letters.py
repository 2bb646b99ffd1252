"""A sink with a dead-letter topic, a source whose records are known byte for byte, and the judgement of both."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkpipeline.core.batch import OffsetRange, Receipt
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import DeadLetter, parse
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.progress_records import encode
from sinkpipeline.core.topics import Memory, TopicRequest
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings
from sinkpipeline.sinks.at_least_once import AtLeastOnceWriter
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.exactly_once import ExactlyOnceWriter
from sinkpipeline.sinks.starting import StartedSink
from sinkpipeline.sinks.worker import Worker
from support.kafka import topics
from support.kafka.topics import Record, Whole
from support.sink.one_sink import OneSink, plan_of

AT_MS = 1_700_000_000_000


def records(count: int, *, chance: random.Random | None = None) -> list[Whole]:
    """Records that are told apart by their keys; with a `chance`, of any bytes."""
    if chance is None:
        return [(f"v{n}".encode(), f"k{n}".encode(), [("h", f"{n}".encode())], AT_MS + n) for n in range(count)]
    return [
        (
            chance.choice([None, b"", chance.randbytes(chance.randrange(300))]),
            chance.choice([None, b"", chance.randbytes(chance.randrange(30))]),
            [
                (chance.choice(["h", "h", "\u00fc \u2603", "sinkpipeline.dlq.version"]), _bytes_or_none(chance))
                for _ in range(chance.randrange(3))
            ],
            chance.choice([1, AT_MS, AT_MS + n]),
        )
        for n in range(count)
    ]


def _bytes_or_none(chance: random.Random) -> bytes | None:
    return chance.choice([None, b"", chance.randbytes(20)])


@dataclass
class Lettered:
    """A started sink of one source partition, and its batches one after another."""

    servers: str
    source: list[Whole]
    exactly_once: bool = True
    drop: bool = False
    auto_create: bool = True
    data_config: Mapping[str, str] = field(default_factory=dict)
    dead_config: Mapping[str, str] = field(default_factory=dict)
    dead_partitions: int | None = None
    given: OneSink | None = None
    """A sink that reaches the broker in a way of its own."""
    sink: OneSink = field(init=False)
    started: StartedSink = field(init=False)
    state: PartitionProgress = field(init=False)
    _runs: int = 0

    def __post_init__(self) -> None:
        self.sink = self.given or OneSink(self.servers)
        # The records are old, and retention would take them.
        topics.alter_topic(self.servers, self.sink.source, {"retention.ms": "-1"})
        topics.produce_whole(self.servers, self.sink.source, self.source)
        self.start()

    @property
    def at(self) -> SourcePartition:
        return self.sink.at()

    @property
    def settings(self) -> SinkSettings:
        return self.sink.settings(
            data=TopicRequest(name=self.sink.data, config=self.data_config),
            exactly_once=self.exactly_once,
            dead_letter=DeadLetterSettings(
                topic=TopicRequest(name=self.sink.dead, partitions=self.dead_partitions, config=self.dead_config),
                auto_create=self.auto_create,
                drop=self.drop,
            ),
        )

    def start(self, memory: Memory | None = None) -> None:
        """A first start, or a later one, which reads the truth; a lost progress topic is seeded from the memory."""
        self._runs += 1
        changes = {"data": self.settings.data, "dead_letter": self.settings.dead_letter}
        self.started = self.sink.starter(f"run-{self._runs}", memory, exactly_once=self.exactly_once, **changes).start()
        self.started.hold.close()
        self.state = self.started.progress.partitions[self.at]

    def plan(self, end: int | None = None, **changes: Any) -> BatchPlan:
        end = len(self.source) if end is None else end
        found = {"ranges": {self.at: OffsetRange(self.state.next, end)}, "frontier": {self.at: self.state}}
        return plan_of(self.sink, self.started, end, **{"settings": self.settings, **found, **changes})

    def writer(
        self, end: int | None = None, *, cuts: CutPolicy | None = None, worker: Worker | None = None, **plan: Any
    ) -> ExactlyOnceWriter | AtLeastOnceWriter:
        kind = ExactlyOnceWriter if self.exactly_once else AtLeastOnceWriter
        return kind(self.plan(end, **plan), self.at, worker or Worker(), cuts=cuts)

    def rows(
        self,
        offsets: range,
        *,
        bad: Collection[int] = (),
        astray: Collection[int] = (),
        without: Collection[int] = (),
        keyless: Collection[int] = (),
        values: Mapping[int, bytes] | None = None,
        timestamps: Mapping[int, int] | None = None,
    ) -> RowBatch:
        """Rows as the transform makes them: other than the source's, unless the record could not be decoded."""
        left = [offset for offset in offsets if offset not in without]
        values, timestamps = values or {}, timestamps or {}
        kept = {offset: self.source[offset] for offset in bad}
        return RowBatch(
            offsets=left,
            keys=[kept[n][1] if n in kept else None if n in keyless else b"key" for n in left],
            values=[kept[n][0] if n in kept else values.get(n, f"row {n}".encode()) for n in left],
            target_partitions=[7 if n in astray else -1 for n in left] if astray else None,
            timestamps=[kept[n][3] if n in kept else timestamps.get(n, 0) for n in left],
            headers=[list(kept[n][2]) if n in kept else [("own", b"1")] for n in left],
            errors=["MalformedJson: no object" if n in kept else None for n in left] if bad else None,
            size=100 * len(left) + sum(map(len, values.values())) + sum(len(one[0] or b"") for one in kept.values()),
        )

    def write(self, *batches: RowBatch, cuts: CutPolicy | None = None, end: int | None = None) -> Receipt:
        """One batch of Spark's; its receipt is believed, as the driver does."""
        writer = self.writer(end, cuts=cuts)
        try:
            for batch in batches:
                writer.write(batch)
            writer.finish()
        finally:
            self.take(writer.receipt())
        return writer.receipt()

    def take(self, receipt: Receipt) -> None:
        if receipt.progress is None:
            raise ValueError("a writer knows its progress")
        self.state = receipt.progress
        if not self.exactly_once:
            progress = Progress(partitions={self.at: receipt.progress})
            control = TransactionalProducer(self.settings.connection, self.sink.id.control_id)
            control.write(self.sink.progress, encode(self.sink.id, progress))
            control.close()

    # What an independent consumer finds

    def delivered(self) -> list[int]:
        """The source offsets of the rows, in the data topic's order; of AtLeastOnce each but once."""
        found = [int(text.split()[1]) for text in self.sink.delivered()]
        return found if self.exactly_once else sorted({*found})

    def dead(self) -> list[DeadLetter]:
        """The dead letters, by source offset; each holds its record byte for byte."""
        found = [self._dead_letter(record) for record in self._dead_records()]
        return sorted(found, key=lambda letter: letter.record.offset)

    def dead_offsets(self) -> list[int]:
        """Of AtLeastOnce each but once: it may repeat some."""
        found = [letter.record.offset for letter in self.dead()]
        return found if self.exactly_once else sorted({*found})

    def _dead_records(self) -> list[Record]:
        if topics.topic_id(self.servers, self.sink.dead) is None:
            return []
        return topics.read_committed(self.servers, self.sink.dead)

    def _dead_letter(self, record: Record) -> DeadLetter:
        letter = parse(record.value, record.key, list(record.headers))
        value, key, headers, timestamp = self.source[letter.record.offset]
        assert (record.value, record.key) == (value, key), "the payload is the source's, byte for byte"
        assert record.headers[: len(headers)] == headers, "the source's headers come first"
        assert (letter.record.headers or [], letter.record.timestamp) == (headers, timestamp)
        assert (letter.sink, letter.record.partition) == (self.sink.id, self.at)
        return letter

    def counts(self) -> tuple[int, int, int, int]:
        """Next, rows, dead, dropped: as the progress topic says."""
        found = self.sink.truth()[f"p/{self.sink.source}/0"]
        return found["next"], found["rows"], found["dead"], found["dropped"]

    def classes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Dead letters and dropped records by class: as the progress topic says."""
        found = self.sink.truth()[f"p/{self.sink.source}/0"]
        return found.get("deadByClass", {}), found.get("droppedByClass", {})

    def steal(self) -> None:
        """Another instance takes the partition's id, and dies."""
        TransactionalProducer(self.sink.connection, self.sink.id.partition_id(self.at)).close()
