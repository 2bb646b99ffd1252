"""The operator is killed, or down, while something happens: afterwards all is as if it had been there."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script, SinkScript
from support.waiting import wait_until

pytestmark = pytest.mark.kube

Object = dict[str, Any]
SIGKILLED = 137
REFUSED = ("ExpressionInvalid", "the facts of it", "what to do about it")


@pytest.fixture
def running(new_lab: Callable[..., OperatorLab], name: str) -> OperatorLab:
    """With a pipeline that is Ready."""
    lab = new_lab()
    lab.start()
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    return lab


def settled(lab: OperatorLab, name: str, *, starts: int) -> None:
    """Ready, with one driver of the wanted configuration, and nothing left over."""
    # Before it, a status may be of the time before the operator was killed.
    lab.until(lambda: lab.starts(name) >= starts, f"{name}: it has had {starts} drivers")
    lab.until_ready(name)
    lab.until_condition(name, "Reconciling", "False")
    assert lab.starts(name) == starts
    run = lab.driver(name).config_hash
    assert [each["metadata"]["name"] for each in lab.all("sparkapplications")] == [name]
    assert [each["metadata"]["name"] for each in lab.all("pods")] == [f"{name}-driver"]
    assert lab.status(name)["sparkApplication"]["configHash"] == run
    made = {each["metadata"]["name"] for each in lab.all("configmaps")} - {"kube-root-ca.crt"}
    assert {f"{name}-{run}", f"{name}-resume"} <= made
    assert len(made) <= 3  # the last configuration that ran may be kept


# --- while it is down ---


@pytest.mark.thorough("an operator of its own for each point")
def test_an_edit(running: OperatorLab, name: str) -> None:
    running.kill()
    running.patch(name, {"trigger": {"interval": "2s"}})
    running.start()
    assert running.until_started(name, 2).config["spec"]["trigger"]["interval"] == "2s"
    settled(running, name, starts=2)


@pytest.mark.thorough("an operator of its own for each point")
def test_an_edit_that_is_taken_back(running: OperatorLab, name: str) -> None:
    running.kill()
    running.patch(name, {"trigger": {"interval": "2s"}})
    running.patch(name, {"trigger": {"interval": "1s"}})
    running.start()
    settled(running, name, starts=1)


@pytest.mark.thorough("an operator of its own for each point")
def test_a_suspension_and_a_resumption(running: OperatorLab, name: str) -> None:
    running.kill()
    running.patch(name, {"suspend": True})
    running.start()
    running.until_phase(name, "Suspended")
    running.until(lambda: running.pod(name) is None, "the driver is gone")
    running.kill()
    running.patch(name, {"suspend": False})
    running.start()
    settled(running, name, starts=2)


@pytest.mark.thorough("an operator of its own; tests/kube/test_operator_endings counts one death once")
def test_a_death_is_counted_once(running: OperatorLab, name: str) -> None:
    running.kill()
    running.drivers.kill((running.namespace, name))
    until_child(running, name, "FAILED")
    running.start()
    settled(running, name, starts=2)
    told = running.status(name)["restarts"]
    assert (told["total"], told["consecutive"], told["lastExitCode"]) == (1, 1, SIGKILLED)
    running.restart()
    running.stays(lambda: running.status(name)["restarts"]["total"] == 1, "it is not counted again", 2)


@pytest.mark.thorough("an operator of its own for each point")
def test_a_driver_that_was_stopped_is_no_failure(running: OperatorLab, name: str) -> None:
    """As where its node is drained: it ends with 0, and its pod is gone by the time that somebody looks."""
    running.kill()
    running.kubectl("delete", "pod", f"{name}-driver", "--timeout=30s")
    until_child(running, name, "COMPLETED")
    running.start()
    settled(running, name, starts=2)
    told = running.status(name)["restarts"]
    assert (told["total"], told["consecutive"], told["lastExitCode"], told["lastReason"]) == (1, 0, 0, "Done")


def until_child(lab: OperatorLab, name: str, state: str) -> None:
    def look() -> bool:
        status: Object = (lab.child(name) or {}).get("status", {})
        return bool(status.get("applicationState", {}).get("state") == state)

    wait_until(look, f"the child is {state}")


@pytest.mark.thorough("an operator of its own for each point")
def test_a_deletion(running: OperatorLab, name: str) -> None:
    running.kill()
    running.delete("sinkpipeline", name)
    wait_until(lambda: running.child(name) is None and running.pod(name) is None, "all that it owned is collected")
    running.start()
    running.stays(lambda: running.child(name) is None, "nothing comes back", 2)


@pytest.mark.thorough("an operator of its own for each point")
def test_a_deletion_and_another_resource_of_that_name(running: OperatorLab, name: str) -> None:
    running.kill()
    running.delete("sinkpipeline", name)
    running.apply(running.pipeline(name))
    running.start()
    settled(running, name, starts=2)


@pytest.mark.thorough("an operator of its own for each point")
def test_the_namespace_goes_without_the_operator(running: OperatorLab, name: str) -> None:
    running.kill()
    assert running.resource(name)["metadata"].get("finalizers", []) == []
    running.cluster.kubectl("delete", "namespace", running.namespace, "--timeout=60s")
    # What the fixtures clean up.
    running.cluster.kubectl("create", "namespace", running.namespace)


@pytest.mark.thorough("an operator of its own for each point")
def test_what_its_driver_tells_meanwhile(running: OperatorLab, name: str) -> None:
    running.kill()
    running.driver(name).change(sinks={"copy": SinkScript(rows=12, next=(13,))})
    running.start()
    running.until_status(name, lambda seen: seen["totals"]["rowsDelivered"] == 12, "the rows are told")
    settled(running, name, starts=1)


# --- SIGKILL between its writes ---


class Story:
    """What happens to one pipeline, and how it must end, however often the operator dies on the way."""

    def __init__(self, lab: OperatorLab, name: str) -> None:
        self.lab, self.name = lab, name

    def create(self) -> None:
        self.lab.apply(self.lab.pipeline(self.name))

    def created(self) -> None:
        settled(self.lab, self.name, starts=1)

    def edit(self) -> None:
        self.lab.patch(self.name, {"trigger": {"interval": "2s"}})

    def edited(self) -> None:
        settled(self.lab, self.name, starts=2)

    def die(self) -> None:
        self.lab.driver(self.name).change(end=End(code=1))
        until_child(self.lab, self.name, "FAILED")

    def died(self) -> None:
        settled(self.lab, self.name, starts=2)
        told = self.lab.status(self.name)["restarts"]
        assert (told["total"], told["consecutive"]) == (1, 1)

    def refuse(self) -> None:
        good = self.lab.driver(self.name).config_hash
        refused = Script(end=End(code=2, words=REFUSED))
        self.lab.drivers.play(
            (self.lab.namespace, self.name), lambda start: Script() if start.config_hash == good else refused
        )
        self.edit()

    def refused(self) -> None:
        self.lab.until_condition(self.name, "SpecValid", "False", "ExpressionInvalid")
        self.lab.until_condition(self.name, "SparkApplicationReady", "True")
        hashes = [each.config_hash for each in self.lab.drivers.starts((self.lab.namespace, self.name))]
        assert len(hashes) == 3
        assert hashes[0] == hashes[2] != hashes[1]

    def suspend(self) -> None:
        self.lab.patch(self.name, {"suspend": True})

    def suspended(self) -> None:
        self.lab.until_phase(self.name, "Suspended")
        self.lab.until(lambda: self.lab.child(self.name) is None and self.lab.pod(self.name) is None, "it is gone")
        self.lab.stays(lambda: self.lab.child(self.name) is None, "it stays suspended", 1)


STORIES: dict[str, tuple[bool, Callable[[Story], None], Callable[[Story], None]]] = {
    "create": (False, Story.create, Story.created),
    "edit": (True, Story.edit, Story.edited),
    "die": (True, Story.die, Story.died),
    "refuse": (True, Story.refuse, Story.refused),
    "suspend": (True, Story.suspend, Story.suspended),
}
"""Whether the pipeline runs before, what happens, and how it must end."""

POINTS = (
    ("operator-after-token", "create"),
    ("operator-after-config", "create"),
    ("operator-after-resume", "create"),
    ("operator-after-child", "create"),
    *(("operator-after-status", story) for story in STORIES),
    ("operator-after-delete", "edit"),
    ("operator-after-delete", "suspend"),
    ("operator-after-child", "edit"),
    ("operator-after-child", "die"),
    ("operator-after-refusal", "refuse"),
    ("operator-after-delete", "refuse"),
)
"""Each failpoint, and a story on whose way it lies."""


@pytest.mark.parametrize(("point", "told"), POINTS)
@pytest.mark.thorough("an operator of its own for each point", after=1)
@pytest.mark.long("twelve more points on the same stories; the first three come sooner", after=3)
def test_killed_at(new_lab: Callable[..., OperatorLab], name: str, point: str, told: str) -> None:
    lab, (before, happen, end) = new_lab(), STORIES[told]
    story = Story(lab, name)
    if before:
        lab.start()
        story.create()
        story.created()
        lab.kill()
    # Before it starts: what it does on its way to the story is not the point.
    happen(story)
    lab.start(failpoint=point)
    lab.kill_at(point)
    lab.start()
    end(story)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thorough("kills at random; kills at points are beside it")
@pytest.mark.long("more seeds", after=1)
def test_killed_at_any_moment_again_and_again(new_lab: Callable[..., OperatorLab], name: str, seed: int) -> None:
    moments = random.Random(seed)
    lab = new_lab()
    story = Story(lab, name)
    lab.start()
    story.create()
    for number in range(6):
        # The operator needs a second to start; half of the time it is killed while it works.
        time.sleep(moments.uniform(0.0, 1.5))
        lab.kill()
        if number == 2:
            story.edit()
        lab.start()
    lab.until_ready(name)
    assert lab.status(name)["sparkApplication"]["configHash"] == lab.driver(name).config_hash
    assert lab.driver(name).config["spec"]["trigger"]["interval"] == "2s"
    assert lab.starts(name) <= 2
    assert lab.status(name)["restarts"].get("total", 0) == 0
    seen = json.dumps([change.new for change in lab.history("sinkpipeline", name)])
    assert "finalizers" not in seen
    assert "kopf" not in seen
