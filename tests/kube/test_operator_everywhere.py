"""An operator of all namespaces, with the rights that the chart gives such a one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.kube.operator_lab import ACCOUNT, OperatorLab
from support.kube.rights import may_read_secrets

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
    told = "{.status.conditions[?(@.type=='SparkApplicationReady')].message}"
    seen = ("get", "sinkpipeline", name, there, "-o", f"jsonpath={told}")
    missing = 'cannot create resource "secrets"'
    lab.until(lambda: missing in lab.cluster.kubectl(*seen), "it says which right is missing")
    may_read_secrets(lab.cluster, lab.namespace, namespace)
    lab.cluster.kubectl("wait", "--for=condition=Ready", f"sinkpipeline/{name}", "--timeout=30s", there)
    lab.delete("sinkpipeline", name)
    assert lab.cluster.get("pods", there)["items"] != []
    lab.cluster.kubectl("delete", "sinkpipeline", name, "--timeout=30s", there)
    lab.until(lambda: lab.cluster.get("pods", there)["items"] == [], "its driver is gone")


@pytest.mark.thorough("one end of a pipeline among those of tests/kube/test_operator")
def test_a_namespace_goes_whose_secrets_went_before_its_pipelines(
    lab_everywhere: OperatorLab, namespace: str, name: str
) -> None:
    """Nothing can be created there any more; what the status says to type is taken."""
    lab, there = lab_everywhere, f"--namespace={namespace}"
    manifest = lab.pipeline(name, deletionPolicy="Delete", suspend=True)
    manifest["metadata"]["namespace"] = namespace
    password = {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "kafka-user", "key": "password"}}
    manifest["spec"]["source"]["kafka"]["auth"] = {"sasl": password}
    may_read_secrets(lab.cluster, lab.namespace, namespace)
    lab.cluster.kubectl("create", "secret", "generic", "kafka-user", "--from-literal=password=p", there)
    lab.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def seen() -> dict[str, Any]:
        return dict(lab.cluster.get("sinkpipeline", name, there))

    lab.until(lambda: seen()["metadata"].get("finalizers"), "it has the finalizer")
    lab.cluster.kubectl("delete", "namespace", namespace, "--wait=false")

    def told() -> str:
        return next((each["message"] for each in seen()["status"].get("conditions", ()) if each["type"] == "Ready"), "")

    # The right to read it may go first, too.
    missing = ("Secret kafka-user does not exist", "may not read Secret kafka-user")
    lab.until(lambda: any(each in told() for each in missing), "it says what it misses")
    [command] = re.findall(r"`(kubectl .*?)`", told())
    lab.type(command)
    lab.cluster.kubectl("wait", "--for=delete", f"sinkpipeline/{name}", "--timeout=30s", there)
