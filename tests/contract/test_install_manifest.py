"""deploy/install.yaml is the chart with its default values, and the CRD."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib
import yaml

import crd
from deployed import chart, manifest
from deployed.chart import NAMESPACE, Object
from sinkpipeline_operator.settings import parse

ROOT = Path(__file__).parents[2]


def where(each: Object) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def without_helm(each: Object) -> Object:
    meta = each["metadata"]
    annotations = {name: value for name, value in meta.get("annotations", {}).items() if "helm.sh/" not in name}
    of_helm = {"helm.sh/chart", "app.kubernetes.io/managed-by"}
    places = [meta, each["spec"]["template"]["metadata"]] if each["kind"] == "Deployment" else [meta]
    for place in places:
        place["labels"] = {name: value for name, value in place["labels"].items() if name not in of_helm}
    kept = {name: value for name, value in meta.items() if name != "annotations"}
    return each | {"metadata": kept | ({"annotations": annotations} if annotations else {})}


@pytest.mark.helm
@pytest.mark.timeout(chart.BUILD_DEADLINE + 120)
def test_it_is_what_helm_makes_of_the_chart() -> None:
    """By objects: how Helm breaks lines is its own affair."""
    _, _, _, *written = manifest.objects()
    rendered = [without_helm(each) for each in chart.render()]
    assert sorted(written, key=where) == sorted(rendered, key=where), "make manifests"


def test_the_namespace_and_the_crd_come_first() -> None:
    namespace, *definitions = manifest.objects()[:3]
    assert namespace == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert definitions == [yaml.safe_load(path.read_text()) for path in crd.PATHS], "make manifests"


def test_it_says_nothing_of_helm() -> None:
    assert "helm" not in manifest.PATH.read_text().lower()


def test_images_are_of_the_version_that_is_here() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    operator = chart.operator_container(manifest.objects())
    assert operator["image"] == f"localhost/sinkpipeline-operator:{version}"
    assert f"--image=localhost/sinkpipeline-spark:{version}" in operator["args"]


def test_the_operator_serves_all_namespaces() -> None:
    assert parse(manifest.operator_arguments()).namespaces == ()
