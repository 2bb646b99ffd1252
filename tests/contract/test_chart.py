"""The chart, as Helm renders it: what it grants, what it runs, and what it refuses."""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
import yaml

from deployed import chart
from deployed.chart import CHART, ChartError, Object, operator_arguments, render
from sinkpipeline_operator import ready
from sinkpipeline_operator.child import builder
from sinkpipeline_operator.settings import parse
from support.kube.pod_security import VIOLATIONS, violations

# The first of them may build Helm.
pytestmark = [pytest.mark.helm, pytest.mark.timeout(chart.BUILD_DEADLINE + 120)]

ROOT = Path(__file__).parents[2]
NAMESPACE = chart.NAMESPACE
SMALLEST: Object = {}
EVERYTHING: Object = {
    "fullnameOverride": "pipes",
    "image": {"repository": "example.com/operator", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": ["registry"],
    "spark": {"version": "4.0.5", "image": {"repository": "example.com:5000/spark", "digest": f"sha256:{'0f' * 32}"}},
    "watchNamespaces": ["shop", "stock"],
    "selector": "shard=a,!test",
    "kafkaAccess": False,
    "resync": 12.5,
    "resyncAtRest": 600,
    "maxConcurrentRestarts": 3,
    "progressDeadline": 90,
    "startDeadline": 45,
    "crds": {"upgrade": False},
    "log": {"level": "DEBUG", "format": "text"},
    "serviceAccount": {"name": "pipes-account", "annotations": {"a": "1"}},
    "driver": {"serviceAccount": {"name": "driver", "annotations": {"b": "2"}}, "namespaces": ["shop", "other"]},
    "metrics": {
        "port": 9000,
        "service": {"annotations": {"c": "3"}},
        "serviceMonitor": {
            "create": True,
            "labels": {"release": "prometheus", "app.kubernetes.io/name": "not-this-one"},
            "interval": "30s",
            "scrapeTimeout": "10s",
            "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            "metricRelabelings": [{"sourceLabels": ["__name__"], "action": "drop", "regex": "process_.*"}],
        },
        "drivers": {
            "open": True,
            "podMonitor": {"create": True, "interval": "15s", "relabelings": [{"action": "lowercase"}]},
        },
        "alerts": {"create": True, "labels": {"release": "prometheus"}, "runbooks": "https://example.com/runbooks"},
        "dashboard": {"create": True, "annotations": {"grafana_folder": "Kafka"}},
    },
    "networkPolicy": {
        "create": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 6443, "protocol": "TCP"}]}],
    },
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "resources": {"limits": {"memory": "1Gi"}},
    "terminationGracePeriodSeconds": 7,
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"d": "4"},
    "podLabels": {"team": "data", "app.kubernetes.io/name": "not-this-one"},
}
VARIANTS = pytest.mark.parametrize("values", [SMALLEST, EVERYTHING], ids=["smallest", "everything"])

Rights = dict[tuple[str, str, str], set[str]]
"""Verbs by API group, resource and name; an empty name is any."""

IN_NAMESPACES: Rights = {
    ("sinkpipeline.io", "sinkpipelines", ""): {"get", "list", "watch", "patch"},
    ("sinkpipeline.io", "sinkpipelines/status", ""): {"update"},
    ("sinkpipeline.io", "sinkpipelines/finalizers", ""): {"update"},
    ("sinkpipeline.io", "sinkpipelineactions", ""): {"list", "watch", "delete"},
    ("sinkpipeline.io", "sinkpipelineactions/status", ""): {"update"},
    ("sinkpipeline.io", "sinkpipelineactions/finalizers", ""): {"update"},
    ("batch", "jobs", ""): {"get", "create", "delete"},
    ("sparkoperator.k8s.io", "sparkapplications", ""): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "configmaps", ""): {"list", "create", "patch", "delete"},
    ("", "pods", ""): {"list", "watch"},
    ("", "events", ""): {"create", "patch"},
}
OF_SECRETS: Rights = {("", "secrets", ""): {"get", "create", "patch"}}
IN_THE_CLUSTER: Rights = {
    ("", "namespaces", "kube-system"): {"get"},
    **{("apiextensions.k8s.io", "customresourcedefinitions", path.stem): {"get", "patch"} for path in chart.crds()},
}
OF_ALL_NAMESPACES: Rights = {("apiextensions.k8s.io", "customresourcedefinitions", ""): {"list", "watch"}}
OF_DRIVERS: Rights = {
    ("", "pods", ""): {"get", "list", "watch", "create", "patch", "delete", "deletecollection"},
    ("", "configmaps", ""): {"create", "deletecollection"},
    ("", "persistentvolumeclaims", ""): {"list", "create", "deletecollection"},
    ("", "services", ""): {"deletecollection"},
}


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def rights(role: Object) -> Rights:
    found: Rights = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames") or [""]:
                    found.setdefault((group, resource, name), set()).update(rule["verbs"])
    return found


def where(each: Object) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def pod_of(values: Object) -> Object:
    [deployment] = of_kind(render(values), "Deployment")
    pod: Object = deployment["spec"]["template"]
    return pod


@VARIANTS
def test_helm_has_nothing_to_complain_about(values: Object) -> None:
    assert "0 chart(s) failed" in chart.helm("lint", "--strict", str(CHART), "--values=-", stdin=values)


# --- values ---


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"watchNamespace": ["shop"]}, "watchNamespace"),
        ({"replicas": 2}, "replicas"),
        ({"image": {"repo": "example.com/operator"}}, "repo"),
        ({"spark": {"image": {"Tag": "1"}}}, "Tag"),
        ({"driver": {"namespace": "shop"}}, "namespace"),
        ({"driver": {"serviceAccount": {"names": "a"}}}, "names"),
        ({"metrics": {"service": {"enabled": False}}}, "enabled"),
        ({"watchNamespaces": "shop"}, "watchNamespaces"),
        ({"watchNamespaces": ["shop", "shop"]}, "watchNamespaces"),
        ({"watchNamespaces": ["Shop"]}, "watchNamespaces"),
        ({"driver": {"namespaces": ["a b"]}}, "namespaces"),
        ({"driver": {"serviceAccount": {"name": ""}}}, "name"),
        ({"serviceAccount": {"create": False}}, "serviceAccount"),
        ({"serviceAccount": {"create": False, "name": None}}, "serviceAccount"),
        ({"image": {"digest": "0f0f"}}, "digest"),
        ({"image": {"repository": ""}}, "repository"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"spark": {"version": "4"}}, "version"),
        ({"resync": 0}, "resync"),
        ({"resync": "1m"}, "resync"),
        ({"progressDeadline": 0}, "progressDeadline"),
        ({"kafkaAccess": "no"}, "kafkaAccess"),
        ({"log": {"level": "debug"}}, "level"),
        ({"crds": {"install": True}}, "install"),
        ({"crds": None}, "crds"),
        ({"extraEnv": [{"value": "nameless"}]}, "extraEnv"),
        ({"networkPolicy": {"ingress": []}}, "ingress"),
        ({"metrics": {"serviceMonitor": {"interval": "soon"}}}, "interval"),
        ({"metrics": {"port": 80}}, "port"),
        ({"terminationGracePeriodSeconds": 0}, "terminationGracePeriodSeconds"),
    ],
    ids=str,
)
@pytest.mark.thorough("each value of the chart", after=5)
def test_a_wrong_value_is_refused(values: Object, told: str) -> None:
    with pytest.raises(ChartError, match=rf"schema[^']*(.|\n)*{told}"):
        render(values)


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"serviceMonitor": {"create": True}, "podMonitor": {"create": True}}, "create one of them"),
        ({"serviceMonitor": {"create": True}, "service": {"create": False}}, "or a metrics.podMonitor"),
        ({"drivers": {"podMonitor": {"create": True}}}, "set metrics.drivers.open"),
    ],
)
def test_monitors_that_make_no_sense_are_refused(metrics: Object, told: str) -> None:
    with pytest.raises(ChartError, match=told):
        render({"metrics": metrics})


# --- objects ---


@VARIANTS
def test_every_object_is_labelled_and_has_its_place(values: Object) -> None:
    objects = render(values)
    assert len({where(each) for each in objects}) == len(objects)
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/instance"] == chart.RELEASE
        assert labels["app.kubernetes.io/name"] == "sinkpipeline-operator"
        assert labels["helm.sh/chart"].startswith("sinkpipeline-operator-")
        assert each["kind"].startswith("ClusterRole") != ("namespace" in each["metadata"]), where(each)


def test_what_is_rendered_by_default() -> None:
    operator, driver = "sinkpipeline-operator", "sinkpipeline-driver"
    assert {where(each) for each in render()} == {
        ("Deployment", NAMESPACE, operator),
        ("Service", NAMESPACE, f"{operator}-metrics"),
        ("ServiceAccount", NAMESPACE, operator),
        ("ClusterRole", "", f"{NAMESPACE}:{operator}"),
        ("ClusterRoleBinding", "", f"{NAMESPACE}:{operator}"),
        ("ClusterRole", "", f"{NAMESPACE}:{operator}:secrets"),
        ("RoleBinding", NAMESPACE, operator),
        ("ServiceAccount", NAMESPACE, driver),
        ("Role", NAMESPACE, driver),
        ("RoleBinding", NAMESPACE, driver),
    }


def test_a_pod_without_a_service_is_asked_for_its_metrics() -> None:
    objects = render({"metrics": {"service": {"create": False}, "podMonitor": {"create": True, "interval": "1m"}}})
    [monitor], [deployment] = of_kind(objects, "PodMonitor"), of_kind(objects, "Deployment")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "1m", "honorLabels": True}
    assert monitor["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_service_is_asked_for_metrics_as_the_values_say() -> None:
    objects = render(EVERYTHING)
    [monitor], [service] = of_kind(objects, "ServiceMonitor"), of_kind(objects, "Service")
    asked = EVERYTHING["metrics"]["serviceMonitor"]
    given = {name: asked[name] for name in ("interval", "scrapeTimeout", "relabelings", "metricRelabelings")}
    port = service["spec"]["ports"][0]["name"]
    # A pipeline's namespace is not that of the operator's pod.
    assert monitor["spec"]["endpoints"] == [{"port": port, "path": "/metrics", "honorLabels": True, **given}]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_drivers_are_asked_for_metrics_with_the_name_of_their_pipeline() -> None:
    [monitor] = of_kind(render(EVERYTHING), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    named, *theirs = endpoint["relabelings"]
    meta = re.sub(r"[./]", "_", f"__meta_kubernetes_pod_label_{builder.PIPELINE_LABEL}")
    assert named == {"action": "replace", "sourceLabels": [meta], "targetLabel": "pipeline"}
    assert theirs == [{"action": "lowercase"}]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("sinkpipeline", "/metrics", "15s")
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["shop", "stock"]}
    assert parse(operator_arguments(EVERYTHING)).runtime.open_metrics
    open_everywhere = {"metrics": {"drivers": {"open": True, "podMonitor": {"create": True}}}}
    [monitor] = of_kind(render(open_everywhere), "PodMonitor")
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    assert not parse(operator_arguments()).runtime.open_metrics


def test_alerts_and_dashboard_are_those_of_the_chart() -> None:
    objects = render(EVERYTHING)
    [rule] = of_kind(objects, "PrometheusRule")
    alerts = (CHART / "files" / "alerts.yaml").read_text()
    assert rule["spec"] == yaml.safe_load(alerts.replace("docs/runbooks.md", "https://example.com/runbooks"))
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    [board] = of_kind(objects, "ConfigMap")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["metadata"]["annotations"] == {"grafana_folder": "Kafka"}
    assert json.loads(board["data"]["sinkpipelines.json"]) == json.loads((CHART / "files/dashboard.json").read_text())


def test_a_policy_lets_in_who_asks_for_metrics_and_out_what_the_operator_needs() -> None:
    [policy] = of_kind(render(EVERYTHING), "NetworkPolicy")
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= pod_of(EVERYTHING)["metadata"]["labels"].items()
    [test] = chart.render_tests(EVERYTHING)
    [ingress] = spec["ingress"]
    monitoring, testing = ingress["from"]
    assert monitoring == EVERYTHING["networkPolicy"]["metricsFrom"][0]
    assert testing["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()
    given, names, drivers = spec["egress"]
    assert given == EVERYTHING["networkPolicy"]["egress"][0]
    assert {each["port"] for each in names["ports"]} == {53}
    assert [each["port"] for each in drivers["ports"]] == [builder.DRIVER_PORT]
    assert drivers["to"][0]["podSelector"]["matchExpressions"][0]["key"] == builder.PIPELINE_LABEL


def test_a_policy_without_rules_keeps_nobody_out_and_nothing_in() -> None:
    [policy] = of_kind(render({"networkPolicy": {"create": True}}), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "from" not in policy["spec"]["ingress"][0]


@VARIANTS
def test_selectors_find_the_pods_of_every_version(values: Object) -> None:
    objects = render(values)
    [deployment], [service] = of_kind(objects, "Deployment"), of_kind(objects, "Service")
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector == service["spec"]["selector"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & selector.keys()


def test_releases_of_one_name_share_nothing() -> None:
    watched = {"watchNamespaces": ["one"]}, {"watchNamespaces": ["two"]}
    one, two = (
        {where(each) for each in render(values, namespace)}
        for values, namespace in zip(watched, ("one", "two"), strict=True)
    )
    assert not one & two


def test_no_object_of_the_chart_is_a_crd() -> None:
    """Helm would delete it with the release, and every pipeline with it; it leaves alone what is in crds/."""
    assert of_kind(render(), "CustomResourceDefinition") == []
    shown = chart.helm("show", "crds", str(CHART))
    names = {each["metadata"]["name"] for each in yaml.safe_load_all(shown) if each is not None}
    assert names == {"sinkpipelines.sinkpipeline.io", "sinkpipelineactions.sinkpipeline.io"}


# --- rights ---


def test_all_namespaces_are_watched_with_a_cluster_role() -> None:
    role, of_secrets = of_kind(render({"driver": {"namespaces": ["shop", "stock"]}}), "ClusterRole")
    assert rights(role) == IN_THE_CLUSTER | OF_ALL_NAMESPACES | IN_NAMESPACES
    assert rights(of_secrets) == OF_SECRETS


def test_secrets_are_read_where_drivers_run() -> None:
    objects = render({"driver": {"namespaces": ["shop", "stock"]}})
    bound = [each for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding") if not is_drivers(each)]
    name = f"{NAMESPACE}:sinkpipeline-operator"
    assert {(*where(each)[:2], each["roleRef"]["name"]) for each in bound} == {
        ("ClusterRoleBinding", "", name),
        ("RoleBinding", "shop", f"{name}:secrets"),
        ("RoleBinding", "stock", f"{name}:secrets"),
    }
    [role] = of_kind(render({"rbac": {"secrets": "Everywhere"}}), "ClusterRole")
    assert rights(role) == IN_THE_CLUSTER | OF_ALL_NAMESPACES | IN_NAMESPACES | OF_SECRETS


def test_the_crd_is_replaced_by_who_may() -> None:
    [role, _] = of_kind(render({"crds": {"upgrade": False}}), "ClusterRole")
    of_crds = [verbs for (_, resource, name), verbs in rights(role).items() if name and resource.startswith("custom")]
    assert of_crds == [{"get"}] * len(chart.crds())


def test_named_namespaces_are_watched_with_roles_of_theirs() -> None:
    objects = render({"watchNamespaces": ["shop", "stock"]})
    [role] = of_kind(objects, "ClusterRole")
    assert rights(role) == IN_THE_CLUSTER
    mine = {where(each): rights(each) for each in of_kind(objects, "Role") if not is_drivers(each)}
    theirs = IN_NAMESPACES | OF_SECRETS
    assert mine == {("Role", namespace, "sinkpipeline-operator"): theirs for namespace in ("shop", "stock")}


def is_drivers(each: Object) -> bool:
    return bool(each["metadata"]["labels"]["app.kubernetes.io/component"] == "driver")


@VARIANTS
def test_nothing_is_granted_in_the_dark(values: Object) -> None:
    granted = [rights(each) for each in of_kind(render(values), "ClusterRole", "Role")]
    for key, verbs in chain.from_iterable(each.items() for each in granted):
        assert "*" not in {*key, *verbs}, key
        assert verbs.isdisjoint({"escalate", "bind", "impersonate"}), key
        if key[1] == "secrets":
            assert verbs.isdisjoint({"list", "watch", "delete", "deletecollection"}), "Secrets are read by name"


@VARIANTS
def test_every_role_is_bound_to_one_account_that_is_there(values: Object) -> None:
    objects = render(values)
    accounts = {where(each)[1:]: each for each in of_kind(objects, "ServiceAccount")}
    roles = {where(each) for each in of_kind(objects, "ClusterRole", "Role")}
    bindings = of_kind(objects, "ClusterRoleBinding", "RoleBinding")
    bound = set()
    for binding in bindings:
        [subject] = binding["subjects"]
        account = accounts[subject["namespace"], subject["name"]]
        assert is_drivers(account) == is_drivers(binding), "the operator's rights are the operator's"
        ref = binding["roleRef"]
        where_it_is = binding["metadata"].get("namespace", "") if ref["kind"] == "Role" else ""
        bound.add((ref["kind"], where_it_is, ref["name"]))
    assert bound == roles
    assert len(bindings) == len(roles)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (SMALLEST, "sinkpipeline-operator"),
        (EVERYTHING, "pipes-account"),
        ({"serviceAccount": {"create": False, "name": "given"}}, "given"),
    ],
    ids=["smallest", "everything", "given"],
)
def test_the_operators_rights_are_those_of_its_pod(values: Object, name: str) -> None:
    assert chart.operator_account(values) == name
    bindings = of_kind(render(values), "ClusterRoleBinding", "RoleBinding")
    subjects = [subject for each in bindings if not is_drivers(each) for subject in each["subjects"]]
    assert subjects
    assert all(each == {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE} for each in subjects)


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        ({}, [NAMESPACE]),
        ({"watchNamespaces": ["shop", "stock"]}, ["shop", "stock"]),
        ({"driver": {"namespaces": ["shop"]}}, ["shop"]),
        ({"watchNamespaces": ["shop"], "driver": {"namespaces": ["shop", "other"]}}, ["shop", "other"]),
    ],
)
def test_drivers_have_an_account_where_pipelines_are(values: Object, namespaces: list[str]) -> None:
    objects = [each for each in render(values) if is_drivers(each)]
    assert {where(each) for each in objects} == {
        (kind, namespace, "sinkpipeline-driver")
        for namespace in namespaces
        for kind in ("ServiceAccount", "Role", "RoleBinding")
    }
    for role in of_kind(objects, "Role"):
        assert rights(role) == OF_DRIVERS


@VARIANTS
def test_drivers_outlive_the_release(values: Object) -> None:
    kept = [each for each in render(values) if "helm.sh/resource-policy" in each["metadata"].get("annotations", {})]
    assert kept == [each for each in render(values) if is_drivers(each)]
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in kept} == {"keep"}


def test_accounts_and_rights_may_come_from_elsewhere() -> None:
    given = {
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "given"},
        "driver": {"serviceAccount": {"create": False, "name": "also-given"}},
        "metrics": {"service": {"create": False}},
    }
    [deployment] = render(given)
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "given"
    assert "--driver-service-account=also-given" in operator_arguments(given)


# --- the pod ---


@VARIANTS
def test_the_pods_are_restricted(values: Object) -> None:
    [test] = chart.render_tests(values)
    assert [violations(each["spec"]) for each in (pod_of(values), test)] == [[], []]


@VARIANTS
def test_helm_test_asks_the_service_whether_the_operator_is_ready(values: Object) -> None:
    [test] = chart.render_tests(values)
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    objects = render(values)
    [service], [deployment] = of_kind(objects, "Service"), of_kind(objects, "Deployment")
    [container], [operator] = test["spec"]["containers"], deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == operator["image"]
    *program, url = container["command"]
    assert program == ["python", "-m", ready.__name__]
    [port] = service["spec"]["ports"]
    assert url == f"http://{service['metadata']['name']}.{NAMESPACE}.svc:{port['port']}/readyz"
    assert not deployment["spec"]["selector"]["matchLabels"].items() <= test["metadata"]["labels"].items()


def test_where_there_is_no_service_helm_test_has_nothing_to_ask() -> None:
    assert chart.render_tests({"metrics": {"service": {"create": False}}}) == []


@pytest.mark.parametrize("spoil", VIOLATIONS.values(), ids=VIOLATIONS)
@pytest.mark.thorough("each field of a restricted pod", after=4)
def test_a_pod_that_is_not_restricted_is_found_out(spoil: Callable[[Object], None]) -> None:
    pod = copy.deepcopy(pod_of(SMALLEST)["spec"])
    spoil(pod)
    assert len(violations(pod)) == 1


@VARIANTS
def test_the_pod_writes_into_memory_only(values: Object) -> None:
    pod = pod_of(values)["spec"]
    [container] = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    [volume], [mount] = pod["volumes"], container["volumeMounts"]
    assert (volume["name"], mount["mountPath"]) == (mount["name"], "/tmp")
    assert volume["emptyDir"]["medium"] == "Memory"


@VARIANTS
def test_there_is_never_a_second_operator(values: Object) -> None:
    [deployment] = of_kind(render(values), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


@VARIANTS
def test_probes_and_service_ask_where_the_operator_listens(values: Object) -> None:
    objects = render(values)
    container = chart.operator_container(objects)
    [port] = container["ports"]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    [service] = of_kind(objects, "Service")
    assert [each["targetPort"] for each in service["spec"]["ports"]] == [port["name"]]


def test_what_the_pod_is_told_reaches_it() -> None:
    pod = pod_of(EVERYTHING)
    assert pod["metadata"]["annotations"] == {"d": "4"}
    assert pod["metadata"]["labels"]["team"] == "data"
    spec = pod["spec"]
    asked = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "terminationGracePeriodSeconds")
    assert {name: spec[name] for name in asked} == {name: EVERYTHING[name] for name in asked}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    [operator] = spec["containers"]
    assert (operator["env"], operator["envFrom"]) == (EVERYTHING["extraEnv"], EVERYTHING["extraEnvFrom"])
    # Helm adds values to the defaults, key by key.
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


def test_drivers_may_use_the_registry_too() -> None:
    accounts = [each for each in of_kind(render(EVERYTHING), "ServiceAccount") if is_drivers(each)]
    assert [each["imagePullSecrets"] for each in accounts] == [[{"name": "registry"}]] * 2


# --- images and arguments ---


def test_tags_are_by_default_the_version_of_the_application() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert chart.operator_container(render())["image"] == f"localhost/sinkpipeline-operator:{version}"
    assert operator_arguments()[0] == f"--image=localhost/sinkpipeline-spark:{version}"


def test_the_operator_is_started_with_what_the_values_say() -> None:
    assert operator_arguments() == [
        operator_arguments()[0],
        "--image-pull-policy=IfNotPresent",
        "--spark-version=4.1.1",
        "--driver-service-account=sinkpipeline-driver",
        "--listen=0.0.0.0:8080",
        "--resync=60",
        "--resync-at-rest=3600",
        "--max-concurrent-restarts=10",
        "--progress-deadline=600",
        "--start-deadline=300",
        "--log-format=json",
        "--log-level=INFO",
    ]
    assert chart.operator_container(render(EVERYTHING))["image"] == "example.com/operator:1.2.3"
    assert operator_arguments(EVERYTHING) == [
        f"--image=example.com:5000/spark@sha256:{'0f' * 32}",
        "--image-pull-policy=IfNotPresent",
        "--spark-version=4.0.5",
        "--driver-service-account=driver",
        "--namespace=shop",
        "--namespace=stock",
        "--selector=shard=a,!test",
        "--no-kafka-access",
        "--no-crd-upgrade",
        "--open-driver-metrics",
        "--listen=0.0.0.0:9000",
        "--resync=12.5",
        "--resync-at-rest=600",
        "--max-concurrent-restarts=3",
        "--progress-deadline=90",
        "--start-deadline=45",
        "--log-format=text",
        "--log-level=DEBUG",
    ]


# --- what is told ---


@pytest.mark.parametrize("page", ["docs/install.md", "charts/sinkpipeline-operator/README.md", "README.md"])
def test_the_documented_installation_is_accepted(page: str) -> None:
    text = (ROOT / page).read_text().replace("\\\n", " ")
    [command] = re.findall(r"^helm install (sinkpipeline-operator .*)$", text, re.MULTILINE)
    arguments = [str(ROOT / each) if each.startswith("charts/") else each for each in shlex.split(command)]
    rendered = chart.helm("template", *arguments)
    assert "kind: Deployment" in rendered
    assert "localhost/" not in rendered


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[Object], str]:
    """What `helm install` says at its end, from a copy of the chart: Helm 3 says it only where there is a cluster."""
    copied = tmp_path / CHART.name
    shutil.copytree(CHART, copied)
    (copied / "templates" / "NOTES.txt").rename(copied / "NOTES.txt")
    (copied / "templates" / "notes.yaml").write_text('said: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}')
    only = "--show-only=templates/notes.yaml"
    arguments = ("template", chart.RELEASE, str(copied), f"--namespace={NAMESPACE}", "--values=-", only)
    return lambda values: str(yaml.safe_load(chart.helm(*arguments, stdin=values))["said"])


def test_notes_say_what_is_next(notes: Callable[[Object], str]) -> None:
    said = notes(SMALLEST)
    assert "watches all namespaces" in said
    assert f"kubectl --namespace {NAMESPACE} rollout status deployment/sinkpipeline-operator" in said
    assert f"is made in: {NAMESPACE}." in said
    assert "Images under localhost/" in said
    assert f"helm test sinkpipeline-operator --namespace {NAMESPACE}" in said
    assert "the operator replaces one of an older release at its start" in said
    assert "rollout restart" not in said


def test_notes_say_what_was_asked_for(notes: Callable[[Object], str]) -> None:
    said = notes(EVERYTHING)
    assert "watches shop, stock" in said
    assert "rollout restart deployment/pipes" in said, "it doesn't notice that the Spark operator comes later"
    assert "the ServiceAccount driver, which is made in: shop, other." in said
    assert "localhost/" not in said
    assert "kubectl apply --server-side --force-conflicts -f crds/" in said
    given = {"driver": {"serviceAccount": {"create": False, "name": "given"}}}
    assert "ServiceAccount given, which is not made by this chart" in notes(given)


@VARIANTS
def test_the_operator_accepts_its_arguments(values: Object) -> None:
    settings = parse(operator_arguments(values))
    assert settings.namespaces == tuple(values.get("watchNamespaces", ()))
    assert settings.kafka_access is values.get("kafkaAccess", True)
    assert settings.crd_upgrade is values.get("crds", {}).get("upgrade", True)
