"""What the options of `sinkpipeline dlq` mean, and that nothing steers a terminal."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.cli.dlq.purging import UpTo
from sinkpipeline.cli.dlq.selection import moment
from sinkpipeline.cli.dlq.showing import printable
from sinkpipeline.core.errors import Reason
from support.starts import refusal


@given(st.text())
def test_what_is_printed_does_nothing_to_who_prints_it(text: str) -> None:
    shown = printable(text)
    assert {unicodedata.category(each) for each in shown if each not in "\n\t"}.isdisjoint({"Cc", "Cf", "Cs", "Zl"})
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22T08:00:00Z", 1795334400000),
        ("2026-11-22T08:00:00", 1795334400000),
        ("2026-11-22T09:00:00+01:00", 1795334400000),
        ("2026-11-22", 1795305600000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert moment("--since", text) == expected


def test_so_long_ago() -> None:
    assert moment("--since", "1h30m") == pytest.approx(time.time() * 1000 - 5_400_000, abs=60_000)


@pytest.mark.parametrize("text", ["", "yesterday", "5", "-1h", "2026-13-01"])
def test_times_that_are_none(text: str) -> None:
    assert repr(text) in refusal(lambda: moment("--since", text), Reason.USAGE_INVALID).message


@pytest.mark.parametrize(
    "bounds", [UpTo(), UpTo(until="1h", redriven=True), UpTo(before=("0:1",), until="1h")], ids=str
)
def test_a_purge_has_one_bound(bounds: UpTo) -> None:
    refusal(bounds.check, Reason.USAGE_INVALID)
