"""Another image reaches all drivers a few at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinkpipeline.core.status import condition_of
from support.kube.operator_lab import IMAGE, OperatorLab
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
