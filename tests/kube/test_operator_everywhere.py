"""An operator of all namespaces, with the rights that the chart gives such a one."""

from __future__ import annotations

import json

import pytest

from support.kube.operator_lab import ACCOUNT, OperatorLab

pytestmark = pytest.mark.kube


@pytest.mark.thorough("an operator of its own; tests/kube/test_chart has its rights")
def test_a_namespace_that_comes_later_is_served(lab_everywhere: OperatorLab, namespace: str, name: str) -> None:
    lab = lab_everywhere
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    there = f"--namespace={namespace}"
    lab.cluster.kubectl("create", "serviceaccount", ACCOUNT, there)
    manifest = lab.pipeline(name)
    manifest["metadata"]["namespace"] = namespace
    lab.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    lab.cluster.kubectl("wait", "--for=condition=Ready", f"sinkpipeline/{name}", "--timeout=30s", there)
    lab.delete("sinkpipeline", name)
    assert lab.cluster.get("pods", there)["items"] != []
    lab.cluster.kubectl("delete", "sinkpipeline", name, "--timeout=30s", there)
    lab.until(lambda: lab.cluster.get("pods", there)["items"] == [], "its driver is gone")
