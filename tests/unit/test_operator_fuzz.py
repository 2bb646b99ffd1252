"""Whatever a driver, a kubelet or an older API server has written, the operator goes on: tests/support/kube/fuzz.py."""

from __future__ import annotations

import json

import pytest

from sinkpipeline_operator.kube.client import ApiRefused
from support.kube.fuzz import (
    CASES,
    LOOKS,
    RUNNING,
    STARTED,
    WORDS,
    good,
    last_words,
    made,
    obeys,
    phase,
    remembers,
    run,
    running,
    until,
)
from support.kube.hostile import Object


@pytest.mark.parametrize("case", CASES)
def test_it_goes_on(case: str) -> None:
    run(case, 20)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.thorough("more runs of the same")
@pytest.mark.long("more runs of the same", after=2)
def test_it_goes_on_for_long(case: str) -> None:
    run(case, 60, with_seed=1)


def test_a_status_that_a_policy_refuses_for_what_the_driver_says() -> None:
    hostile = running()
    hostile.api.refuses_status = lambda status: any(each.get("dataTopicId") == "no" for each in status["sinks"])
    hostile.says = lambda line: good(line).replace(b'"dataTopicId": "d"', b'"dataTopicId": "no"')
    for _ in range(4):
        assert hostile.look() == ""
    [told] = [each for each in hostile.status["conditions"] if each["type"] == "SparkApplicationReady"]
    assert told["reason"] == "DriverUnresponsive"
    assert "by a policy" in told["message"]
    remembers(hostile)
    obeys(hostile)


@pytest.mark.parametrize("end", [{"exitCode": 2}, {"exitCode": 3}, {"exitCode": 4}])
def test_an_ending_whose_words_a_policy_refuses_is_counted(end: Object) -> None:
    hostile = running()
    hostile.api.refuses_status = lambda status: "secret word" in json.dumps(status)
    words = json.dumps({**WORDS, "message": "the secret word"})
    hostile.run_child(RUNNING, {"terminated": {**end, "reason": "Error", "message": words}})
    for _ in range(LOOKS):
        assert hostile.look() == ""
    assert hostile.status["restarts"]["total"] == 1
    obeys(hostile)


def test_tokens_that_could_not_be_read_for_a_while() -> None:
    """Found by the hunt: its driver said the same for ever, and was held to hang when it could be asked again."""
    hostile = made()
    hostile.says = good
    hostile.api.refused = {("get", "secrets"): ApiRefused(403, "a policy denied the request")}
    for _ in range(LOOKS):
        hostile.look()
        hostile.run_child(RUNNING, STARTED)
    assert phase(hostile) != "Running"
    hostile.api.refused = {}
    until(hostile, "Running")
    obeys(hostile)


@pytest.mark.parametrize(
    "wrong", [{"frontier": [{"topic": "in", "topicId": "x", "next": []}]}, {"dataTopicId": ""}, {"progressTopicId": ""}]
)
def test_last_words_that_nobody_could_go_on_from(wrong: Object) -> None:
    """Found by the hunt: they were believed, and the next driver started without any memory."""
    last_words(json.dumps({**WORDS, "sinks": [{**WORDS["sinks"][0], **wrong}]}), 0, False)
