"""The stand-in for Kubeflow's operator against the cases of the real one's source; see dev/kubeflow/states.py."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from kubeflow import pods, states
from kubeflow.states import NotYetError

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.timezone.utc)
SUBMITTED_AT = "2026-11-21T11:59:55Z"


def application(state: str = "", **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {
        "applicationState": {"state": state},
        "driverInfo": {"podName": "orders-driver"},
        "lastSubmissionAttemptTime": SUBMITTED_AT,
        "submissionAttempts": 1,
        "executionAttempts": 1,
        "submissionID": "a-b",
    }
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u"},
        "spec": {
            "restartPolicy": more.pop("policy", {"type": "Never"}),
            "driver": more.pop("driver", {}),
            "sparkVersion": "4.1.1",
            "mainApplicationFile": "local:///main.py",
            "image": "app:1",
            **more.pop("spec", {}),
        },
        "status": {**status, **more} if state else {},
    }


def pod(phase: str, exit_code: int | None = None, reason: str = "Error") -> dict[str, Any]:
    state = {} if exit_code is None else {"terminated": {"exitCode": exit_code, "reason": reason}}
    container = {"name": states.DRIVER_CONTAINER, "state": state}
    labels = {"spark-app-selector": "spark-ab"}
    return {"metadata": {"labels": labels}, "status": {"phase": phase, "containerStatuses": [container]}}


@pytest.mark.parametrize(
    ("before", "driver", "after", "message"),
    [
        ("SUBMITTED", pod("Pending"), "SUBMITTED", None),
        ("SUBMITTED", pod("Running"), "RUNNING", None),
        ("RUNNING", pod("Running", 0), "SUCCEEDING", None),
        ("RUNNING", pod("Running", 1), "FAILING", "driver container failed with ExitCode: 1, Reason: Error"),
        ("RUNNING", pod("Succeeded", 0), "SUCCEEDING", None),
        ("RUNNING", pod("Failed", 137, "OOM"), "FAILING", "driver container failed with ExitCode: 137, Reason: OOM"),
        ("RUNNING", pod("Failed", 0), "SUCCEEDING", None),
        ("RUNNING", pod("Failed"), "FAILING", "driver container status missing"),
        ("RUNNING", pod("Unknown"), "UNKNOWN", None),
        ("RUNNING", None, "FAILING", "driver pod not found"),
        ("UNKNOWN", pod("Running"), "RUNNING", None),
        ("SUCCEEDING", pod("Succeeded", 0), "COMPLETED", None),
        ("FAILING", pod("Failed", 1), "FAILED", None),
        ("SUBMISSION_FAILED", None, "FAILED", None),
    ],
)  # fmt: skip
def test_state_after_one_pass(before: str, driver: dict[str, Any] | None, after: str, message: str | None) -> None:
    step = states.step(application(before), driver, NOW)
    assert step is not None
    assert step.status["applicationState"] == {"state": after} | ({"errorMessage": message} if message else {})
    assert not step.submit
    assert not step.delete_driver
    ended = after in {"SUCCEEDING", "FAILING"} or before == "SUBMISSION_FAILED"
    assert step.status["terminationTime"] == ("2026-11-21T12:00:00Z" if ended else None)


@pytest.mark.parametrize("state", ["", "RESUMING"])
def test_new_and_resuming_are_submitted(state: str) -> None:
    step = states.step(application(state), None, NOW)
    assert step is not None
    assert step.submit


def test_a_rerun_waits_until_the_old_driver_is_gone() -> None:
    for driver, submit in ((pod("Running"), False), (None, True)):
        step = states.step(application("PENDING_RERUN"), driver, NOW)
        assert step is not None
        assert step.submit is submit


def test_a_missing_driver_has_a_grace_period_after_its_submission() -> None:
    with pytest.raises(NotYetError, match="inside the grace period"):
        states.step(application("SUBMITTED"), None, NOW)
    step = states.step(application("SUBMITTED"), None, NOW + dt.timedelta(seconds=6))
    assert step is not None
    assert step.status["applicationState"]["state"] == "FAILING"


def test_invalidating_forgets_the_attempts_and_keeps_the_submission() -> None:
    step = states.step(application("INVALIDATING"), pod("Running"), NOW)
    assert step is not None
    assert step.delete_driver
    assert step.status == {
        "applicationState": {"state": "PENDING_RERUN"},
        "driverInfo": {},
        "lastSubmissionAttemptTime": None,
        "terminationTime": None,
        "submissionID": "a-b",
    }


def test_an_edit_invalidates_unless_it_is_of_suspend_or_time_to_live() -> None:
    old = application("COMPLETED")
    assert not states.must_invalidate(old, application("COMPLETED", spec={"suspend": True, "timeToLiveSeconds": 5}))
    assert states.must_invalidate(old, application("COMPLETED", spec={"image": "app:2"}))
    assert states.invalidated(old)["applicationState"]["state"] == "INVALIDATING"


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_ended_ones_are_not_suspended_and_go_after_their_time_to_live(state: str) -> None:
    ended = {"terminationTime": "2026-11-21T11:59:50Z"}
    assert states.step(application(state, spec={"suspend": True}, **ended), None, NOW) is None
    young = states.step(application(state, spec={"timeToLiveSeconds": 15}, **ended), None, NOW)
    assert young is not None
    assert (young.again_s, young.delete_application) == (5.0, False)
    old = states.step(application(state, spec={"timeToLiveSeconds": 10}, **ended), None, NOW)
    assert old is not None
    assert old.delete_application


@pytest.mark.parametrize("state", ["", "SUBMITTED", "RUNNING", "PENDING_RERUN", "FAILING"])
def test_all_others_are_suspended(state: str) -> None:
    step = states.step(application(state, spec={"suspend": True}), None, NOW)
    assert step is not None
    assert step.status["applicationState"]["state"] == "SUSPENDING"


def test_always_reruns_a_success_at_once_and_a_failure_after_the_interval_times_the_attempts() -> None:
    policy = {"type": "Always", "onFailureRetryInterval": 4}
    success = states.step(application("SUCCEEDING", policy=policy), pod("Succeeded", 0), NOW)
    assert success is not None
    assert success.status["applicationState"]["state"] == "PENDING_RERUN"
    early = states.step(application("FAILING", policy=policy, submissionAttempts=2), pod("Failed", 1), NOW)
    assert early is not None
    assert early.again_s == 3.0
    due = states.step(application("FAILING", policy=policy), pod("Failed", 1), NOW)
    assert due is not None
    assert due.delete_driver


def test_on_failure_counts_the_attempts() -> None:
    policy = {"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1}
    for attempts, after in ((1, "PENDING_RERUN"), (2, "FAILED")):
        step = states.step(application("FAILING", policy=policy, executionAttempts=attempts), None, NOW)
        assert step is not None
        assert step.status["applicationState"]["state"] == after


def test_without_an_interval_a_failure_stays_failing() -> None:
    with pytest.raises(NotYetError, match="invalid retry interval"):
        states.step(application("FAILING", policy={"type": "Always"}), None, NOW)


def test_the_pod_is_the_template_with_what_spark_and_the_operator_add() -> None:
    side: dict[str, Any] = {"name": "side", "image": "side:1"}
    template: dict[str, Any] = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"containers": [side, {"name": states.DRIVER_CONTAINER}]},
    }
    app = application(driver={"template": template, "serviceAccount": "driver"})
    made = pods.driver_pod(app, "12-34")
    assert [container["name"] for container in made["spec"]["containers"]] == ["side", states.DRIVER_CONTAINER]
    assert made["spec"]["containers"][1]["image"] == "app:1"
    assert (made["spec"]["serviceAccountName"], made["spec"]["restartPolicy"]) == ("driver", "Never")
    assert made["metadata"]["labels"]["spark-app-selector"] == "spark-1234"
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert template["spec"]["containers"][1] == {"name": states.DRIVER_CONTAINER}  # the application's own is untouched
