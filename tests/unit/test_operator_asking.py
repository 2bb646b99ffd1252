"""Actions where the API server takes a request and its answer is lost, or where it takes none: each is done once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinkpipeline.core.asked import Preview
from sinkpipeline_operator.act import asking
from sinkpipeline_operator.act.asking import Asking
from sinkpipeline_operator.act.workbench import Workbench
from sinkpipeline_operator.decide.asked import Outcome
from sinkpipeline_operator.kube.client import ApiUnavailable, Conflict, Kind, Ref

PIPELINE = Ref("shop", "orders")


class LossyCluster:
    """Keeps actions and Jobs; the write with that number gets no answer, and is `done` nevertheless, or not."""

    id = "cluster"

    def __init__(self, *, lost: int, done: bool) -> None:
        self.lost, self.done = lost, done
        self.writes = 0
        self.actions: dict[str, dict[str, Any]] = {}

    def list(self, _: Kind, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        del namespace, labels
        return copy.deepcopy(list(self.actions.values()))

    def replace_status(self, _: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
        def write() -> dict[str, Any]:
            stored = self.actions[document["metadata"]["name"]]
            if stored["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
                raise Conflict("somebody was faster")
            stored["status"] = copy.deepcopy(dict(document["status"]))
            stored["metadata"]["resourceVersion"] += 1
            return copy.deepcopy(stored)

        return self._write(write)

    def _write(self, write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self.writes += 1
        if self.writes == self.lost and not self.done:
            raise ApiUnavailable("nobody heard it")
        answer = write()
        if self.writes == self.lost:
            raise ApiUnavailable("the answer was lost")
        return answer

    def create(self, name: str) -> None:
        self.actions[name] = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-of-{name}",
                "generation": 1,
                "resourceVersion": 1,
                "creationTimestamp": "2026-11-22T08:00:00Z",
            },
            "spec": {"pipeline": "orders", "sink": "copy", "action": "Reset", "to": "earliest"},
        }

    def confirm(self) -> None:
        for each in self.actions.values():
            digest = each.get("status", {}).get("digest")
            if digest is not None and each["spec"].get("confirm") is None:
                each["spec"]["confirm"] = digest
                each["metadata"]["resourceVersion"] += 1


class World:
    """What is reset."""

    def __init__(self) -> None:
        self.epoch = 0
        self.resets = 0


def patched(world: World) -> type:
    class Reset:
        def __init__(self, **_: object) -> None:
            pass

        def preview(self, _: str) -> Preview:
            return Preview(text="", resolved={"from": world.epoch})

        def preview_again(self, _: Mapping[str, Any]) -> Preview:
            return self.preview("")

        def carry_out(self, resolved: Mapping[str, Any]) -> str:
            if world.epoch != resolved["from"]:
                return "already"
            world.epoch += 1
            world.resets += 1
            return "done"

    return Reset


class Bench(Workbench[Outcome]):
    """At once, in the thread that asks."""

    def ask(self, key: str, ref: Ref, work: Callable[[], Outcome], *, lane: object) -> Outcome | None:  # noqa: ARG002
        del key, ref
        return work()


def lab(monkeypatch: pytest.MonkeyPatch, cluster: LossyCluster, world: World) -> Callable[[], None]:
    """What looks once."""
    monkeypatch.setattr(asking, "AskedReset", patched(world))
    settings = SimpleNamespace(id=SimpleNamespace(sink="copy"))
    kafka = SimpleNamespace(opened=lambda _: nullcontext(SimpleNamespace(sinks=[settings])), look_anew=lambda _: None)
    recorder = SimpleNamespace(post=lambda *_: None)
    ours = Asking(
        cluster=cast("Any", cluster),
        actions=cast("Any", None),
        recorder=cast("Any", recorder),
        bench=Bench(lambda _: None, asking.of_bug),
        kafka=cast("Any", kafka),
    )
    sink = SimpleNamespace(name="copy", dead_letter=None)
    seen = SimpleNamespace(
        ref=PIPELINE,
        resource={"metadata": {"uid": "p", "name": "orders", "namespace": "shop"}},
        pipeline=SimpleNamespace(spec=SimpleNamespace(sinks=[sink]), logs_in_as_its_pods=False),
        child=None,
        observation=SimpleNamespace(deleting=False, paused=False, pods=()),
    )
    question = SimpleNamespace(ref=PIPELINE, status={}, lane=frozenset(), pipeline=SimpleNamespace(identity="i"))

    def look() -> None:
        try:
            ours.look(PIPELINE, cast("Any", seen), cast("Any", question))
        except ApiUnavailable:
            return

    return look


@pytest.mark.parametrize("done", [True, False], ids=["the answer is lost", "the request is lost"])
@pytest.mark.parametrize("lost", range(1, 7))
def test_one_action_is_done_once(monkeypatch: pytest.MonkeyPatch, lost: int, *, done: bool) -> None:
    cluster, world = LossyCluster(lost=lost, done=done), World()
    cluster.create("act")
    look = lab(monkeypatch, cluster, world)
    for _ in range(12):
        look()
        cluster.confirm()
    assert cluster.actions["act"]["status"]["phase"] == "Succeeded"
    assert world.resets == 1


@pytest.mark.parametrize("lost", range(12))
def test_of_two_one_is_done_and_the_other_one_shown_again(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    cluster, world = LossyCluster(lost=lost, done=True), World()
    cluster.create("one")
    cluster.create("two")
    look = lab(monkeypatch, cluster, world)
    for _ in range(20):
        look()
        cluster.confirm()
    assert sorted(each["status"]["phase"] for each in cluster.actions.values()) == ["AwaitingConfirmation", "Succeeded"]
    assert world.resets == 1


def test_one_that_can_t_be_written_down_does_not_hold_up_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, world = LossyCluster(lost=0, done=True), World()
    cluster.create("one")
    cluster.create("two")
    stored = cluster.actions["one"]["metadata"]

    def renew() -> None:
        # Whatever was read is older by the time that it is written.
        stored["resourceVersion"] += 1

    look = lab(monkeypatch, cluster, world)
    real = cluster.list

    def listed(*given: Any) -> list[dict[str, Any]]:
        found = real(*given)
        renew()
        return found

    monkeypatch.setattr(cluster, "list", listed)
    for _ in range(12):
        look()
        cluster.confirm()
    assert cluster.actions["two"]["status"]["phase"] == "Succeeded"
