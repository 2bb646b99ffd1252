"""What `kubectl sinkpipeline` prints; docs/kubectl.md has the same pages, and can't be stale."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sinkpipeline_operator.plugin.page import Scene, frontiers, overview, page, progress, summary
from sinkpipeline_operator.plugin.seeing import Rates
from sinkpipeline_operator.plugin.text import age
from support.kube.scenes import NOW, SCENES, failed, healthy, suspended, waiting

DOCS = Path(__file__).parents[2] / "docs" / "kubectl.md"
WIDTH = 50
"""Columns of a narrow terminal."""


def shown(title: str) -> str:
    """What stands under that title in the docs."""
    found = re.search(rf"^### {title}\n+```\n(.*?)\n```$", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/kubectl.md shows nothing under {title}"
    return found[1]


@pytest.mark.parametrize("name", SCENES)
def test_the_docs_show_what_is_printed(name: str) -> None:
    assert page(SCENES[name]()) == shown(f"A pipeline that is {name}")


def test_the_docs_show_progress_as_it_is_printed() -> None:
    assert progress(healthy()) == shown("Progress")


def test_a_watch_shows_rates_beside_what_they_are_of() -> None:
    scene = replace(healthy(), rates={"enriched": 12_345.4, "another": 1.0})
    for text in (page(scene), progress(scene)):
        [before, rate] = re.findall(r"^  (delivered  .*)\n(?:  (rate .*)\n)", text, re.MULTILINE)[0]
        assert (before, rate) == ("delivered  149,996, last 4s ago", "rate       12,345 rows/s")
        assert text.count("rows/s") == 1
    assert "rows/s" not in page(healthy()), "one look has no rate"


@pytest.mark.parametrize("name", SCENES)
def test_a_page_fits_a_narrow_terminal_but_for_its_sentences(name: str) -> None:
    for line in page(SCENES[name]()).splitlines():
        is_sentence = re.match(r"\s*(remedy: |\w+: [a-z]|enriched: |pod |\d+/\d+ nodes|SparkApplication )", line)
        assert len(line) <= WIDTH or is_sentence, line


def test_a_remedy_is_told_with_the_plugins_own_command() -> None:
    text = page(failed())
    assert "`kubectl sinkpipeline reset orders -n shop --sink enriched --to earliest`" in text
    assert "echo '{" not in text
    assert text.count("data topic orders-enriched is lost") == 2, "once with its sink, once as an event"


def test_a_waiting_pod_is_told_with_the_schedulers_words() -> None:
    text = page(waiting())
    assert "orders-driver: Pending (Unschedulable)" in text
    assert "0/3 nodes are available: 3 Insufficient memory." in text


def test_one_that_no_operator_has_seen() -> None:
    meta = {"name": "orders", "namespace": "shop", "generation": 1, "creationTimestamp": "2025-06-15T15:06:00Z"}
    new = {"metadata": meta, "spec": {"sinks": []}, "status": {"observedGeneration": -1}}
    told = "the operator has not seen it yet: it is away, or does not serve this namespace"
    assert told in page(Scene(pipeline=new, now_ms=NOW))
    assert f"orders: {told}" in overview([new], NOW, everywhere=False)
    assert progress(Scene(pipeline=new, now_ms=NOW)) == told


def test_a_change_that_no_operator_has_seen() -> None:
    scene = healthy()
    scene.pipeline["metadata"]["generation"] = 4
    assert "the operator has not seen the latest change yet" in page(scene)


def test_a_list_says_what_is_wrong_with_those_that_are_not_ready() -> None:
    text = overview([each().pipeline for each in (healthy, waiting, suspended)], NOW, everywhere=True)
    assert text.splitlines()[0].split() == ["NAME", "PHASE", "SINKS", "LAG", "AGE"]
    assert [line.split()[1] for line in text.splitlines()[1:4]] == ["Running", "Starting", "Suspended"]
    assert "shop/orders: Unschedulable" in text
    assert text.count("shop/orders: ") == 1, "nothing is wrong with one that is suspended"


def test_for_programs_everything_is_in_camel_case() -> None:
    document = summary(waiting())
    assert document["pods"] == [
        {
            "name": "orders-driver",
            "role": "driver",
            "phase": "Pending",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory.",
        }
    ]
    assert document["events"][0]["reason"] == "Unschedulable"
    assert document["status"]["phase"] == "Starting"
    assert frontiers(healthy().pipeline)[1] == {
        "sink": "enriched",
        "topic": "orders-raw",
        "partition": 1,
        "next": 49_377,
    }
    assert frontiers(waiting().pipeline) == [{"sink": "enriched"}]
    assert frontiers(healthy().pipeline, "another") == []


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")]
)
def test_ages(seconds: int, told: str) -> None:
    assert age("2025-06-15T15:06:40Z", NOW + seconds * 1000) == told


def test_a_rate_is_of_what_was_counted_between_two_looks() -> None:
    clock = iter([0.0, 2.0, 4.0, 6.0, 8.0])
    rates = Rates(clock=lambda: next(clock))

    def look(rows: int) -> dict[str, float]:
        return rates.of({"status": {"sinks": [{"name": "enriched", "rowsDelivered": rows}]}})

    assert look(100) == {}
    assert look(100) == {}, "the status is written less often than it is looked at"
    assert look(500) == {"enriched": 100.0}
    assert look(500) == {"enriched": 100.0}
    assert look(3) == {"enriched": 0.0}, "a reset counts anew"
