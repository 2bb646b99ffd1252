"""Admission policies and quotas, as administrators have them: what they refuse, the operator has to live with."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from support.kube.operator_lab import OperatorLab
from support.waiting import wait_until


@contextlib.contextmanager
def policy(
    lab: OperatorLab, about: str, resource: str, rule: str, operations: tuple[str, ...] = ("CREATE", "UPDATE")
) -> Iterator[None]:
    """An admission policy of the cluster, for objects of that name and resource in the lab's namespace."""
    name = f"refuse-{about}"
    group = {"secrets": "", "sparkapplications": "sparkoperator.k8s.io"}.get(resource, "sinkpipeline.io")
    probe = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": [resource]},
        probe,
    ]
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": lab.namespace}},
        },
        "matchConditions": [{"name": "it", "expression": f"request.name in ['{about}', '{name}']"}],
        "validations": [{"expression": f"request.name != '{name}' && ({rule})", "message": "the policy says no"}],
    }
    kinds = {
        "ValidatingAdmissionPolicy": spec,
        "ValidatingAdmissionPolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }
    for kind, each in kinds.items():
        document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        lab.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**document, "spec": each}))
    # The API server follows its policies: the first object that is refused shows that this one counts.
    wait_until(lambda: lab.is_refused(name), "the policy counts")
    try:
        yield
    finally:
        for kind in reversed(kinds):
            lab.cluster.kubectl("delete", kind, name)


@contextlib.contextmanager
def tight_quota(lab: OperatorLab, hard: dict[str, str]) -> Iterator[None]:
    """A quota with the status that the controller of a cluster would write."""
    document = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight"},
        "spec": {"hard": hard},
    }
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    status = json.dumps({"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    lab.kubectl("patch", "resourcequota", "tight", "--subresource=status", "--type=merge", "-p", status)
    try:
        yield
    finally:
        lab.kubectl("delete", "resourcequota", "tight")
