"""The topic table of the design, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sinkpipeline.core.durability import Durability, as_requested, durability, of_topics
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.letter_topics import decide_dead_letters
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.removal import why_kept
from sinkpipeline.core.topics import (
    Beginning,
    Memory,
    Topic,
    TopicRequest,
    check_progress_topic,
    decide,
    drift,
)

P0 = SourcePartition("raw", 0)
REQUEST = TopicRequest(name="data")
DATA = Topic(name="data", id="data-1", partitions=3, replication_factor=1)
FULL = replace(DATA, holds_data=True)
OTHER_DATA = replace(DATA, id="data-2")
PROGRESS = Topic(
    name="progress", id="progress-1", partitions=1, replication_factor=1, config={"cleanup.policy": "compact"}
)
OTHER_PROGRESS = replace(PROGRESS, id="progress-2")
SOURCE = {"raw": "raw-1"}

NONE = Progress()
ANNOUNCED = Progress(meta=Meta(epoch=0, run="r", owner=Owner(cluster="c", name="n"), partitions=None, source=SOURCE))
"""A first start that a crash interrupted."""


def there(
    rows: int,
    *,
    next_: int = 10,
    data: str | None = "data-1",
    progress: str | None = "progress-1",
    epoch: int = 0,
) -> Progress:
    meta = Meta(
        epoch=epoch,
        run="r",
        owner=Owner(cluster="c", name="n"),
        partitions={"raw": 1},
        source=SOURCE,
        data=data,
        progress=progress,
    )
    return Progress(meta=meta, partitions={P0: PartitionProgress(epoch=epoch, next=next_, rows=rows)})


def memory(
    rows: int,
    *,
    next_: int = 10,
    epoch: int = 0,
    data: str | None = "data-1",
    progress: str | None = "progress-1",
    source: Mapping[str, str] | None = None,
    partition: SourcePartition = P0,
) -> Memory:
    return Memory(
        epoch=epoch,
        partitions={partition: PartitionProgress(epoch=epoch, next=next_, rows=rows)},
        source=SOURCE if source is None else source,
        data=data,
        progress=progress,
        rows=rows,
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One observation, and what follows: how it begins and what is created, or the reason of a refusal."""

    progress: Progress = NONE
    progress_topic: Topic | None = PROGRESS
    data_topic: Topic | None = DATA
    memory: Memory | None = None
    source: Mapping[str, str] | None = None
    refuse: bool = False
    request: TopicRequest = REQUEST
    then: tuple[Beginning, frozenset[str]] | Reason

    def decide(self) -> Any:
        return decide(
            progress=self.progress,
            progress_topic=self.progress_topic,
            data_topic=self.data_topic,
            data_request=self.request,
            memory=self.memory,
            source=SOURCE if self.source is None else self.source,
            refuse_existing_data=self.refuse,
        )


NOTHING: frozenset[str] = frozenset()
IN_ONE_STORE = replace(REQUEST, progress_beside=True)
FIRST, RESUME, SEED = Beginning.FIRST_START, Beginning.RESUME, Beginning.SEED

CASES: dict[str, Case] = {
    # Row 1: progress none, data missing, nobody remembers rows.
    "1 both missing": Case(progress_topic=None, data_topic=None, then=(FIRST, frozenset({"progress", "data"}))),
    "1 shared progress topic": Case(data_topic=None, then=(FIRST, frozenset({"data"}))),
    "1 first start was interrupted": Case(progress=ANNOUNCED, data_topic=None, then=(FIRST, frozenset({"data"}))),
    "1 remembered, but no row": Case(
        progress_topic=None, data_topic=None, memory=memory(0), then=(SEED, frozenset({"progress", "data"}))
    ),
    # Row 2: progress none, data there, nobody remembers rows.
    "2 empty data topic": Case(then=(FIRST, NOTHING)),
    "2 existing data, Append": Case(data_topic=FULL, then=(FIRST, NOTHING)),
    "2 existing data, Refuse": Case(data_topic=FULL, refuse=True, then=Reason.DATA_TOPIC_NOT_EMPTY),
    "2 empty data topic, Refuse": Case(refuse=True, then=(FIRST, NOTHING)),
    "2 missing data topic, Refuse": Case(data_topic=None, refuse=True, then=(FIRST, frozenset({"data"}))),
    "2 first start was interrupted, Refuse": Case(progress=ANNOUNCED, refuse=True, then=(FIRST, NOTHING)),
    "2 missing progress topic": Case(progress_topic=None, then=(FIRST, frozenset({"progress"}))),
    # Row 3: progress none, its topic missing or new, data there, rows remembered.
    "3 progress topic missing": Case(
        progress_topic=None, data_topic=FULL, memory=memory(5), then=(SEED, frozenset({"progress"}))
    ),
    "3 progress topic re-created by another sink": Case(
        progress_topic=OTHER_PROGRESS, data_topic=FULL, memory=memory(5), then=(SEED, NOTHING)
    ),
    "3 Refuse is for first starts only": Case(
        progress_topic=None, data_topic=FULL, memory=memory(5), refuse=True, then=(SEED, frozenset({"progress"}))
    ),
    "3 seed interrupted": Case(progress=ANNOUNCED, data_topic=FULL, memory=memory(5), then=(SEED, NOTHING)),
    "3 another data topic": Case(
        progress_topic=None, data_topic=OTHER_DATA, memory=memory(5), then=Reason.DATA_TOPIC_LOST
    ),
    "3 another data topic, no row": Case(
        progress_topic=None, data_topic=OTHER_DATA, memory=memory(0), then=(SEED, frozenset({"progress"}))
    ),
    "3 another source": Case(
        progress_topic=None, data_topic=FULL, memory=memory(5), source={"raw": "raw-2"}, then=Reason.PROGRESS_LOST
    ),
    "3 another source, no row, data topic there": Case(
        progress_topic=None, memory=memory(0), source={"raw": "raw-2"}, then=Reason.PROGRESS_LOST
    ),
    "3 another source and another data topic, no row": Case(
        progress_topic=None, data_topic=OTHER_DATA, memory=memory(0), source={"raw": "raw-2"}, then=Reason.PROGRESS_LOST
    ),
    "3 a source topic that is no longer listed": Case(
        progress_topic=None,
        data_topic=FULL,
        memory=memory(5, source={"raw": "raw-1", "old": "old-1"}),
        then=(SEED, frozenset({"progress"})),
    ),
    "3 ids that nobody knew": Case(
        progress_topic=None,
        data_topic=FULL,
        memory=memory(5, data=None, source={}),
        then=(SEED, frozenset({"progress"})),
    ),
    # What has lost the progress may have lost rows with it, where both are in one store.
    "3 in one store": Case(
        progress_topic=None, data_topic=FULL, memory=memory(5), request=IN_ONE_STORE, then=Reason.PROGRESS_LOST
    ),
    "3 in one store, seed interrupted": Case(
        progress=ANNOUNCED, data_topic=FULL, memory=memory(5), request=IN_ONE_STORE, then=Reason.PROGRESS_LOST
    ),
    "3 in one store, no row": Case(
        progress_topic=None, memory=memory(0), request=IN_ONE_STORE, then=(SEED, frozenset({"progress"}))
    ),
    # Row 4: progress none, data missing, rows remembered.
    "4 both topics missing": Case(progress_topic=None, data_topic=None, memory=memory(5), then=Reason.DATA_TOPIC_LOST),
    "4 progress topic there": Case(data_topic=None, memory=memory(5), then=Reason.DATA_TOPIC_LOST),
    "4 first start announced": Case(progress=ANNOUNCED, data_topic=None, memory=memory(5), then=Reason.DATA_TOPIC_LOST),
    # Row 5: progress there, no row produced, data missing.
    "5 never created": Case(progress=there(0, data=None), data_topic=None, then=(RESUME, frozenset({"data"}))),
    "5 deleted": Case(progress=there(0), data_topic=None, then=(RESUME, frozenset({"data"}))),
    "5 re-created": Case(progress=there(0), data_topic=OTHER_DATA, then=(RESUME, NOTHING)),
    # Row 6: progress there, rows produced, data missing or another.
    "6 missing": Case(progress=there(5), data_topic=None, then=Reason.DATA_TOPIC_LOST),
    "6 another id, empty": Case(progress=there(5), data_topic=OTHER_DATA, then=Reason.DATA_TOPIC_LOST),
    "6 another id, with data": Case(
        progress=there(5), data_topic=replace(OTHER_DATA, holds_data=True), then=Reason.DATA_TOPIC_LOST
    ),
    # Row 7: both there.
    "7 as recorded": Case(progress=there(5), data_topic=FULL, then=(RESUME, NOTHING)),
    "7 Refuse is for first starts only": Case(progress=there(5), data_topic=FULL, refuse=True, then=(RESUME, NOTHING)),
    "7 data id not yet recorded": Case(progress=there(5, data=None), data_topic=FULL, then=(RESUME, NOTHING)),
    # What a progress record says of the topic that it stands in.
    "a copied progress topic": Case(
        progress=there(5), progress_topic=OTHER_PROGRESS, data_topic=FULL, then=Reason.PROGRESS_LOST
    ),
    "a copied progress topic, no row": Case(
        progress=there(0), progress_topic=OTHER_PROGRESS, then=Reason.PROGRESS_LOST
    ),
    # Memory beside progress.
    "memory behind": Case(progress=there(5), memory=memory(4, next_=9), then=(RESUME, NOTHING)),
    "memory level": Case(progress=there(5), memory=memory(5), then=(RESUME, NOTHING)),
    "memory ahead": Case(progress=there(5), memory=memory(6, next_=11), then=Reason.PROGRESS_REGRESSED),
    "memory of another partition": Case(
        progress=there(5), memory=memory(5, partition=SourcePartition("raw", 1)), then=Reason.PROGRESS_REGRESSED
    ),
    "memory ahead, of an epoch before a reset": Case(
        progress=there(5, epoch=1), memory=memory(6, next_=11), then=(RESUME, NOTHING)
    ),
    "memory of a reset that the topic lost": Case(
        progress=there(5), memory=memory(0, next_=0, epoch=1), then=Reason.PROGRESS_REGRESSED
    ),
    "memory ahead, of another progress topic": Case(
        progress=there(5), memory=memory(6, next_=11, progress="progress-0"), then=(RESUME, NOTHING)
    ),
    "memory of a later epoch, of another progress topic": Case(
        progress=there(5), memory=memory(0, next_=0, epoch=1, progress="progress-0"), then=(RESUME, NOTHING)
    ),
    # The progress topic itself, before anything else.
    "two partitions": Case(progress_topic=replace(PROGRESS, partitions=2), then=Reason.PROGRESS_TOPIC_INVALID),
    "two partitions, with progress": Case(
        progress=there(5), progress_topic=replace(PROGRESS, partitions=2), then=Reason.PROGRESS_TOPIC_INVALID
    ),
    "deleting": Case(
        progress_topic=replace(PROGRESS, config={"cleanup.policy": "delete"}), then=Reason.PROGRESS_TOPIC_INVALID
    ),
    "compacting and deleting": Case(
        progress_topic=replace(PROGRESS, config={"cleanup.policy": "compact,delete"}),
        then=Reason.PROGRESS_TOPIC_INVALID,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_table(name: str) -> None:
    case = CASES[name]
    if isinstance(case.then, Reason):
        with pytest.raises(SinkPipelineError) as caught:
            case.decide()
        assert caught.value.reason is case.then
        return
    decision = case.decide()
    created = {"progress": decision.create_progress, "data": decision.create_data}
    assert (decision.beginning, frozenset(name for name, create in created.items() if create)) == case.then
    assert decision.drift == ()


@pytest.mark.parametrize("case", [each for each in CASES.values() if each.then is Reason.DATA_TOPIC_LOST])
def test_a_lost_data_topic_is_named_with_its_rows_or_its_ids(case: Case) -> None:
    with pytest.raises(SinkPipelineError, match="data topic data is lost") as caught:
        case.decide()
    assert ("rows were delivered" in caught.value.message) == (case.data_topic is None)
    assert ("data-1, is data-2" in caught.value.message) == (case.data_topic is not None)


def test_progress_without_its_topic_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="read from a topic"):
        Case(progress=there(5), progress_topic=None, then=(RESUME, NOTHING)).decide()


DRIFTS: dict[str, tuple[TopicRequest, tuple[str, ...]]] = {
    "left to the broker": (REQUEST, ()),
    "as asked for": (replace(REQUEST, partitions=3, replication_factor=1, config={"retention.ms": "1"}), ()),
    "partitions": (replace(REQUEST, partitions=6), ("data has 3 partitions, the manifest says 6",)),
    "replication": (replace(REQUEST, replication_factor=3), ("data has replication factor 1, the manifest says 3",)),
    "config": (
        replace(REQUEST, config={"retention.ms": "2", "compression.type": "lz4"}),
        (
            "data has compression.type=None, the manifest says lz4",
            "data has retention.ms=1, the manifest says 2",
        ),
    ),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_drift_is_reported_and_stops_nothing(name: str) -> None:
    request, expected = DRIFTS[name]
    topic = replace(DATA, config={"retention.ms": "1", "unasked": "x"})
    assert drift(request, topic) == expected
    decision = Case(progress=there(5), data_topic=topic, request=request, then=(RESUME, NOTHING)).decide()
    assert (decision.beginning, decision.drift) == (RESUME, expected)


def test_a_configuration_that_nobody_asked_for_is_not_drift() -> None:
    assert drift(replace(REQUEST, config={"retention.ms": "2"}), DATA) == ()


def test_the_progress_topic_that_we_create_is_one_that_we_accept() -> None:
    request = progress_request("progress", 3)
    assert (request.partitions, request.replication_factor) == (1, 3)
    check_progress_topic(replace(PROGRESS, config=request.config))


# Dead letters


@pytest.mark.parametrize("auto_create", [True, False])
def test_a_missing_dead_letter_topic_is_created_or_told(auto_create: bool) -> None:
    decision = decide_dead_letters(None, REQUEST, auto_create=auto_create)
    assert (decision.create, len(decision.drift)) == (auto_create, 0 if auto_create else 1)


def test_a_dead_letter_topic_that_differs_is_told() -> None:
    decision = decide_dead_letters(DATA, replace(REQUEST, partitions=5), auto_create=True)
    assert (decision.create, decision.drift) == (False, ("data has 3 partitions, the manifest says 5",))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_dead_letter_topic_that_would_lose_letters_is_told(policy: str) -> None:
    decision = decide_dead_letters(replace(DATA, config={"cleanup.policy": policy}), REQUEST, auto_create=True)
    assert decision.drift == ("data is compacted: of the dead letters of a key all but the last one are lost",)
    assert decide_dead_letters(DATA, REQUEST, auto_create=True).drift == ()


# Removal

SINK = SinkId("shop", "out")
MINE = Meta(epoch=0, run="r", owner=Owner(cluster="c", name="n"), partitions={}, data="data-1", created="data-1")
OTHER = "sinkpipeline/v1/other/out/meta"


@pytest.mark.parametrize(
    ("meta", "others", "kept"),
    [
        (MINE, {}, None),
        (MINE, {SINK.meta_key: MINE}, None),
        (MINE, {OTHER: replace(MINE, data="data-2")}, None),
        (MINE, {OTHER: replace(MINE, data=None)}, None),
        (MINE, {OTHER: replace(MINE, data=None, former=("x", DATA.id))}, "delivers into it, or has done so"),
        (MINE, {OTHER: replace(MINE, data="data-2", former=(DATA.id,))}, "delivers into it, or has done so"),
        (replace(MINE, created=None), {}, "created it: it was there before"),
        (replace(MINE, created=None, restored=0), {}, "created it: its progress was restored from the status"),
        (replace(MINE, restored=7), {}, None),
        (replace(MINE, created="data-2"), {}, "created it again"),
        (MINE, {SINK.meta_key: MINE, OTHER: replace(MINE, created=None)}, "delivers into it"),
        (MINE, {OTHER: None}, "can't be read"),
    ],
)
def test_a_data_topic_outlives_its_sink_where_others_need_it(
    meta: Meta, others: Mapping[str, Meta | None], kept: str | None
) -> None:
    reason = why_kept(SINK, DATA.id, meta, others)
    assert reason is None if kept is None else kept in (reason or "")


# Durability


@pytest.mark.parametrize(
    ("replicas", "in_sync", "facts"),
    [
        (3, "2", []),
        (0, None, []),
        (3, None, []),
        (1, "1", ["1 of 3 replicas", "min.insync.replicas"]),
        (2, "2", ["2 of 3 replicas"]),
        (3, "1", ["a record that 1 has"]),
    ],
)
def test_what_is_to_be_feared_for_a_topics_records(replicas: int, in_sync: str | None, facts: list[str]) -> None:
    config = {} if in_sync is None else {"min.insync.replicas": in_sync}
    told = durability(replace(DATA, replication_factor=replicas, config=config))
    assert len(told) == bool(facts)
    assert all(fact in told[0] for fact in facts)


def test_of_a_topic_that_is_not_there_yet_only_what_was_asked_for_is_known() -> None:
    assert durability(as_requested(REQUEST)) == ()
    assert "1 of 3" in durability(as_requested(progress_request("progress", 1)))[0]


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ([(3, "2"), (3, "2")], Durability.COMMITTED),
        ([(2, "2"), (5, "3")], Durability.COMMITTED),
        ([(3, "2"), (3, "1")], Durability.AT_RISK),
        ([(1, "2"), (3, "2")], Durability.AT_RISK),
        ([(1, None)], Durability.AT_RISK),
        ([(3, None), (3, "2")], None),
        ([(3, None), (3, "1")], Durability.AT_RISK),
    ],
)
def test_what_becomes_of_what_topics_acknowledge(kept: list[tuple[int, str | None]], found: Durability | None) -> None:
    """A record is safe that two brokers have, in each of them."""
    topics = [
        replace(DATA, replication_factor=replicas, config={} if in_sync is None else {"min.insync.replicas": in_sync})
        for replicas, in_sync in kept
    ]
    assert of_topics(topics) is found
