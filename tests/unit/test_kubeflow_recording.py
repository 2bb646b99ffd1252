"""The stand-in for Kubeflow's operator does what the real one did on a cluster: `make e2e` makes the recording anew."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from kubeflow import pods
from kubeflow.pods import Ended
from support.cluster.pods_seen import read_of, unlike_pods
from support.cluster.recording import POD, merged, unlike

RECORDING = Path(__file__).parents[1] / "data" / "kubeflow-2.5.1.jsonl"


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDING.read_text().splitlines()]


def test_each_change_of_state_is_one_that_the_stand_in_makes() -> None:
    lines = recorded()
    replayed, strange = unlike(lines)
    assert strange == []
    assert replayed > 20
    states = {(line["status"].get("applicationState") or {}).get("state") for line in lines}
    ends = {"COMPLETED", "FAILED", "SUBMISSION_FAILED"}
    assert states >= {"SUBMITTED", "RUNNING", "SUCCEEDING", "FAILING", *ends}, "a recording of a whole run"


def test_each_pod_is_one_that_the_stand_in_makes() -> None:
    lines = recorded()
    compared, strange = unlike_pods(lines)
    assert strange == []
    assert compared > 10
    pods_seen = [line for line in lines if line["kind"] == POD]
    assert any(line["status"].get("conditions") for line in pods_seen)
    assert {line["metadata"]["labels"].get("spark-role") for line in pods_seen} == {"driver", "executor"}


def test_what_differs_is_found() -> None:
    """Drivers that nobody has seen: the stand-in would call them lost."""
    _, strange = unlike([line for line in recorded() if line["kind"] != POD])
    assert any(" to RUNNING" in each for each in strange)


NOW = dt.datetime(2026, 11, 25, tzinfo=dt.timezone.utc)
APPLICATION: dict[str, Any] = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "u", "labels": {"team": "a"}},
    "spec": {"driver": {}, "sparkVersion": "4.1.1", "mainApplicationFile": "local:///main.py", "image": "app:1"},
}
DRIVER = pods.driver_pod(APPLICATION, "1-2")
EXECUTOR = pods.executor_pod({**DRIVER, "metadata": {**DRIVER["metadata"], "uid": "d"}}, 1)


def conditions(text: str) -> list[dict[str, Any]]:
    """`Ready=False:PodFailed ...` as a node has them, with the times that a recording leaves out."""
    found = [each.partition("=") for each in text.split()]
    parts = [(kind, *value.partition(":")[::2]) for kind, _, value in found]
    return [
        {"type": kind, "status": status, "lastTransitionTime": "2026-11-25T00:00:00Z", "observedGeneration": 1}
        | ({"reason": reason, "message": "which"} if reason else {})
        for kind, status, reason in parts
    ]


UNREADY = "Ready=False:ContainersNotReady ContainersReady=False:ContainersNotReady PodScheduled=True"
FAILED = "Initialized=True Ready=False:PodFailed ContainersReady=False:PodFailed PodScheduled=True"
COMPLETED = (
    "Initialized=True:PodCompleted Ready=False:PodCompleted ContainersReady=False:PodCompleted PodScheduled=True"
)
CREATING = {"waiting": {"reason": "ContainerCreating"}}
KILLED = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2026-11-25T00:00:00Z"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
LIFE = [
    ("Pending", None, ""),
    ("Pending", None, "PodScheduled=True"),
    ("Pending", CREATING, f"PodReadyToStartContainers=False Initialized=True {UNREADY}"),
    ("Pending", CREATING, f"PodReadyToStartContainers=True Initialized=True {UNREADY}"),
    (
        "Running",
        {"running": {"startedAt": "2026-11-25T00:00:00Z"}},
        "PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True PodScheduled=True",
    ),
    ("Running", KILLED, f"PodReadyToStartContainers=True {FAILED}"),
    ("Failed", KILLED, f"PodReadyToStartContainers=False {FAILED}"),
]
"""Of a pod whose process was killed, by hand after the kubelet's source (1.34.4): by phase, state and conditions."""
Look = tuple[str, Any, str]


def lines(life: list[Look], pod: dict[str, Any] = DRIVER, *, without_conditions: bool = False) -> list[dict[str, Any]]:
    """As a recording has them."""
    told = []
    for at, (phase, state, held) in enumerate(life):
        name = pod["spec"]["containers"][0]["name"]
        status: dict[str, Any] = {"phase": phase, "conditions": conditions(held)}
        status["containerStatuses"] = [] if state is None else [{"name": name, "ready": False, "state": state}]
        read = read_of({"metadata": pod["metadata"], "status": status})
        if without_conditions:
            del read["status"]["conditions"]
        meta = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["name"], "labels": read["labels"]}
        told.append({"at": float(at), "event": "MODIFIED", "kind": POD, "metadata": meta, "status": read["status"]})
    return told


@pytest.mark.parametrize("pod", [DRIVER, EXECUTOR], ids=["driver", "executor"])
@pytest.mark.parametrize("without_conditions", [False, True])
@pytest.mark.parametrize(
    "life",
    [
        LIFE,
        # A kubelet writes only its newest status; and who records may come late.
        [*LIFE[:3], *LIFE[6:]],
        LIFE[4:],
        # Deleted while it ran.
        [*LIFE[:5], ("Succeeded", DONE, f"PodReadyToStartContainers=True {COMPLETED}")],
        # No node had room for it at first.
        [LIFE[0], ("Pending", None, "PodScheduled=False:Unschedulable"), *LIFE[1:]],
        # Deleted while its image was pulled.
        [
            *LIFE[:3],
            ("Pending", {"waiting": {"reason": "ErrImagePull"}}, LIFE[3][2]),
            LIFE[3],
            ("Failed", {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}, LIFE[3][2]),
        ],
    ],
    ids=["killed", "seen in part", "seen late", "deleted", "no room", "no image"],
)
def test_a_pod_of_a_node_is_one_of_the_stand_ins(
    life: list[Look], pod: dict[str, Any], *, without_conditions: bool
) -> None:
    assert unlike_pods(lines(life, pod, without_conditions=without_conditions)) == (1, [])


def changed(number: int, *, phase: str = "", state: Any = None, held: str = "") -> list[Look]:
    was = LIFE[number]
    return [*LIFE[:number], (phase or was[0], state or was[1], held or was[2]), *LIFE[number + 1 :]]


UNLIKE: dict[str, list[Look]] = {
    "a container that runs in a pending pod": changed(4, phase="Pending"),
    "a phase that says success of a failure": changed(6, phase="Succeeded"),
    "a state that nobody plays": changed(4, state=CREATING),
    "a condition of another status": changed(
        4, held=LIFE[4][2].replace("Ready=True", "Ready=False:ContainersNotReady")
    ),
    "a condition for another reason": changed(5, held=LIFE[5][2].replace("PodFailed", "ContainersNotReady")),
    "a condition more": changed(4, held=f"{LIFE[4][2]} DisruptionTarget=True:EvictionByEvictionAPI"),
    "a condition less": changed(4, held=LIFE[4][2].replace("PodReadyToStartContainers=True ", "")),
    "it runs again": [*LIFE, LIFE[4]],
    "it is created again": [*LIFE[:4], LIFE[2], LIFE[1]],
    "it lost its node": [*LIFE[:2], ("Pending", None, "PodScheduled=False:Unschedulable")],
}


@pytest.mark.parametrize("pod", [DRIVER, EXECUTOR], ids=["driver", "executor"])
@pytest.mark.parametrize("life", UNLIKE.values(), ids=UNLIKE.keys())
def test_a_pod_that_the_stand_in_never_has_is_found(life: list[Look], pod: dict[str, Any]) -> None:
    compared, strange = unlike_pods(lines(life, pod))
    assert (compared, len(strange)) == (1, 1)
    assert unlike(lines(life, pod)) == (0, strange)


@pytest.mark.parametrize("pod", [DRIVER, EXECUTOR], ids=["driver", "executor"])
@pytest.mark.parametrize(
    "labels",
    [
        {"spark-version": None},
        {"spark-exec-inactive": "true"},
        {"sparkoperator.k8s.io/submission-id": None, "sparkoperator.k8s.io/mutated-by-spark-operator": "true"},
        {"spark-role": "connect-server"},
    ],
    ids=str,
)
def test_labels_that_the_stand_in_does_not_give_are_found(pod: dict[str, Any], labels: dict[str, str | None]) -> None:
    merged_labels = {**pod["metadata"]["labels"], **labels}
    given = {key: value for key, value in merged_labels.items() if value is not None}
    other = {**pod, "metadata": {**pod["metadata"], "labels": given}}
    [strange] = unlike_pods(lines(LIFE, other))[1]
    assert next(iter(labels)) in strange or "connect-server" in strange


def test_what_the_stand_in_reports_is_what_is_compared() -> None:
    """Each of its statuses is told by its own name, as far as it differs from the others."""
    how = Ended(3, "Error", "", NOW, NOW)
    waits = pods.pending(DRIVER, "ImagePullBackOff", "no such host")
    life = [pods.created(), pods.unschedulable("0/1 nodes"), pods.scheduled(), waits, pods.running(DRIVER, "::1", NOW)]
    for end in ([pods.ending(DRIVER, how), pods.ended(DRIVER, how)], [pods.ended(DRIVER, how)]):
        told = [read_of({"metadata": DRIVER["metadata"], "status": status}) for status in [*life, *end]]
        meta = {"name": "orders-driver", "uid": "a", "labels": told[0]["labels"]}
        recording = [{"at": 0.0, "kind": POD, "metadata": meta, "status": each["status"]} for each in told]
        assert unlike_pods(recording) == (1, [])
        assert len(unlike_pods([*recording, recording[4]])[1]) == 1


def seen(at: float, event: str, version: int, uid: str = "a") -> dict[str, Any]:
    return {"at": at, "event": event, "kind": POD, "metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_what_several_processes_have_seen_is_told_once_and_in_order() -> None:
    early = [seen(100.0, "ADDED", 1), seen(101.0, "MODIFIED", 2), seen(109.0, "DELETED", 9)]
    # Begins after the pod was made.
    late = [seen(101.5, "ADDED", 2), seen(105.0, "MODIFIED", 3), seen(109.2, "DELETED", 9)]
    latest = [seen(106.0, "ADDED", 4)]
    told = [(each["at"], each["event"], each["metadata"]["resourceVersion"]) for each in merged(early + late + latest)]
    assert told == [
        (0.0, "ADDED", "1"),
        (1.0, "MODIFIED", "2"),
        (5.0, "MODIFIED", "3"),
        (6.0, "MODIFIED", "4"),
        (9.0, "DELETED", "9"),
    ]
