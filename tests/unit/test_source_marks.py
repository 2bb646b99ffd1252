"""Which records of the source are marked, and what another one in their place says."""

from __future__ import annotations

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import Mark, Meta, Owner, PartitionProgress
from sinkpipeline.core.progress_records import decode_meta, encode_meta
from sinkpipeline.core.source_marks import after_a_look, check_marks, newest, where_to_look

A, B = SourcePartition("in", 0), SourcePartition("in", 1)


def at(offset: int) -> PartitionProgress:
    return PartitionProgress(epoch=0, next=offset)


@pytest.mark.parametrize(
    ("frontier", "beginning", "known", "wanted"),
    [
        (0, 0, None, None),  # nothing was handled
        (1, 0, None, 0),
        (9, 0, None, 7),
        (9, 8, None, 8),
        (9, 9, None, None),  # all of it is gone
        (9, 0, 7, None),  # as new as it can be
        (9, 0, 6, 7),
    ],
)
def test_where_a_mark_is_looked_for(frontier: int, beginning: int, known: int | None, wanted: int | None) -> None:
    marks = {} if known is None else {A: Mark(known, 3)}
    assert where_to_look({A: at(frontier)}, {A: beginning}, marks) == ({} if wanted is None else {A: wanted})


@pytest.mark.parametrize(
    ("now", "is_lost"),
    [
        (None, False),  # it could not be read, or is too old
        (Mark(7, 3), False),
        (Mark(7, 4), True),
        (Mark(8, 4), False),  # it was compacted away
        (Mark(7, 2), False),  # no log goes back
    ],
)
def test_another_record_in_its_place_is_a_loss(now: Mark | None, is_lost: bool) -> None:
    found = {} if now is None else {B: now}
    if not is_lost:
        check_marks({A: Mark(5, 1), B: Mark(7, 3)}, found)
        return
    with pytest.raises(SinkPipelineError) as lost:
        check_marks({A: Mark(5, 1), B: Mark(7, 3)}, found)
    assert lost.value.reason is Reason.SOURCE_DATA_LOST
    assert "another record at offset 7" in lost.value.message


def test_a_mark_stays_until_it_was_compared() -> None:
    """What was noted longest ago is the first to be noted anew."""
    known = {A: Mark(5, 1), B: Mark(7, 3)}
    found = {A: Mark(7, 2), B: Mark(8, 3)}
    frontier = {A: at(9), B: at(9)}
    assert after_a_look(known, {A: Mark(5, 1)}, found, frontier) == {B: Mark(7, 3), A: Mark(7, 2)}
    assert list(after_a_look(known, {A: Mark(5, 1)}, found, frontier)) == [B, A]
    assert after_a_look(known, {}, found, frontier) == known
    assert after_a_look({}, {}, found, frontier) == found, "there was none to compare"
    assert after_a_look(known, known, {A: Mark(9, 2)}, frontier) == known, "it was not handled yet"


def meta(**more: object) -> Meta:
    owner = Owner(cluster="file", name="a/b")
    return Meta(epoch=0, run="r", owner=owner, partitions={"in": 2}, **more)  # type: ignore[arg-type]


def test_of_marks_that_were_written_and_others_that_were_noted_since_the_newest_count() -> None:
    """Those that were noted longest ago are the first to be noted anew: the order is that of the noting."""
    found = newest({A: Mark(7, 1), B: Mark(3, 1)}, {B: Mark(5, 2), A: Mark(7, 1)})
    assert list(found.items()) == [(B, Mark(5, 2)), (A, Mark(7, 1))]
    assert newest({A: Mark(9, 2)}, {A: Mark(7, 1)}) == newest({A: Mark(9, 2)}, {}) == newest({}, {A: Mark(9, 2)})


def test_marks_are_written_in_their_order_and_read_back() -> None:
    marks = {B: Mark(7, 3), A: Mark(5, 1)}
    read = decode_meta(encode_meta(meta(marks=marks)), "here")
    assert list(read.marks.items()) == list(marks.items())
    assert b"marks" not in encode_meta(meta())


@pytest.mark.parametrize(
    "text", ['{"in": 1}', '{"in": {"x": [1, 2]}}', '{"in": {"0": [1]}}', "[]", '"x"', '{"in": {"0": 1}}']
)
def test_marks_that_are_none_are_no_progress(text: str) -> None:
    document = encode_meta(meta()).decode()
    spoilt = f'{document[:-1]},"marks":{text}}}'.encode()
    if text == "[]":
        assert decode_meta(spoilt, "here").marks == {}
        return
    with pytest.raises(SinkPipelineError) as error:
        decode_meta(spoilt, "here")
    assert error.value.reason is Reason.PROGRESS_CORRUPT
