"""When a driver counts as unresponsive: its silence, its clock, and a frontier that stands still."""

from __future__ import annotations

from typing import Any

import pytest

from sinkpipeline.core.served import START_ALLOWANCE_S
from sinkpipeline.core.status import timestamp
from sinkpipeline_operator.observe.driver_client import Answer
from sinkpipeline_operator.observe.hearing import Heard, Hearing

SILENCE = Answer(trouble="refused")
PATIENCE_S = 100.0


def says(now: int, *, lag: int = 0, next_offset: int = 7, state: str = "Running") -> Answer:
    sink = {"name": "out", "state": state, "lag": lag, "frontier": [{"topic": "in", "next": [next_offset]}]}
    return Answer(document={"run": "r", "now": now, "sinks": [sink]})


def tells(now_s: int, still_since_s: int | None, *, lag: int = 5) -> Answer:
    """As a driver that tells how long its sinks stand still."""
    sink = {"name": "out", "state": "Running", "lag": lag, "proved": True}
    still = {} if still_since_s is None else {"stillSince": timestamp(still_since_s * 1000)}
    return Answer(document={"run": "r", "now": timestamp(now_s * 1000), "sinks": [{**sink, **still}]})


class Ear:
    def __init__(self) -> None:
        self.hearing = Hearing()

    def hear(self, answer: Answer | None, at: float, *, is_new: bool = False, before: str = "") -> Heard:
        return self.hearing.hear(answer, is_new=is_new, patience_s=PATIENCE_S, now=at, before=before)


@pytest.fixture
def ear() -> Ear:
    return Ear()


def test_one_silence_is_none(ear: Ear) -> None:
    said = says(1)
    assert ear.hear(said, 0) == Heard(said.document)
    assert [ear.hear(SILENCE, at) for at in (1, 2)] == [Heard(said.document)] * 2
    heard = ear.hear(SILENCE, 11)
    assert heard.document is None
    assert "does not answer" in heard.trouble
    assert ear.hear(says(2), 12).trouble == ""


def test_a_busy_node_may_silence_a_driver_for_some_seconds(ear: Ear) -> None:
    said = says(1)
    ear.hear(said, 0)
    assert [ear.hear(SILENCE, at) for at in range(1, 11)] == [Heard(said.document)] * 10
    assert ear.hear(says(2), 11).trouble == ""
    assert [ear.hear(SILENCE, at).trouble for at in range(12, 22)] == [""] * 10, "each silence has its own time"
    assert "does not answer" in ear.hear(SILENCE, 22).trouble


def test_what_is_no_answer_is_told_at_the_third(ear: Ear) -> None:
    refused = Answer(trouble="its answer is no JSON", is_refused=True)
    heard = [ear.hear(refused, at).trouble for at in (1, 2, 3)]
    assert [bool(trouble) for trouble in heard] == [False, False, True]


def test_a_new_driver_has_time_to_listen(ear: Ear) -> None:
    for at in range(10):
        assert ear.hear(SILENCE, at, is_new=True).trouble == ""


def test_a_driver_that_has_answered_has_no_such_time(ear: Ear) -> None:
    # Its status isn't Ready any more once it is told as silent: that must not make it new again.
    assert ear.hear(says(1), 0, is_new=True).trouble == ""
    heard = [ear.hear(SILENCE, at, is_new=True).trouble for at in range(1, 90, 11)]
    assert [bool(trouble) for trouble in heard] == [False, False, True, True, True, True, True, True, True]
    assert ear.hear(None, 90) == Heard(None)
    heard = [ear.hear(SILENCE, at, is_new=True).trouble for at in range(91, 150, 11)]
    assert heard == [""] * 6, "the next one is new"


def test_what_an_earlier_operator_knew_holds(ear: Ear) -> None:
    assert ear.hear(SILENCE, 0, is_new=False).trouble == ""
    heard = [ear.hear(SILENCE, at, is_new=True).trouble for at in (1, 10, 11, 12)]
    assert [bool(trouble) for trouble in heard] == [False, True, True, True]


def test_nobody_to_ask_is_no_silence(ear: Ear) -> None:
    for at in range(10):
        assert ear.hear(None, at) == Heard(None)


def test_a_clock_that_stands_still(ear: Ear) -> None:
    assert ear.hear(says(1), 0).trouble == ""
    assert ear.hear(says(1), 59).trouble == ""
    assert "stands still" in ear.hear(says(1), 60).trouble
    assert ear.hear(says(2), 61).trouble == ""


def test_a_clock_that_stands_still_while_spark_starts(ear: Ear) -> None:
    def starts(now: int) -> Answer:
        return Answer(document={"run": "r", "now": now, "supervising": False, "sinks": []})

    assert [ear.hear(starts(1), at).trouble for at in (0, 60, START_ALLOWANCE_S - 1)] == [""] * 3
    assert "stands still" in ear.hear(starts(1), START_ALLOWANCE_S).trouble


@pytest.mark.parametrize(
    ("between", "trouble"),
    [
        ({"lag": 5}, True),
        ({"lag": 9}, True),
        ({"lag": 5, "next_offset": 8}, False),
        ({"lag": 0}, False),
        ({"lag": 5, "state": "Retrying"}, False),
    ],
    ids=["the same", "more lag", "progress", "caught up", "it says so itself"],
)
def test_records_wait_and_the_frontier_stands_still(ear: Ear, between: dict[str, Any], trouble: bool) -> None:
    assert ear.hear(says(1, lag=5), 0).trouble == ""
    assert ear.hear(says(2, **between), 50).trouble == ""
    assert bool(ear.hear(says(3, lag=5), 100).trouble) is trouble
    assert ear.hear(says(4, lag=5, next_offset=9), 101).trouble == ""


def test_how_long_a_sink_stands_still_is_its_drivers_word(ear: Ear) -> None:
    for at in range(0, 3600, 60):
        assert ear.hear(tells(at, at), at).trouble == "", "its batch takes an hour, and its tasks get on"
    assert ear.hear(tells(4000, 3901), 4000).trouble == ""
    assert "out made no progress" in ear.hear(tells(4001, 3901), 4001).trouble
    assert ear.hear(tells(4002, 4002), 4002).trouble == ""


def test_an_operator_that_has_just_started_need_not_wait_for_what_the_driver_says() -> None:
    assert "out made no progress" in Ear().hear(tells(1000, 900), 0).trouble
    assert Ear().hear(tells(1000, 901), 0).trouble == ""


def test_what_an_earlier_operator_has_said_holds_until_the_driver_disproves_it(ear: Ear) -> None:
    assert ear.hear(SILENCE, 0, before="it hangs").trouble == "it hangs"
    assert ear.hear(says(1), 1, before="it hangs").trouble == "it hangs", "a hanging one answers too"
    assert ear.hear(says(1), 2, before="it hangs").trouble == "it hangs"
    assert ear.hear(says(2), 3, before="it hangs").trouble == ""
    assert ear.hear(says(2), 4, before="").trouble == ""
    assert "stands still" in ear.hear(says(2), 63).trouble


def test_what_was_said_of_a_driver_is_not_said_of_the_next_one(ear: Ear) -> None:
    assert ear.hear(says(1), 1, before="it hangs").trouble == "it hangs"
    assert ear.hear(None, 2) == Heard(None)
    assert ear.hear(says(1), 3).trouble == ""


def test_a_sink_that_is_not_required_may_stand_still() -> None:
    for optional, still in ((set(), True), ({"out"}, False)):
        heard = Hearing().hear(tells(1_000, 0), is_new=False, patience_s=PATIENCE_S, now=0, optional=optional)
        assert ("made no progress" in heard.trouble) is still


def test_an_idle_sink_may_stand_still_for_ever(ear: Ear) -> None:
    for at in range(0, 1000, 10):
        assert ear.hear(says(at), at).trouble == ""
    assert ear.hear(says(1001, lag=1), 1001).trouble == "", "its time begins with the first record that waits"
