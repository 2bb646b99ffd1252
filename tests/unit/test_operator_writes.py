"""What is worth a write of the status."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sinkpipeline_operator.report.writes import EVERY_S, EVERY_S_AT_FIRST, FIRST_S, Due, Pace, Tokens

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


def pace() -> Pace:
    """Of a pipeline that was written at 0, and whose last transition was long before."""
    ours = Pace()
    ours.wrote({}, STATUS, -FIRST_S)
    ours.wrote(counts(4, 3), counts(5, 0), 0.0)
    return ours


def counts(rows: int, lag: int) -> dict[str, Any]:
    return changed(lambda status: status["totals"].update(rowsDelivered=rows, lag=lag))


def test_the_same_is_never_written() -> None:
    assert pace().due(STATUS, copy.deepcopy(STATUS), 1e9) is Due.NOT


COUNTS = {
    "rows": changed(lambda status: status["sinks"][0].update(rowsDelivered=6)),
    "frontier": changed(lambda status: status["sinks"][0]["frontier"][0].update(next=[6])),
    "totals": changed(lambda status: status["totals"].update(rowsDelivered=6)),
    "dead letters": changed(lambda status: status["sinks"][0]["deadLetters"][0].update(count=4)),
    "a message": changed(lambda status: status["conditions"][0].update(message="5 s ago")),
}


@pytest.mark.parametrize("after", [pytest.param(status, id=name) for name, status in COUNTS.items()])
def test_counts_are_written_once_a_minute(after: dict[str, Any]) -> None:
    assert pace().due(STATUS, after, EVERY_S - 1) is Due.NOT
    assert pace().due(STATUS, after, EVERY_S) is Due.COUNTS


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
    assert pace().due(STATUS, after, 0.0) is Due.TRANSITION


def test_a_first_status_is_written_at_once() -> None:
    assert Pace().due({}, STATUS, 0.0) is Due.TRANSITION


def test_a_crd_that_prunes_the_classes_costs_no_writes() -> None:
    stored = changed(lambda status: status["sinks"][0].pop("deadLetters"))
    stored["sinks"][0]["deadLettered"] = 3
    assert pace().due(stored, STATUS, EVERY_S - 1) is Due.NOT


def test_what_a_person_looks_for_after_a_transition_is_written_at_once() -> None:
    ours = Pace()
    ours.wrote({}, counts(5, 90), 0.0)
    assert ours.due(counts(5, 90), counts(5, 91), 1.0) is Due.NOT
    assert ours.due(counts(5, 90), counts(6, 89), 1.0) is Due.COUNTS, "the first rows"
    ours.wrote(counts(5, 90), counts(6, 89), 1.0)
    assert ours.due(counts(6, 89), counts(9, 86), 2.0) is Due.NOT
    assert ours.due(counts(6, 89), counts(95, 0), 2.0) is Due.COUNTS, "nothing waits any more"
    ours.wrote(counts(6, 89), counts(95, 0), 2.0)
    assert ours.due(counts(95, 0), counts(96, 3), 3.0) is Due.NOT


def test_counts_are_written_more_often_while_a_transition_is_young() -> None:
    ours = Pace()
    ours.wrote({}, counts(5, 90), 0.0)
    ours.wrote(counts(5, 90), counts(6, 90), 1.0)
    assert ours.due(counts(6, 90), counts(7, 90), EVERY_S_AT_FIRST) is Due.NOT
    assert ours.due(counts(6, 90), counts(7, 90), 1.0 + EVERY_S_AT_FIRST) is Due.COUNTS
    ours.wrote(counts(6, 90), counts(7, 90), FIRST_S)
    assert ours.due(counts(7, 90), counts(8, 90), FIRST_S + EVERY_S_AT_FIRST) is Due.NOT


def test_a_lag_that_comes_and_goes_is_not_written_each_time() -> None:
    ours = pace()
    ours.wrote(counts(5, 3), counts(6, 0), 10.0)
    assert ours.due(counts(6, 4), counts(7, 0), 11.0) is Due.NOT
    assert ours.due(counts(6, 4), counts(7, 0), 10.0 + EVERY_S_AT_FIRST) is Due.COUNTS


def test_all_pipelines_together_write_only_so_many_counts() -> None:
    tokens = Tokens(per_second=10)
    assert [tokens.take(Due.COUNTS, 0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not tokens.take(Due.NOT, 0.0)
    assert [tokens.take(Due.TRANSITION, 0.0) for _ in range(50)] == [True] * 50, "transitions never wait"
    assert not tokens.take(Due.COUNTS, 1.0), "what they took is missing"
    assert tokens.take(Due.COUNTS, 1.2)
