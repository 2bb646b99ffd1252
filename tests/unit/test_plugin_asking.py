"""How a person is asked, on a cluster in memory: what is confirmed, what is shown again, and what is left behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from sinkpipeline_operator.kube.client import ACTION, Cluster, Kind, Ref
from sinkpipeline_operator.plugin import asking
from sinkpipeline_operator.plugin.asking import Person, ask
from sinkpipeline_operator.plugin.failure import Failure

SPEC = {"pipeline": "orders", "sink": "enriched", "action": "Reset", "to": "earliest"}


class Operated(Cluster):
    """An API server with an operator that answers each look with its next status."""

    def __init__(self, *statuses: Mapping[str, Any]) -> None:
        self.statuses = list(statuses)
        self.confirmed: list[Any] = []
        self.deleted: list[Ref] = []
        self._made: dict[str, Any] = {}

    @override
    def create(self, kind: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
        assert kind is ACTION
        meta = document["metadata"]
        assert meta["generateName"] == "reset-"
        self._made = {**document, "metadata": {"name": "reset-1", "namespace": meta["namespace"], "uid": "u"}}
        return self._made

    @override
    def get(self, kind: Kind, ref: Ref) -> dict[str, Any] | None:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return {**self._made, "status": status}

    @override
    def patch(self, kind: Kind, ref: Ref, patch: Mapping[str, Any]) -> dict[str, Any]:
        self.confirmed.append(patch["spec"]["confirm"])
        return self._made

    @override
    def delete(self, kind: Kind, ref: Ref, uid: str) -> None:
        self.deleted.append(ref)


def shown(digest: str) -> dict[str, Any]:
    return {"phase": "AwaitingConfirmation", "digest": digest, "preview": f"preview {digest}"}


DONE = {"phase": "Succeeded", "message": "sink enriched was reset"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_POLL_S", 0.0)


def asked(cluster: Operated, *, agrees: bool = True, dry_run: bool = False) -> tuple[bool, list[str]]:
    told: list[str] = []
    done = ask(cluster, "shop", SPEC, Person(tell=told.append, agrees=lambda: agrees, dry_run=dry_run))
    return done, told


def test_what_was_shown_is_confirmed_by_its_digest() -> None:
    cluster = Operated({}, {"phase": "Previewing"}, shown("a"), shown("a"), {"phase": "Running"}, DONE)
    done, told = asked(cluster)
    assert (done, cluster.confirmed, cluster.deleted) == (True, ["a"], [])
    assert told == ["sinkpipelineaction/reset-1 created", "preview a", "sink enriched was reset"]


def test_what_has_moved_is_shown_and_asked_again() -> None:
    cluster = Operated(shown("a"), shown("a"), {"phase": "Previewing"}, shown("b"), DONE)
    done, told = asked(cluster)
    assert (done, cluster.confirmed) == (True, ["a", "b"])
    assert told[2:4] == [
        "something has changed since the preview, so nothing was done: here is the new preview",
        "preview b",
    ]


@pytest.mark.parametrize("dry_run", [True, False])
def test_who_does_not_want_it_leaves_nothing_behind(*, dry_run: bool) -> None:
    cluster = Operated(shown("a"))
    done, told = asked(cluster, agrees=False, dry_run=dry_run)
    assert (done, cluster.confirmed, cluster.deleted) == (False, [], [Ref("shop", "reset-1")])
    assert told[-1] == "nothing was changed"


def test_a_failure_is_told_with_its_remedy() -> None:
    error = {"reason": "PipelineNotFound", "message": "there is none", "remedy": "create it"}
    with pytest.raises(Failure, match=r"PipelineNotFound: there is none \(create it\)"):
        asked(Operated({"phase": "Failed", "message": "x", "error": error}))


def test_an_operator_that_is_away_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_UNSEEN_S", -1.0)
    with pytest.raises(Failure, match="no operator has looked at sinkpipelineaction reset-1"):
        asked(Operated({}))
