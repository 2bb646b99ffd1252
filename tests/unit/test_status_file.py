"""The status file of a run: who may write over whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sinkpipeline.cli.run import _StatusFile

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
    old, new = _StatusFile(path), _StatusFile(path)
    old.write(_status(1))
    new.write(_status(2))
    old.write(_status(1, reason="Superseded"))
    assert _rows(path) == 2


def test_a_superseded_run_says_so_where_nobody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_text(json.dumps(_status(0)))
    alone = _StatusFile(path)
    alone.write(_status(1, reason="Superseded"))
    assert _rows(path) == 1
    alone.write(_status(3, reason="Superseded"))
    assert _rows(path) == 3


def test_a_run_that_is_not_superseded_writes_over_any_other(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    one, other = _StatusFile(path), _StatusFile(path)
    one.write(_status(1))
    other.write(_status(2))
    one.write(_status(3, reason="BatchFailed"))
    assert _rows(path) == 3


def test_a_run_that_knows_no_frontier_yet_forgets_none_of_another_run(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    beginner, runs = _StatusFile(path), _StatusFile(path)
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
    run = _StatusFile(path)
    for other in ("nonsense", "[]", json.dumps({**_status(9), "identity": "j"})):
        path.write_text(other)
        run.write(_document({"name": "out", "state": "Starting"}))
        assert "rowsDelivered" not in json.loads(path.read_text())["sinks"][0]
