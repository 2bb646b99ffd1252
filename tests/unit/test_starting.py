from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, Progress
from sinkpipeline.core.starting import (
    SourceView,
    check_owner,
    check_retained,
    check_run,
    check_source,
    overlay,
    partition_counts,
    plan_partitions,
    take_over,
)

SINK = SinkId("i", "s")
OWNER = Owner(cluster="c-1", name="shop/orders")
META = Meta(epoch=3, run="old", owner=OWNER, partitions={"a": 2}, source={"a": "id-a"}, data="id-d", progress="id-p")
A0, A1, B0, B1 = (SourcePartition(topic, number) for topic in "ab" for number in (0, 1))


def at(next_: int, *, epoch: int = 3, written: int = 0, lost: int = 0) -> PartitionProgress:
    return PartitionProgress(epoch=epoch, next=next_, at=written, lost=lost)


def view(offsets: Mapping[SourcePartition, tuple[int, int]], *, open_records: int = 0) -> SourceView:
    """A source by (beginning, end) of each partition, with uncommitted records beyond each end."""
    return SourceView(
        topics={partition.topic: f"id-{partition.topic}" for partition in offsets},
        beginnings={partition: first for partition, (first, _) in offsets.items()},
        ends={partition: last for partition, (_, last) in offsets.items()},
        high_watermarks={partition: last + open_records for partition, (_, last) in offsets.items()},
    )


@pytest.mark.parametrize(
    "owner",
    [
        Owner(cluster="c-2", name="shop/orders"),
        Owner(cluster="c-1", name="shop/other"),
        Owner(cluster="file", name="shop/orders"),
    ],
)
def test_an_identity_belongs_to_one_owner(owner: Owner) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        check_owner(SINK, META, owner)
    assert caught.value.reason is Reason.IDENTITY_IN_USE
    assert str(OWNER) in caught.value.message
    check_owner(SINK, META, OWNER)
    check_owner(SINK, None, owner)


def test_a_newer_run_supersedes() -> None:
    with pytest.raises(SinkPipelineError, match="run old") as caught:
        check_run(SINK, META, "mine")
    assert caught.value.reason is Reason.SUPERSEDED
    check_run(SINK, META, "old")
    check_run(SINK, None, "mine")


def test_a_source_topic_is_known_by_its_id() -> None:
    with pytest.raises(SinkPipelineError, match="id-a, is id-new") as caught:
        check_source(META, {"a": "id-new"})
    assert caught.value.reason is Reason.SOURCE_RECREATED
    check_source(META, {"a": "id-a", "new": "id-n"})
    check_source(META, {"new": "id-n"})
    check_source(None, {"a": "id-new"})


def test_overlay_is_the_newer_where_there_is_one() -> None:
    newer_meta = Meta(epoch=3, run="new", owner=OWNER, partitions={"a": 2})
    known = Progress(meta=META, partitions={A0: at(1), A1: at(1)}, end=10)
    assert overlay(known, Progress(partitions={A1: at(2)}, end=12)) == Progress(
        meta=META, partitions={A0: at(1), A1: at(2)}, end=12
    )
    assert overlay(known, Progress(meta=newer_meta, end=11)).meta == newer_meta
    assert overlay(Progress(), known) == known
    assert overlay(known, Progress()) == known


@dataclass(frozen=True, kw_only=True)
class Plan:
    known: Mapping[SourcePartition, PartitionProgress] = field(default_factory=dict)
    source: Mapping[SourcePartition, tuple[int, int]]
    offsets: StartingOffsets = StartingOffsets.LATEST
    discovered: bool = False
    skip: bool = False
    open_records: int = 0
    then: Mapping[SourcePartition, PartitionProgress] | Reason

    def plan(self) -> dict[SourcePartition, PartitionProgress]:
        return plan_partitions(
            self.known,
            view(self.source, open_records=self.open_records),
            epoch=3,
            starting_offsets=self.offsets,
            discovered=self.discovered,
            skip_lost=self.skip,
            at=77,
        )


EARLIEST = StartingOffsets.EARLIEST

PLANS: dict[str, Plan] = {
    "first start, earliest": Plan(
        source={A0: (5, 9), A1: (0, 0)}, offsets=EARLIEST, then={A0: at(5, written=77), A1: at(0, written=77)}
    ),
    "first start, latest": Plan(source={A0: (5, 9), A1: (0, 0)}, then={A0: at(9, written=77), A1: at(0, written=77)}),
    "first start, latest, is at the last stable offset": Plan(
        source={A0: (5, 9)}, open_records=3, then={A0: at(9, written=77)}
    ),
    "resume": Plan(known={A0: at(7)}, source={A0: (5, 9)}, then={A0: at(7)}),
    "resume at the beginning": Plan(known={A0: at(5)}, source={A0: (5, 9)}, then={A0: at(5)}),
    "resume at the end": Plan(known={A0: at(9)}, source={A0: (5, 9)}, then={A0: at(9)}),
    "a new partition of a known topic": Plan(
        known={A0: at(7)}, source={A0: (5, 9), A1: (0, 4)}, then={A0: at(7), A1: at(0, written=77)}
    ),
    "a new partition of a known topic that has lost records": Plan(
        known={A0: at(7)}, source={A0: (5, 9), A1: (2, 4)}, then=Reason.SOURCE_DATA_LOST
    ),
    "a new partition of a known topic that has lost records, skipped and counted": Plan(
        known={A0: at(7)},
        source={A0: (5, 9), A1: (2, 4)},
        skip=True,
        then={A0: at(7), A1: at(2, written=77, lost=2)},
    ),
    "a newly listed topic, latest": Plan(
        known={A0: at(7)}, source={A0: (5, 9), B0: (1, 4)}, then={A0: at(7), B0: at(4, written=77)}
    ),
    "a newly listed topic, earliest": Plan(
        known={A0: at(7)}, source={A0: (5, 9), B0: (1, 4)}, offsets=EARLIEST, then={A0: at(7), B0: at(1, written=77)}
    ),
    "a topic that the pattern discovered": Plan(
        known={A0: at(7)},
        source={A0: (5, 9), B0: (1, 4)},
        discovered=True,
        then={A0: at(7), B0: at(1, written=77)},
    ),
    "a topic that is no longer listed keeps its progress": Plan(
        known={A0: at(7), B0: at(3)}, source={A0: (5, 9)}, then={A0: at(7), B0: at(3)}
    ),
    "lost at the beginning": Plan(known={A0: at(4)}, source={A0: (5, 9)}, then=Reason.SOURCE_DATA_LOST),
    "lost at the beginning, skipped and counted": Plan(
        known={A0: at(2, lost=1)}, source={A0: (5, 9)}, skip=True, then={A0: at(5, written=77, lost=4)}
    ),
    "lost at the end": Plan(known={A0: at(10)}, source={A0: (5, 9)}, then=Reason.SOURCE_DATA_LOST),
    "lost at the end is never skipped": Plan(
        known={A0: at(10)}, source={A0: (5, 9)}, skip=True, then=Reason.SOURCE_DATA_LOST
    ),
    "beyond the last stable offset nothing is lost": Plan(
        known={A0: at(10)}, source={A0: (5, 9)}, open_records=1, then={A0: at(10)}
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plan(name: str) -> None:
    plan = PLANS[name]
    if isinstance(plan.then, Reason):
        with pytest.raises(SinkPipelineError) as caught:
            plan.plan()
        assert caught.value.reason is plan.then
    else:
        assert plan.plan() == plan.then


def test_lost_offsets_are_told_with_their_number() -> None:
    with pytest.raises(SinkPipelineError, match="3 offsets are lost") as caught:
        check_retained(A0, at(2), 5, 9, skip_lost=False, at=77)
    assert "onDataLoss: Skip" in caught.value.remedy
    with pytest.raises(SinkPipelineError, match="before the frontier 10") as caught:
        check_retained(A0, at(10), 5, 9, skip_lost=True, at=77)
    assert "can't be skipped" in caught.value.remedy


def test_partitions_are_counted_topic_by_topic() -> None:
    assert partition_counts({B0: at(0), A1: at(0), A0: at(0)}) == {"a": 2, "b": 1}
    assert partition_counts({}) == {}
    with pytest.raises(ValueError, match="partition 0 of b is missing"):
        partition_counts({A0: at(0), B1: at(0)})


def test_a_driver_takes_over_what_is_recorded() -> None:
    taken = take_over(META, run="mine", owner=OWNER, epoch=3, source={"a": "id-a", "new": "id-n"})
    assert taken == Meta(
        epoch=3, run="mine", owner=OWNER, partitions={"a": 2}, source={"a": "id-a"}, data="id-d", progress="id-p"
    )


def test_a_first_driver_announces_itself_without_partitions() -> None:
    taken = take_over(None, run="mine", owner=OWNER, epoch=4, source={"a": "id-a"})
    assert taken == Meta(epoch=4, run="mine", owner=OWNER, partitions=None, source={"a": "id-a"})
