"""Whether the pods of a recording had statuses and labels that the stand-in in dev/kubeflow gives, and in its order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubeflow import pods
from kubeflow.pods import Ended

Object = dict[str, Any]

ROLE: Final = "spark-role"
_NOW: Final = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
_ROLES: Final = ("driver", "executor")
_OWNER: Final = {"name": "orders", "namespace": "shop", "uid": "u"}
_APPLICATION: Final = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": _OWNER,
    "spec": {"driver": {}, "sparkVersion": "4.1.1", "mainApplicationFile": "local:///main.py", "image": "app:1"},
}


def read_of(pod: Object) -> Object:
    """What a recording keeps of a pod: no times, nor the words that a driver leaves, which name brokers."""
    labels = pod["metadata"].get("labels") or {}
    kept = {key: value for key, value in labels.items() if key.startswith(("spark", "sparkoperator.k8s.io/"))}
    return {"labels": kept, "status": _read_of_status(pod.get("status") or {})}


def unlike_pods(recording: list[Object]) -> tuple[int, list[str]]:
    """How many pods were compared, and what of them the stand-in would not have made.

    A recording without conditions, such as those of earlier releases, is compared without them.
    """
    lives: dict[str, list[Object]] = {}
    for line in recording:
        if line["kind"] == "Pod":
            lives.setdefault(line["metadata"]["uid"], []).append(line)
    return len(lives), [strange for life in lives.values() for strange in _strange(life)]


def _strange(life: list[Object]) -> Iterator[str]:
    """Of one pod, from its first line to its last."""
    meta = life[0]["metadata"]
    role = meta["labels"].get(ROLE)
    if role not in _ROLES:
        yield f"{meta['name']}: no driver and no executor, but {role}"
        return
    ours = _stand_in(role)
    keys = set(read_of(ours)["labels"])
    for line in life:
        found = set(line["metadata"]["labels"])
        if found != keys:
            yield f"{meta['name']} at {line['at']} s: its labels lack {keys - found}, and have {found - keys} beside"
            break
    possible, before = set(pods.AFTER), None
    for line in life:
        status, names = line["status"], _names(line["status"], ours)
        if not names:
            yield f"{meta['name']} at {line['at']} s: {status}"
            continue
        # The first one may be any: who records may come later than the pod.
        then = names & _reached(possible)
        if not then:
            yield f"{meta['name']} at {line['at']} s: {before} became {status}"
        possible, before = then or names, status


def _reached(names: Iterable[str]) -> set[str]:
    """All that may come later: a kubelet writes the newest status only, and skips what it had no time for."""
    found = set(names)
    while more := {after for name in found for after in pods.AFTER[name]} - found:
        found |= more
    return found


def _stand_in(role: str) -> Object:
    """The pod that the stand-in makes."""
    driver = pods.driver_pod(_APPLICATION, "1-2")
    if role == "driver":
        return driver
    return pods.executor_pod({**driver, "metadata": {**driver["metadata"], "uid": "d"}}, 1)


def _names(found: Object, ours: Object) -> set[str]:
    """Which functions of dev/kubeflow/pods.py give this status."""
    wanted = _compared(found, ours, found)
    return {name for name, status in _given(found, ours) if _compared(_read_of_status(status), ours, found) == wanted}


def _given(found: Object, ours: Object) -> Iterator[tuple[str, Object]]:
    """By name, what the functions give for a container in that state."""
    yield "created", pods.created()
    yield "unschedulable", pods.unschedulable("")
    yield "scheduled", pods.scheduled()
    for kind, told in _state(found, ours).items():
        for has_network in (False, True):
            if kind == "waiting":
                yield "pending", pods.pending(ours, told["reason"], "", has_network=has_network)
            elif kind == "terminated":
                how = Ended(told["exitCode"], told["reason"], "", _NOW, _NOW)
                yield "ending", pods.ending(ours, how, has_network=has_network)
                yield "ended", pods.ended(ours, how, has_network=has_network)
                before = pods.pending(ours, "ContainerCreating", "", has_network=has_network)
                yield "never_ran", pods.never_ran(before, _NOW)
        if kind == "running":
            yield "running", pods.running(ours, "", _NOW)
    yield "never_ran", pods.never_ran(pods.scheduled(), _NOW)


def _compared(status: Object, ours: Object, recorded: Object) -> object:
    """As far as the recording goes; the order of conditions says nothing."""
    conditions = status.get("conditions", []) if "conditions" in recorded else []
    told = sorted((each["type"], each["status"], each.get("reason", "")) for each in conditions)
    return status["phase"], _state(status, ours), told


def _state(status: Object, ours: Object) -> Mapping[str, Any]:
    """Of Spark's container; empty where a kubelet has not seen it yet."""
    name = pods.driver_container(ours)["name"]
    states = (each["state"] for each in status.get("containerStatuses") or () if each["name"] == name)
    found: Mapping[str, Any] = next(states, {})
    return found


def _read_of_status(status: Object) -> Object:
    containers = [
        {"name": each["name"], "state": _without_times(each.get("state") or {})}
        for each in status.get("containerStatuses") or ()
    ]
    kept = ("type", "status", "reason")
    conditions = [{key: each[key] for key in kept if each.get(key)} for each in status.get("conditions") or ()]
    return {"phase": status.get("phase"), "conditions": conditions, "containerStatuses": containers}


def _without_times(state: Object) -> Object:
    return {
        kind: {key: value for key, value in told.items() if key in ("reason", "exitCode")}
        for kind, told in state.items()
    }
