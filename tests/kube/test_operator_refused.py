"""What one driver says, or one object that the API server refuses, makes no pipeline uncontrollable, and is told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.kube.operator_lab import OperatorLab
from support.kube.scripts import Script, SinkScript

pytestmark = pytest.mark.kube

NO_LONGER = 20.0
"""Within so many seconds, whatever else is refused."""


def running(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=8, next=(8,), epoch=1)}))
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)


def remembered(lab: OperatorLab, name: str) -> list[Any]:
    keys = ("frontier", "epoch", "dataTopicId", "progressTopicId", "rowsDelivered")
    return [lab.sink(name).get(key) for key in keys]


def suspend(lab: OperatorLab, name: str) -> None:
    lab.patch(name, {"suspend": True})
    lab.until(lambda: lab.child(name) is None, f"{name}: its driver is stopped", NO_LONGER)


def test_a_driver_whose_answer_is_none_is_told_and_obeys(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    before = remembered(lab, name)
    for place, value in (("state", "Draining"), ("frontier", [{"topic": "numbers", "next": [-1]}]), ("lag", None)):
        lab.driver(name).change(lie=(("sinks", 0, place), value))
        lab.until_status(
            name,
            lambda seen, place=place: f"sinks.0.{place}" in json.dumps(seen["conditions"]),
            f"{place} is told to be wrong",
        )
        told = lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        assert "is no status document" in told["message"]
        assert remembered(lab, name) == before
    suspend(lab, name)
    lab.until_phase(name, "Suspended")
    assert remembered(lab, name) == before
    assert "InternalError" not in lab.answer("/metrics")[1]


def test_a_status_that_is_refused_is_written_without_the_drivers_words(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    before = remembered(lab, name)
    rule = "!has(object.status) || !object.status.sinks.exists(s, s.rowsDelivered == 4242)"
    with policy(lab, name, "sinkpipelines/status", rule):
        lab.driver(name).change(sinks={"copy": SinkScript(rows=4242, next=(4242,))})
        told = lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        assert "the API server refuses what the driver says: " in told["message"]
        assert remembered(lab, name) == before
        suspend(lab, name)
        lab.until_phase(name, "Suspended")


def test_where_no_status_is_taken_the_step_waits_and_an_event_says_so(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    with policy(lab, name, "sinkpipelines/status", "false"):
        lab.patch(name, {"suspend": True})
        lab.until(lambda: "AdmissionRefused: the API server refuses: " in lab.told(name), "an event tells it")
        assert lab.child(name) is not None
    lab.until_phase(name, "Suspended")


def test_a_token_that_can_not_be_written_silences_nothing(lab: OperatorLab, name: str) -> None:
    """As in a namespace that goes, which takes no new objects."""
    running(lab, name)
    with policy(lab, f"{name}-driver-token", "secrets", "false"):
        lab.delete("secret", f"{name}-driver-token")
        lab.until_condition(name, "SparkApplicationReady", "Unknown", "DriverUnresponsive")
        lab.until(lambda: "AdmissionRefused: the API server refuses: " in lab.told(name), "an event tells it")
        suspend(lab, name)
        lab.until_phase(name, "Suspended")

        # Without a token nothing starts, and the status says why.
        lab.patch(name, {"suspend": False})
        told = lab.until_condition(name, "Stalled", "True", "AdmissionRefused")
        assert f"{name}-driver-token" in told["message"]
    lab.until_ready(name)


def test_a_driver_that_may_not_be_stopped_is_told(lab: OperatorLab, name: str) -> None:
    running(lab, name)
    with policy(lab, name, "sparkapplications", "false", operations=("DELETE",)):
        lab.patch(name, {"suspend": True})
        lab.until_condition(name, "Stalled", "True", "AdmissionRefused")
        assert lab.condition(name, "SparkApplicationReady")["reason"] == "AdmissionRefused"
        lab.until(lambda: "AdmissionRefused: " in lab.told(name), "an event tells it")
    lab.until_phase(name, "Suspended")


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
    lab.until(lambda: lab.is_refused(name), "the policy counts")
    try:
        yield
    finally:
        for kind in reversed(kinds):
            lab.cluster.kubectl("delete", kind, name)
