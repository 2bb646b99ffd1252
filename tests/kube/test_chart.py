"""The chart on a real API server: it takes every object, and the accounts have the rights that they need, no others."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deployed import chart
from servers import control_plane
from servers.control_plane import Cluster, ControlPlaneError
from support.kube.pod_security import VIOLATIONS
from support.kube.rights import allowed, remove, until_rights_count

# The first of them may build Helm.
pytestmark = [pytest.mark.kube, pytest.mark.timeout(chart.BUILD_DEADLINE + 120)]

Object = dict[str, Any]


@pytest.fixture(scope="module")
def installed(api_server: Cluster) -> Iterator[str]:
    """The namespace of a release that watches all of them; its driver's account is there too."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    chart.install(api_server, namespace=name)
    until_rights_count(api_server, name, chart.operator_account(namespace=name))
    yield name
    remove(api_server, name)
    api_server.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def confined(api_server: Cluster, namespace: str) -> Iterator[str]:
    """The namespace of a release that watches only this one."""
    chart.install(api_server, {"watchNamespaces": [namespace]}, namespace)
    until_rights_count(api_server, namespace, chart.operator_account(namespace=namespace))
    yield namespace
    remove(api_server, namespace)


MAY = [
    ("watch", "sinkpipeline.io/sinkpipelines"),
    ("update", "sinkpipeline.io/sinkpipelines/status"),
    ("update", "sinkpipeline.io/sinkpipelines/finalizers"),
    ("watch", "sinkpipeline.io/sinkpipelineactions"),
    ("delete", "sinkpipeline.io/sinkpipelineactions"),
    ("update", "sinkpipeline.io/sinkpipelineactions/status"),
    ("delete", "sparkoperator.k8s.io/sparkapplications"),
    ("create", "events"),
    ("watch", "apiextensions.k8s.io/customresourcedefinitions"),
    ("get", "namespaces=kube-system"),
]
MAY_NOT = [
    ("list", "secrets"),
    ("watch", "secrets"),
    ("delete", "sinkpipeline.io/sinkpipelines"),
    # Who is asked does not ask, and confirms nothing.
    ("create", "sinkpipeline.io/sinkpipelineactions"),
    ("patch", "sinkpipeline.io/sinkpipelineactions"),
    ("create", "pods"),
    ("delete", "pods"),
    ("get", "namespaces=default"),
    ("create", "rbac.authorization.k8s.io/clusterrolebindings"),
]


def test_the_operator_may_what_it_does_and_no_more(api_server: Cluster, installed: str) -> None:
    account = f"{installed}:{chart.operator_account(namespace=installed)}"
    assert [each for each in MAY if not allowed(api_server, account, *each, "kube-public")] == []
    assert allowed(api_server, account, "get", "secrets", installed), "drivers run there"
    assert not allowed(api_server, account, "get", "secrets", "kube-public"), "none runs there"
    assert [each for each in MAY_NOT if allowed(api_server, account, *each, installed)] == []


@pytest.mark.thorough("test_the_operator_may_what_it_does_and_no_more shows the rights of one")
def test_a_confined_operator_may_nothing_elsewhere(api_server: Cluster, confined: str) -> None:
    account = f"{confined}:{chart.operator_account(namespace=confined)}"
    for verb, what in (("watch", "sinkpipeline.io/sinkpipelines"), ("get", "secrets"), ("list", "pods")):
        assert allowed(api_server, account, verb, what, confined)
        assert not allowed(api_server, account, verb, what, "default")
    assert allowed(api_server, account, "get", "namespaces=kube-system", "")


def test_the_operator_runs_with_the_token_of_its_account(api_server: Cluster, installed: str) -> None:
    account = chart.operator_account(namespace=installed)
    own = api_server.service_account_kubeconfig(installed, account)
    listed = api_server.kubectl("get", "sinkpipelines", "--all-namespaces", "-o", "json", kubeconfig=own)
    assert json.loads(listed)["kind"] == "List"
    with pytest.raises(ControlPlaneError, match=rf"{installed}:{account}.* cannot list resource .?.secrets"):
        api_server.kubectl("get", "secrets", kubeconfig=own)


def test_a_driver_runs_executors_and_reads_no_secrets(api_server: Cluster, installed: str) -> None:
    account = f"{installed}:sinkpipeline-driver"
    assert allowed(api_server, account, "create", "pods", installed)
    assert allowed(api_server, account, "deletecollection", "services", installed)
    assert not allowed(api_server, account, "create", "pods", "default")
    for verb, what in (
        ("get", "secrets"),
        ("get", "configmaps"),
        ("get", "sinkpipeline.io/sinkpipelines"),
        ("patch", "sinkpipeline.io/sinkpipelines/status"),
        ("patch", "sparkoperator.k8s.io/sparkapplications"),
    ):
        assert not allowed(api_server, account, verb, what, installed)


def test_the_operators_pod_is_admitted_where_only_restricted_ones_are(api_server: Cluster, installed: str) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    api_server.kubectl("label", "namespace", installed, level)
    dry_run(api_server, installed, operator_pod(installed))
    for name in ("hostNetwork", "privilege escalation", "root is not refused", "no seccomp", "capabilities are kept"):
        pod = operator_pod(installed)
        VIOLATIONS[name](pod["spec"])
        with pytest.raises(ControlPlaneError, match="violates PodSecurity"):
            dry_run(api_server, installed, pod)


def operator_pod(namespace: str) -> Object:
    [deployment] = [each for each in chart.render(namespace=namespace) if each["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": template["metadata"] | {"name": "operator"}}


def dry_run(cluster: Cluster, namespace: str, pod: Object) -> None:
    cluster.kubectl("create", f"--namespace={namespace}", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


@pytest.mark.thorough("tests/contract/test_chart renders it")
def test_an_operator_that_runs_elsewhere_needs_no_deployment(api_server: Cluster, namespace: str) -> None:
    applied = chart.install(api_server, namespace=namespace, deployment=False)
    try:
        assert "Deployment" not in {each["kind"] for each in applied}
        assert api_server.get("deployments", f"--namespace={namespace}")["items"] == []
        assert api_server.get("serviceaccount", chart.operator_account(namespace=namespace), f"--namespace={namespace}")
    finally:
        remove(api_server, namespace)


@pytest.fixture(scope="module")
def monitoring(api_server: Cluster) -> None:
    """The kinds of Prometheus' operator; those of the cluster where it has some."""
    for each in control_plane.monitoring_crds():
        names = api_server.kubectl("get", "crds", "-o", "name")
        if yaml.safe_load(each.read_text())["metadata"]["name"] not in names:
            api_server.install_crds(each)


@pytest.mark.usefixtures("monitoring")
@pytest.mark.thorough("tests/contract/test_chart renders each value")
def test_every_value_leads_to_objects_that_are_accepted(api_server: Cluster, namespace: str) -> None:
    asking = {
        "create": True,
        "labels": {"release": "prometheus"},
        "interval": "30s",
        "scrapeTimeout": "10s",
        "relabelings": [{"action": "labeldrop", "regex": "pod"}],
        "metricRelabelings": [{"sourceLabels": ["__name__"], "action": "drop", "regex": "process_.*"}],
    }
    values = {
        "imagePullSecrets": ["registry"],
        "spark": {"image": {"digest": f"sha256:{'0f' * 32}"}},
        "watchNamespaces": [namespace],
        "kafkaAccess": False,
        "serviceAccount": {"annotations": {"a": "1"}},
        "driver": {"serviceAccount": {"annotations": {"b": "2"}}},
        "crds": {"upgrade": False},
        "metrics": {
            "service": {"annotations": {"c": "3"}},
            "serviceMonitor": asking,
            "drivers": {"open": True, "podMonitor": asking},
            "alerts": {"create": True, "labels": {"release": "prometheus"}, "runbooks": "https://example.com/runbooks"},
            "dashboard": {"create": True, "annotations": {"grafana_folder": "Kafka"}},
        },
        "networkPolicy": {
            "create": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 6443, "protocol": "TCP"}]}],
        },
        "extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "extraEnvFrom": [{"configMapRef": {"name": "c", "optional": True}}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"d": "4"},
        "podLabels": {"team": "data"},
    }
    try:
        applied = chart.install(api_server, values, namespace)
        for each in applied:
            kind, meta = each["kind"], each["metadata"]
            place = [f"--namespace={meta['namespace']}"] if "namespace" in meta else []
            assert api_server.get(kind, meta["name"], *place)["metadata"]["labels"].items() >= meta["labels"].items()
        without_service = {"metrics": {"service": {"create": False}, "podMonitor": asking}}
        [monitor] = [each for each in chart.render(without_service, namespace) if each["kind"] == "PodMonitor"]
        for each in [monitor, *chart.render_tests(values, namespace), *applied]:
            dry_run(
                api_server, namespace, each | {"metadata": each["metadata"] | {"name": f"{each['metadata']['name']}-2"}}
            )
        monitor["spec"]["podMetricsEndpoints"][0]["intervall"] = "30s"
        with pytest.raises(ControlPlaneError, match="intervall"):
            dry_run(api_server, namespace, monitor)
    finally:
        remove(api_server, namespace)
