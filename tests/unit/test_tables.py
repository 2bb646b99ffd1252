"""Rows for people, on terminals of each width."""

from __future__ import annotations

import pytest

from sinkpipeline.cli.tables import table

NAMES = ("sink", "topic", "partition", "next", "end", "lag", "rows", "dead", "dropped", "lost", "at")
ROW = ["enriched", "orders-raw", "0", "1200345", "1300000", "99655", "1200000", "12", "0", "0", "2026-11-22T08:00:00Z"]
NUMBERS = ("partition", "next", "end", "lag", "rows", "dead", "dropped", "lost")


def test_columns_where_they_fit() -> None:
    for width in (None, 120):
        head, row = table(NAMES, [ROW], right=NUMBERS, heads=3, width=width).splitlines()
        assert head.split() == [name.upper() for name in NAMES]
        assert row.split() == ROW
        assert head.index("NEXT") + len("NEXT") == row.index("1200345") + len("1200345"), "numbers end in one line"


@pytest.mark.parametrize("width", [50, 40])
def test_a_block_for_each_row_where_they_do_not(width: int) -> None:
    text = table(NAMES, [ROW, ROW], right=NUMBERS, heads=3, width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "enriched orders-raw 0"
    assert lines.count("enriched orders-raw 0") == 2
    for name, cell in zip(NAMES[3:], ROW[3:], strict=True):
        assert f"{name} {cell}" in text, "what belongs together stays on one line"


def test_wide_letters_take_two_columns() -> None:
    head, row = table(("reason", "at"), [["日本", "x"]], heads=1, width=None).splitlines()
    assert (head, row) == ("REASON  AT", "日本    x")


def test_without_a_head_a_block_has_only_its_pairs() -> None:
    text = table(("delivered", "pending"), [["1", "2"]], heads=0, width=12)
    assert text.splitlines() == ["  delivered 1", "  pending 2"]
