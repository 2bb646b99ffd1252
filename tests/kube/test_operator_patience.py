"""What the operator does only after a minute or two; all of it is waited for at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

Object = dict[str, Any]
SUPERSEDED = End(code=4, words=("Superseded", "the facts of it", "what to do about it"))
ONCE_MORE_S = 60.0
FIRST_ANSWER_S = 120.0
"""`--start-deadline`; 300 s where nobody sets it."""


@pytest.mark.thorough("waits two minutes, as the operator does")
def test_a_superseded_driver_is_started_once_more_and_one_that_never_listens_is_told(
    new_lab: Callable[..., OperatorLab], name: str
) -> None:
    lab = new_lab("--start-deadline", str(FIRST_ANSWER_S))
    lab.start()
    silent, superseded = f"{name}-silent", f"{name}-superseded"
    lab.drivers.play((lab.namespace, silent), Script(listens=False))
    lab.apply(lab.pipeline(silent, restartNonce=1))
    pod = lab.until(lambda: running(lab, silent), "the silent driver runs")
    assert pod is not None
    began = time.monotonic()

    lab.apply(lab.pipeline(superseded, restartNonce=1))
    lab.until_ready(superseded)
    lab.driver(superseded).change(end=SUPERSEDED)
    first = until_noted(lab, superseded, total=1)
    told = lab.condition(superseded, "SparkApplicationReady")
    assert (told["status"], told["reason"]) == ("False", "Superseded")
    assert "the facts of it" in told["message"]
    assert lab.condition(superseded, "Ready")["status"] == "False"
    assert lab.condition(superseded, "Stalled")["status"] == "False"
    assert 59 <= seconds(first["nextTime"]) - seconds(first["lastTime"]) <= 61
    lab.until(lambda: lab.starts(superseded) == 2, "it is started once more", ONCE_MORE_S + 15)
    assert time.time() - seconds(first["lastTime"]) >= ONCE_MORE_S - 1
    lab.until_ready(superseded)

    # The second time a person is needed.
    lab.driver(superseded).change(end=SUPERSEDED)
    second = until_noted(lab, superseded, total=2)
    assert "nextTime" not in second
    lab.until_condition(superseded, "Stalled", "True", "Superseded")
    lab.until_phase(superseded, "Failed")
    gave_up = time.monotonic()

    # Its pod runs, and it may still be on its way: no alarm, and not Ready either.
    assert lab.condition(silent, "SparkApplicationReady")["status"] == "True"
    assert lab.condition(silent, "Ready")["status"] == "False"
    left = FIRST_ANSWER_S - (time.monotonic() - began)
    lab.until_condition(silent, "SparkApplicationReady", "Unknown", "DriverUnresponsive", left + 15)
    assert time.time() - seconds(started_at(pod)) >= FIRST_ANSWER_S - 1
    lab.until_condition(silent, "Ready", "False", "DriverUnresponsive")
    assert lab.starts(silent) == 1

    left = gave_up + ONCE_MORE_S + 5 - time.monotonic()
    lab.stays(lambda: lab.starts(superseded) == 2 and lab.starts(silent) == 1, "both wait for a person", max(left, 1))
    lab.drivers.play((lab.namespace, silent), Script())
    for each, starts in ((superseded, 3), (silent, 2)):
        lab.patch(each, {"restartNonce": 2})
        lab.until_started(each, starts)
        lab.until_ready(each)


def until_noted(lab: OperatorLab, name: str, *, total: int) -> Object:
    """`status.restarts`, once that many deaths stand in it and the driver of the last one is gone."""
    status = lab.until_status(name, lambda seen: seen["restarts"]["total"] == total, f"{total} deaths are noted")
    lab.until(lambda: lab.pod(name) is None, "the dead driver is gone")
    found: Object = status["restarts"]
    assert (found["lastExitCode"], found["lastReason"], found["consecutive"]) == (4, "Superseded", 0)
    return found


def running(lab: OperatorLab, name: str) -> Object | None:
    pod = lab.pod(name)
    return pod if pod is not None and pod["status"].get("phase") == "Running" else None


def started_at(pod: Object) -> str:
    (container,) = pod["status"]["containerStatuses"]
    return str(container["state"]["running"]["startedAt"])


def seconds(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
