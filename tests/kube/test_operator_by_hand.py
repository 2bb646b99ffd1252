"""What people do to the operator's objects, and to what they depend on: the end state is always the resource's."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from sinkpipeline.core.status import condition_of
from support.kube.operator_lab import OperatorLab
from support.kube.scripts import End, Script, SinkScript

pytestmark = pytest.mark.kube

Object = dict[str, Any]


@pytest.fixture
def running(lab: OperatorLab, name: str) -> str:
    """A pipeline that is Ready and has delivered five rows."""
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=5, next=(6,))}))
    lab.apply(lab.pipeline(name))
    lab.until_ready(name)
    return name


def uid_of(lab: OperatorLab, name: str) -> str:
    child = lab.child(name)
    return "" if child is None else str(child["metadata"]["uid"])


def token_of(lab: OperatorLab, name: str) -> str:
    secret = lab.find("secret", name)
    return "" if secret is None else str(secret.get("data", {}).get("token", ""))


# --- the child and its pod ---


def test_a_child_that_is_deleted_is_made_again(lab: OperatorLab, running: str) -> None:
    before = lab.driver(running)
    lab.delete("sparkapplication", running)
    after = lab.until_started(running, 2)
    lab.until_ready(running)
    assert after.config_hash == before.config_hash
    assert lab.status(running)["restarts"].get("consecutive", 0) == 0


@pytest.mark.thorough("waits for a slow driver")
def test_a_child_that_is_deleted_while_its_driver_is_slow_to_stop(lab: OperatorLab, running: str) -> None:
    driver = lab.driver(running)
    driver.change(ignores_sigterm=True)
    lab.delete("sparkapplication", running, "--wait=false")
    lab.until(lambda: "deletionTimestamp" in (lab.pod(running) or {}).get("metadata", {}), "its pod is asked to end")
    lab.stays(lambda: lab.starts(running) == 1, "nothing is started while the old driver runs", 2)
    driver.change(ignores_sigterm=False)
    lab.until_started(running, 2)
    lab.until_ready(running)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"arguments": ["--config", "/etc/passwd"]}, id="arguments"),
        pytest.param({"executor": {"instances": 7}}, id="executors"),
        pytest.param({"sparkConf": {"spark.task.maxFailures": "1"}}, id="an option that was not there"),
        pytest.param({"suspend": True}, id="suspended"),
        pytest.param({"restartPolicy": {"type": "Always"}}, id="restart policy"),
    ],
)
@pytest.mark.thorough("each field that a person may edit", after=1)
def test_a_child_that_is_edited_is_put_right(lab: OperatorLab, running: str, spec: Object) -> None:
    child = lab.child(running)
    assert child is not None
    lab.patch(running, spec, kind="sparkapplication")
    lab.until(
        lambda: (lab.child(running) or {}).get("spec") == child["spec"], "the child's spec is the operator's again"
    )
    lab.until(
        lambda: lab.driver(running).application["spec"] == child["spec"] and lab.pod(running) is not None,
        "the driver runs what the operator wants",
    )
    lab.until_ready(running)


@pytest.mark.thorough("another edit of the child")
def test_a_child_whose_hash_is_edited_is_replaced(lab: OperatorLab, running: str) -> None:
    before = uid_of(lab, running)
    lab.kubectl("label", "--overwrite", "sparkapplication", running, "sinkpipeline.io/config-hash=0000000000")
    lab.until(lambda: uid_of(lab, running) not in {"", before}, "it is replaced")
    lab.until_ready(running)


@pytest.mark.thorough("waits that nothing happens; tests/unit/test_operator_decide decides the same")
def test_a_foreign_application_of_its_name_is_neither_taken_over_nor_deleted(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script())
    spec: Object = {
        "type": "Scala",
        "mode": "cluster",
        "sparkVersion": "4.1.1",
        "suspend": True,
        "mainApplicationFile": "local:///x.jar",
        "image": "registry.invalid/other:1",
        "driver": {},
        "executor": {},
    }
    meta = {"name": name}
    kind = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    lab.kubectl("create", "-f", "-", stdin=json.dumps({**kind, "metadata": meta, "spec": spec}))
    before = lab.until(lambda: uid_of(lab, name), "it is there")
    lab.apply(lab.pipeline(name))
    lab.until_condition(name, "Ready", "False")
    lab.until_condition(name, "SparkApplicationReady", "False")
    lab.stays(lambda: uid_of(lab, name) == before, "it stays", 2)
    assert "ownerReferences" not in (lab.child(name) or {})["metadata"]
    lab.delete("sparkapplication", name)
    lab.until_ready(name)


def first_reason_since(lab: OperatorLab, name: str, number: int) -> str:
    """Why it was first not Ready, in all changes since that many."""
    told = [condition_of(each.new.get("status", {}), "Ready") for each in lab.history("sinkpipeline", name)[number:]]
    return next((str(each["reason"]) for each in told if each and each["status"] != "True"), "")


def test_a_driver_pod_that_is_deleted_is_started_again_at_once(lab: OperatorLab, running: str) -> None:
    number = len(lab.history("sinkpipeline", running))
    lab.delete("pod", f"{running}-driver", "--wait=false")
    lab.until_started(running, 2)
    lab.until_ready(running)
    told = lab.status(running)["restarts"]
    assert (told["total"], told["lastExitCode"], told["lastReason"]) == (1, 0, "Stopped")
    assert first_reason_since(lab, running, number) in ("DriverPodTerminating", "Stopped")


@pytest.mark.thorough("another object that a person takes away")
def test_a_driver_pod_that_is_deleted_by_force_is_lost(lab: OperatorLab, running: str) -> None:
    number = len(lab.history("sinkpipeline", running))
    lab.delete("pod", f"{running}-driver", "--force", "--grace-period=0")
    lab.until_started(running, 2)
    lab.until_ready(running)
    told = lab.status(running)["restarts"]
    assert (told["total"], told["lastReason"]) == (1, "DriverPodLost")
    assert "lastExitCode" not in told
    assert first_reason_since(lab, running, number) == "DriverPodLost"


# --- what it mounts ---


def config_name(lab: OperatorLab, name: str) -> str:
    return f"{name}-{lab.status(name)['sparkApplication']['configHash']}"


@pytest.mark.thorough("test_a_child_that_is_deleted_is_made_again takes the same path")
def test_a_configuration_that_is_deleted_is_there_again(lab: OperatorLab, running: str) -> None:
    name = config_name(lab, running)
    before = lab.find("configmap", name)
    assert before is not None
    lab.delete("configmap", name)
    after = lab.until(lambda: lab.find("configmap", name), "it is there again")
    assert after is not None
    assert (after["data"], after["immutable"]) == (before["data"], True)
    assert lab.starts(running) == 1
    lab.drivers.kill((lab.namespace, running))
    lab.until_started(running, 2)
    lab.until_ready(running)


def test_what_is_remembered_is_written_again_for_the_next_driver(lab: OperatorLab, running: str) -> None:
    lab.delete("configmap", f"{running}-resume")
    lab.drivers.kill((lab.namespace, running))
    driver = lab.until_started(running, 2)
    assert driver.resume is not None
    assert driver.resume["sinks"][0]["frontier"][0]["next"] == [6]
    lab.until_ready(running)


@pytest.mark.thorough("a deleted one is beside it")
def test_a_resume_document_that_is_edited_is_written_again_for_the_next_driver(lab: OperatorLab, running: str) -> None:
    lab.kubectl("patch", "configmap", f"{running}-resume", "--type=merge", "-p", '{"data": {"resume.json": "{}"}}')
    lab.drivers.kill((lab.namespace, running))
    driver = lab.until_started(running, 2)
    assert driver.resume is not None
    assert driver.resume["sinks"][0]["frontier"][0]["next"] == [6]
    lab.until_ready(running)


@pytest.mark.parametrize("how", ["deleted", "edited"])
@pytest.mark.thorough("another object that a person takes away")
def test_a_token_that_is_taken_away_comes_back(lab: OperatorLab, running: str, how: str) -> None:
    name = f"{running}-driver-token"
    before = token_of(lab, name)
    assert before
    if how == "deleted":
        lab.delete("secret", name)
    else:
        lab.kubectl("patch", "secret", name, "--type=merge", "-p", '{"stringData": {"token": ""}}')
    lab.until(lambda: token_of(lab, name) == before, "the driver's token is there again")
    lab.until_ready(running)
    assert lab.starts(running) == 1, "its driver went on"


# --- Secrets ---


def secret(lab: OperatorLab, name: str, **values: str) -> str:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    lab.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(document))
    return name


def with_password(lab: OperatorLab, name: str, reference: str) -> Object:
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "u", "passwordSecretRef": {"name": reference, "key": "password"}}
    manifest = lab.pipeline(name)
    manifest["spec"]["source"]["kafka"]["auth"] = {"sasl": sasl}
    return manifest


@pytest.mark.thorough("waits for several starts")
def test_a_missing_secret_is_waited_for_and_a_changed_one_rolls_the_driver(lab: OperatorLab, name: str) -> None:
    user = f"{name}-user"
    lab.apply(with_password(lab, name, user))
    told = lab.until_condition(name, "Ready", "False", "SecretNotFound")
    assert user in told["message"]
    assert lab.child(name) is None

    secret(lab, user, other="x")
    lab.stays(lambda: lab.child(name) is None, "the key that is referred to is missing", 6)
    secret(lab, user, password="one", other="x")
    first = lab.until_started(name, 1)
    lab.until_ready(name)
    secret(lab, user, password="one", other="y")
    lab.kubectl("label", "secret", user, "team=a")
    lab.stays(lambda: lab.starts(name) == 1, "what no reference names restarts nothing", 3)
    secret(lab, user, password="two", other="y")
    second = lab.until_started(name, 2)
    lab.until_ready(name)
    assert first.config_hash != second.config_hash
    assert first.config == second.config


@pytest.mark.thorough("another object that a person takes away")
def test_a_secret_that_is_deleted_leaves_the_driver_that_has_it(lab: OperatorLab, name: str) -> None:
    user = secret(lab, f"{name}-user", password="one")
    lab.apply(with_password(lab, name, user))
    lab.until_ready(name)
    lab.delete("secret", user)
    lab.until(lambda: "SecretNotFound" in json.dumps(lab.status(name)), "the status tells it")
    lab.stays(lambda: lab.starts(name) == 1 and lab.pod(name) is not None, "its driver stays", 2)
    secret(lab, user, password="one")
    lab.until_ready(name)
    assert lab.starts(name) == 1


def test_no_secret_is_told_anywhere(new_lab: Callable[..., OperatorLab], name: str) -> None:
    lab = new_lab("--log-level", "DEBUG")
    lab.start()
    password = f"s3cr3t-{uuid.uuid4().hex}"
    user = secret(lab, f"{name}-user", password=password)
    lab.apply(with_password(lab, name, user))
    lab.until_ready(name)
    lab.driver(name).change(end=End(code=1, raw="not JSON"))
    lab.until_started(name, 2)
    lab.until_ready(name)
    token = lab.find("secret", f"{name}-driver-token")
    assert token is not None
    texts = [
        lab.log,
        lab.answer("/metrics")[1],
        *(json.dumps(lab.all(kind)) for kind in ("sinkpipelines", "sparkapplications", "configmaps", "events", "pods")),
        json.dumps(lab.driver(name).config),
    ]
    assert all(texts)
    for hidden in (password, base64.b64encode(password.encode()).decode(), *secret_texts(token)):
        assert [text for text in texts if hidden in text] == []


def secret_texts(found: Object) -> list[str]:
    encoded = list(found["data"].values())
    return [*encoded, *(base64.b64decode(each).decode() for each in encoded)]
