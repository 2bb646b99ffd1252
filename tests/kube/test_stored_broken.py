"""What an older, looser CRD let in: it is told, and can be changed and deleted under today's."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import crd
from servers.control_plane import Cluster, ControlPlaneError
from support.kube.operator_lab import Object, OperatorLab
from support.waiting import wait_until

pytestmark = pytest.mark.kube

FINALIZER = "sinkpipeline.io/delete-topics"


@contextlib.contextmanager
def looser(cluster: Cluster) -> Iterator[None]:
    """The CRD without its rules, and with sinks that may be anything."""
    name = crd.custom_resource_definition()["metadata"]["name"]
    today = cluster.get("crd", name)
    older = copy.deepcopy(today)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema.pop("x-kubernetes-validations")
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema["properties"]["spec"] = spec
    _replace(cluster, older)
    try:
        yield
    finally:
        _replace(cluster, {**today, "metadata": cluster.get("crd", name)["metadata"]})


def _replace(cluster: Cluster, definition: Object) -> None:
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(definition))


def broken(lab: OperatorLab, name: str, **spec: Any) -> Object:
    document = lab.pipeline(name, deletionPolicy="Delete")
    document["metadata"]["finalizers"] = [FINALIZER]
    document["spec"] |= spec
    return document


def store(lab: OperatorLab, document: Object) -> bool:
    """Whether the API server has come to know what it lets in."""
    try:
        lab.kubectl("create", "-f", "-", stdin=json.dumps(document))
    except ControlPlaneError:
        return False
    return True


@pytest.mark.thorough("tests/unit/test_operator_fuzz has it, with an API server in memory that checks the same rules")
def test_a_pipeline_that_today_would_be_refused_is_told_changed_and_deleted(lab: OperatorLab, name: str) -> None:
    dotted, long, spoiled = f"{name}.dotted", f"{name}-{'x' * 70}", f"{name}-spoiled"
    sinks = [{**lab.pipeline(spoiled)["spec"]["sinks"][0], "onExistingData": "Delete"}]
    documents = [broken(lab, dotted), broken(lab, long), broken(lab, spoiled, sinks=sinks)]
    with looser(lab.cluster):
        for each in documents:
            wait_until(lambda each=each: store(lab, each), "the looser CRD counts")  # type: ignore[misc]
    probe = {**broken(lab, f"{name}.probe")}
    wait_until(lambda: not _is_taken(lab, probe), "today's CRD counts")
    for each, words in ((dotted, "metadata.name"), (long, "metadata.name"), (spoiled, "spec.sinks[0].onExistingData")):
        told = lab.until_condition(each, "Stalled", "True", "ManifestInvalid")
        assert words in told["message"]
    for each in (dotted, long):
        # A change of the spec, by whoever has to.
        lab.patch(each, {"deletionPolicy": "Retain"})
        lab.delete("sinkpipeline", each)
    lab.delete("sinkpipeline", spoiled, "--wait=false")
    lab.until(lambda: "keep-topics=true" in lab.condition(spoiled, "Ready").get("message", ""), "the way out is told")
    lab.annotate(spoiled, "sinkpipeline.io/keep-topics=true")
    lab.until(lambda: lab.find("sinkpipeline", spoiled) is None, "it is gone")


def _is_taken(lab: OperatorLab, document: Object) -> bool:
    try:
        lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
    except ControlPlaneError:
        return False
    return True
