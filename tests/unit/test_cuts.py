from __future__ import annotations

from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sinkpipeline.core.cuts import CutPolicy
from sinkpipeline.kafka.producers import TRANSACTION_TIMEOUT_MS

POLICY = CutPolicy(rows=100, bytes=1000, seconds=15)


@pytest.mark.parametrize(
    ("rows", "size", "row_size", "room"),
    [
        (0, 0, 1, 100),
        (40, 0, 1, 60),
        (0, 0, 20, 50),
        (10, 900, 20, 5),
        (0, 0, 0, 100),
        (0, 0, 5000, 1),
        (100, 0, 1, 1),
        (0, 2000, 1, 1),
    ],
    ids=["rows", "rows left", "bytes", "bytes left", "no size", "a huge row", "full by rows", "full by bytes"],
)
def test_room(rows: int, size: int, row_size: float, room: int) -> None:
    assert POLICY.room(rows=rows, size=size, row_size=row_size) == room


@given(
    st.builds(CutPolicy, rows=st.integers(1, 50), bytes=st.integers(1, 500)),
    st.integers(1, 200),
    st.floats(0, 100, allow_subnormal=False),
)
@example(CutPolicy(rows=4, bytes=1), 4, 0.375)
def test_any_batch_is_cut_into_transactions_within_the_bounds(policy: CutPolicy, length: int, row_size: float) -> None:
    done = rows = 0
    while done < length:
        taken = min(length - done, policy.room(rows=rows, size=ceil(rows * row_size), row_size=row_size))
        assert taken >= 1
        done, rows = done + taken, rows + taken
        assert rows <= policy.rows
        assert rows == 1 or rows * row_size <= policy.bytes + row_size
        if policy.is_full(rows=rows, size=ceil(rows * row_size)):
            rows = 0


@pytest.mark.parametrize(("rows", "size", "full"), [(99, 999, False), (100, 0, True), (0, 1000, True)])
def test_full(rows: int, size: int, full: bool) -> None:
    assert POLICY.is_full(rows=rows, size=size) is full


def test_due() -> None:
    assert not POLICY.is_due(open_s=14.9)
    assert POLICY.is_due(open_s=15)


def test_the_default_stays_far_below_the_time_out_of_a_transaction() -> None:
    assert CutPolicy().seconds * 1000 * 3 < TRANSACTION_TIMEOUT_MS


def test_a_transaction_that_did_not_come_through_is_tried_in_halves() -> None:
    policy = CutPolicy(rows=500_000, bytes=64_000_000).after_trouble(rows=300_000, size=20_000_000)
    assert (policy.rows, policy.bytes) == (150_000, 10_000_000)
    for _ in range(30):
        policy = policy.after_trouble(rows=policy.rows, size=policy.bytes)
    assert (policy.rows, policy.bytes) == (1_000, 256 * 1024), "a small one is not to blame"
    assert POLICY.after_trouble(rows=100, size=1000) == POLICY


@pytest.mark.parametrize(
    ("share", "rows", "size"),
    [(None, 150_000, 10_000_000), (1.0, 150_000, 10_000_000), (0.1, 15_000, 1_000_000), (0.0, 1_000, 256 * 1024)],
)
def test_half_of_what_came_through_comes_through_again(share: float | None, rows: int, size: int) -> None:
    policy = CutPolicy(rows=500_000, bytes=64_000_000).after_trouble(rows=300_000, size=20_000_000, share=share)
    assert (policy.rows, policy.bytes) == (rows, size)
