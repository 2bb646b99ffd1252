"""The stand-in for Kubeflow's operator does what the real one did on a cluster: `make e2e` makes the recording anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.cluster.recording import POD, unlike

RECORDING = Path(__file__).parents[1] / "data" / "kubeflow-2.5.1.jsonl"


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDING.read_text().splitlines()]


def test_each_change_of_state_is_one_that_the_stand_in_makes() -> None:
    replayed, strange = unlike(recorded())
    assert strange == []
    assert replayed > 20


def test_what_differs_is_found() -> None:
    """Drivers that nobody has seen: the stand-in would call them lost."""
    _, strange = unlike([line for line in recorded() if line["kind"] != POD])
    assert any(" to RUNNING" in each for each in strange)
