"""Which batches a driver delivers itself, and what it writes of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sinkpipeline.core.batch import SMALL_BYTES, OffsetRange, Receipt, RecentSizes, is_small, rows_at_once
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import NoDeadLetter
from sinkpipeline.core.progress import Owner, PartitionProgress
from sinkpipeline.core.tally import checked
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection
from sinkpipeline.kafka.kind import KAFKA
from sinkpipeline.kafka.settings import DeadLetterSettings, SinkSettings, SourceSettings
from sinkpipeline.sinks import small_batches
from sinkpipeline.sinks.contract import BatchPlan
from sinkpipeline.sinks.dead_letters import DeadLetters
from sinkpipeline.sinks.small_batches import Prepared, SmallBatches
from support.sink.one_sink import rows
from support.sink.starts import refusal

P0, P1 = SourcePartition("raw", 0), SourcePartition("raw", 1)
CONNECTION = Connection(bootstrap_servers="nowhere:1")
SETTINGS = SinkSettings(
    id=SinkId("i", "s"),
    owner=Owner(cluster="file", name="n"),
    source=SourceSettings(connection=CONNECTION, topics=("raw",)),
    connection=CONNECTION,
    data=TopicRequest(name="data"),
    progress=TopicRequest(name="progress"),
    dead_letter=DeadLetterSettings(topic=TopicRequest(name="dead")),
)
BEFORE = PartitionProgress(epoch=3, next=10, rows=7, dead=2, by_class=checked({"WrongType": 2}))
PLAN = BatchPlan(
    kind=KAFKA,
    settings=SETTINGS,
    run="r",
    data_limits=TopicLimits(partitions=2),
    letter_limits=TopicLimits(partitions=1),
    data_topic_id="d",
    progress_topic_id="p",
    verified=0,
    ranges={P0: OffsetRange(10, 20), P1: OffsetRange(10, 14)},
    frontier={P0: BEFORE, P1: BEFORE},
    owners={},
    certain=True,
)


@pytest.fixture(autouse=True)
def no_topic_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadLetters, "_check_topic", lambda _: None)


def sent(prepared: Prepared) -> list[tuple[str, list[bytes | None]]]:
    return [(into.value, [row[0] for row in found]) for into, found in prepared.rows]


def test_a_batch_is_small_by_its_offsets_and_by_the_rows_that_came_lately() -> None:
    sizes = RecentSizes()
    ranges = {P0: OffsetRange(0, 1_000), P1: OffsetRange(5, 29)}
    assert is_small(ranges, sizes, most_offsets=10_000), "1,024 rows of the largest size fit"
    assert not is_small({P0: OffsetRange(0, 1_025)}, sizes, most_offsets=10_000)
    sizes.add(1_000, 100_000, 1_000)
    assert is_small({P0: OffsetRange(0, 10_000)}, sizes, most_offsets=10_000)
    assert not is_small({P0: OffsetRange(0, 10_001)}, sizes, most_offsets=10_000)
    sizes.add(10, SMALL_BYTES, 10)
    assert not is_small({P0: OffsetRange(0, 11)}, sizes, most_offsets=10_000), "the largest of them counts"
    for _ in range(8):
        sizes.add(1_000, 0, 0)
    assert not is_small({P0: OffsetRange(0, 11)}, sizes, most_offsets=10_000), "where nothing is left nothing is known"
    for _ in range(8):
        sizes.add(1_000, 1_000, 100)
    assert is_small({P0: OffsetRange(0, 10_000)}, sizes, most_offsets=10_000)
    sizes.add(1_000, 1_000, 4_000)
    assert is_small({P0: OffsetRange(0, 2_500)}, sizes, most_offsets=10_000)
    assert not is_small({P0: OffsetRange(0, 2_501)}, sizes, most_offsets=10_000), "it would have more rows"


def test_what_the_driver_takes() -> None:
    small = SmallBatches(SETTINGS)
    assert small.takes(PLAN)
    assert not small.takes(replace(PLAN, certain=False))
    assert not SmallBatches(SETTINGS, most_offsets=0).takes(PLAN)
    assert not SmallBatches(SETTINGS, most_offsets=13).takes(PLAN)
    assert not SmallBatches(replace(SETTINGS, exactly_once=False)).takes(PLAN)
    narrow = TopicLimits(partitions=1, message_bytes=100_000)
    assert not small.takes(replace(PLAN, data_limits=narrow)), "the client would send too much at once"
    assert not small.takes(replace(PLAN, letter_limits=narrow))
    without, slim = replace(SETTINGS, dead_letter=None), replace(SETTINGS, properties={"batch.size": "50000"})
    assert SmallBatches(without).takes(replace(PLAN, settings=without, letter_limits=narrow))
    assert SmallBatches(slim).takes(replace(PLAN, settings=slim, data_limits=narrow))
    small.told(PLAN, [Receipt(size=SMALL_BYTES), Receipt(size=SMALL_BYTES)])
    assert not small.takes(PLAN)


def test_after_a_batch_that_failed_tasks_deliver_for_ever_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(small_batches, "time", SimpleNamespace(monotonic=lambda: now))
    small = SmallBatches(SETTINGS)

    def pause() -> float:
        nonlocal now
        began = now
        small.failed(ValueError("no"))
        while not small.takes(PLAN):
            now += 10.0
        return now - began

    assert [pause() for _ in range(3)] == [60.0, 120.0, 240.0]
    assert [pause() for _ in range(5)][-2:] == [3600.0, 3600.0]
    small.succeeded()
    assert pause() == 60.0


def test_after_rows_that_were_collected_for_nothing_tasks_deliver_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(small_batches, "time", SimpleNamespace(monotonic=lambda: now))
    small = SmallBatches(SETTINGS)
    for _ in range(2):
        small.left_to_tasks()
        now += 59
        assert not small.takes(PLAN)
        now += 1
        assert small.takes(PLAN), "it is no failure: the pause does not grow"


def test_rows_dead_letters_and_the_progress_of_every_range() -> None:
    batches = [(P0, rows(range(10, 13), bad=[11])), (P0, rows(range(15, 17)))]
    prepared = SmallBatches(SETTINGS).prepared(PLAN, batches, at=5)
    assert prepared is not None
    assert sent(prepared) == [
        ("letters", [b"11"]),
        ("target", [b"10"]),
        ("target", [b"12"]),
        ("target", [b"15", b"16"]),
    ]
    assert prepared.delivered == 4
    assert prepared.progress == {
        P0: replace(BEFORE, next=20, rows=11, dead=3, at=5, by_class=checked({"WrongType": 2, "MalformedJson": 1})),
        P1: replace(BEFORE, next=14, at=5),
    }
    nothing = SmallBatches(SETTINGS).prepared(PLAN, [], at=5)
    assert nothing is not None
    assert (nothing.rows, nothing.delivered, nothing.progress[P0].next) == ([], 0, 20)


def test_what_can_not_be_judged_here_is_for_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    small, good = SmallBatches(SETTINGS), rows(range(10, 12))
    for batch in (
        replace(good, target_partitions=[0, 2]),
        replace(good, values=[b"", b"x" * 2_000_000], size=2_000_002),
        replace(good, errors=[None, ErrorClass.INVALID_HEADER.error("its letter needs the source's own record")]),
    ):
        assert small.prepared(PLAN, [(P0, batch)], at=0) is None
    by_time = replace(PLAN, data_limits=TopicLimits(partitions=2, max_ahead_ms=1_000))
    assert small.prepared(by_time, [(P0, replace(good, timestamps=[1, 2**50]))], at=0) is None
    bad = rows(range(10, 12), bad=[10])
    silent = SmallBatches(replace(SETTINGS, dead_letter=None))
    assert silent.prepared(replace(PLAN, settings=replace(SETTINGS, dead_letter=None)), [(P0, bad)], at=0) is None

    def none(*_: object) -> None:
        raise NoDeadLetter("there is none", "create it")

    monkeypatch.setattr(DeadLetters, "_check_topic", none)
    assert small.prepared(PLAN, [(P0, bad)], at=0) is None


@pytest.mark.parametrize(
    "batches",
    [
        [(P0, range(9, 11))],
        [(P0, range(19, 21))],
        [(P0, range(12, 10, -1))],
        [(P0, range(10, 12)), (P0, range(11, 13))],
        [(SourcePartition("raw", 2), range(10, 12))],
    ],
)
def test_rows_of_other_offsets_than_those_of_the_plan_are_a_bug(batches: list[tuple[SourcePartition, range]]) -> None:
    found = [(partition, rows(offsets)) for partition, offsets in batches]
    refusal(lambda: SmallBatches(SETTINGS).prepared(PLAN, found, at=0), Reason.INTERNAL_ERROR)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(None, 5_000), (0.5, 5_000), (100, 5_000), (1_000, 1_048), (10_000, 104), (16_384, 64), (10**9, 1)],
)
def test_of_large_rows_fewer_travel_at_once(largest: float | None, expected: int) -> None:
    assert rows_at_once(5_000, 1_000_000, largest) == expected


@pytest.mark.parametrize(
    ("now", "largest", "expected"),
    [(1_048, 1_500, 1_048), (1_048, 2_000, 524), (104, 6_000, 104), (104, 5_000, 209), (104, 100, 5_000)],
)
def test_how_many_is_changed_only_by_rows_that_are_twice_as_large_or_half(
    now: int, largest: float, expected: int
) -> None:
    assert rows_at_once(5_000, now, largest) == expected


def test_rows_that_are_small_again_travel_as_before() -> None:
    assert rows_at_once(5_000, 3_000, 100) == 5_000
