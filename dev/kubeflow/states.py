"""What Kubeflow's operator makes of a SparkApplication and its driver pod: its state machine, without I/O.

Read in github.com/kubeflow/spark-operator/v2 at v2.5.1. "controller.go" and "event_filter.go" stand in its
internal/controller/sparkapplication/, "util" is pkg/util/sparkapplication.go, "types" is
api/v1beta2/sparkapplication_types.go.
"""

from __future__ import annotations

import copy
import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]

DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
"""pkg/common/spark.go, SparkDriverContainerName."""

# cmd/operator/controller/start.go, NewStartCommand: the default of --driver-pod-creation-grace-period.
DRIVER_POD_GRACE_S: Final = 10.0

# types, ApplicationStateType
NEW: Final = ""
SUBMITTED: Final = "SUBMITTED"
RUNNING: Final = "RUNNING"
COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
SUBMISSION_FAILED: Final = "SUBMISSION_FAILED"
PENDING_RERUN: Final = "PENDING_RERUN"
INVALIDATING: Final = "INVALIDATING"
SUCCEEDING: Final = "SUCCEEDING"
FAILING: Final = "FAILING"
SUSPENDING: Final = "SUSPENDING"
SUSPENDED: Final = "SUSPENDED"
RESUMING: Final = "RESUMING"
UNKNOWN: Final = "UNKNOWN"


class NotYetError(RuntimeError):
    """The reconciler returned an error: nothing is written, and it comes back with a growing delay."""


@dataclass(frozen=True)
class Step:
    """What one pass does, in this order: delete the driver pod, submit, write the status."""

    status: Object
    delete_driver: bool = False
    submit: bool = False
    delete_application: bool = False
    again_s: float | None = None


def step(app: Object, driver_pod: Object | None, now: dt.datetime) -> Step | None:
    """One pass of the reconciler (controller.go, Reconcile); None: nothing to do. Raises NotYetError."""
    status = copy.deepcopy(status_of(app))
    state = status["applicationState"]["state"]
    if app["metadata"].get("deletionTimestamp"):
        # controller.go, handleSparkApplicationDeletion: seen only where something else holds the object back.
        return Step(status, delete_driver=True)
    if app["spec"].get("suspend") and state not in {COMPLETED, FAILED, SUSPENDED, SUSPENDING}:
        # controller.go, Reconcile and transitionToSuspending
        return Step(_in_state(status, SUSPENDING))
    return _PASSES[state](app, status, driver_pod, now)


def status_of(app: Object) -> Object:
    """As Go's zero value would be written (types, SparkApplicationStatus)."""
    empty = {"applicationState": {"state": NEW}, "driverInfo": {}}
    times = {"lastSubmissionAttemptTime": None, "terminationTime": None}
    return {**empty, **times, **(app.get("status") or {})}


def must_invalidate(old: Object, new: Object) -> bool:
    """Whether an edit of the spec ends the run (event_filter.go, EventFilter.Update).

    Only where the watch saw both: an edit that was made while the operator was down is missed.
    """
    free = {"suspend", "timeToLiveSeconds"}
    return _without(old["spec"], free) != _without(new["spec"], free)


def invalidated(app: Object) -> Object:
    """The status that the filter forces upon an edited application (event_filter.go, EventFilter.Update)."""
    return _in_state(copy.deepcopy(status_of(app)), INVALIDATING)


def begin_submission(app: Object, status: Object, submission_id: str, now: dt.datetime) -> Object:
    """controller.go, submitSparkApplication: what is noted before spark-submit runs."""
    return {
        **status,
        "submissionID": submission_id,
        "driverInfo": {**status["driverInfo"], "podName": driver_pod_name(app)},
        "lastSubmissionAttemptTime": timestamp(now),
        "submissionAttempts": status.get("submissionAttempts", 0) + 1,
    }


def end_submission(status: Object, error: str | None) -> Object:
    """controller.go, submitSparkApplication: the deferred function."""
    if error is None:
        attempts = status.get("executionAttempts", 0) + 1
        return {**status, "applicationState": {"state": SUBMITTED}, "executionAttempts": attempts}
    return {**status, "applicationState": {"state": SUBMISSION_FAILED, "errorMessage": error}}


def driver_pod_name(app: Object) -> str:
    """util, GetDriverPodName."""
    configured = (app["spec"].get("sparkConf") or {}).get("spark.kubernetes.driver.pod.name")
    return app["spec"]["driver"].get("podName") or configured or f"{app['metadata']['name']}-driver"


def timestamp(now: dt.datetime) -> str:
    """As metav1.Time is written."""
    return now.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _submit(_app: Object, status: Object, _pod: Object | None, _now: dt.datetime) -> Step:
    """controller.go, reconcileNewSparkApplication and reconcileResumingSparkApplication."""
    return Step(status, submit=True)


def _observe(_app: Object, status: Object, pod: Object | None, now: dt.datetime) -> Step:
    """controller.go, reconcileSubmitted-, reconcileRunning- and reconcileUnknownSparkApplication."""
    return Step(_after_driver(status, pod, now))


def _await_deletion(_app: Object, status: Object, pod: Object | None, _now: dt.datetime) -> Step:
    """controller.go, reconcilePendingRerunSparkApplication and validateSparkResourceDeletion."""
    return Step(status, submit=pod is None)


def _invalidate(_app: Object, status: Object, _pod: Object | None, _now: dt.datetime) -> Step:
    """controller.go, reconcileInvalidatingSparkApplication."""
    return Step(_rerun(status), delete_driver=True)


def _after_success(app: Object, status: Object, _pod: Object | None, _now: dt.datetime) -> Step:
    """controller.go, reconcileSucceedingSparkApplication."""
    if _should_retry(app, status):
        return Step(_rerun(status), delete_driver=True)
    return Step(_in_state(status, COMPLETED))


def _suspend(_app: Object, status: Object, _pod: Object | None, _now: dt.datetime) -> Step:
    """controller.go, reconcileSuspendingSparkApplication."""
    status["applicationState"] = {"state": SUSPENDED}
    return Step(_reset(status), delete_driver=True)


def _stay_suspended(app: Object, status: Object, pod: Object | None, _now: dt.datetime) -> Step:
    """controller.go, reconcileSuspendedSparkApplication."""
    if pod is None:
        _reset(status)
        if not app["spec"].get("suspend"):
            status["applicationState"] = {"state": RESUMING}
    return Step(status)


def _after_driver(status: Object, pod: Object | None, now: dt.datetime) -> Object:
    """controller.go, updateDriverState."""
    state = status["applicationState"]["state"]
    if not status["driverInfo"].get("podName"):
        raise NotYetError(f"empty driver pod name with application state {state}")
    if pod is None:
        if state == SUBMITTED and _age_s(status["lastSubmissionAttemptTime"], now) <= DRIVER_POD_GRACE_S:
            raise NotYetError("driver pod not found, while inside the grace period")
        status["terminationTime"] = timestamp(now)
        status["applicationState"]["errorMessage"] = "driver pod not found"
        return _in_state(status, FAILING)
    status["sparkApplicationId"] = (pod["metadata"].get("labels") or {}).get("spark-app-selector", "")
    new = _driver_state(pod)
    if new in {SUCCEEDING, FAILING} and not status["terminationTime"]:
        status["terminationTime"] = timestamp(now)
    if new == FAILING:
        ended = _terminated(pod)
        if ended is None:
            status["applicationState"]["errorMessage"] = "driver container status missing"
        elif ended["exitCode"] != 0:
            status["applicationState"]["errorMessage"] = (
                f"driver container failed with ExitCode: {ended['exitCode']}, Reason: {ended.get('reason', '')}"
            )
    return _in_state(status, new)


def _driver_state(pod: Object) -> str:
    """util, GetDriverState and DriverStateToApplicationState."""
    ended = _terminated(pod)
    phase = (pod.get("status") or {}).get("phase")
    if ended is not None and phase in {"Running", "Failed"}:
        return SUCCEEDING if ended["exitCode"] == 0 else FAILING
    states = {"Pending": SUBMITTED, "Running": RUNNING, "Succeeded": SUCCEEDING, "Failed": FAILING}
    return states.get(phase or "", UNKNOWN)


def _terminated(pod: Object) -> Object | None:
    """util, GetDriverContainerTerminatedState."""
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        if container["name"] == DRIVER_CONTAINER:
            ended: Object | None = (container.get("state") or {}).get("terminated")
            return ended
    return None


def _after_failed_submission(app: Object, status: Object, pod: Object | None, now: dt.datetime) -> Step:
    """controller.go, reconcileFailedSubmissionSparkApplication."""
    if not _should_retry(app, status):
        status["terminationTime"] = timestamp(now)
        return Step(_in_state(status, FAILED))
    wait_s = _retry_wait_s(app, status, "onSubmissionFailureRetryInterval", now)
    if wait_s > 0:
        return Step(status, again_s=wait_s)
    if pod is None:
        return Step(status, submit=True)
    # There it deletes the pod, returns an error and so comes back soon.
    return Step(status, delete_driver=True, again_s=0.1)


def _after_failure(app: Object, status: Object, _pod: Object | None, now: dt.datetime) -> Step:
    """controller.go, reconcileFailingSparkApplication."""
    if not _should_retry(app, status):
        return Step(_in_state(status, FAILED))
    wait_s = _retry_wait_s(app, status, "onFailureRetryInterval", now)
    if wait_s > 0:
        return Step(status, again_s=wait_s)
    return Step(_rerun(status), delete_driver=True)


def _after_end(app: Object, status: Object, _pod: Object | None, now: dt.datetime) -> Step | None:
    """controller.go, reconcileTerminatedSparkApplication; util, IsExpired."""
    lives_s = app["spec"].get("timeToLiveSeconds")
    if not lives_s or not status["terminationTime"]:
        return None
    left_s = lives_s - _age_s(status["terminationTime"], now)
    return Step(status, delete_application=True) if left_s <= 0 else Step(status, again_s=left_s)


def _should_retry(app: Object, status: Object) -> bool:
    """util, ShouldRetry. Without Kubeflow's webhook nothing is defaulted: no type retries nothing."""
    policy = app["spec"].get("restartPolicy") or {}
    state = status["applicationState"]["state"]
    if state == SUCCEEDING or policy.get("type") == "Always":
        return policy.get("type") == "Always"
    limit, attempts = {
        FAILING: ("onFailureRetries", "executionAttempts"),
        SUBMISSION_FAILED: ("onSubmissionFailureRetries", "submissionAttempts"),
    }[state]
    retries = policy.get(limit)
    return policy.get("type") == "OnFailure" and retries is not None and status.get(attempts, 0) <= retries


def _retry_wait_s(app: Object, status: Object, interval: str, now: dt.datetime) -> float:
    """util, TimeUntilNextRetryDue: the interval times the submissions so far, counted from the last one."""
    seconds = (app["spec"].get("restartPolicy") or {}).get(interval)
    last, attempts = status["lastSubmissionAttemptTime"], status.get("submissionAttempts", 0)
    if seconds is None or not last or attempts <= 0:
        raise NotYetError(
            f"invalid retry interval ({seconds}), last attempt time ({last}) or attemptsDone ({attempts})"
        )
    return float(seconds * attempts) - _age_s(last, now)


def _rerun(status: Object) -> Object:
    return _in_state(_reset(status), PENDING_RERUN)


def _reset(status: Object) -> Object:
    """controller.go, resetSparkApplicationStatus: by the state that is left."""
    state = status["applicationState"]["state"]
    for field in ("sparkApplicationId", "executorState"):
        status.pop(field, None)
    status["driverInfo"] = {}
    status["applicationState"].pop("errorMessage", None)
    if state in {SUCCEEDING, FAILING, INVALIDATING}:
        status["terminationTime"] = None
    if state == INVALIDATING:
        status["lastSubmissionAttemptTime"] = None
        for field in ("submissionAttempts", "executionAttempts"):
            status.pop(field, None)
    return status


def _in_state(status: Object, state: str) -> Object:
    status["applicationState"]["state"] = state
    return status


def _age_s(written: str, now: dt.datetime) -> float:
    return (now - dt.datetime.fromisoformat(written)).total_seconds()


def _without(spec: Object, fields: set[str]) -> Object:
    return {key: value for key, value in spec.items() if key not in fields}


_PASSES: Final = {
    NEW: _submit,
    SUBMITTED: _observe,
    RUNNING: _observe,
    UNKNOWN: _observe,
    SUBMISSION_FAILED: _after_failed_submission,
    PENDING_RERUN: _await_deletion,
    INVALIDATING: _invalidate,
    SUCCEEDING: _after_success,
    FAILING: _after_failure,
    SUSPENDING: _suspend,
    SUSPENDED: _stay_suspended,
    RESUMING: _submit,
    COMPLETED: _after_end,
    FAILED: _after_end,
}
