"""Positions that somebody else has committed: a checkpoint of Spark's as it lies there, and a consumer group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.batch import OffsetRange
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import StartingOffsets
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.positions import CheckpointFiles, Positions, describe, of_checkpoint, of_group, within
from sinkpipeline.core.starting import SourceView, plan_partitions
from sinkpipeline.kafka.source.positions import read_checkpoint

A0, A1, A2, B0 = (SourcePartition(topic, number) for topic, number in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def log(*sources: object) -> str:
    return "\n".join(["v1", METADATA, *(each if isinstance(each, str) else json.dumps(each) for each in sources)])


TWO_BATCHES = CheckpointFiles(
    directory="/c",
    offsets={6: log({"a": {"0": 8, "1": 3}}), 7: log({"a": {"0": 10, "1": 4}})},
    commits={5: COMMIT, 6: COMMIT, 7: COMMIT},
    initial='\0v1\n{"a":{"0":0,"1":0}}',
)
BEGUN = replace(TWO_BATCHES, offsets={**TWO_BATCHES.offsets, 8: log({"a": {"0": 12, "1": 4, "2": 5}, "b": {"0": 1}})})


def view(offsets: Mapping[SourcePartition, tuple[int, int]]) -> SourceView:
    ends = {each: last for each, (_, last) in offsets.items()}
    return SourceView(
        topics={each.topic: f"id-{each.topic}" for each in offsets},
        beginnings={each: first for each, (first, _) in offsets.items()},
        ends=ends,
        high_watermarks=ends,
    )


def test_after_the_last_committed_batch() -> None:
    found = of_checkpoint(TWO_BATCHES)
    assert (found.next, found.batch, found.overlap, found.told) == ({A0: 10, A1: 4}, None, {}, ())
    assert found.origin == "checkpoint /c (after batch 7)"


def test_a_batch_that_was_begun_may_have_been_written() -> None:
    found = within(of_checkpoint(BEGUN), view({A0: (0, 20), A1: (0, 20), A2: (2, 9)}))
    assert (found.next, found.batch) == ({A0: 10, A1: 4}, 8)
    assert found.overlap == {A0: OffsetRange(10, 12), A2: OffsetRange(2, 5)}, "a new partition begins at its beginning"
    assert list(describe(found)) == [
        "begins from checkpoint /c (after batch 7): a-0 at 10, a-1 at 4",
        (
            "batch 8 was begun and not committed: up to 5 records may be written already, and are delivered AGAIN: "
            "a-0 from 10 to 11, a-2 from 2 to 4"
        ),
        "partitions of which there is no position: a-2",
    ]


def test_a_topic_that_is_met_in_the_last_batch_is_read_from_its_beginning_as_spark_did() -> None:
    at = view({A0: (0, 20), A1: (0, 20), A2: (0, 9), B0: (0, 9), (b1 := SourcePartition("b", 1)): (3, 9)})
    found = within(of_checkpoint(BEGUN), at)
    assert found.overlap[B0] == OffsetRange(0, 1)
    start = plan_partitions(
        {}, at, epoch=0, starting_offsets=StartingOffsets.LATEST, discovered=False, skip_lost=False, at=0,
        imported=found.next,
    )  # fmt: skip
    assert {each: start[each].next for each in (A0, A2, B0, b1)} == {A0: 10, A2: 0, B0: 0, b1: 3}


def test_before_the_first_commit_it_is_where_the_query_began() -> None:
    files = replace(TWO_BATCHES, offsets={0: log({"a": {"0": 8}})}, commits={}, initial='\0v1\n{"a":{"0":5}}')
    found = of_checkpoint(files)
    assert (found.next, found.batch, found.overlap) == ({A0: 5}, 0, {A0: OffsetRange(5, 8)})


WRONG: dict[str, tuple[CheckpointFiles, str]] = {
    "several sources": (replace(TWO_BATCHES, offsets={7: log({"a": {"0": 1}}, {"b": {"0": 1}})}), "2 sources"),
    "no source": (replace(TWO_BATCHES, offsets={7: log()}), "0 sources"),
    "a file source": (replace(TWO_BATCHES, offsets={7: log({"logOffset": 3})}), "no offsets of a Kafka source"),
    "a source without offsets": (replace(TWO_BATCHES, offsets={7: log("-")}), "no offsets of a Kafka source"),
    "an offset of -1": (replace(TWO_BATCHES, offsets={7: log({"a": {"0": -1}})}), "no offsets of a Kafka source"),
    "another format": (replace(TWO_BATCHES, offsets={7: "v2\n{}\n{}"}), "begins with 'v2'"),
    "another format of commits": (replace(TWO_BATCHES, commits={7: "v2\n{}"}), "commits/7 begins with 'v2'"),
    "cut off": (replace(TWO_BATCHES, offsets={7: ""}), "begins with ''"),
    "a commit without its batch": (replace(TWO_BATCHES, offsets={}), "commits/7, and no offsets/7"),
    "nothing": (replace(TWO_BATCHES, offsets={}, commits={}), "no committed batch"),
    "no commits of several batches": (replace(TWO_BATCHES, commits={}), "2 batches in offsets, and none in commits"),
    "a nest": (replace(TWO_BATCHES, offsets={7: log("[" * 100_000)}), "no offsets of a Kafka source"),
    "no initial offsets": (
        replace(TWO_BATCHES, offsets={0: log({"a": {"0": 8}})}, commits={}, initial=None),
        "no committed batch",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_understood_is_refused(name: str) -> None:
    files, message = WRONG[name]
    with pytest.raises(SinkPipelineError, match=message) as caught:
        of_checkpoint(files)
    assert caught.value.reason is Reason.POSITIONS_REFUSED


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for offsets in (text, f"v1\n{METADATA}\n{text}"):
        reason = None
        try:
            of_checkpoint(replace(TWO_BATCHES, offsets={7: offsets}))
        except SinkPipelineError as error:
            reason = error.reason
        assert reason in (None, Reason.POSITIONS_REFUSED)


def test_a_directory_with_what_spark_leaves_in_it(tmp_path: Path) -> None:
    for name, texts in (("offsets", BEGUN.offsets), ("commits", BEGUN.commits)):
        (tmp_path / name).mkdir()
        for batch, text in texts.items():
            (tmp_path / name / str(batch)).write_text(text)
            (tmp_path / name / f".{batch}.crc").write_bytes(b"crc\0")
        (tmp_path / name / f".9.{'0' * 8}.tmp").write_bytes(b"v1")
    (tmp_path / "state").mkdir()
    found = read_checkpoint(str(tmp_path))
    assert (found.next, found.batch) == ({A0: 10, A1: 4}, 8)
    assert "state" in found.told[0]
    assert read_checkpoint(f"file://{tmp_path}").next == found.next


@pytest.mark.parametrize("path", ["s3://bucket/checkpoint", "/no/such/directory"])
def test_what_is_no_directory_of_a_checkpoint_is_refused(path: str) -> None:
    with pytest.raises(SinkPipelineError) as caught:
        read_checkpoint(path)
    assert caught.value.reason is Reason.POSITIONS_REFUSED


def test_a_group_that_is_in_use_or_unknown_is_refused() -> None:
    cases = (("STABLE", {A0: 1}), ("PREPARING_REBALANCING", {A0: 1}), ("EMPTY", {}), (None, {}))
    for state, committed in cases:
        with pytest.raises(SinkPipelineError, match="is in use" if committed else "no committed offsets") as caught:
            within(of_group("g", state, committed), view({A0: (0, 9)}))
        assert caught.value.reason is Reason.POSITIONS_REFUSED
    assert of_group("g", "EMPTY", {A0: 1}).next == {A0: 1}
    assert of_group("g", None, {A0: 1}).next == {A0: 1}, "a broker need not list a group that has only offsets"


def test_what_differs_from_the_source_is_told() -> None:
    positions = Positions(origin="o", next={A0: 1, A2: 3, B0: 5})
    found = within(positions, view({A0: (0, 9), A1: (0, 9), SourcePartition("c", 0): (0, 1)}))
    assert found.next == {A0: 1}
    assert found.told == (
        "topics that are not in the source stay unread: b",
        "partitions that the source does not have are left out: a-2",
        "topics of which there is no position are treated as if none were given: c",
        "partitions of which there is no position: a-1",
    )
    with pytest.raises(SinkPipelineError, match="it is of b") as caught:
        within(Positions(origin="o", next={B0: 5}), view({A0: (0, 9)}))
    assert caught.value.reason is Reason.POSITIONS_REFUSED


def test_a_first_start_begins_there() -> None:
    """What is not named: a partition of the same topic at its beginning, another topic at startingOffsets."""
    source = view({A0: (2, 9), A1: (1, 9), B0: (0, 7)})

    def planned(offset: int, *, skip_lost: bool = False) -> dict[SourcePartition, tuple[int, int]]:
        found = plan_partitions(
            {},
            source,
            epoch=0,
            starting_offsets=StartingOffsets.LATEST,
            discovered=False,
            skip_lost=skip_lost,
            at=1,
            imported={A0: offset},
        )
        return {partition: (state.next, state.lost) for partition, state in found.items()}

    assert planned(5) == {A0: (5, 0), A1: (1, 0), B0: (7, 0)}
    assert planned(0, skip_lost=True)[A0] == (2, 2), "what the source no longer has is counted"
    for offset in (0, 10):
        with pytest.raises(SinkPipelineError) as caught:
            planned(offset)
        assert caught.value.reason is Reason.SOURCE_DATA_LOST
