"""Another image reaches all drivers a few at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinkpipeline.core.status import condition_of
from support.kube.operator_lab import IMAGE, OperatorLab
from support.kube.policies import policy
from support.waiting import wait_until

pytestmark = pytest.mark.kube

NEXT = "registry.invalid/sinkpipeline:2"


def test_one_after_the_other_and_who_waits_delivers_and_says_so(new_lab: Callable[..., OperatorLab]) -> None:
    lab = new_lab("--image", NEXT, "--max-concurrent-restarts", "1")
    names = [f"p-{number}" for number in range(3)]
    with lab.beside("--image", IMAGE):
        for name in names:
            lab.apply(lab.pipeline(name))
        for name in names:
            wait_until(lambda name=name: lab.condition(name, "Ready").get("status") == "True", f"{name} is Ready")
    before = max(each.version for name in names for each in lab.history("sinkpipeline", name))
    lab.start()
    for name in names:
        lab.until(lambda name=name: lab.starts(name) == 2, f"{name}: it has another driver")  # type: ignore[misc]
        lab.until_ready(name)
        assert lab.driver(name).application["spec"]["image"] == NEXT
    changes = [each for name in names for each in lab.history("sinkpipeline", name) if each.version > before]
    out: set[str] = set()
    waited: set[str] = set()
    for change in sorted(changes, key=lambda each: each.version):
        status = change.new.get("status") or {}
        if condition_of(status, "Ready").get("status") == "True":
            out.discard(change.name)
        else:
            out.add(change.name)
        assert len(out) <= 1, "two at once"
        if condition_of(status, "Reconciling").get("reason") == "RestartWaits":
            waited.add(change.name)
    assert len(waited) >= 1
    # What a person asks for waits for nobody.
    lab.patch(names[0], {"trigger": {"interval": "2s"}})
    lab.until(lambda: lab.starts(names[0]) == 3, "its driver is restarted")
    lab.until_ready(names[0])


@pytest.mark.thorough("tests/unit/test_operator_turns has each case of it")
def test_one_that_can_not_be_restarted_bars_nobody(new_lab: Callable[..., OperatorLab]) -> None:
    """Its status is refused, and so it takes no step: it would hold the only turn, and take it again and again."""
    # Who waits is not looked at by chance meanwhile.
    rarely = ("--resync-at-rest", "3600")
    lab = new_lab("--image", NEXT, "--max-concurrent-restarts", "1", "--start-deadline", "6", *rarely)
    first, second = names = ("p-0", "p-1")
    pause = "sinkpipeline.io/pause-reconciliation"
    with lab.beside("--image", IMAGE):
        for name in names:
            lab.apply(lab.pipeline(name))
        for name in names:
            wait_until(lambda name=name: lab.condition(name, "Ready").get("status") == "True", f"{name} is Ready")
        lab.kubectl("annotate", "sinkpipeline", second, f"{pause}=true")
    with policy(lab, first, "sinkpipelines/status", "false"):
        lab.start()
        lab.until(lambda: "AdmissionRefused" in lab.told(first), f"{first} has its turn, and can't use it")
        lab.kubectl("annotate", "sinkpipeline", second, f"{pause}-")
        lab.until(lambda: lab.condition(second, "Reconciling")["reason"] == "RestartWaits", f"{second} waits")
        lab.until(lambda: lab.starts(second) == 2, f"{second} has another driver")
        assert lab.starts(first) == 1
    lab.until(lambda: lab.starts(first) == 2, f"{first} has another driver")
    for name in names:
        lab.until_ready(name)
