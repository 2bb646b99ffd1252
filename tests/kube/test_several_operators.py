"""Two operators at once: of the same pipelines, as while one takes over from another, and of a part of them each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.scripts import Script, SinkScript

pytestmark = pytest.mark.kube

_SHARD = "shard"


@pytest.mark.thorough("two whole operators, which no installation has for longer than a moment")
def test_two_of_the_same_pipelines_start_no_driver_twice_and_count_each_death_once(
    new_lab: Callable[..., OperatorLab],
) -> None:
    """So nobody has to be elected: the name of the child and the version of the status decide."""
    lab = new_lab()
    names = [f"p-{number}" for number in range(4)]
    lab.start()
    with lab.beside():
        for name in names:
            lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=1)}))
            lab.apply(lab.pipeline(name))
        for name in names:
            lab.until_ready(name)
            lab.until_started(name, 1)
        for name in names:
            lab.drivers.kill((lab.namespace, name))
        for name in names:
            lab.until_status(name, lambda status: status["restarts"].get("total") == 1, "its death is counted")
            lab.until_ready(name)
            lab.until_started(name, 2)
            lab.patch(name, {"trigger": {"interval": "2s"}})
        for name in names:
            lab.until(lambda name=name: lab.starts(name) == 3, f"{name}: it runs anew")  # type: ignore[misc]
            lab.until_ready(name)
        # The lab's own one dies, and the other goes on.
        lab.kill()
        lab.patch(names[0], {"suspend": True})
        suspended = lab.cluster.kubectl
        suspended(
            "wait",
            "--for=jsonpath={.status.phase}=Suspended",
            f"sinkpipeline/{names[0]}",
            f"--namespace={lab.namespace}",
            "--timeout=30s",
        )
    for name in names:
        assert lab.starts(name) == 3
        assert lab.status(name)["restarts"]["total"] == 1
        generations = {each.new["metadata"]["generation"] for each in lab.history("sparkapplication", name)}
        assert generations == {1}, "no child was ever edited"


@pytest.mark.long("operators of its own; tests/unit/test_operator_selector has the labels")
def test_each_serves_the_pipelines_with_its_labels_and_lets_one_go_that_gets_others(
    new_lab: Callable[..., OperatorLab],
) -> None:
    lab = new_lab("--selector", f"{_SHARD}=a")
    ours, others, moves = (lab.pipeline(name) for name in ("ours", "others", "moves"))
    ours["metadata"]["labels"] = {_SHARD: "a"}
    moves["metadata"]["labels"] = {_SHARD: "a"}
    lab.start()
    for manifest in (others, ours, moves):
        lab.apply(manifest)
    lab.until_ready("ours")
    lab.until_ready("moves")
    assert lab.child("others") is None, "nobody serves it yet"
    label = ("label", "sinkpipeline", "moves", "--overwrite")
    lab.kubectl(*label, f"{_SHARD}=b")
    lab.patch("moves", {"suspend": True})
    lab.until(lambda: 'pipeline="moves"' not in lab.answer("/metrics")[1], "the first one has forgotten it")
    assert "deletionTimestamp" not in (lab.child("moves") or {})["metadata"], "it is no longer stopped by the first"
    with lab.beside("--selector", f"{_SHARD}!=a"):
        lab.until_ready("others")
        lab.until_phase("moves", "Suspended")
        assert (lab.starts("others"), lab.starts("moves"), lab.starts("ours")) == (1, 1, 1)
