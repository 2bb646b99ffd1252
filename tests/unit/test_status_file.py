"""The status file of a run: who may write over whom."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.cli.status_file import Here, StatusFile, who_writes

LETTERS = [{"class": "WrongType", "stage": "decode", "count": 2, "dropped": 0}]


def _status(rows: int, **error: str) -> dict[str, Any]:
    sink = {
        "name": "out",
        "rowsDelivered": rows,
        "deadLetters": LETTERS,
        "frontier": [{"topic": "in", "topicId": "i", "next": [rows]}],
    }
    return _document(sink | ({"error": error} if error else {}))


def _document(*sinks: dict[str, Any]) -> dict[str, Any]:
    return {"identity": "i", "totals": {"rowsDelivered": -1}, "sinks": list(sinks)}


def _rows(path: Path) -> int:
    rows: int = json.loads(path.read_text())["sinks"][0]["rowsDelivered"]
    return rows


def _rows_of(path: Path, name: str) -> int | None:
    return next(each.get("rowsDelivered") for each in json.loads(path.read_text())["sinks"] if each["name"] == name)


def test_a_superseded_run_leaves_what_its_successor_has_written(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    old, new = StatusFile(path), StatusFile(path)
    old.write(_status(1))
    new.write(_status(2))
    old.write(_status(1, reason="Superseded"))
    assert _rows(path) == 2


def test_a_superseded_run_says_so_where_nobody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_text(json.dumps(_status(0)))
    alone = StatusFile(path)
    alone.write(_status(1, reason="Superseded"))
    assert _rows(path) == 1
    alone.write(_status(3, reason="Superseded"))
    assert _rows(path) == 3


def test_a_run_that_is_not_superseded_writes_over_any_other(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    one, other = StatusFile(path), StatusFile(path)
    one.write(_status(1))
    other.write(_status(2))
    one.write(_status(3, reason="BatchFailed"))
    assert _rows(path) == 3


def test_a_run_that_knows_no_frontier_yet_forgets_none_of_another_run(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    beginner, runs = StatusFile(path), StatusFile(path)
    runs.write(_status(7))
    beginner.write(_document({"name": "new", "state": "Starting"}, {"name": "out", "state": "Retrying"}))
    written = json.loads(path.read_text())
    new, out = written["sinks"]
    assert new == {"name": "new", "state": "Starting"}
    assert (out["state"], out["rowsDelivered"], out["frontier"][0]["next"]) == ("Retrying", 7, [7])
    assert out["deadLetters"] == LETTERS
    assert written["totals"]["rowsDelivered"] == 7
    beginner.write(_document({"name": "new", "state": "Retrying"}, {"name": "out", "state": "Starting"}))
    assert _rows_of(path, "out") == 7, "nor the second time, when the document is its own"
    beginner.write(_status(3))
    assert _rows(path) == 3, "its own frontier, once it knows it"


def test_what_is_no_status_of_this_pipeline_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    run = StatusFile(path)
    for other in ("nonsense", "[]", json.dumps({**_status(9), "identity": "j"})):
        path.write_text(other)
        run.write(_document({"name": "out", "state": "Starting"}))
        assert "rowsDelivered" not in json.loads(path.read_text())["sinks"][0]


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_file_that_says_nothing_new_is_written_every_ten_seconds(tmp_path: Path) -> None:
    path, clock = tmp_path / "status.json", Clock()
    file = StatusFile(path, clock)

    def written_after(seconds: float, rows: int) -> bool:
        before = path.stat().st_ino
        clock.now += seconds
        file.write(_status(rows))
        return path.stat().st_ino != before

    file.write(_status(1))
    file.write(_status(1))
    assert [written_after(seconds, 1) for seconds in (9, 1, 9, 0.9, 0.2)] == [False, True, False, False, True]
    assert written_after(1, 2)
    assert _rows(path) == 2, "what is new is written at once"


@pytest.mark.parametrize(
    ("phase", "completed", "told"),
    [("Suspended", True, "Completed"), ("Suspended", False, "Suspended"), ("Failed", True, "Failed")],
)
def test_a_run_that_has_delivered_all_is_completed(phase: str, completed: bool, told: str, tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    file.write({**_status(3), "phase": phase})
    file.end(completed=completed)
    assert json.loads((tmp_path / "status.json").read_text())["phase"] == told


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ("", "writes"),
        ("end", "nobody writes"),
        ("cut_short", "nobody writes .* in the middle of a batch"),
    ],
)
def test_who_writes_it(ends: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    file = StatusFile(path)
    file.write(_status(1))
    if ends:
        getattr(file, ends)()
    assert _rows(path) == 1
    said = who_writes(json.loads(path.read_text()), path, Here.and_now())
    assert said is not None
    assert re.search(told, said)
    assert str(os.getpid()) in said


@pytest.mark.parametrize(
    ("host", "later_s", "runs", "gone"),
    [
        ("same", 1, False, True),
        ("same", 3600, True, False),  # a machine that slept
        ("other", 59, False, False),
        ("other", 61, False, True),
    ],
)
def test_a_run_that_was_killed_is_told(host: str, later_s: float, runs: bool, gone: bool, tmp_path: Path) -> None:
    path, clock = tmp_path / "status.json", Clock()
    StatusFile(path, clock).write(_status(1))
    written = json.loads(path.read_text())
    here = Here(
        host=written["writer"]["host"] if host == "same" else "another",
        now=clock.now + later_s,
        runs=lambda pid: runs and pid == os.getpid(),
    )
    said = who_writes(written, path, here)
    assert said is not None
    assert ("was killed" in said) is gone


@pytest.mark.parametrize("document", [None, [], {}, {"writer": 1}, {"writer": {"pid": "x", "host": 1, "at": "?"}}])
def test_a_file_of_an_older_release_says_nothing_of_its_writer(document: object, tmp_path: Path) -> None:
    assert who_writes(document, tmp_path, Here.and_now()) is None
