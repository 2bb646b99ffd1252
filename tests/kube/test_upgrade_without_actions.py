"""A new operator on a cluster that lacks a definition: of actions, which Helm doesn't apply, or of Kubeflow's.

This API server writes down what it is asked, so that it is seen here that nobody reads the pods of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import crd
from servers import control_plane
from servers.control_plane import Cluster, LocalControlPlane
from sinkpipeline_operator.child.askedjob import ACTION_LABEL
from sinkpipeline_operator.child.builder import PIPELINE_LABEL
from support.kube.audit import Audit
from support.kube.drivers import Drivers
from support.kube.operator_lab import OperatorLab
from support.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.thorough("an API server of its own")]


NAMESPACES = {False: "test-one", True: "test-all"}
"""By whether the operator there serves all namespaces."""


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"), *NAMESPACES.values())


@pytest.fixture(scope="module")
def older(audit: Audit) -> Iterator[Cluster]:
    crds = [*control_plane.spark_application_crds(), crd.PATH]
    with LocalControlPlane(crds=crds, flags=audit.flags) as cluster:
        yield cluster


@pytest.mark.parametrize("everywhere", [False, True], ids=["one namespace", "all namespaces"])
@pytest.mark.long("the same in all namespaces", after=1)
def test_pipelines_run_and_actions_are_served_once_the_crd_is_there(
    older: Cluster, audit: Audit, *, everywhere: bool
) -> None:
    namespace = NAMESPACES[everywhere]
    older.kubectl("delete", "crd", f"{crd.ACTION_PLURAL}.{crd.GROUP}", "--ignore-not-found")
    older.kubectl("create", "namespace", namespace)
    older.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=30s")
    with Drivers(older.kubeconfig) as drivers, OperatorLab(older, namespace, drivers, everywhere=everywhere) as lab:
        lab.start()
        name = lab.apply(lab.pipeline("p"))
        lab.until_ready(name)
        older.apply(crd.ACTION_PATH)
        older.kubectl("wait", "--for=condition=Established", "crd", f"{crd.ACTION_PLURAL}.{crd.GROUP}")
        # Whoever follows a kind that came later: actions are looked at with their pipeline, at each resync.
        action = lab.ask(pipeline=name, sink="other", action="Reset", to="earliest")
        assert "has no sink other" in lab.until_asked(action, "Failed")["message"]
        lab.check()
    # Its operator has ended by now, and with it its watches.
    wait_until(
        lambda: {verb for verb, _ in audit.selectors(namespace, "pods")} == {"list", "watch"},
        "the list and the watch of pods are written down",
    )
    ours = re.compile(rf"({PIPELINE_LABEL}|{ACTION_LABEL})\b")
    assert [each for each in audit.selectors(namespace, "pods") if not ours.match(each[1])] == []


def test_a_cluster_without_kubeflow_is_told(older: Cluster) -> None:
    namespace, kind = "test-kubeflow", "sparkapplications.sparkoperator.k8s.io"
    older.kubectl("create", "namespace", namespace)
    older.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=30s")
    with Drivers(older.kubeconfig) as drivers, OperatorLab(older, namespace, drivers) as lab:
        older.kubectl("delete", "crd", kind)
        lab.start()
        name = lab.apply(lab.pipeline("p"))
        told = lab.until_condition(name, "Stalled", "True", "KubeflowMissing")
        assert "install Kubeflow's Spark operator and its CRDs" in told["message"]
        lab.until(lambda: "KubeflowMissing: " in lab.told(name), "an event tells it")
        for path in control_plane.spark_application_crds():
            older.apply(path)
        lab.until_ready(name)
