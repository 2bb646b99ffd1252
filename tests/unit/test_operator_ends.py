"""How a driver's pod ends where its driver does not say it: by its kubelet, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from sinkpipeline.core.errors import ExitCode
from sinkpipeline_operator.child.driverpod import Child, ChildState, DriverPod, death_of
from sinkpipeline_operator.child.waits import of_end, of_lost_pod

NOW = 1_750_000_000_000
LOW = "The node was low on resource: ephemeral-storage."
CHILD = Child(
    uid="c", state=ChildState.RUNNING, shown_state="RUNNING", config_hash="h", nonce=None, pod_name="orders-driver"
)


def pod(exit_code: int | None, reason: str = "Evicted", phase: str = "Failed", **meta: Any) -> DriverPod:
    ended = {"name": "driver", "state": {"terminated": {"exitCode": exit_code}}}
    return DriverPod.read(
        {
            "metadata": {
                "uid": "p",
                "name": "orders-driver",
                "ownerReferences": [{"uid": "c", "controller": True}],
                **meta,
            },
            "spec": {"nodeName": "worker-3"},
            "status": {
                "phase": phase,
                "reason": reason,
                "message": LOW,
                **({} if exit_code is None else {"containerStatuses": [ended]}),
            },
        },
        "driver",
    )


@pytest.mark.parametrize(
    ("exit_code", "meaning"), [(137, ExitCode.FAILED), (None, ExitCode.FAILED), (0, ExitCode.DONE)], ids=str
)
def test_a_kubelet_says_why_it_has_ended_a_pod(exit_code: int | None, meaning: ExitCode) -> None:
    death = death_of(CHILD, pod(exit_code))
    assert death is not None
    assert (death.reason, death.meaning) == ("Evicted", meaning)
    assert death.message == f"pod orders-driver: {LOW}"
    assert "worker-3" in death.remedy


def test_a_pod_that_has_failed_by_itself_has_no_such_word() -> None:
    death = death_of(CHILD, pod(137, ""))
    assert death is not None
    assert death.reason == "DriverDied"
    assert death_of(CHILD, pod(None, "NodeLost", "Unknown")) is None


def test_a_pod_that_does_not_end() -> None:
    going = pod(None, "", "Running", deletionTimestamp="2025-06-15T15:06:40Z")
    assert going.ends_ms == NOW
    assert of_end([going], "shop", NOW + 299_000, 300) is None
    told = of_end([pod(0), going], "shop", NOW + 300_000, 300)
    assert told is not None
    assert told.needs_person
    assert "node worker-3 does not say" in told.message
    assert "`kubectl -n shop delete pod orders-driver --force`" in told.message


def test_a_pod_that_is_gone_and_nobody_notices() -> None:
    assert of_lost_pod(None, NOW, 300) is None
    assert of_lost_pod(NOW - 299_000, NOW, 300) is None
    told = of_lost_pod(NOW - 300_000, NOW, 300)
    assert told is not None
    assert told.needs_person
