"""What the chart's files say, without Helm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib
import yaml
from packaging.specifiers import SpecifierSet

from deployed.chart import CHART, Object
from sinkpipeline_operator.settings import SPARK_VERSION

ROOT = Path(__file__).parents[2]


def properties(schema: Object, root: Object, path: str = "") -> Iterator[str]:
    schema = root["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "properties" not in schema:
        yield path
        return
    assert schema["additionalProperties"] is False, path
    for name, each in schema["properties"].items():
        yield from properties(each, root, f"{path}.{name}".removeprefix("."))


def leaves(values: Any, path: str = "") -> Iterator[str]:
    if not isinstance(values, dict) or not values:
        yield path
        return
    for name, each in values.items():
        # What Kubernetes defines is a value of its own.
        inner = [path] if path == "resources" else leaves(each, f"{path}.{name}".removeprefix("."))
        yield from inner


def test_every_value_has_a_default_and_a_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    # Helm adds `global` where the chart is part of another one.
    assert set(properties(schema, schema)) - {"global"} == set(
        leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
    )


def test_every_value_is_explained() -> None:
    """By a comment above it, or above the block that it stands in."""
    paragraphs = (CHART / "values.yaml").read_text().split("\n\n")
    keys = [
        (line.strip(), [each for each in lines[:number] if each.lstrip().startswith("#")])
        for lines in (paragraph.splitlines() for paragraph in paragraphs)
        for number, line in enumerate(lines)
        if re.match(r" *\w+: \S", line)
    ]
    assert len(keys) > 20
    assert [key for key, comments in keys if not comments] == []


def test_the_chart_has_the_repositorys_crds() -> None:
    here, there = ({path.name: path.read_bytes() for path in (top / "crds").glob("*")} for top in (CHART, ROOT))
    assert here == there, "cp crds/*.yaml charts/sinkpipeline-operator/crds/"


def test_the_chart_has_the_version_of_what_it_installs() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (described["version"], described["appVersion"]) == (version, version)


def test_one_spark_is_named_everywhere() -> None:
    spark = yaml.safe_load((CHART / "values.yaml").read_text())["spark"]["version"]
    assert spark == SPARK_VERSION
    assert f"pyspark=={spark}" in (ROOT / "requirements.lock").read_text().splitlines()
    assert f"<spark.version>{spark}</spark.version>" in (ROOT / "dev" / "maven" / "spark" / "pom.xml").read_text()
    application = tomllib.loads((ROOT / "spark_app" / "pyproject.toml").read_text())["project"]
    [asked] = [each for each in application["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    assert SpecifierSet(asked.removeprefix("pyspark")).contains(spark)
