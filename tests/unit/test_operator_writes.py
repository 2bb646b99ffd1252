"""What is worth a write of the status."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sinkpipeline_operator.report.writes import EVERY_S, is_due

LETTER = {"class": "WrongType", "stage": "decode", "count": 3, "dropped": 0}
STATUS: dict[str, Any] = {
    "observedGeneration": 3,
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Running", "message": "", "observedGeneration": 3},
    ],
    "totals": {"sinksReady": "1/1", "rowsDelivered": 5},
    "restarts": {"total": 0},
    "sinks": [
        {
            "name": "out",
            "state": "Running",
            "rowsDelivered": 5,
            "deadLetters": [LETTER],
            "frontier": [{"topic": "t", "next": [5]}],
        }
    ],
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    status = copy.deepcopy(STATUS)
    change(status)
    return status


def test_the_same_is_never_written() -> None:
    assert not is_due(STATUS, copy.deepcopy(STATUS), since_s=1e9)


COUNTS = {
    "rows": changed(lambda status: status["sinks"][0].update(rowsDelivered=6)),
    "frontier": changed(lambda status: status["sinks"][0]["frontier"][0].update(next=[6])),
    "totals": changed(lambda status: status["totals"].update(rowsDelivered=6)),
    "dead letters": changed(lambda status: status["sinks"][0]["deadLetters"][0].update(count=4)),
    "a message": changed(lambda status: status["conditions"][0].update(message="5 s ago")),
}


@pytest.mark.parametrize("after", [pytest.param(status, id=name) for name, status in COUNTS.items()])
def test_counts_are_written_once_a_minute(after: dict[str, Any]) -> None:
    assert not is_due(STATUS, after, since_s=EVERY_S - 1)
    assert is_due(STATUS, after, since_s=EVERY_S)


TRANSITIONS = {
    "a state": changed(lambda status: status["sinks"][0].update(state="Retrying")),
    "an error": changed(lambda status: status["sinks"][0].update(error={"reason": "BrokerUnreachable"})),
    "a circuit": changed(lambda status: status["sinks"][0].update(circuit={"openedAt": "..."})),
    "a reset": changed(lambda status: status["sinks"][0].update(epoch=1)),
    "a topic": changed(lambda status: status["sinks"][0].update(progressTopicId="another")),
    "a condition": changed(lambda status: status["conditions"][0].update(status="False")),
    "a reason": changed(lambda status: status["conditions"][0].update(reason="Other")),
    "the generation": changed(lambda status: status.update(observedGeneration=4)),
    "a restart": changed(lambda status: status["restarts"].update(total=1)),
    "another sink": changed(lambda status: status["sinks"].append({"name": "more", "state": "Starting"})),
    "the first dead letter of a class": changed(
        lambda status: status["sinks"][0]["deadLetters"].append({**LETTER, "class": "NullValue"})
    ),
    "the first dropped record of a class": changed(
        lambda status: status["sinks"][0]["deadLetters"][0].update(dropped=1)
    ),
    "the phase": changed(lambda status: status.update(phase="Degraded")),
}


@pytest.mark.parametrize("after", [pytest.param(status, id=name) for name, status in TRANSITIONS.items()])
def test_transitions_are_written_at_once(after: dict[str, Any]) -> None:
    assert is_due(STATUS, after, since_s=0.0)


def test_a_first_status_is_written_at_once() -> None:
    assert is_due({}, STATUS, since_s=0.0)


def test_a_crd_that_prunes_the_classes_costs_no_writes() -> None:
    stored = changed(lambda status: status["sinks"][0].pop("deadLetters"))
    stored["sinks"][0]["deadLettered"] = 3
    assert not is_due(stored, STATUS, since_s=EVERY_S - 1)
