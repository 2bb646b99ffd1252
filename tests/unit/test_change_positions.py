"""Positions of changes, and the progress that holds one."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.changes.incremental import IncrementalMark, Listed
from sinkpipeline.core.changes.positions import (
    ZERO,
    LogPosition,
    from_record,
    lsn_text,
    parse_lsn,
)
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Meta, Owner, PartitionProgress, check_forward
from sinkpipeline.core.progress_records import (
    ProgressFold,
    decode_meta,
    decode_partition,
    encode_meta,
    encode_partition,
)

LSNS = st.integers(min_value=0, max_value=2**64 - 1)
POSITIONS = st.builds(LogPosition, LSNS, st.integers(min_value=0, max_value=2**40))
P0 = SourcePartition("postgresql", 0)
STATE = PartitionProgress(epoch=1, next=5, pos=LogPosition(100, 2))


@given(LSNS)
def test_an_lsn_goes_through_its_text(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn


def test_an_lsn_is_spelled_as_postgresql_spells_it() -> None:
    assert lsn_text(0x3_25D0_0F70) == "3/25D00F70"
    assert lsn_text(0) == "0/0"
    assert parse_lsn("0/0000000A") == parse_lsn("0/a") == 10


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/0/0", "G/0", "0/123456789", " 0/0", "-1/0", "0/0\n"])
def test_what_is_no_lsn_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no LSN"):
        parse_lsn(text)


@given(POSITIONS, POSITIONS, POSITIONS)
def test_positions_have_one_order(one: LogPosition, two: LogPosition, three: LogPosition) -> None:
    assert [one < two, one == two, two < one].count(True) == 1
    if one <= two <= three:
        assert one <= three
    assert (one < two) == ((one.lsn, one.index) < (two.lsn, two.index))
    assert one >= ZERO


def test_positions_of_two_kinds_are_not_compared() -> None:
    @dataclass(frozen=True, order=True, slots=True)
    class Another:
        lsn: int
        index: int

    for other in (Another(1, 2), (1, 2)):
        with pytest.raises(TypeError):
            LogPosition(1, 2) < other  # type: ignore[operator]  # noqa: B015 - it raises
        assert LogPosition(1, 2) != other


@given(POSITIONS)
def test_a_position_goes_through_its_record(position: LogPosition) -> None:
    record = position.to_record()
    assert from_record(json.loads(json.dumps(record))) == position


@pytest.mark.parametrize(
    "value", [None, "0/0", 1, [], ["0/0"], [0, 0], ["0/0", "0"], ["0/0", True], ["0/0", -1], ["0/0", 1, 0], {"a": 1}]
)
def test_what_is_no_position_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="no position"):
        from_record(value)


@given(POSITIONS)
def test_progress_holds_a_position(position: LogPosition) -> None:
    state = replace(STATE, pos=position)
    assert decode_partition(encode_partition(state), "w") == state


def test_progress_without_one_is_written_as_before() -> None:
    assert b"pos" not in encode_partition(replace(STATE, pos=None))
    assert decode_partition(encode_partition(replace(STATE, pos=None)), "w").pos is None


def test_a_position_that_can_not_be_read_is_no_beginning() -> None:
    record = json.loads(encode_partition(STATE))
    with pytest.raises(SinkPipelineError, match="pos that is none") as refused:
        decode_partition(json.dumps({**record, "pos": ["x", 0]}).encode(), "w")
    assert refused.value.reason is Reason.PROGRESS_CORRUPT


@pytest.mark.parametrize(
    ("new", "moves"),
    [
        (replace(STATE, pos=LogPosition(100, 3), next=6), True),
        (replace(STATE, pos=LogPosition(120, 0)), True),
        (STATE, True),
        (replace(STATE, pos=LogPosition(100, 1), next=6), False),
        (replace(STATE, pos=LogPosition(99, 7), next=6), False),
        (replace(STATE, pos=None, next=6), False),
        (replace(STATE, next=6), False),
        (replace(STATE, next=4, pos=LogPosition(120, 0)), False),
        (replace(STATE, epoch=2, next=0, pos=LogPosition(1, 0)), True),
    ],
)
def test_position_and_count_both_move_forward(new: PartitionProgress, moves: bool) -> None:
    sink = SinkId("i", "s")
    fold = ProgressFold(sink)
    key = sink.partition_key(P0).encode()
    fold.apply(key, encode_partition(STATE), 0)
    fold.apply(key, encode_partition(new), 1)
    if moves:
        check_forward(P0, STATE, new)
        assert fold.result(2).partitions == {P0: new}
        return
    with pytest.raises(SinkPipelineError) as refused:
        check_forward(P0, STATE, new)
    assert refused.value.reason is Reason.PROGRESS_REGRESSED
    with pytest.raises(SinkPipelineError):
        fold.result(2)


MARK = IncrementalMark(waiting=("s.t", "s.u"), after=("7",), rows=10)
BESIDE = replace(STATE, incremental=MARK)


@pytest.mark.parametrize(
    ("old", "new", "moves"),
    [
        (STATE, BESIDE, True),
        (BESIDE, replace(BESIDE, next=9, incremental=replace(MARK, rows=14)), True),
        # Some rows were left out.
        (BESIDE, replace(BESIDE, next=6, incremental=replace(MARK, rows=14)), True),
        (BESIDE, replace(BESIDE, next=10, incremental=replace(MARK, rows=14)), False),
        (BESIDE, replace(BESIDE, next=7, incremental=MARK), False),
        (BESIDE, replace(STATE, next=8), True),
        (STATE, replace(STATE, next=8), False),
    ],
)
def test_rows_beside_the_stream_count_where_the_position_stays(
    old: PartitionProgress, new: PartitionProgress, moves: bool
) -> None:
    assert decode_partition(encode_partition(new), "here") == new
    with nullcontext() if moves else pytest.raises(SinkPipelineError, match="stays at"):
        check_forward(P0, old, new)


def test_a_release_that_knows_of_no_rows_beside_the_stream_refuses_them() -> None:
    document = json.loads(encode_partition(BESIDE))
    assert document["v"] == 2
    assert json.loads(encode_partition(STATE))["v"] == 1
    for wrong in ({**document, "v": 1}, {name: document[name] for name in document if name != "incremental"}):
        with pytest.raises(SinkPipelineError) as refused:
            decode_partition(json.dumps(wrong).encode(), "here")
        assert refused.value.reason is Reason.PROGRESS_VERSION_UNKNOWN
    with pytest.raises(SinkPipelineError) as refused:
        decode_partition(json.dumps({**document, "incremental": {}}).encode(), "here")
    assert refused.value.reason is Reason.PROGRESS_CORRUPT


def test_the_tables_of_a_source_are_in_its_meta() -> None:
    owner, tables = Owner(cluster="file", name="n"), {"s.t": Listed("table 1", "16390"), "s.u": Listed("*", "7")}
    meta = Meta(epoch=0, run="r", owner=owner, partitions=None, tables=tables)
    assert decode_meta(encode_meta(meta), "here") == meta
    assert "tables" not in json.loads(encode_meta(replace(meta, tables=None)))
    for wrong in ("s.t", ["s.t"], {"s.t": 5}, {"s.t": ["a"]}, {"s.t": ["a", 5]}):
        with pytest.raises(SinkPipelineError) as refused:
            decode_meta(json.dumps({**json.loads(encode_meta(meta)), "tables": wrong}).encode(), "here")
        assert refused.value.reason is Reason.PROGRESS_CORRUPT
