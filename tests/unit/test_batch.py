from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.batch import (
    OffsetRange,
    Receipt,
    check_contiguous,
    first_error,
    fold_receipts,
    is_certain,
    unfinished,
)
from sinkpipeline.core.commit_counts import NONE
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.tally import checked
from support.sink.progresses import partition_progresses

P0, P1 = SourcePartition("raw", 0), SourcePartition("raw", 1)

counts = st.integers(0, 2**63 - 1)
receipts = st.builds(
    Receipt,
    partition=st.none() | st.builds(SourcePartition, st.text(min_size=1), counts),
    progress=st.none()
    | partition_progresses(
        counts,
        counts,
        st.builds(
            checked,
            st.dictionaries(st.sampled_from(["WrongType", "FromTheFuture"]), counts),
            st.dictionaries(st.sampled_from(["RecordTooLarge"]), counts),
        ),
    ),
    delivered=counts,
    commits=counts,
    owner=st.none() | st.text(),
    verified=st.none() | counts,
    retried=st.booleans(),
    in_doubt=st.booleans(),
    claims=counts,
    costs=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 2_000_000), st.sampled_from(["Fenced", "X"]))).map(
        lambda found: sum((NONE.with_commit(s, rows).with_doubt().with_retry(why) for s, rows, why in found), NONE)
    ),
    error=st.none() | st.builds(SinkPipelineError, st.sampled_from(Reason), st.text(), st.text()),
)


def at(next_: int, **counts_: int) -> PartitionProgress:
    return PartitionProgress(epoch=0, next=next_, **counts_)


def failed(reason: Reason, message: str = "m") -> Receipt:
    return Receipt(error=SinkPipelineError(reason, message, "r"))


@given(receipts)
def test_a_receipt_travels_as_json(receipt: Receipt) -> None:
    back = Receipt.from_json(receipt.to_json())
    assert back.to_json() == receipt.to_json()
    for name in (
        "partition",
        "progress",
        "delivered",
        "commits",
        "owner",
        "verified",
        "retried",
        "in_doubt",
        "claims",
        "costs",
    ):
        assert getattr(back, name) == getattr(receipt, name)
    assert (back.error is None) == (receipt.error is None)
    if back.error is not None and receipt.error is not None:
        assert back.error.args == receipt.error.args
    assert "\n" not in receipt.to_json()
    assert isinstance(json.loads(receipt.to_json()), dict)


def test_contiguous_ranges_begin_at_the_frontier() -> None:
    check_contiguous({P0: OffsetRange(5, 9), P1: OffsetRange(3, 3)}, {P0: at(5), P1: at(3)})
    check_contiguous({P0: OffsetRange(5, 9)}, {P0: at(5), P1: at(3)})
    check_contiguous({}, {})


@pytest.mark.parametrize(
    ("begin", "frontier", "fact"),
    [(6, {P0: at(5)}, "at 5"), (4, {P0: at(5)}, "at 5"), (0, {P1: at(0)}, "at none")],
    ids=["gap", "overlap", "unknown partition"],
)
def test_other_ranges_are_source_data_lost(
    begin: int, frontier: dict[SourcePartition, PartitionProgress], fact: str
) -> None:
    with pytest.raises(SinkPipelineError, match=fact) as caught:
        check_contiguous({P0: OffsetRange(begin, 9)}, frontier)
    assert caught.value.reason is Reason.SOURCE_DATA_LOST


def test_the_frontier_is_what_the_tasks_report() -> None:
    before = {P0: at(1), P1: at(1)}
    reports = [Receipt(partition=P1, progress=at(7, rows=3)), Receipt(), Receipt(partition=P0)]
    assert fold_receipts(before, reports) == {P0: at(1), P1: at(7, rows=3)}
    assert before == {P0: at(1), P1: at(1)}


def test_ranges_in_which_nothing_survived_are_advanced_to_their_end() -> None:
    ranges = {P0: OffsetRange(1, 9), P1: OffsetRange(1, 5)}
    frontier = {P0: at(4, rows=2, dead=1), P1: at(5), SourcePartition("raw", 2): at(0)}
    assert unfinished(ranges, frontier, at=77) == {P0: at(9, rows=2, dead=1, at=77)}
    assert unfinished({}, frontier, at=77) == {}


@pytest.mark.parametrize(
    ("receipts", "certain"),
    [
        ([Receipt(partition=P0)], True),
        ([Receipt(partition=P0, in_doubt=True)], False),
        ([Receipt(partition=P0, error=failed(Reason.TOPICS_CHANGED, "x").error)], True),
        ([Receipt(partition=P0, retried=True), Receipt(partition=P1)], True),
        ([Receipt(partition=P0, retried=True, error=failed(Reason.TOPICS_CHANGED, "x").error)], False),
        ([Receipt(partition=P0, retried=True, oversized=True)], False),
        ([Receipt(partition=P1), Receipt(retried=True)], False),
        ([Receipt(partition=P0), Receipt(retried=True)], True),
    ],
    ids=[
        "all well",
        "in doubt",
        "failed",
        "again, and well",
        "again, and failed",
        "again, and large",
        "silent",
        "at end",
    ],
)
def test_an_attempt_that_was_given_up_leaves_doubt_where_the_next_one_did_not_finish(
    receipts: list[Receipt], certain: bool
) -> None:
    ranges = {P0: OffsetRange(1, 9), P1: OffsetRange(1, 5)}
    assert is_certain(receipts, ranges, {P0: at(4), P1: at(5)}) is certain


ORDER = [
    failed(Reason.SUPERSEDED, "z"),
    failed(Reason.RECORD_UNDECODABLE, "a"),
    failed(Reason.DATA_TOPIC_LOST, "b"),
    failed(Reason.BROKER_UNREACHABLE, "0"),
    failed(Reason.TRANSACTION_FAILED, "1"),
]
"""The one to act on comes first; among equals the message decides, so that the order of tasks doesn't."""


@given(st.permutations(range(len(ORDER))), st.integers(0, len(ORDER)))
def test_the_error_to_act_on_does_not_depend_on_the_order_of_tasks(order: list[int], count: int) -> None:
    chosen = order[:count]
    reports: Iterable[Receipt] = [Receipt(), *(ORDER[index] for index in chosen), Receipt(partition=P0)]
    assert first_error(reports) is (ORDER[min(chosen)].error if chosen else None)
