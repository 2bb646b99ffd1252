"""What an operator makes of the CustomResourceDefinitions that the cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sinkpipeline_operator.act.definitions import Definitions, own
from sinkpipeline_operator.decide.definitions import REVISION, Verdict, judge, revision, trouble
from sinkpipeline_operator.kube.client import ApiRefused, ApiUnavailable, Kind

ROOT = Path(__file__).parents[2]


def definition(number: str | None, **meta: Any) -> dict[str, Any]:
    annotations = {} if number is None else {"annotations": {REVISION: number}}
    return {"metadata": {"name": "things.example.com", **annotations, **meta}}


OURS = definition("7")


@pytest.mark.parametrize(
    ("live", "verdict"),
    [
        (definition("7"), Verdict.SERVES),
        (definition("8"), Verdict.SERVES),
        (definition("10"), Verdict.SERVES),
        (definition("6"), Verdict.OLDER),
        (definition(None), Verdict.OLDER),
        (definition("seven"), Verdict.OLDER),
        ({"metadata": {"annotations": None}}, Verdict.OLDER),
        (definition("7", deletionTimestamp="2026-01-01T00:00:00Z"), Verdict.ENDING),
        (None, Verdict.MISSING),
    ],
)
def test_what_is_older_can_not_be_worked_with(live: Mapping[str, Any] | None, verdict: Verdict) -> None:
    assert judge(OURS, live) is verdict
    assert bool(trouble(OURS, live)) is (verdict is not Verdict.SERVES)


def test_pipelines_are_served_where_the_kind_of_actions_is_not_there_yet() -> None:
    """At an upgrade nobody brings a kind that is new; an older one is replaced like the other."""
    actions = definition("7", name="sinkpipelineactions.sinkpipeline.io")
    assert trouble(actions, None) == ""
    assert trouble(actions, definition("6")) != ""
    assert trouble(definition("7", name="sinkpipelines.sinkpipeline.io"), None) != ""


def test_the_operator_was_built_with_those_of_the_repository() -> None:
    assert sorted(own(), key=lambda each: str(each["metadata"]["name"])) == [
        yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))
    ]
    assert all(revision(each) > 0 for each in own()), "one without a revision is never older than another"


class FakeCluster:
    """One definition, and what is answered to a look and to a write."""

    def __init__(
        self, live: Mapping[str, Any] | None, *, look: Exception | None = None, write: Exception | None = None
    ) -> None:
        self.live = live
        self._look, self._write = look, write

    def get_metadata(self, _: Kind, name: str) -> Mapping[str, Any] | None:
        assert name == "things.example.com"
        if self._look is not None:
            raise self._look
        return self.live

    def apply(self, _: Kind, document: Mapping[str, Any], manager: str) -> None:
        assert manager == "helm"
        if self._write is not None:
            raise self._write
        self.live = document


def check(cluster: FakeCluster, *, may_upgrade: bool = True) -> str:
    return Definitions(cluster, [OURS], may_upgrade=may_upgrade).check()  # type: ignore[arg-type]


def test_an_older_one_is_replaced() -> None:
    cluster = FakeCluster(definition("3"))
    assert check(cluster) == ""
    assert cluster.live == OURS


def test_a_newer_one_is_left_alone() -> None:
    cluster = FakeCluster(definition("8"), write=AssertionError())
    assert check(cluster) == ""


def test_a_missing_one_is_not_made() -> None:
    told = check(FakeCluster(None, write=AssertionError()))
    assert "things.example.com is missing" in told
    assert "kubectl apply --server-side" in told


def test_who_may_not_replace_it_says_so() -> None:
    assert "revision 3, older" in check(FakeCluster(definition("3"), write=AssertionError()), may_upgrade=False)
    told = check(FakeCluster(definition("3"), write=ApiRefused(403, "cannot patch")))
    assert "could not be replaced (403: cannot patch)" in told


def test_who_may_not_look_goes_on_as_before_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    blind = Definitions(FakeCluster(None, look=ApiRefused(403, "cannot get")), [OURS], may_upgrade=True)  # type: ignore[arg-type]
    assert [blind.check(), blind.check()] == ["", ""]
    assert [each.message for each in caplog.records] == [
        "can't see whether the CustomResourceDefinition things.example.com is up to date: 403: cannot get"
    ]


def test_an_api_server_that_is_away_is_waited_for() -> None:
    assert "no route" in check(FakeCluster(None, look=ApiUnavailable("no route")))
