"""What writers of all kinds have in common, on a sink that is a list: cuts, verdicts, the search for bad records."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import NoDeadLetter, ProgressRefused, RecordRefused
from sinkpipeline.core.progress import Owner, PartitionProgress
from sinkpipeline.core.records import Row
from sinkpipeline.core.row_limits import Limits
from sinkpipeline.core.tally import checked
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.sinks import contract
from sinkpipeline.sinks.contract import BatchPlan, RowBatch
from sinkpipeline.sinks.dead_letters import DeadLetters
from sinkpipeline.sinks.held import Bisection
from sinkpipeline.sinks.partition_writer import JudgedAnew, PartitionWriter
from sinkpipeline.sinks.whole_records import grouped
from sinkpipeline.sinks.worker import Worker
from support.sink.starts import refusal

AT = SourcePartition("source", 0)
CONNECTION = Connection(bootstrap_servers="nowhere:1")
DATA, DEAD, PROGRESS = "data", "dead", "progress"
NOT_LAST = b"."
"""Of a row behind which its record has more; the client and the brokers refuse a record for its last one."""
REFUSED = Verdict(ErrorClass.RECORD_REFUSED, "the broker says no", "INVALID_RECORD")


def plan_of(*, letters: bool = True, drop: bool = False, row_bytes: int = 10_000) -> BatchPlan:
    return BatchPlan(
        kind=KAFKA,
        settings=SinkSettings(
            id=SinkId("i", "s"),
            owner=Owner(cluster="file", name="n"),
            source=SourceSettings(connection=CONNECTION, topics=(AT.topic,)),
            connection=CONNECTION,
            data=TopicRequest(name=DATA),
            progress=TopicRequest(name=PROGRESS),
            dead_letter=DeadLetterSettings(topic=TopicRequest(name=DEAD), drop=drop) if letters else None,
        ),
        run="r",
        data_limits=TopicLimits(partitions=2, message_bytes=row_bytes),
        letter_limits=TopicLimits(partitions=1, message_bytes=20_000),
        data_topic_id="d",
        progress_topic_id="p",
        verified=0,
        ranges={AT: OffsetRange(0, 10_000)},
        frontier={AT: PartitionProgress(epoch=0, next=0)},
        owners={},
    )


@dataclass
class World:
    """What Kafka refuses, by source offset, and what it has taken."""

    by_client: set[int] = field(default_factory=set)
    by_broker: set[int] = field(default_factory=set)
    letters_by_client: set[int] = field(default_factory=set)
    letters_by_broker: set[int] = field(default_factory=set)
    no_letters: set[int] = field(default_factory=set)
    progress_is_refused: bool = False
    not_together: set[int] = field(default_factory=set)
    """The brokers refuse a transaction with all of them, and each of them alone is well."""
    names_row: bool = False
    """Whether the server tells which row of those that were open it refuses."""
    interruptions: int = 0
    """So many cuts fail, every other one, for a reason that has nothing to do with the records."""
    topics: dict[str, list[int]] = field(default_factory=lambda: {DATA: [], DEAD: []})
    refusals: int = 0
    data_limits: TopicLimits | None = None
    """What the data topic takes now, where that is something else than the plan says."""
    takes_any_time: bool = True
    """Whether the brokers take the timestamps that we find too late or too early."""
    asked: list[int] = field(default_factory=list)
    """The timestamps that they were asked about."""


class _Letters(DeadLetters):
    def __init__(self, letters: DeadLetters, world: World) -> None:
        vars(self).update(vars(letters))
        self._world = world

    @override
    def row(self, batch: RowBatch, index: int, verdict: Verdict) -> Row:
        offset = batch.offsets[index]
        if offset in self._world.no_letters:
            raise NoDeadLetter("there is no such topic", "create it")
        return str(offset).encode(), None, -1, 0, None


class Writer(PartitionWriter):
    """Sends into a transaction that is a list."""

    def __init__(self, plan: BatchPlan, world: World, cuts: CutPolicy) -> None:
        super().__init__(plan, AT, Worker(), cuts)
        self.world = world
        self.open: list[tuple[str, int]] = []
        self.cuts: list[int] = []
        self.attempts = 0
        self.offsets: list[int] = []
        if self._letters is not None:
            self._letters = _Letters(self._letters, world)

    def run(self, batches: Iterable[RowBatch]) -> PartitionProgress:
        for batch in batches:
            self.offsets += [each for each in batch.offsets if each not in self.offsets[-1:]]
            self._hold(batch)
            self._guard(self._produce_held)
        self._hold_rest()
        self._guard(self._end)
        return self._state

    def _end(self) -> None:
        self._produce_held()
        self._cut(self._produced)

    def _guard(self, step: Callable[[], None]) -> None:
        while True:
            try:
                step()
            except RecordRefused as refusal:
                self.world.refusals += 1
                assert self.world.refusals < 10_000, "this never ends"
                self.open.clear()
                self._isolate(refusal)
                self._start_over()
            except (InterruptedError, JudgedAnew):
                self.open.clear()
                self._start_over()
            else:
                return

    @override
    def _read_limits(self) -> tuple[TopicLimits | None, TopicLimits | None]:
        return self.world.data_limits, None

    @override
    def _would_refuse(self, timestamp: int) -> Verdict | None:
        assert not self._is_open, "what is open would go with it"
        self.world.asked.append(timestamp)
        if self.world.takes_any_time:
            return None
        return Verdict(ErrorClass.INVALID_TIMESTAMP, "invalid timestamp", "INVALID_TIMESTAMP")

    @override
    def _begin(self) -> None:
        if not self._is_open:
            self._opened_at = time.monotonic()

    @override
    def _send(self, rows: Iterable[Row]) -> None:
        self._take(DATA, rows)

    @override
    def _send_dead(self, rows: Iterable[Row]) -> None:
        self._take(DEAD, rows)

    def _take(self, topic: str, rows: Iterable[Row]) -> None:
        of_client = self.world.letters_by_client if topic == DEAD else self.world.by_client
        for index, (value, *_) in enumerate(rows):
            word, _, place = (value or b"").partition(b" ")
            offset = int(word)
            if offset in of_client and not place.startswith(NOT_LAST):
                raise RecordRefused(REFUSED, topic, index)
            self.open.append((topic, offset))

    @override
    def _cut(self, next_offset: int) -> None:
        if not self._is_open:
            return
        for topic, offset in self.open:
            if offset in (self.world.letters_by_broker if topic == DEAD else self.world.by_broker):
                rows = [each for to, each in self.open if to == DATA]
                named = rows.index(offset) if self.world.names_row and topic == DATA else None
                raise RecordRefused(REFUSED, topic, open_index=named)
        if self.world.not_together and self.world.not_together <= {offset for _, offset in self.open}:
            raise RecordRefused(REFUSED, DATA)
        self.attempts += 1
        if self.world.interruptions and self.attempts % 2:
            self.world.interruptions -= 1
            raise InterruptedError
        if self.world.progress_is_refused:
            raise ProgressRefused(REFUSED, PROGRESS)
        for topic, offset in self.open:
            self.world.topics[topic].append(offset)
        self.open.clear()
        self.cuts.append(next_offset)
        self._count(self._advanced(next_offset))
        assert self._state.rows == len(self.world.topics[DATA])
        handled = len(set(self.world.topics[DATA])) + self._state.dead + self._state.dropped
        assert handled == bisect_left(self.offsets, next_offset), "progress is beyond what was handled"


def exploded(records: Sequence[tuple[int, int]], *, bad: Iterable[int] = (), astray: Iterable[int] = ()) -> RowBatch:
    """Records by offset, and how many rows each has; what is bad is so in its last row."""
    rows = [(offset, row, row == count - 1) for offset, count in records for row in range(count)]
    errors = [
        ErrorClass.EVALUATION_FAILED.error("no") if is_last and offset in bad else None for offset, _, is_last in rows
    ]
    targets = [7 if is_last and offset in astray else -1 for offset, _, is_last in rows]
    values: list[bytes | None] = [b"%d %s%d" % (offset, b"" if last else NOT_LAST, row) for offset, row, last in rows]
    flat = RowBatch(
        offsets=[offset for offset, _, _ in rows],
        keys=list(values),
        values=values,
        target_partitions=targets if max(targets) > 0 else None,
        timestamps=[0] * len(rows),
        headers=None,
        errors=errors if any(errors) else None,
        size=10 * len(rows),
    )
    return grouped(flat)


def cut_apart(batch: RowBatch, cuts: Iterable[int]) -> Iterator[RowBatch]:
    """As it travels: in Arrow batches, which end between any two rows."""
    rows = [offset for at, offset in enumerate(batch.offsets) for _ in range(batch.count(at, at + 1))]
    for begin, end in pairwise(sorted({0, len(rows), *(each for each in cuts if each < len(rows))})):
        part = replace(
            batch,
            offsets=rows[begin:end],
            firsts=None,
            keys=batch.keys[begin:end],
            values=batch.values[begin:end],
            target_partitions=batch.target_partitions and batch.target_partitions[begin:end],
            timestamps=batch.timestamps[begin:end],
            errors=batch.errors and batch.errors[begin:end],
        )
        yield grouped(part)


def batch_of(offsets: list[int], *, bad: Iterable[int] = (), astray: Iterable[int] = ()) -> RowBatch:
    values: list[bytes | None] = [str(offset).encode() for offset in offsets]
    errors = {offset: ErrorClass.MALFORMED_JSON.error("no object") for offset in bad}
    targets = dict.fromkeys(astray, 7)
    return RowBatch(
        offsets=offsets,
        keys=list(values),
        values=values,
        target_partitions=[targets.get(offset, -1) for offset in offsets] if targets else None,
        timestamps=[0] * len(offsets),
        headers=None,
        errors=[errors.get(offset) for offset in offsets] if errors else None,
        size=10 * len(offsets),
    )


some = st.sets(st.integers(0, 60), max_size=8)


@given(
    batches=st.lists(st.sets(st.integers(0, 60), min_size=1), min_size=1, max_size=3),
    bad=some,
    astray=some,
    world=st.builds(
        World,
        by_client=some,
        by_broker=st.one_of(some, st.sets(st.integers(0, 60))),
        letters_by_client=some,
        letters_by_broker=some,
        no_letters=some,
        interruptions=st.sampled_from([0, 0, 5]),
    ),
    cuts=st.sampled_from(
        [CutPolicy(), CutPolicy(rows=1), CutPolicy(rows=7), CutPolicy(bytes=50), CutPolicy(seconds=0)]
    ),
)
def test_every_record_has_one_end(
    batches: list[set[int]], bad: set[int], astray: set[int], world: World, cuts: CutPolicy
) -> None:
    offsets = sorted(set().union(*batches))
    bounds = sorted({0, 61, *(max(each) + 1 for each in batches)})
    parts = [offsets[bisect_left(offsets, low) : bisect_left(offsets, high)] for low, high in pairwise(bounds)]
    state = Writer(plan_of(drop=True), world, cuts).run(
        batch_of(part, bad=bad, astray=astray) for part in parts if part
    )
    failed = set(offsets) & (bad | astray | world.by_client | world.by_broker)
    lost = failed & (world.no_letters | world.letters_by_client | world.letters_by_broker)
    assert world.topics[DATA] == sorted(set(offsets) - failed)
    assert world.topics[DEAD] == sorted(failed - lost)
    assert (state.next, state.rows, state.dead, state.dropped) == (
        offsets[-1] + 1,
        len(offsets) - len(failed),
        len(failed) - len(lost),
        len(lost),
    )
    classes = dict.fromkeys(failed, "RecordRefused")
    classes |= dict.fromkeys(failed & astray, "PartitionOutOfRange") | dict.fromkeys(failed & bad, "MalformedJson")
    dead, dropped = (Counter(classes[offset] for offset in each) for each in (failed - lost, lost))
    assert state.by_class == checked(dead, dropped)


some_few = st.sets(st.integers(0, 11), max_size=2)


@settings(max_examples=150, deadline=None)
@given(
    several=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    arrow=st.sets(st.integers(1, 40), max_size=8),
    bad=some_few,
    astray=some_few,
    world=st.builds(
        World,
        by_client=some_few,
        by_broker=some_few,
        letters_by_client=some_few,
        letters_by_broker=some_few,
        no_letters=some_few,
        interruptions=st.sampled_from([0, 0, 5]),
    ),
    cuts=st.sampled_from(
        [CutPolicy(), CutPolicy(rows=1), CutPolicy(rows=3), CutPolicy(bytes=15), CutPolicy(seconds=0)]
    ),
)
def test_the_rows_of_a_record_go_together_or_not_at_all(
    several: list[int], arrow: set[int], bad: set[int], astray: set[int], world: World, cuts: CutPolicy
) -> None:
    batch = exploded(list(enumerate(several)), bad=bad, astray=astray)
    writer = Writer(plan_of(drop=True), world, cuts)
    state = writer.run(cut_apart(batch, arrow))
    failed = set(range(len(several))) & (bad | astray | world.by_client | world.by_broker)
    lost = failed & (world.no_letters | world.letters_by_client | world.letters_by_broker)
    rows = [offset for offset, count in enumerate(several) for _ in range(count) if offset not in failed]
    assert world.topics[DATA] == rows
    assert world.topics[DEAD] == sorted(failed - lost)
    assert (state.next, state.rows) == (len(several), len(rows))
    assert (state.dead, state.dropped) == (len(failed) - len(lost), len(lost))


def test_cuts_count_rows_and_fall_between_records() -> None:
    writer = Writer(plan_of(), World(), CutPolicy(rows=5))
    writer.run([exploded([(3, 2), (5, 2), (9, 7), (10, 1), (12, 5)])])
    assert writer.cuts == [6, 10, 11, 13]


def test_a_record_of_which_the_server_names_a_row_is_dead_lettered_as_a_whole() -> None:
    world = World(by_broker={5}, names_row=True)
    writer = Writer(plan_of(), world, CutPolicy())
    writer.run([exploded([(3, 2), (5, 3), (9, 2)])])
    assert (world.topics, world.refusals) == ({DATA: [3, 3, 9, 9], DEAD: [5]}, 1)


def test_rows_that_do_not_fit_into_a_commit_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "MOST_BYTES", 40)
    batch = exploded([(3, 2), (5, 9), (6, 1)])
    assert [batch.is_too_large(each) for each in range(3)] == [False, True, False]
    assert (batch.bad_rows(Limits(partitions=1)), batch.source_record(AT, 1)) == ([1], None)
    assert batch.verdict(1, Limits(partitions=1)).error_class is ErrorClass.TOO_MANY_ROWS
    for arrow in ({5, 8}, {2, 6, 7}, set(), {4, 11}):
        world = World()
        Writer(plan_of(), world, CutPolicy()).run(cut_apart(batch, arrow))
        assert world.topics == {DATA: [3, 3, 6], DEAD: [5]}


@pytest.mark.parametrize("count", [1, 2, 1000])
@pytest.mark.parametrize("at", [0, 0.5, 1])
@pytest.mark.parametrize("interruptions", [0, 100])
def test_one_refused_record_is_found_in_halves(count: int, at: float, interruptions: int) -> None:
    world = World(by_broker={int(at * (count - 1))}, interruptions=interruptions)
    writer = Writer(plan_of(), world, CutPolicy())
    writer.run([batch_of(list(range(count)))])
    assert world.topics[DEAD] == sorted(world.by_broker)
    assert len(world.topics[DATA]) == count - 1
    assert world.refusals <= 1 + math.ceil(math.log2(count))


def test_many_refused_records_cost_no_more_than_the_halves_of_each() -> None:
    world = World(by_broker=set(range(0, 4096, 100)))
    writer = Writer(plan_of(), world, CutPolicy())
    writer.run([batch_of(list(range(4096)))])
    assert world.topics[DEAD] == sorted(world.by_broker)
    assert world.refusals + len(writer.cuts) <= 2 * len(world.by_broker) * (1 + math.log2(4096 / 41) + 1)


def test_without_trouble_there_is_one_cut() -> None:
    world = World()
    writer = Writer(plan_of(), world, CutPolicy())
    writer.run([batch_of(list(range(10)), bad=[0, 3, 4, 9])])
    assert (writer.cuts, world.topics) == ([10], {DATA: [1, 2, 5, 6, 7, 8], DEAD: [0, 3, 4, 9]})


# Those that stop


@pytest.mark.parametrize("kind", ["decode", "client", "broker", "partition", "size"])
def test_without_dead_letters_everything_before_a_bad_row_counts(kind: str) -> None:
    world = World(
        by_client={3} if kind == "client" else set(),
        by_broker={3} if kind == "broker" else set(),
    )
    writer = Writer(plan_of(letters=False), world, CutPolicy())
    batch = batch_of(list(range(6)), bad=[3] if kind == "decode" else [], astray=[3] if kind == "partition" else [])
    if kind == "size":
        world.by_client = {3}  # then the client measures, and not we
    reason = Reason.RECORD_REFUSED if kind in ("client", "size", "broker") else Reason.RECORD_UNDECODABLE
    error = refusal(lambda: writer.run([batch]), reason)
    assert "offset 3" in error.message
    assert (world.topics[DATA], writer.cuts[-1]) == ([0, 1, 2], 3)


def test_without_dead_letters_a_named_row_is_where_the_sink_stops() -> None:
    world = World(by_broker={3, 5}, names_row=True)
    writer = Writer(plan_of(letters=False), world, CutPolicy())
    error = refusal(lambda: writer.run([batch_of(list(range(6)))]), Reason.RECORD_REFUSED)
    assert "offset 3" in error.message
    assert (world.topics[DATA], writer.cuts, world.refusals) == ([0, 1, 2], [3], 1)


@pytest.mark.parametrize("letters", [True, False])
def test_records_that_only_can_not_be_written_together_come_through(letters: bool) -> None:
    world = World(not_together={2, 4})
    writer = Writer(plan_of(letters=letters), world, CutPolicy())
    writer.run([batch_of(list(range(6)))])
    assert (world.topics[DATA], world.refusals) == (list(range(6)), 1)


@pytest.mark.parametrize("kind", ["no_letters", "letters_by_client", "letters_by_broker"])
def test_a_dead_letter_that_cannot_be_written_stops_the_sink(kind: str) -> None:
    world = World(**{kind: {3}})
    writer = Writer(plan_of(), world, CutPolicy())
    batch = batch_of(list(range(6)), bad=[1, 3])
    error = refusal(lambda: writer.run([batch]), Reason.DEAD_LETTER_FAILED)
    assert "offset 3" in error.message
    assert "MalformedJson: no object" in error.message
    assert "DropAndContinue" in error.remedy
    assert (world.topics, writer.cuts[-1]) == ({DATA: [0, 2], DEAD: [1]}, 3)


def test_refused_progress_is_nobody_s_fault() -> None:
    writer = Writer(plan_of(drop=True), World(progress_is_refused=True), CutPolicy())
    refusal(lambda: writer.run([batch_of([0, 1])]), Reason.RECORD_REFUSED)
    assert writer.world.refusals == 1


def test_trouble_with_the_dead_letter_topic_is_told_after_what_stands_before_it() -> None:
    world = World()
    writer = Writer(plan_of(drop=True), world, CutPolicy())

    def row(*_: object) -> Row:
        raise SinkPipelineError(Reason.TOPICS_CHANGED, "deleted", "again")

    assert writer._letters is not None
    writer._letters.row = row  # type: ignore[method-assign]
    refusal(lambda: writer.run([batch_of([0, 1, 2], bad=[2])]), Reason.TOPICS_CHANGED)
    assert (world.topics[DATA], writer.cuts) == ([0, 1], [2])


# Sizes


def sized(size: int, *values: bytes | None, headers: bool = False) -> RowBatch:
    return RowBatch(
        offsets=list(range(len(values))),
        keys=[None] * len(values),
        values=list(values),
        target_partitions=None,
        timestamps=[0] * len(values),
        headers=[[("h", b"x" * 100)]] * len(values) if headers else None,
        errors=None,
        size=size,
    )


def test_rows_are_measured_where_one_could_be_too_large() -> None:
    # A frame of 69 bytes where the length takes two: 61 of the batch, 2 of the record, 6 of its fields.
    fits, exceeds = b"x" * (1000 - 69 - 1), b"x" * (1000 - 69)
    limits = Limits(partitions=1, row_bytes=1000)
    assert sized(2000, fits, None, exceeds, b"").bad_rows(limits) == [2]
    assert sized(2000, fits, exceeds).verdict(1, limits).error_class is ErrorClass.RECORD_TOO_LARGE
    assert "1001 bytes" in sized(2000, fits, exceeds).verdict(1, limits).text
    assert sized(2000, fits[:-50], b"", headers=True).bad_rows(limits) == [0]
    assert sized(2000, exceeds).bad_rows(Limits(partitions=1, row_bytes=None)) == []


def test_a_small_batch_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def row_bytes(*_: object) -> int:
        raise AssertionError("measured")

    monkeypatch.setattr(RowBatch, "_row_bytes", row_bytes)
    assert sized(800, b"x" * 400, b"x" * 400).bad_rows(Limits(partitions=1, row_bytes=1000)) == []
    # Nor is a large one whose rows are small.
    assert sized(8000, *[b"x" * 400] * 20).bad_rows(Limits(partitions=1, row_bytes=1000)) == []


# Timestamps


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("earliest", "latest", "bad"),
    [(None, None, []), (NOW - 10, None, [1]), (None, NOW + 10, [4]), (NOW - 10, NOW + 10, [1, 4]), (-5, None, [])],
)
def test_timestamps_that_kafka_would_refuse(earliest: int | None, latest: int | None, bad: list[int]) -> None:
    batch = replace(batch_of(list(range(6))), timestamps=[0, NOW - 11, NOW - 10, NOW + 10, NOW + 11, -1])
    limits = Limits(partitions=1, earliest=earliest, latest=latest)
    assert batch.bad_rows(limits) == bad
    assert {batch.verdict(index, limits).error_class for index in bad} <= {ErrorClass.INVALID_TIMESTAMP}


def test_what_is_near_a_limit_is_left_to_the_brokers() -> None:
    now = time.time() * 1000
    recent = TopicLimits(partitions=2, max_age_ms=1000, max_ahead_ms=2000)
    limits = replace(plan_of(), data_limits=recent).limits()
    assert limits.earliest is not None
    assert limits.latest is not None
    assert abs(now - 61_000 - limits.earliest) < 10_000
    assert abs(now + 62_000 - limits.latest) < 10_000
    without = replace(plan_of(letters=False), data_limits=recent).limits()
    assert without == Limits(partitions=2)


LATE_LIMIT = TopicLimits(partitions=2, max_ahead_ms=2000)
HOUR = 3_600_000


def late(offsets: list[int], *hours: int) -> RowBatch:
    now = int(time.time() * 1000)
    return replace(batch_of(offsets), timestamps=[now + each * HOUR for each in hours])


def test_a_clock_that_brokers_show_to_be_wrong_judges_no_more() -> None:
    world = World()
    writer = Writer(replace(plan_of(), data_limits=LATE_LIMIT), world, CutPolicy())
    writer.run([late([0, 1, 2], 0, 9, 5), late([3], 7)])
    assert len(world.asked) == 1
    assert (world.topics, writer._worker.clock.is_wrong) == ({DATA: [0, 1, 2, 3], DEAD: []}, True)
    assert writer.cuts[0] == 1, "what stands before the question counts"


def test_brokers_are_asked_about_what_is_nearest_to_the_limit() -> None:
    world = World(takes_any_time=False)
    writer = Writer(replace(plan_of(), data_limits=LATE_LIMIT), world, CutPolicy())
    batches = [late([0, 1, 2], 0, 9, 5), late([3, 4], 7, 5), late([5], 3)]
    writer.run(batches)
    assert (world.topics, writer._worker.clock.is_wrong) == ({DATA: [0], DEAD: [1, 2, 3, 4, 5]}, False)
    assert world.asked == [batches[0].timestamps[2], batches[2].timestamps[0]]


@pytest.mark.parametrize("letters", [True, False])
def test_limits_are_read_again_before_a_row_is_beyond_them(letters: bool) -> None:
    world = World(data_limits=TopicLimits(partitions=8, message_bytes=10_000))
    writer = Writer(plan_of(letters=letters), world, CutPolicy())
    writer.run([batch_of([0, 1, 2], astray=[1])])
    assert (world.topics[DATA], world.topics[DEAD]) == ([0, 1, 2], [])


def test_limits_that_are_the_same_are_read_once() -> None:
    world = World(data_limits=plan_of().data_limits)
    writer = Writer(plan_of(), world, CutPolicy())
    writer.run([batch_of([0, 1, 2], astray=[1])])
    world.data_limits = TopicLimits(partitions=8)
    writer.run([batch_of([3, 4], astray=[4])])
    assert world.topics[DEAD] == [1, 4]


def test_a_compacted_topic_needs_keys() -> None:
    batch = replace(batch_of(list(range(3))), keys=[b"", None, b"k"])
    assert batch.bad_rows(Limits(partitions=1)) == []
    limits = Limits(partitions=1, keyed=True)
    assert batch.bad_rows(limits) == [1]
    assert batch.verdict(1, limits).error_class is ErrorClass.RECORD_REFUSED
    keyed = TopicLimits(partitions=2, needs_key=True)
    assert replace(plan_of(), data_limits=keyed).limits().keyed
    without = replace(plan_of(letters=False), data_limits=keyed).limits()
    assert without == Limits(partitions=2), "it is left to the broker"


# Bisection


@given(st.sets(st.integers(0, 200), min_size=2))
def test_a_split_makes_two_parts_of_at_most_half(offsets: set[int]) -> None:
    bisection, ordered = Bisection(), sorted(offsets)
    bisection.split(ordered)
    cut = bisection.cut
    assert cut is not None
    before = [each for each in ordered if each < cut]
    assert 0 < len(before) <= (len(ordered) + 1) // 2
    assert bisection.is_due(cut)
    bisection.was_cut(cut)
    assert bisection.cut == ordered[-1] + 1
    assert not bisection.is_due(ordered[-1])
    bisection.was_cut(ordered[-1] + 1)
    assert bisection.cut is None


@pytest.mark.parametrize(("bad", "most"), [({100}, 3), (set(range(256)), 600), (set(range(0, 256, 16)), 120)])
def test_records_that_are_told_one_by_one_are_not_sent_again_for_each(bad: set[int], most: int) -> None:
    """As of a server that tells the first of those which it refuses."""
    bisection, count = Bisection(), 256
    refused: set[int] = set()
    position = attempts = sent = 0
    while position < count:
        end = count if bisection.cut is None else bisection.cut
        attempts, sent = attempts + 1, sent + end - position
        told = min((each for each in range(position, end) if each in bad - refused), default=None)
        if told is None:
            bisection.was_cut(position := end)
        else:
            refused.add(told)
            bisection.told(told, range(told + 1, end))
    assert refused == bad
    assert attempts <= most
    assert sent <= count * 12
