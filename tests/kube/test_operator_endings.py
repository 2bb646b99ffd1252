"""How a driver ends, in every way: what the operator does, and what the status says."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime
from typing import Any

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script, SinkScript

pytestmark = pytest.mark.kube

Object = dict[str, Any]
_DEAF = '{"reason": "SparkFailed", "message": "\\ud800", "remedy": "r", "sinks": [{"name": "copy", "error": "x"}]}'
WORDS = ("the facts of it", "what to do about it")


def words(reason: str) -> tuple[str, str, str]:
    return (reason, *WORDS)


def ready(lab: OperatorLab, name: str, **spec: Any) -> None:
    lab.apply(lab.pipeline(name, **spec))
    lab.until_ready(name)


def restarts(lab: OperatorLab, name: str) -> Object:
    found: Object = lab.status(name).get("restarts", {})
    return found


def seconds(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()


@pytest.mark.parametrize(
    ("end", "code", "reason", "counted"),
    [
        pytest.param(End(code=0, words=None), 0, "Done", 0, id="0 and silent"),
        pytest.param(End(code=1, words=words("SparkFailed")), 1, "SparkFailed", 1, id="1"),
        pytest.param(End(code=1, words=words("BrokerUnreachable")), 1, "BrokerUnreachable", 0, id="1, for an outage"),
        pytest.param(End(code=1), 1, "DriverDied", 1, id="1 and silent"),
        pytest.param(End(code=1, raw="java.lang.OutOfMemoryError"), 1, "DriverDied", 1, id="1 and Java's words"),
        pytest.param(End(code=1, raw=_DEAF), 1, "DriverDied", 1, id="1 and words that are none"),
        pytest.param(End(code=143), 143, "DriverDied", 1, id="143"),
        pytest.param(End(code=77), 77, "DriverDied", 1, id="a code that nobody knows"),
        pytest.param(End(signal=signal.SIGKILL), 137, "DriverDied", 1, id="SIGKILL"),
    ],
)
@pytest.mark.thorough("each exit code with each kind of last words", after=2)
def test_what_may_pass_is_started_again(
    lab: OperatorLab, name: str, end: End, code: int, reason: str, counted: int
) -> None:
    ready(lab, name)
    lab.driver(name).change(end=end)
    lab.until_started(name, 2)
    lab.until_ready(name)
    told = restarts(lab, name)
    assert (told["total"], told["lastExitCode"], told["lastReason"]) == (1, code, reason)
    assert told.get("consecutive", 0) == counted
    assert lab.table(name, wide=True)["RESTARTS"] == "1"
    if end.words is not None:
        assert "the facts of it" in told["lastMessage"]
    assert lab.drivers.starts((lab.namespace, name))[0].config_hash == lab.driver(name).config_hash


@pytest.mark.thorough("another end; tests/unit/test_operator_decide has them")
def test_out_of_memory_is_told_as_such_and_only_then(
    lab: OperatorLab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a node: the container has ended, and for two seconds its pod's phase is that of one that runs.
    monkeypatch.setattr(lab.drivers.operator.node, "phase_after_s", 2.5)
    ready(lab, name)
    lab.drivers.kill((lab.namespace, name), "OOMKilled")
    lab.until_started(name, 2)
    lab.until_ready(name)
    assert restarts(lab, name)["lastReason"] == "DriverOutOfMemory"
    lab.until(lambda: "DriverOutOfMemory" in lab.told(name), "an event tells it")
    told = [json.dumps((each.new.get("status") or {}).get("conditions")) for each in lab.history("sinkpipeline", name)]
    assert not [each for each in told if "DriverUnresponsive" in each]

    # A later start has nothing to do with it.
    lab.patch(name, {"trigger": {"interval": "2s"}})
    lab.until_started(name, 3)
    lab.until_ready(name)
    later = [each for each in lab.history("sinkpipeline", name) if each.new["metadata"]["generation"] == 2]
    conditions = [(each.new.get("status") or {}).get("conditions") for each in later]
    assert "using more memory than it may" not in json.dumps(conditions)


def test_deaths_in_a_row_wait_longer_and_then_for_a_person(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(end=End(code=1, words=words("SparkFailed"))))
    lab.apply(lab.pipeline(name))
    lab.until_condition(name, "Stalled", "True", "SparkFailed")
    assert lab.starts(name) == 3  # maxConsecutiveFailures
    assert lab.status(name)["phase"] == "Failed"
    assert restarts(lab, name)["consecutive"] == 3
    ready_now = lab.condition(name, "Ready")
    assert (ready_now["status"], ready_now["reason"]) == ("False", "SparkFailed")
    assert "the facts of it" in lab.condition(name, "SparkApplicationReady")["message"]
    made = [each.at for each in lab.history("sparkapplication", name) if each.event == "ADDED"]
    gone = [each.at for each in lab.history("pod", f"{name}-driver") if each.event == "DELETED"]
    assert made[1] - gone[0] < made[2] - gone[0]
    lab.stays(lambda: lab.starts(name) == 3, "it is not tried again", 4)

    lab.drivers.play((lab.namespace, name), Script())
    lab.patch(name, {"restartNonce": 1})
    lab.stays(lambda: lab.starts(name) == 3, "setting a nonce restarts nothing", 1)
    lab.patch(name, {"restartNonce": 2})
    lab.until_ready(name)
    assert lab.starts(name) == 4
    assert restarts(lab, name).get("consecutive", 0) == 0


@pytest.mark.thorough("test_what_may_pass_is_started_again shows one death")
def test_an_outage_is_waited_for_however_long_it_takes(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(end=End(code=1, words=words("BrokerUnreachable"))))
    lab.apply(lab.pipeline(name))
    lab.until(lambda: lab.starts(name) >= 5, "it is started more often than maxConsecutiveFailures, which is 3")
    told = restarts(lab, name)
    assert told["outages"] >= 4
    assert told.get("consecutive", 0) == 0
    assert lab.condition(name, "Stalled").get("status") != "True"
    lab.drivers.play((lab.namespace, name), Script())
    lab.until_ready(name)


@pytest.mark.thorough("several deaths; those in a row are beside it")
def test_a_spec_change_gives_all_tries_back(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(end=End(code=1)))
    lab.apply(lab.pipeline(name))
    lab.until_condition(name, "Stalled", "True")
    lab.drivers.play((lab.namespace, name), Script())
    lab.patch(name, {"trigger": {"interval": "2s"}})
    lab.until_ready(name)
    assert lab.starts(name) == 4


@pytest.mark.thorough("another end of a refused configuration, which is beside it")
def test_the_first_configuration_that_a_driver_refuses_waits_for_another(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(end=End(code=2, words=words("ExpressionInvalid"))))
    lab.apply(lab.pipeline(name, transform={"where": "nothing > 0"}))
    told = lab.until_condition(name, "SpecValid", "False", "ExpressionInvalid")
    assert "the facts of it" in told["message"]
    lab.until_condition(name, "Stalled", "True")
    lab.until_phase(name, "Failed")
    lab.stays(lambda: lab.starts(name) == 1, "it is not tried again", 4)
    lab.drivers.play((lab.namespace, name), Script())
    lab.patch(name, {"transform": {"where": "value > 0"}})
    lab.until_ready(name)
    assert lab.condition(name, "SpecValid")["status"] == "True"


def test_a_new_configuration_that_a_driver_refuses_gives_way_to_the_last_that_ran(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    good = lab.driver(name).config_hash
    refused = Script(end=End(code=2, words=words("ExpressionInvalid")))
    lab.drivers.play((lab.namespace, name), lambda start: Script() if start.config_hash == good else refused)
    lab.patch(name, {"transform": {"where": "nothing > 0"}})
    told = lab.until_condition(name, "SpecValid", "False", "ExpressionInvalid")
    assert "the facts of it" in told["message"]
    lab.until_started(name, 3)
    assert [each.config_hash == good for each in lab.drivers.starts((lab.namespace, name))] == [True, False, True]
    lab.until_condition(name, "SparkApplicationReady", "True")
    status = lab.until_phase(name, "Degraded")
    assert lab.condition(name, "Ready")["status"] == "False"
    assert lab.condition(name, "SpecValid")["status"] == "False"
    assert status["sparkApplication"]["configHash"] == good
    lab.stays(lambda: lab.starts(name) == 3, "the refused one is not tried again", 3)

    lab.drivers.play((lab.namespace, name), Script())
    lab.patch(name, {"transform": {"where": "value > 0"}})
    lab.until_started(name, 4)
    lab.until_ready(name)


@pytest.mark.thorough("another end of a refused configuration, which is beside it")
def test_a_refused_configuration_that_is_taken_back_restarts_nothing(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    good = lab.driver(name).config_hash
    refused = Script(end=End(code=2, words=words("ExpressionInvalid")))
    lab.drivers.play((lab.namespace, name), lambda start: Script() if start.config_hash == good else refused)
    lab.patch(name, {"transform": {"where": "nothing > 0"}})
    lab.until_started(name, 3)
    lab.until_condition(name, "SparkApplicationReady", "True")
    lab.patch(name, {"transform": None})
    lab.until_ready(name)
    assert lab.starts(name) == 3


@pytest.mark.thorough("waits for another look")
def test_a_refusal_by_the_world_is_told_of_the_sink_and_looked_at_again(lab: OperatorLab, name: str) -> None:
    lost = SinkScript(state="Failed", rows=50, next=(60,), error=words("DataTopicLost"))
    ready(lab, name, failurePolicy={"maxConsecutiveFailures": 3, "backoff": {"initial": "1s", "max": "6s"}})
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": lost}, end=End(code=3, words=words("DataTopicLost"))))
    lab.driver(name).change(sinks={"copy": lost}, end=End(code=3, words=words("DataTopicLost")))
    status = lab.until_status(name, lambda seen: seen["phase"] == "Failed", "it is refused")
    (sink,) = status["sinks"]
    assert sink["state"] == "Failed"
    assert sink["error"] == {"reason": "DataTopicLost", "message": WORDS[0], "remedy": WORDS[1]}
    assert (sink["rowsDelivered"], sink["frontier"][0]["next"]) == (50, [60])
    assert lab.condition(name, "Ready")["reason"] == "DataTopicLost"
    assert lab.condition(name, "Stalled")["status"] == "True"
    told = restarts(lab, name)
    assert (told["lastExitCode"], told["lastReason"], told.get("consecutive", 0)) == (3, "DataTopicLost", 0)
    assert 5 <= seconds(told["nextTime"]) - seconds(told["lastTime"]) <= 7
    lab.until(lambda: "DataTopicLost" in lab.told(name), "an event tells it")

    again = lab.until_started(name, 2)
    # The sink's memory outlives its pod.
    assert again.resume is not None
    assert again.resume["sinks"][0]["frontier"][0]["next"] == [60]
    lab.drivers.play((lab.namespace, name), Script())
    lab.until_ready(name)
    assert "error" not in lab.sink(name)


@pytest.mark.thorough("one open circuit is beside it")
def test_open_circuits_wait_for_another_configuration(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    opened = SinkScript(state="Failed", error=words("CircuitOpen"), circuit_opened_at=1_750_000_000_000)
    first = lab.driver(name)
    first.change(sinks={"copy": opened}, end=End(code=3, words=words("CircuitOpen")))
    lab.until_condition(name, "Stalled", "True", "CircuitOpen")
    assert lab.sink(name)["circuit"] == {"openedAt": "2025-06-15T15:06:40Z", "configHash": first.config_hash}
    lab.stays(lambda: lab.starts(name) == 1, "it is not tried again", 4)
    lab.patch(name, {"trigger": {"interval": "2s"}})
    second = lab.until_started(name, 2)
    lab.until_ready(name)
    assert second.config_hash != first.config_hash
    assert "circuit" not in lab.sink(name)


def test_one_open_circuit_is_handed_to_the_next_driver(lab: OperatorLab, name: str) -> None:
    lab.apply(lab.pipeline(name, sinks=("copy", "more")))
    lab.until_ready(name)
    opened = SinkScript(state="Failed", error=words("CircuitOpen"), circuit_opened_at=1_750_000_000_000)
    lab.driver(name).change(sinks={"more": opened})
    lab.until_status(name, lambda seen: seen["phase"] == "Degraded", "one sink has failed")
    assert lab.status(name)["totals"]["sinksReady"] == "1/2"
    lab.drivers.kill((lab.namespace, name))
    driver = lab.until_started(name, 2)
    assert driver.resume is not None
    (told,) = [each for each in driver.resume["sinks"] if each["name"] == "more"]
    assert told["circuit"] == {"openedAt": "2025-06-15T15:06:40Z", "configHash": driver.config_hash}
    assert told["error"]["message"] == WORDS[0]


def test_a_submission_that_is_refused_is_tried_again(lab: OperatorLab, name: str) -> None:
    pipeline = (lab.namespace, name)
    lab.drivers.refuse(pipeline, "the API server is tired")
    lab.apply(
        lab.pipeline(name, failurePolicy={"maxConsecutiveFailures": 50, "backoff": {"initial": "1s", "max": "1s"}})
    )
    lab.until_status(name, lambda _: restarts(lab, name).get("lastReason") == "SubmissionFailed", "it is noted")
    assert "the API server is tired" in restarts(lab, name)["lastMessage"]
    assert lab.starts(name) == 0
    lab.drivers.refuse(pipeline, None)
    lab.until_ready(name)


@pytest.mark.thorough("another end; tests/unit/test_operator_decide has them")
def test_one_death_is_counted_once(lab: OperatorLab, name: str) -> None:
    ready(lab, name, failurePolicy={"maxConsecutiveFailures": 3, "backoff": {"initial": "3s", "max": "3s"}})
    began = time.monotonic()
    lab.drivers.kill((lab.namespace, name))
    lab.until_started(name, 2)
    assert time.monotonic() - began >= 3.0
    lab.until_ready(name)
    totals = [
        (each.new.get("status") or {}).get("restarts", {}).get("total", 0) for each in lab.history("sinkpipeline", name)
    ]
    assert sorted(set(totals)) == [0, 1]


@pytest.mark.thorough("many deaths; two are beside it")
def test_a_crash_loop_floods_nobody_with_events(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(end=End(code=1, words=words("SparkFailed"))))
    lab.apply(lab.pipeline(name))
    lab.until_condition(name, "Stalled", "True")
    lab.until(lambda: "SparkFailed" in lab.told(name), "an event tells it")
    lab.until(lambda: any(each.get("count", 1) >= 3 for each in lab.events(name)), "a repetition is counted up")
    assert len(lab.events(name)) < 12
    for event in lab.events(name):
        assert event["type"] in {"Normal", "Warning"}
        assert len(event["message"]) <= 1024
        assert event["involvedObject"]["uid"] == lab.resource(name)["metadata"]["uid"]
        assert event["source"]["component"] == "sinkpipeline-operator" or (
            event["reportingComponent"] == "sinkpipeline-operator"
        )
