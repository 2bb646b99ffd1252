"""Plays Kubeflow's Spark operator, version 2.5.1: SparkApplication objects become driver processes of this machine.

What it writes is what the real one writes into `status` of the SparkApplication, and what a kubelet writes into the
driver pod; where each sequence was read stands in `states`, `pods` and `node`.
Not played: executors, the service of Spark's UI, `monitoring`, batch schedulers, events, and the webhooks, so that a
SparkApplication must be explicit and whatever its pods need must stand in `driver.template`.
"""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kubeflow import pods, states, submission
from kubeflow.node import DriverCommand, DriverNode, own_addresses
from servers.kube_api import ApiError, Change, ConflictError, KubeApi, NotFoundError
from servers.local_process import free_ports

if TYPE_CHECKING:
    from types import TracebackType


Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

APPLICATIONS: Final = "/apis/sparkoperator.k8s.io/v1beta2"

# k8s.io/client-go/util/retry/util.go, DefaultRetry
_CONFLICT_TRIES: Final = 5
_CONFLICT_DELAY_S: Final = 0.01

# The workqueue's delays begin with 5 ms; those of the real one grow further.
_FIRST_RETRY_S: Final = 0.005
_LAST_RETRY_S: Final = 1.0
_SUBMITTING_S: Final = 0.1


class SparkOperator:
    """Watches the whole cluster from `start` to `stop`; `command` says what a driver is.

    `refuse_submission` may fail spark-submit: it returns what that one would say on standard error, or None.
    `is_submitting` says whether spark-submit still runs: nothing is written meanwhile, on a node for 10 to 80 s. It is
    the same where there is no operator, or none for that namespace. `obstacle` is of the node.
    `stop` kills the drivers and leaves the objects as they are, as after a crash: nothing is reported any more.
    """

    def __init__(
        self,
        kubeconfig: Path,
        command: DriverCommand,
        *,
        refuse_submission: Callable[[Object], str | None] = lambda _: None,
        is_submitting: Callable[[Object], bool] = lambda _: False,
        obstacle: Callable[[Object], Object | None] = lambda _: None,
    ) -> None:
        self._api = KubeApi(kubeconfig)
        self._scratch = Path(tempfile.mkdtemp(prefix="kubeflow-"))
        self.node = DriverNode(self._api, command, self._scratch, obstacle)
        self._refuse = refuse_submission
        self._is_submitting = is_submitting
        self._queue = _Queue()
        self._seen: dict[Key, Object] = {}
        names = {"applications": self._follow_applications, "pods": self._follow_pods, "reconciler": self._work}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in names.items()]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.node.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._queue.close()
        self._api.close()
        for thread in self._threads:
            thread.join()
        self.node.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _follow_applications(self) -> None:
        for change in self._api.follow(f"{APPLICATIONS}/sparkapplications"):
            key = _key(change.new)
            if change.kind == "DELETED":
                self._seen.pop(key, None)
            else:
                self._seen[key] = change.new
            if change.old is None or change.kind == "DELETED" or self._passes_filter(change.old, change.new):
                self._queue.put(key)

    def _passes_filter(self, old: Object, new: Object) -> bool:
        """event_filter.go, EventFilter.Update: what it can't write down it forgets."""
        if not states.must_invalidate(old, new):
            return True
        try:
            self._write_status(new, states.invalidated(new))
        except ApiError:
            return False
        return True

    def _follow_pods(self) -> None:
        """event_filter.go, sparkPodEventFilter, and event_handler.go, SparkPodEventHandler."""
        for change in self._api.follow("/api/v1/pods", labelSelector=f"{pods.LAUNCHED_LABEL}=true"):
            if change.kind == "MODIFIED" and change.old is not None and _phase(change.old) == _phase(change.new):
                continue
            labels = change.new["metadata"]["labels"]
            key = (change.new["metadata"]["namespace"], labels.get(pods.APP_NAME_LABEL, ""))
            app = self._seen.get(key)
            if app is None or not _is_of(app, change):
                continue
            if states.status_of(app)["applicationState"]["state"] != states.INVALIDATING:
                self._queue.put(key)

    def _work(self) -> None:
        while (key := self._queue.take()) is not None:
            try:
                again_s = self._reconcile(key)
            except (states.NotYetError, ApiError):
                self._queue.retry(key)
            else:
                self._queue.forget(key)
                if again_s is not None:
                    self._queue.put(key, again_s)

    def _reconcile(self, key: Key) -> float | None:
        """controller.go, Reconcile: all of it once more after a conflict, submission included.

        As in the real one, a submission whose status met a conflict is followed by another one, which the pod of the
        first refuses.
        """
        for last in (*[False] * (_CONFLICT_TRIES - 1), True):
            try:
                return self._pass(key)
            except ConflictError:
                if last:
                    raise
                time.sleep(_CONFLICT_DELAY_S)
        raise AssertionError("unreachable")

    def _pass(self, key: Key) -> float | None:
        namespace, name = key
        app = self._api.find(f"{APPLICATIONS}/namespaces/{namespace}/sparkapplications/{name}")
        if app is None:
            return None
        recorded = states.status_of(app)["driverInfo"].get("podName")
        pod = f"/api/v1/namespaces/{namespace}/pods/{recorded or states.driver_pod_name(app)}"
        step = states.step(app, self._api.find(pod), _now())
        if step is None:
            return None
        if step.submit and self._is_submitting(app):
            return _SUBMITTING_S
        if step.delete_driver:
            self._api.delete(pod)
        if step.delete_application:
            self._api.delete(_path(app))
            return None
        status = self._submit(app, step.status) if step.submit else step.status
        if status != states.status_of(app):
            self._write_status(app, status)
        return step.again_s

    def _submit(self, app: Object, status: Object) -> Object:
        submission_id = str(uuid.uuid4())
        begun = states.begin_submission(app, status, submission_id, _now())
        return states.end_submission(begun, self._spark_submit(app, submission_id))

    def _spark_submit(self, app: Object, submission_id: str) -> str | None:
        """The error as submission.go, runSparkSubmit, and controller.go, submitSparkApplication, wrap it."""
        told = "failed to submit spark application: failed to run spark-submit: "
        refused = self._refuse(app)
        if refused is not None:
            return f"{told}failed to run spark-submit: {refused}"
        try:
            pod = pods.driver_pod(app, submission_id)
            if not own_addresses():
                _take_ports(pod)
            self._api.create(f"/api/v1/namespaces/{app['metadata']['namespace']}/pods", pod)
        except ConflictError:
            return f"{told}driver pod already exist"
        except pods.SubmissionError as error:
            return f"{told}failed to run spark-submit: {error}"
        except ApiError as error:
            return f"{told}failed to run spark-submit: {submission.stderr(app, error.code, str(error))}"
        return None

    def _write_status(self, app: Object, status: Object) -> None:
        try:
            self._api.replace(f"{_path(app)}/status", {**app, "status": status})
        except NotFoundError:
            return


class _Queue:
    """Keys that are due, each once; a failed one comes back with growing delays."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._changed = threading.Condition()
        self._open = True

    def put(self, key: Key, delay_s: float = 0.0) -> None:
        due = time.monotonic() + delay_s
        with self._changed:
            self._due[key] = min(due, self._due.get(key, due))
            self._changed.notify()

    def retry(self, key: Key) -> None:
        failures = self._failures[key] = self._failures.get(key, -1) + 1
        self.put(key, min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(failures, 16)))

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)

    def take(self) -> Key | None:
        """Waits for the next; None when it was closed."""
        with self._changed:
            while self._open:
                now = time.monotonic()
                key = min(self._due, key=self._due.__getitem__, default=None)
                if key is not None and self._due[key] <= now:
                    del self._due[key]
                    return key
                self._changed.wait(None if key is None else self._due[key] - now)
        return None

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()


def _take_ports(pod: Object) -> None:
    """Where drivers share one address each has ports of its own, in its manifest: the container's are those to ask."""
    ports = [port for port in pods.driver_container(pod).get("ports") or [] if "containerPort" in port]
    for port, free in zip(ports, free_ports(len(ports)), strict=True):
        port["containerPort"] = free


def _is_of(app: Object, change: Change) -> bool:
    """Of the current submission."""
    submission: str = change.new["metadata"]["labels"].get(pods.SUBMISSION_LABEL, "")
    return bool(states.status_of(app).get("submissionID") == submission)


def _phase(pod: Object) -> str | None:
    phase: str | None = (pod.get("status") or {}).get("phase")
    return phase


def _key(app: Object) -> Key:
    return app["metadata"]["namespace"], app["metadata"]["name"]


def _path(app: Object) -> str:
    namespace, name = _key(app)
    return f"{APPLICATIONS}/namespaces/{namespace}/sparkapplications/{name}"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
