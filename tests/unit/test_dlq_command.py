"""What the options of `sinkpipeline dlq` mean."""

from __future__ import annotations

import io
import json
import time

import pytest
from rich.console import Console

from sinkpipeline.cli.dlq import redriving
from sinkpipeline.cli.dlq.purging import UpTo
from sinkpipeline.cli.dlq.selection import moment
from sinkpipeline.core.errors import Reason
from sinkpipeline.kafka.redrive import Summary
from support.sink.starts import refusal


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


def test_the_bar_shows_how_far_it_is_also_when_more_come() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with redriving._bar(console, 10) as show:
        show(Summary(delivered=2, filtered=1, pending=7))
        show(Summary(delivered=2, filtered=1, dead_lettered=1, kept=1, pending=6))
    assert isinstance(console.file, io.StringIO)
    assert "5/11" in console.file.getvalue()


def test_where_there_is_no_terminal_a_line_is_told_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with redriving._shown(10) as show:
        show(Summary(delivered=1, pending=9))
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(redriving, "_TELL_EVERY_S", 0.0)
        show(Summary(delivered=2, filtered=1, pending=7))
    assert capsys.readouterr().err == "redrove 3 of 10 letters\n"


def test_the_summary_is_told_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary(delivered=1, filtered=2, dead_lettered=3, kept=4, uncounted=6, gone=7, pending=5)
    redriving._show(summary, "json")
    expected = {"delivered": 1, "returned": 0, "filtered": 2, "deadLettered": 3, "repeated": 0, "kept": 4}
    assert json.loads(capsys.readouterr().out) == {**expected, "uncounted": 6, "gone": 7, "pending": 5}
    redriving._show(summary, "table")
    assert capsys.readouterr().out.split()[-9:] == ["1", "0", "2", "3", "0", "4", "6", "7", "5"]


def test_letters_that_do_not_count_are_warned_of() -> None:
    assert list(redriving.left(Summary(delivered=3, kept=1, pending=2))) == []
    [line] = redriving.left(Summary(uncounted=2))
    assert line.startswith("2 letters stay pending: ")
    [line] = redriving.left(Summary(gone=2))
    assert line.startswith("2 letters were deleted before they were read")
