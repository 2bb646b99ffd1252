"""What `run` shows of a sink while it runs, in lines and live."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from rich.console import Console

from sinkpipeline.cli import display
from sinkpipeline.cli.display import Lines
from sinkpipeline.core.served import Observation, RunCounts


def seen(rows: int = 0, **sink: Any) -> Observation:
    status = {"sinks": [{"name": "one", "state": "Running", "lag": 5, **sink}]}
    return Observation(status=status, counts={"one": RunCounts(rows=rows)}, supervising=True)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "sinkpipeline.run")
    monkeypatch.setattr(display, "_LOG_EVERY_S", 0.0)
    monkeypatch.setattr(logging.getLogger("sinkpipeline"), "propagate", True)
    return Lines()


def test_a_line_has_dead_letters_where_there_are_any(lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    for rows, letters in ((0, {}), (7, {"deadLettered": 0}), (7, {"deadLettered": 1200}), (7, {"deadLettered": 1200})):
        lines(seen(rows, **letters))
    lines(seen(7, deadLettered=1200, dropped=1))
    told = [record.getMessage().partition("lag ")[2] for record in caplog.records]
    assert told == ["5", "5", "5, dead letters 1,200", "5, dead letters 1,200, dropped 1"]


def test_the_live_line_has_them_too() -> None:
    output = io.StringIO()
    with display._live(["one"], Console(file=output, force_terminal=True, width=150)) as show:
        show(seen(7))
        assert "dead" not in output.getvalue()
        show(seen(7, deadLettered=3, dropped=2))
    assert "dead letters 3, dropped 2" in output.getvalue()
