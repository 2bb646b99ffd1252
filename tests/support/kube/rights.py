"""The accounts of the operator's chart, and what they may do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deployed import chart
from servers.control_plane import Cluster
from support.waiting import wait_until


@dataclass(frozen=True)
class Outside:
    """An operator of the chart that runs outside the cluster."""

    kubeconfig: Path
    """Of its account."""
    arguments: list[str]
    """What the chart starts it with."""


def install(cluster: Cluster, namespace: str, values: Mapping[str, Any]) -> Outside:
    """The chart's accounts and rights in a namespace that is there, and no Deployment; the rights count by then."""
    objects = chart.render(values, namespace)
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    listed = {"apiVersion": "v1", "kind": "List", "items": [each for each in objects if each is not deployment]}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))
    until_rights_count(cluster, namespace, account)
    kubeconfig = cluster.service_account_kubeconfig(namespace, account)
    return Outside(kubeconfig, chart.operator_container(objects)["args"])


def until_rights_count(cluster: Cluster, namespace: str, operator: str) -> None:
    """The API server's authorizer follows roles; until it has seen these, nothing is allowed.

    They are those of a release that serves its own namespace, or all of them.
    """
    for account, verb, what, where in (
        (operator, "create", "secrets", namespace),
        (operator, "get", "namespaces=kube-system", ""),
        ("sinkpipeline-driver", "create", "pods", namespace),
    ):
        who = f"{namespace}:{account}"
        wait_until(partial(allowed, cluster, who, verb, what, where), f"{who} may {verb} {what}")


def remove(cluster: Cluster, namespace: str) -> None:
    """What no namespace takes along."""
    name = f"{namespace}:{chart.RELEASE}"
    cluster.kubectl("delete", "clusterrolebinding", name, "--ignore-not-found")
    cluster.kubectl("delete", "clusterrole", name, f"{name}:secrets", "--ignore-not-found")


def may_read_secrets(cluster: Cluster, release: str, namespace: str) -> None:
    """As docs/install.md says, for an operator of all namespaces; the right counts by then."""
    account = f"{release}:{chart.RELEASE}"
    role = f"--clusterrole={account}:secrets"
    cluster.kubectl(
        "create", "rolebinding", chart.RELEASE, role, f"--serviceaccount={account}", f"--namespace={namespace}"
    )
    wait_until(partial(allowed, cluster, account, "get", "secrets", namespace), f"{account} may read Secrets")


def allowed(cluster: Cluster, account: str, verb: str, what: str, namespace: str) -> bool:
    """`account` as <namespace>:<name>, `what` as [GROUP/]RESOURCE[/SUBRESOURCE][=NAME]."""
    what, _, name = what.partition("=")
    parts = what.split("/")
    group = parts.pop(0) if "." in parts[0] else ""
    attributes = {
        "verb": verb,
        "group": group,
        "resource": parts[0],
        "subresource": "".join(parts[1:]),
        "namespace": namespace,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{account}", "resourceAttributes": attributes},
    }
    answer = cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    return bool(json.loads(answer)["status"]["allowed"])
