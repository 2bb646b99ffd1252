"""What Kubeflow's real operator did on a cluster, and whether the stand-in in dev/kubeflow would have done the same.

A recording is a list of lines as a watch saw them, in order: the time in seconds, what became of which object, and
of the object only what the state machine reads, and what pods are compared by. `unlike` replays it. What pipelines tell
meanwhile stands beside it.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kubeflow import states
from servers.kube_api import KubeApi
from support.cluster.pods_seen import ROLE, read_of, unlike_pods
from support.resource.seen import RESOURCES
from support.resource.truthful import APPLICATION, PIPELINE

Object = dict[str, Any]

POD = "Pod"
_PATHS = {
    PIPELINE: RESOURCES,
    APPLICATION: "/apis/sparkoperator.k8s.io/v1beta2/namespaces/{}/sparkapplications",
    POD: "/api/v1/namespaces/{}/pods",
}
_META = ("name", "uid", "resourceVersion", "deletionTimestamp")
_TOLD = ("observedGeneration", "phase", "conditions", "restarts", "sparkApplication")
_LATE_S = 10.0
"""The operator reads a pod from its own cache, and writes later: it may have seen any state of the last seconds."""


class Recorder:
    """Follows a namespace from its making on, into a file of a folder that several processes of a run write to."""

    def __init__(self, api: KubeApi, namespace: str, directory: Path) -> None:
        self._api = api
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._out = (directory / f"{os.getpid()}.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._follow, args=(kind, path.format(namespace)), daemon=True)
            for kind, path in _PATHS.items()
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """After the API client is closed, which ends the watches."""
        for thread in self._threads:
            thread.join()
        self._out.close()

    @property
    def lines(self) -> list[Object]:
        """Of all processes of the run so far."""
        texts = [path.read_text() for path in sorted(self._directory.glob("*.jsonl"))]
        # The last line may be half written.
        return merged(json.loads(line) for text in texts for line in text[: text.rfind("\n") + 1].splitlines())

    def _follow(self, kind: str, path: str) -> None:
        for change in self._api.follow(path):
            if kind == POD and ROLE not in (change.new["metadata"].get("labels") or {}):
                continue  # of a Job, or of others
            line = {"at": round(time.time(), 2), "kind": kind, "event": change.kind}
            with self._lock:
                self._out.write(f"{json.dumps({**line, **_read_by_the_operator(kind, change.new)})}\n")


def merged(lines: Iterable[Object]) -> list[Object]:
    """In order, each once: several processes saw the same, and who begins late calls added what was there before."""
    seen: set[tuple[str, str, bool]] = set()
    known: set[str] = set()
    found = []
    for line in sorted(lines, key=lambda each: float(each["at"])):
        meta, is_end = line["metadata"], line["event"] == "DELETED"
        version = (meta["uid"], meta.get("resourceVersion", ""), is_end)
        if version not in seen:
            late = line["event"] == "ADDED" and meta["uid"] in known
            found.append({**line, "event": "MODIFIED"} if late else line)
        seen.add(version)
        known.add(meta["uid"])
    began = found[0]["at"] if found else 0.0
    return [{**line, "at": round(line["at"] - began, 2)} for line in found]


def unlike(recording: list[Object]) -> tuple[int, list[str]]:
    """How many changes of state were replayed, and what the stand-in would not have made: states, and pods."""
    made, strange = 0, []
    for before, after, pods in _changes(recording):
        made += 1
        old, new = _state(before), _state(after)
        if new not in {each for pod in pods for each in _next_states(before, pod, after)}:
            seen = [None if pod is None else pod["status"] for pod in pods]
            strange.append(
                f"{before['metadata']['name']} at {after['at']} s: {old or 'NEW'} to {new}, with pods {seen}"
            )
    return made, strange + unlike_pods(recording)[1]


def _changes(recording: list[Object]) -> Iterator[tuple[Object, Object, list[Object | None]]]:
    """Each change of an application's state, with what its driver's pod may have been for the operator."""
    applications: dict[str, Object] = {}
    for number, line in enumerate(recording):
        if line["kind"] != APPLICATION:
            continue
        uid = line["metadata"]["uid"]
        before = applications.pop(uid, None)
        if line["event"] == "DELETED":
            continue
        applications[uid] = line
        if before is not None and _state(before) != _state(line):
            yield before, line, _pods(recording, number)


def _pods(recording: list[Object], number: int) -> list[Object | None]:
    after = recording[number]
    name = states.driver_pod_name(after)
    found: list[Object | None] = [None]
    for line in recording:
        if line["kind"] == POD and line["metadata"]["name"] == name and line["at"] <= after["at"] + 1.0:
            state = None if line["event"] == "DELETED" else line
            # What was there before the last seconds, and all that came since.
            found = [*found, state] if line["at"] > after["at"] - _LATE_S else [state]
    return found


def _next_states(before: Object, pod: Object | None, after: Object) -> set[str]:
    now = dt.datetime.now(dt.timezone.utc)
    # The clock of the recording stands still where the machine compares ages.
    noted = (after.get("status") or {}).get("lastSubmissionAttemptTime")
    if noted:
        now = dt.datetime.fromisoformat(noted) + dt.timedelta(seconds=states.DRIVER_POD_GRACE_S + 1)
    try:
        step = states.step(before, pod, now)
    except states.NotYetError:
        return set()
    if step is None:
        return set()
    if step.submit:
        return {states.SUBMITTED, states.SUBMISSION_FAILED}
    return {step.status["applicationState"]["state"]}


def _state(application: Object) -> str:
    state: str = states.status_of(application)["applicationState"]["state"]
    return state


def _read_by_the_operator(kind: str, found: Object) -> Object:
    meta = {key: found["metadata"][key] for key in _META if key in found["metadata"]}
    if kind == PIPELINE:
        told = found.get("status") or {}
        return {"metadata": meta, "status": {key: told[key] for key in _TOLD if key in told}}
    if kind == APPLICATION:
        spec = {key: value for key, value in found["spec"].items() if key in ("suspend", "restartPolicy")}
        status = {key: value for key, value in (found.get("status") or {}).items() if key != "executorState"}
        return {"metadata": meta, "spec": {**spec, "driver": {}}, "status": status}
    read = read_of(found)
    return {"metadata": {**meta, "labels": read["labels"]}, "status": read["status"]}
