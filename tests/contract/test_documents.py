"""What the repository says of itself is true."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import tomllib
import yaml

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline.core.manifest.action import parse_action

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_complete_manifests(example: Path) -> None:
    assert parse_manifest(yaml.safe_load(example.read_text())).identity


@pytest.mark.parametrize("example", sorted((ROOT / "examples" / "actions").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_of_actions_can_be_created(example: Path) -> None:
    document = yaml.safe_load(example.read_text())
    document["metadata"] = {"name": "named-by-the-server"}
    spec = parse_action(document).spec
    pipeline = parse_manifest(yaml.safe_load((ROOT / "examples" / "flights.yaml").read_text()))
    assert spec.pipeline == pipeline.metadata.name
    assert spec.sink in {sink.name for sink in pipeline.spec.sinks}


def test_the_manifest_of_the_readme_is_valid() -> None:
    [document] = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    assert parse_manifest(yaml.safe_load(document)).identity == "shop.orders"


def test_every_reason_is_documented_with_its_exit_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)

    assert {reason: int(code) for reason, code in rows} == {each.value: int(each.exit_code) for each in Reason}


def test_there_is_one_way_to_apply_the_definitions() -> None:
    """Also in deploy/install.yaml, which has them, whether kubectl reads it or is given it."""
    pages = [
        path
        for folder, kinds in (("docs", "*.md"), ("charts", "*.txt"), ("charts", "*.md"), ("operator", "*.py"))
        for path in (ROOT / folder).rglob(kinds)
        if "design" not in path.parts
    ]
    lines = [line for path in [ROOT / "README.md", *pages] for line in path.read_text().splitlines()]
    told = {
        command
        for line in lines
        for command in re.findall(r"kubectl apply [^`\"|]*", line)
        if re.search(r"crds/?\b", command) or "install.yaml" in line
    }
    way = "kubectl apply --server-side --force-conflicts -f"
    assert told == {f"{way} crds/", f"{way} -"}


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_a_namespace_is_made_before_anything_is_installed_into_it(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.compile(r"(?:jobNamespaces|driver\.namespaces)=\{(\w+)\}|apply --namespace (\w+) ")
    found = [(next(filter(None, each.groups())), each.start()) for each in named.finditer(text)]
    assert {name for name, _ in found} == {"shop"}
    made = [each.start() for each in re.finditer(r"^ *kubectl create namespace shop$", text, re.MULTILINE)]
    assert len(made) == 1, "typed once more it would be refused"
    assert made[0] < min(at for _, at in found)


def test_the_plugin_is_installed_under_the_names_that_kubectl_looks_for() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"kubectl-sinkpipeline", "kubectl_complete-sinkpipeline"}
    for entry in scripts.values():
        module, _, function = entry.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    unneeded = (ROOT / "operator" / "unneeded-code.txt").read_text()
    assert "kubectl" not in unneeded, "the image has them too"


def test_both_distributions_have_one_version() -> None:
    operator = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    application = tomllib.loads((ROOT / "spark_app" / "pyproject.toml").read_text())["project"]

    assert operator["version"] == application["version"]
    assert f"sinkpipeline=={application['version']}" in operator["dependencies"]


def test_the_folder_of_the_operator_is_no_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists(), "it would shadow the standard library's operator"


def test_modules_stay_small() -> None:
    sources = [*(ROOT / "spark_app").rglob("*.py"), *(ROOT / "operator").rglob("*.py")]

    too_long = {str(path): lines for path in sources if (lines := len(path.read_text().splitlines())) > 400}

    assert too_long == {}


def test_the_threat_model_names_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    file = ""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", text):
        file = path or file
        if file:
            assert (ROOT / file).is_file(), file
            assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
