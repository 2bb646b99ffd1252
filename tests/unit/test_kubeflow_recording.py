"""The stand-in for Kubeflow's operator does what the real one did on a cluster: `make e2e` makes the recording anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.cluster.recording import POD, merged, unlike

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


def seen(at: float, event: str, version: int, uid: str = "a") -> dict[str, Any]:
    return {"at": at, "event": event, "kind": POD, "metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_what_several_processes_have_seen_is_told_once_and_in_order() -> None:
    early = [seen(100.0, "ADDED", 1), seen(101.0, "MODIFIED", 2), seen(109.0, "DELETED", 9)]
    # Begins after the pod was made.
    late = [seen(101.5, "ADDED", 2), seen(105.0, "MODIFIED", 3), seen(109.2, "DELETED", 9)]
    latest = [seen(106.0, "ADDED", 4)]
    told = [(each["at"], each["event"], each["metadata"]["resourceVersion"]) for each in merged(early + late + latest)]
    assert told == [
        (0.0, "ADDED", "1"),
        (1.0, "MODIFIED", "2"),
        (5.0, "MODIFIED", "3"),
        (6.0, "MODIFIED", "4"),
        (9.0, "DELETED", "9"),
    ]
