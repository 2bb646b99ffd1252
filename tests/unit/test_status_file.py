"""The status file of a run: who may write over whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sinkpipeline.cli.run import _StatusFile


def _status(rows: int, **error: str) -> dict[str, Any]:
    return {"sinks": [{"name": "out", "rowsDelivered": rows, **({"error": error} if error else {})}]}


def _rows(path: Path) -> int:
    rows: int = json.loads(path.read_text())["sinks"][0]["rowsDelivered"]
    return rows


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
