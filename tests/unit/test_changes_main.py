"""The process of a stage: what its driver is told, whatever ends it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sinkpipeline.changes import __main__ as program
from sinkpipeline.changes.receipts import to_stdout
from sinkpipeline.core.errors import Reason, SinkPipelineError


@pytest.fixture(autouse=True)
def _signals_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", mock.Mock())


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_settings_that_are_none_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([str(tmp_path / "none.json")]) == 2
    assert program.main([]) == 2
    assert [each["error"]["reason"] for each in told(capsys)] == ["UsageInvalid", "UsageInvalid"]


def lives(monkeypatch: pytest.MonkeyPatch, run: Any) -> int:
    monkeypatch.setattr(program, "read", mock.Mock())
    monkeypatch.setattr(program, "Stage", lambda *_: mock.Mock(run=run))
    return program.main(["file"])


def test_the_end_of_a_life_is_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lives(monkeypatch, mock.Mock()) == 0
    assert told(capsys) == []
    for reason, code in ((Reason.SLOT_LOST, 3), (Reason.SUPERSEDED, 4), (Reason.SLOT_BUSY, 1)):
        error = SinkPipelineError(reason, "m", "r")
        assert lives(monkeypatch, mock.Mock(side_effect=error)) == code
        assert told(capsys) == [{"event": "failed", "error": {"reason": reason.value, "message": "m", "remedy": "r"}}]


def test_a_bug_is_told_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert lives(monkeypatch, mock.Mock(side_effect=ZeroDivisionError("0"))) == 1
    [failed] = told(capsys)
    assert failed["error"]["reason"] == "InternalError"
    assert failed["error"]["message"] == "ZeroDivisionError: 0"


def test_without_its_driver_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", mock.Mock(write=mock.Mock(side_effect=BrokenPipeError)))

    assert lives(monkeypatch, lambda: to_stdout("state")) == 1
