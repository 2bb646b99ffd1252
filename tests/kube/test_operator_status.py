"""What the status says of a driver that runs: its sinks, its silence, and how often anything is written."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.status import condition_of
from sinkpipeline_operator.child.runconfig import secret_keys
from support.kube.operator_lab import OperatorLab
from support.kube.scripts import BROKEN, GARBAGE, HANG, LARGE, LATE, REDIRECT, End, Script, SinkScript

pytestmark = pytest.mark.kube

Object = dict[str, Any]
ERROR = ("BrokerUnreachable", "the facts of it", "what to do about it")


def ready(lab: OperatorLab, name: str, **more: Any) -> None:
    lab.apply(lab.pipeline(name, **more))
    lab.until_ready(name)


# --- sinks ---


@pytest.mark.parametrize(
    ("sink", "phase", "is_ready", "stalled"),
    [
        pytest.param(SinkScript(state="Starting", known=False, lag=None), "Starting", False, False, id="Starting"),
        pytest.param(SinkScript(state="Retrying", error=ERROR), "Degraded", False, False, id="Retrying"),
        pytest.param(
            SinkScript(state="Failed", error=("CircuitOpen", *ERROR[1:]), circuit_opened_at=1_750_000_000_000),
            *("Degraded", False, True),
            id="Failed, its circuit is open",
        ),
        pytest.param(
            SinkScript(state="Failed", error=("DataTopicLost", *ERROR[1:])), "Degraded", False, True, id="Failed"
        ),
    ],
)
@pytest.mark.thorough("each state", after=1)
def test_each_state_of_a_sink_beside_one_that_runs(
    lab: OperatorLab, name: str, sink: SinkScript, phase: str, is_ready: bool, stalled: bool
) -> None:
    ready(lab, name, sinks=("copy", "more"))
    lab.driver(name).change(sinks={"more": sink})
    status = lab.until_phase(name, phase)
    states = {each["name"]: each["state"] for each in status["sinks"]}
    assert states == {"copy": "Running", "more": sink.state}
    assert status["totals"]["sinksReady"] == "1/2"
    assert (lab.condition(name, "Ready")["status"] == "True") is is_ready
    assert (lab.condition(name, "Stalled")["status"] == "True") is stalled
    assert lab.table(name)["SINKS"] == "1/2"
    if sink.error is None:
        assert "error" not in lab.sink(name, "more")
    else:
        reason = sink.error[0]
        told = {"reason": reason, "message": ERROR[1], "remedy": ERROR[2]}
        assert lab.sink(name, "more")["error"] == told
        healthy = lab.condition(name, "SinksHealthy")
        assert (healthy["status"], healthy["reason"]) == ("False", reason)
        assert "the facts of it" in healthy["message"]
        lab.until(lambda: reason in lab.told(name), "an event tells it")
    lab.driver(name).change(sinks={})
    lab.until_ready(name)
    assert lab.condition(name, "SinksHealthy")["status"] == "True"


def test_a_sink_that_is_not_required_fails_by_itself(lab: OperatorLab, name: str) -> None:
    lost = SinkScript(state="Failed", error=("DataTopicLost", *ERROR[1:]))
    ready(lab, name, sinks=("copy", "more"))
    lab.driver(name).change(sinks={"more": lost})
    lab.until_condition(name, "Ready", "False", "DataTopicLost")
    copy, more = lab.pipeline(name, sinks=("copy", "more"))["spec"]["sinks"]
    lab.patch(name, {"sinks": [copy, {**more, "required": False}]})
    lab.until_ready(name)
    assert lab.condition(name, "Ready")["message"] == "not delivering, and not required: more (DataTopicLost)"
    assert lab.condition(name, "Stalled")["status"] == "False"
    healthy = lab.condition(name, "SinksHealthy")
    assert (healthy["status"], healthy["reason"]) == ("False", "DataTopicLost")
    assert (lab.table(name)["READY"], lab.table(name)["PHASE"]) == ("True", "Degraded")
    assert lab.sink(name, "more")["required"] is False
    lab.patch(name, {"sinks": [copy, more]})
    lab.until_condition(name, "Stalled", "True", "DataTopicLost")
    assert lab.starts(name) == 1, "its driver has nothing to do with it"


def test_all_sinks_failed_is_a_failed_pipeline(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    lab.driver(name).change(sinks={"copy": SinkScript(state="Failed", error=("RecordRefused", *ERROR[1:]))})
    lab.until_phase(name, "Failed")
    assert lab.table(name)["PHASE"] == "Failed"


def test_a_restored_progress_is_told_as_unknown_exactness(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    lab.driver(name).change(sinks={"copy": SinkScript(may_duplicate=17, progress_id="progress-2")})
    told = lab.until_condition(name, "ExactlyOnce", "Unknown", "ProgressRestored")
    assert "at most 17 records" in told["message"]
    lab.until(lambda: "ProgressTopicRecreated" in lab.told(name), "an event tells of the topic")
    assert lab.condition(name, "Ready")["status"] == "True"


def test_a_driver_that_starts_is_not_ready_and_no_alarm(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(state="Starting", known=False, lag=None)}))
    lab.apply(lab.pipeline(name))
    lab.until_condition(name, "SparkApplicationReady", "True")
    status = lab.until_phase(name, "Starting")
    assert lab.condition(name, "Ready")["status"] == "False"
    assert lab.condition(name, "Stalled")["status"] == "False"
    assert "lag" not in status["totals"]
    assert lab.table(name)["LAG"] == ""
    lab.driver(name).change(sinks={})
    lab.until_ready(name)


def test_a_sink_is_ready_when_it_has_shown_that_it_delivers(lab: OperatorLab, name: str) -> None:
    unproved = SinkScript(proved=False, lag=20_000)
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=5), "more": unproved}))
    lab.apply(lab.pipeline(name, sinks=("copy", "more")))
    told = lab.until_condition(name, "Ready", "False", "FirstBatchPending")
    assert told["message"] == "no batch has come through yet: more (2 of 2 executors registered)"
    assert (lab.status(name)["phase"], lab.table(name)["SINKS"]) == ("Starting", "1/2")
    assert lab.condition(name, "SparkApplicationReady")["status"] == "True"
    lab.driver(name).change(sinks={"more": SinkScript(rows=20_000, next=(20_000,))})
    lab.until_ready(name)
    assert lab.table(name)["SINKS"] == "2/2"


@pytest.mark.thorough("another release; absent words are in tests/unit")
def test_a_driver_of_a_release_that_did_not_tell_so_much_is_served_as_before(
    new_lab: Callable[..., OperatorLab], name: str
) -> None:
    lab = new_lab("--progress-deadline", "3")
    lab.start()
    older = SinkScript(proved=None)
    lab.drivers.play((lab.namespace, name), Script(executors=None, sinks={"copy": older}))
    ready(lab, name)
    assert "executors" not in lab.status(name)
    assert "proved" not in lab.sink(name)
    lab.driver(name).change(sinks={"copy": dataclasses.replace(older, lag=5)})
    lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
    lab.driver(name).change(sinks={"copy": dataclasses.replace(older, next=(5,))})
    lab.until_ready(name)


def test_what_the_dead_driver_knew_stays_until_the_next_one_tells(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=8, dead=2, next=(10,))}))
    ready(lab, name, failurePolicy={"maxConsecutiveFailures": 3, "backoff": {"initial": "4s", "max": "4s"}})
    assert lab.sink(name)["rowsDelivered"] == 8
    last = SinkScript(rows=9, dead=2, next=(11,), error=ERROR, state="Retrying")
    lab.driver(name).change(sinks={"copy": last}, end=End(code=1, words=ERROR))
    lab.until_status(
        name, lambda seen: seen["sinks"][0].get("rowsDelivered") == 9 and lab.starts(name) == 1, "its last words count"
    )
    lab.until_status(name, lambda seen: seen["sinks"][0]["state"] == "Retrying", "it waits for its next try")
    assert lab.starts(name) == 1
    sink = lab.sink(name)
    assert (sink["rowsDelivered"], sink["deadLettered"], sink["frontier"][0]["next"]) == (9, 2, [11])
    assert lab.condition(name, "Ready")["status"] == "False"
    lab.until_ready(name)


# --- silence ---


@pytest.mark.thorough("waits for time-outs; one without progress is beside it")
def test_a_driver_that_does_not_answer_is_told_and_left_alone(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=3, next=(4,))}))
    ready(lab, name)
    driver = lab.driver(name)
    for answer, token in (
        *itertools.product((HANG, LATE, GARBAGE, LARGE, REDIRECT, BROKEN), (None,)),
        (None, "another token"),
    ):
        driver.change(answer=answer, token=token)
        lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        lab.until_condition(name, "Ready", "False", "DriverUnresponsive")
        # What was known is not forgotten.
        assert lab.sink(name)["rowsDelivered"] == 3
        driver.change(answer=None, token=None)
        lab.until_ready(name)
    assert lab.starts(name) == 1


def test_a_driver_that_does_not_listen_yet_is_given_time_and_holds_nothing_up(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(listens=False))
    lab.apply(lab.pipeline(name))
    lab.until_status(name, lambda seen: seen.get("sparkApplication", {}).get("state") == "RUNNING", "it runs")
    assert lab.condition(name, "Ready")["status"] == "False"
    assert lab.condition(name, "Stalled")["status"] == "False"
    lab.drivers.play((lab.namespace, name), Script())
    lab.patch(name, {"trigger": {"interval": "2s"}})
    lab.until_started(name, 2)
    lab.until_ready(name)


@pytest.mark.thorough("waits for time-outs")
def test_a_silent_driver_is_stopped_like_any_other(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    lab.driver(name).change(answer=HANG)
    lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
    # Its pod is young, and its status isn't Ready any more: neither makes it one that doesn't listen yet.
    lab.stays(
        lambda: lab.condition(name, "SparkApplicationReady")["reason"] == "DriverUnresponsive", "it is silent still", 8
    )
    lab.patch(name, {"suspend": True})
    lab.until_phase(name, "Suspended")
    lab.until(lambda: lab.pod(name) is None, "the driver is gone")


@pytest.mark.thorough("waits a minute, as the operator does")
def test_a_driver_whose_supervising_loop_hangs_is_unresponsive_and_one_that_starts_slowly_is_not(
    lab: OperatorLab, name: str
) -> None:
    slow, starting = f"{name}-slow", SinkScript(state="Starting", known=False, lag=None)
    lab.drivers.play((lab.namespace, slow), Script(supervising=False, frozen=True, sinks={"copy": starting}))
    lab.apply(lab.pipeline(slow))
    lab.until_condition(slow, "SparkApplicationReady", "True")
    ready(lab, name)
    lab.driver(name).change(frozen=True)
    lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive", deadline_s=75)
    lab.stays(lambda: lab.condition(slow, "SparkApplicationReady")["status"] == "True", "it may start slowly", 2)
    seen = len(lab.history("sinkpipeline", name))
    lab.restart()
    lab.stays(lambda: not was_ready(lab, name, seen), "an operator that is started anew does not take it back", 3)
    for each in (name, slow):
        lab.driver(each).change(frozen=False, supervising=True, sinks={})
        lab.until_ready(each)


@pytest.mark.thorough("waits for a deadline; tests/unit/test_operator_hearing has its rule")
def test_a_driver_that_makes_no_progress_while_records_wait_is_unresponsive(
    new_lab: Callable[..., OperatorLab], name: str
) -> None:
    """A batch that takes an hour makes progress; and an operator that is started anew knows who doesn't."""
    lab = new_lab("--progress-deadline", "3")
    lab.start()
    busy = SinkScript(rows=3, next=(4,), lag=50, tasks_run=True)
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": busy}))
    ready(lab, name)
    driver = lab.driver(name)
    driver.change(clock_ahead_s=3600)
    lab.stays(lambda: lab.condition(name, "Ready")["status"] == "True", "its tasks run", 5)

    driver.change(sinks={"copy": dataclasses.replace(busy, tasks_run=False)})
    lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
    assert "copy made no progress" in lab.condition(name, "Ready")["message"]
    assert (lab.status(name)["phase"], lab.sink(name)["rowsDelivered"]) == ("Degraded", 3)
    assert "stillSince" in lab.sink(name)
    seen = len(lab.history("sinkpipeline", name))
    lab.restart()
    lab.stays(lambda: not was_ready(lab, name, seen), "it is not Ready again", 3)

    driver.change(sinks={"copy": dataclasses.replace(busy, rows=53, next=(54,), lag=0)})
    lab.until_ready(name)
    assert lab.starts(name) == 1


def was_ready(lab: OperatorLab, name: str, since: int) -> bool:
    """Whether any status of it was, from that number of its history on."""
    seen = [each.new.get("status") or {} for each in lab.history("sinkpipeline", name)[since:]]
    return any(condition_of(each, "Ready").get("status") == "True" for each in seen)


@pytest.mark.thorough("many pipelines, and waits for time-outs")
def test_many_silent_drivers_slow_nobody(new_lab: Callable[..., OperatorLab], name: str) -> None:
    lab = new_lab()
    lab.start()
    silent = [f"{name}-{number}" for number in range(40)]
    for each in silent:
        lab.drivers.hold((lab.namespace, each))
        lab.apply(lab.pipeline(each))
    for each in silent:
        lab.make_silent(each)
    for each in silent:
        lab.until_condition(each, "SparkApplicationReady", "Unknown", "DriverUnresponsive", deadline_s=60)
    lab.apply(lab.pipeline(name))
    lab.until_condition(name, "Ready", "True", deadline_s=15)
    lab.patch(name, {"suspend": True})
    lab.until(lambda: lab.child(name) is None, f"{name}: its driver is stopped", 5)


# --- who writes how often ---


@pytest.mark.thorough("waits; tests/unit/test_operator_rest counts all calls of half an hour")
def test_an_idle_pipeline_costs_no_write_at_all(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    config = f"{name}-{lab.status(name)['sparkApplication']['configHash']}"
    lab.until(lambda: "sinkpipeline.io/ran" in json.dumps(lab.find("configmap", config)), "its last write is done")
    kinds = ("sinkpipeline", "sparkapplication", "configmaps", "secrets", "events")

    def versions() -> list[str]:
        return sorted(
            f"{kind}/{each['metadata']['name']}: {each['metadata']['resourceVersion']}"
            for kind in kinds
            for each in lab.all(kind)
            if each["metadata"]["name"].startswith(name)
        )

    before = versions()
    lab.stays(lambda: versions() == before, "nothing of it is written", 13)  # more than two resyncs, and many polls


def test_the_first_rows_are_told_at_once_and_so_is_the_end_of_the_lag(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(lag=30)}))
    ready(lab, name)
    lab.driver(name).change(sinks={"copy": SinkScript(rows=10, next=(10,), lag=20)})
    lab.until_status(name, lambda seen: seen["totals"]["rowsDelivered"] == 10, "the first rows are told", 5)
    lab.driver(name).change(sinks={"copy": SinkScript(rows=30, next=(30,), lag=0)})
    lab.until_status(name, lambda seen: seen["totals"].get("lag") == 0, "that nothing waits is told", 5)
    assert lab.table(name)["LAG"] == "0"


@pytest.mark.thorough("waits that nothing is written")
def test_a_busy_pipeline_costs_few_writes_and_a_transition_is_told_at_once(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    driver, over = lab.driver(name), threading.Event()

    def work() -> None:
        for rows in itertools.count(1):
            driver.change(sinks={"copy": SinkScript(rows=rows, next=(rows,), lag=rows % 7)})
            if over.wait(0.2):
                return

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        before = lab.status_writes(name)
        # The first rows, a lag of 0, and one each 15 s.
        lab.stays(lambda: lab.status_writes(name) <= before + 4, "it is seldom written", 20)
    finally:
        over.set()
        worker.join()
    driver.change(sinks={"copy": SinkScript(rows=1000, next=(1000,), state="Retrying", error=ERROR)})
    lab.until_status(name, lambda seen: seen["sinks"][0]["state"] == "Retrying", "the transition is told", 5)
    assert lab.sink(name)["rowsDelivered"] == 1000


# --- two resources ---


def test_two_pipelines_with_one_identity(lab: OperatorLab, name: str) -> None:
    """The owner in the progress topic keeps it; here its word comes from the driver of the other one."""
    first, second = f"{name}-a", f"{name}-b"
    lab.apply(lab.pipeline(first, identity=f"shared.{name}"))
    lab.until_ready(first)
    facts = f"shared.{name}/copy belongs to {lab.namespace}/{first}"
    in_use = ("IdentityInUse", facts, "use another identity")
    refused = Script(
        sinks={"copy": SinkScript(state="Failed", known=False, error=in_use)}, end=End(code=3, words=in_use)
    )
    lab.drivers.play((lab.namespace, second), refused)
    lab.apply(lab.pipeline(second, identity=f"shared.{name}"))
    lab.until_condition(second, "Stalled", "True", "IdentityInUse")
    assert f"{lab.namespace}/{first}" in lab.condition(second, "Ready")["message"]
    assert lab.sink(second)["error"]["reason"] == "IdentityInUse"
    assert lab.condition(first, "Ready")["status"] == "True"
    assert lab.starts(first) == 1
    # What belongs to the other one is not remembered as its own.
    assert "frontier" not in lab.sink(second)


# --- the operator as a program ---


AT_WORK = SinkScript(rows=5, next=(6,), lag=4)
HANGING = ("it is open", "end it")


def test_probes_and_metrics(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": AT_WORK}))
    ready(lab, name)
    assert lab.answer("/healthz")[0] == 200
    assert lab.answer("/readyz")[0] == 200
    assert lab.answer("/elsewhere")[0] == 404

    def samples() -> list[str]:
        return [line for line in lab.answer("/metrics")[1].splitlines() if not line.startswith("#")]

    lab.until(lambda: [each for each in samples() if name in each and each.endswith(" 4.0")], "the lag is a metric")
    assert [each for each in samples() if 'phase="Running"' in each and not each.endswith(" 0.0")]
    assert [each for each in samples() if "reconcile" in each and "_count" in each]

    # The source has an open transaction, for too long, and then no more.
    lab.driver(name).change(sinks={"copy": dataclasses.replace(AT_WORK, held_back=8, open_transaction=HANGING)})
    status = lab.until_status(
        name, lambda seen: condition_of(seen, "SinksHealthy")["reason"] == "SourceTransactionOpen", "it is told"
    )
    assert condition_of(status, "Ready")["status"] == "True"
    assert status["sinks"][0]["heldBack"] == 8
    assert status["sinks"][0]["openTransaction"] == {"message": "it is open", "remedy": "end it"}
    lab.until(lambda: "SourceTransactionOpen" in {each["reason"] for each in lab.events(name)}, "by an event, too")
    held = [each for each in samples() if name in each and "held_back_offsets" in each]
    assert [each.split()[-1] for each in held] == ["8.0"]
    lab.driver(name).change(sinks={"copy": dataclasses.replace(AT_WORK, held_back=0)})
    status = lab.until_status(name, lambda seen: seen["sinks"][0]["heldBack"] == 0, "it is taken back")
    assert "openTransaction" not in status["sinks"][0]
    assert condition_of(status, "SinksHealthy")["reason"] == "NoErrors"


@pytest.mark.thorough("an operator of its own")
def test_it_is_not_ready_where_the_api_server_lets_it_in_no_more(new_lab: Callable[..., OperatorLab]) -> None:
    lab = new_lab()
    lab.start()
    account = lab.kubectl("get", "serviceaccount", "-l", "app.kubernetes.io/component=operator", "-o", "name").strip()
    lab.kubectl("delete", account)
    code, said = lab.until(lambda: refused(lab), "it is not ready", 45)
    assert (code, "401" in said) == (503, True)
    assert lab.answer("/healthz")[0] == 200, "a new process would be let in no better"


def refused(lab: OperatorLab) -> tuple[int, str] | None:
    answer = lab.answer("/readyz")
    return answer if answer[0] != 200 else None


@pytest.mark.thorough("an operator of its own")
def test_logs_are_json_where_they_are_asked_for(new_lab: Callable[..., OperatorLab], name: str) -> None:
    lab = new_lab("--log-format", "json", "--log-level", "DEBUG")
    lab.start()
    ready(lab, name)
    assert lab.stop() == 0
    lines = [json.loads(line) for line in lab.log.splitlines()]
    assert [line for line in lines if name in json.dumps(line)]


@pytest.mark.thorough("each example; tests/contract has the manifests")
def test_every_example_is_taken(lab: OperatorLab, pytestconfig: pytest.Config) -> None:
    for path in sorted((pytestconfig.rootpath / "examples").glob("*.yaml")):
        manifest = yaml.safe_load(path.read_text())
        manifest["metadata"]["namespace"] = lab.namespace
        secrets = secret_keys(parse_manifest(manifest))
        for secret, keys in secrets.items():
            lab.kubectl("create", "secret", "generic", secret, *(f"--from-literal={key}=p" for key in keys))
        name = manifest["metadata"]["name"]
        lab.apply(manifest)
        lab.until_ready(name)
        lab.delete("sinkpipeline", name)
        for secret in secrets:
            lab.delete("secret", secret)
