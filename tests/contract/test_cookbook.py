"""docs/cookbook.md: each manifest is a whole one that the API server takes, and a test runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import crd
from sinkpipeline.core.manifest import parse_manifest
from support.cookbook import PAGE, recipes
from support.resource.custom_resource import admit

TESTS = Path(__file__).parents[1]
RUNS = ("e2e", "spark")
"""The folders of tests with Spark."""


def test_each_recipe_is_run_by_a_test() -> None:
    sources = [path.read_text() for folder in RUNS for path in sorted((TESTS / folder).glob("*.py"))]
    run = [title for source in sources for title in re.findall(r'\brecipe\("([^"]+)"\)', source)]
    assert sorted(set(run)) == sorted(recipes())


def test_no_manifest_stands_outside_of_a_recipe() -> None:
    assert all(len(each.manifests) == 1 for each in recipes().values())
    assert PAGE.read_text().count("```yaml") == len(recipes())


@pytest.mark.parametrize("title", recipes())
def test_the_manifest_is_whole(title: str) -> None:
    manifest = recipes()[title].manifest
    assert parse_manifest(manifest).identity == f"shop.{manifest['metadata']['name']}"
    _, refused = admit(crd.resource_schema(), manifest)
    assert refused == []


def test_recipes_do_not_get_in_each_others_way() -> None:
    """They are run on one broker, and tried by people on one, too."""
    documents = [yaml.safe_load(each.manifests[0]) for each in recipes().values()]
    names = [each["metadata"]["name"] for each in documents]
    targets = [
        name
        for each in documents
        for sink in each["spec"]["sinks"]
        for name in (
            [topic["name"] for topic in sink["kafka"].get("topics") or [sink["kafka"]["topic"]]]
            if "kafka" in sink
            else [sink["postgresql"]["table"]["name"]]
        )
    ]
    assert len(set(names)) == len(names)
    assert len(set(targets)) == len(targets)
