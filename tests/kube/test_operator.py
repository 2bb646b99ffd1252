"""A pipeline's life through the resource: what is made, what the status says, and what each change of the spec does."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

import crd
from servers.control_plane import Cluster, ControlPlaneError
from sinkpipeline.core.manifest import parse_manifest
from sinkpipeline_operator.act.actions import FINALIZER
from sinkpipeline_operator.child.builder import PIPELINE_LABEL
from support.kube.operator_lab import ACCOUNT, IMAGE, OperatorLab
from support.kube.scripts import Script, SinkScript
from support.resource.gitops import kstatus
from support.resource.manifests import SINK, changed, smallest
from support.waiting import wait_until

pytestmark = pytest.mark.kube

Object = dict[str, Any]
PAUSE = "sinkpipeline.io/pause-reconciliation"


def ready(lab: OperatorLab, name: str, **spec: Any) -> str:
    lab.apply(lab.pipeline(name, **spec))
    lab.until_ready(name)
    return name


def child_of(lab: OperatorLab, name: str) -> Object:
    child = lab.child(name)
    assert child is not None
    return child


def uid(found: Object) -> str:
    text: str = found["metadata"]["uid"]
    return text


def owners(found: Object) -> list[tuple[str, str, bool]]:
    """Kind and uid of each owner, and whether it is the controller."""
    references = found["metadata"].get("ownerReferences", [])
    return [(each["kind"], each["uid"], each.get("controller", False)) for each in references]


def test_an_applied_pipeline_becomes_ready(lab: OperatorLab, name: str) -> None:
    """Beside a pod whose label names no pipeline, as anybody may make one: its log is looked at in the end."""
    lab.kubectl("run", f"{name}-nobody", f"--labels={PIPELINE_LABEL}=", "--image=registry.invalid/none")
    lab.drivers.play(
        (lab.namespace, name), Script(sinks={"copy": SinkScript(rows=350, dead=9, next=(120, 239), lag=3)})
    )
    status = lab.until_status(
        ready(lab, name), lambda seen: seen["totals"].get("rowsDelivered") == 350, "the driver's counts are told"
    )
    assert status["phase"] == "Running"
    assert status["identity"] == f"{lab.namespace}.{name}"
    assert status["totals"] == {
        "sinksReady": "1/1",
        "rowsDelivered": 350,
        "deadLettered": 9,
        "dropped": 0,
        "lost": 0,
        "lag": 3,
    }
    (sink,) = status["sinks"]
    assert (sink["name"], sink["state"], sink["guarantee"]) == ("copy", "Running", "ExactlyOnce")
    assert sink["frontier"] == [{"topic": "numbers", "topicId": "source-1", "next": [120, 239]}]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {
        "Ready": "True",
        "SpecValid": "True",
        "TopicsReady": "True",
        "SparkApplicationReady": "True",
        "SinksHealthy": "True",
        "ExactlyOnce": "True",
        "Reconciling": "False",
        "Stalled": "False",
    }
    assert {each["observedGeneration"] for each in status["conditions"]} == {1}
    lab.kubectl("wait", "--for=condition=Ready", f"sinkpipeline/{name}", "--timeout=10s")

    table = lab.table(name)
    assert table.pop("AGE")
    assert table == {"NAME": name, "READY": "True", "PHASE": "Running", "SINKS": "1/1", "LAG": "3", "DLQ": "9"}
    wide = lab.table(name, wide=True)
    assert (wide["DELIVERED"], wide["RESTARTS"], wide["SPARK"]) == ("350", "0", "RUNNING")


def test_the_child_is_owned_labelled_and_explicit(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    child, status = child_of(lab, name), lab.status(name)
    assert child["metadata"]["name"] == name
    assert owners(child) == [("SinkPipeline", uid(lab.resource(name)), True)]
    run = child["metadata"]["labels"]["sinkpipeline.io/config-hash"]
    assert status["sparkApplication"] == {"name": name, "state": "RUNNING", "configHash": run}
    assert child["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "sinkpipeline-operator"
    spec = child["spec"]
    assert (spec["type"], spec["mode"], spec["sparkVersion"]) == ("Python", "cluster", "4.1.1")
    assert (spec["image"], spec["imagePullPolicy"]) == (IMAGE, "IfNotPresent")
    assert spec["restartPolicy"] == {"type": "Never"}
    assert (spec["driver"]["cores"], spec["driver"]["memory"], spec["driver"]["serviceAccount"]) == (1, "1g", ACCOUNT)
    assert (spec["executor"]["instances"], spec["executor"]["cores"], spec["executor"]["memory"]) == (2, 1, "2g")

    pod = lab.pod(name)
    assert pod is not None
    assert pod["metadata"]["labels"]["sinkpipeline.io/config-hash"] == run
    assert pod["spec"]["serviceAccountName"] == ACCOUNT
    assert pod["spec"]["terminationGracePeriodSeconds"] >= 300
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    managers = {(each["manager"], each["operation"]) for each in child["metadata"]["managedFields"]}
    # Created, and never written again: a second operator's write would have it submitted twice.
    assert ("sinkpipeline-operator", "Update") in managers
    assert child["metadata"]["generation"] == 1


def test_what_the_driver_is_given_is_owned_and_immutable(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    owner, run = ("SinkPipeline", uid(lab.resource(name))), lab.status(name)["sparkApplication"]["configHash"]
    config = lab.find("configmap", f"{name}-{run}")
    assert config is not None
    assert config["immutable"] is True
    assert parse_manifest(json.loads(config["data"]["pipeline.json"])).identity == f"{lab.namespace}.{name}"
    resume = lab.find("configmap", f"{name}-resume")
    assert resume is not None
    assert json.loads(resume["data"]["resume.json"])["identity"] == f"{lab.namespace}.{name}"
    token = lab.find("secret", f"{name}-driver-token")
    assert token is not None
    for made in (config, resume, token):
        assert [each[:2] for each in owners(made)] == [owner]
    assert lab.driver(name).config_hash == run
    assert lab.driver(name).options["--owner-cluster"] == lab.cluster.get("namespace", "kube-system")["metadata"]["uid"]


def test_another_spec_gets_another_driver_once_the_old_one_is_gone(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    old = lab.driver(name)
    old.change(ignores_sigterm=True)
    lab.patch(name, {"trigger": {"interval": "2s"}})
    lab.until(
        lambda: "deletionTimestamp" in (lab.pod(name) or {}).get("metadata", {}), "the old driver is asked to end"
    )
    reconciling = lab.until_condition(name, "Reconciling", "True")
    assert reconciling["reason"]
    lab.stays(lambda: lab.starts(name) == 1, "nothing is started while the old driver runs", 2)
    old.change(ignores_sigterm=False)
    new = lab.until_started(name, 2)
    status = lab.until_ready(name)
    assert new.config_hash != old.config_hash
    assert new.config["spec"]["trigger"]["interval"] == "2s"
    assert status["sparkApplication"]["configHash"] == new.config_hash

    gone = [each.version for each in lab.history("pod", f"{name}-driver") if each.event == "DELETED"]
    children = {each.event: each.version for each in lab.history("sparkapplication", name) if each.event != "MODIFIED"}
    assert len(gone) == 1
    assert max(gone[0], children["DELETED"]) < children["ADDED"]
    assert status["restarts"].get("consecutive", 0) == 0


@pytest.mark.thorough("a rare edit; the usual ones are in make test")
def test_what_is_the_operators_alone_changes_no_driver(lab: OperatorLab, name: str) -> None:
    # As a definition stored it that had defaults in lists; and as it was applied then, and is applied again.
    applied = lab.pipeline(name)
    [plain] = applied["spec"]["sinks"]
    defaults = {"deliveryGuarantee": "ExactlyOnce", "onExistingData": "Append"}
    kafka = {**plain["kafka"], "partitioner": "murmur2", "progressTopic": {"name": "_sinkpipeline-progress"}}
    lab.apply({**applied, "spec": {**applied["spec"], "sinks": [{**plain, **defaults, "kafka": kafka}]}})
    lab.until_ready(name)
    before = uid(child_of(lab, name))
    lab.apply(applied)
    assert lab.resource(name)["spec"]["sinks"] == applied["spec"]["sinks"]
    assert lab.resource(name)["metadata"]["generation"] == 2
    lab.until_status(name, lambda _: True, "the new generation is observed")
    lab.stays(lambda: uid(child_of(lab, name)) == before, "defaults that go from the spec restart nothing", 1)
    lab.kubectl("label", "sinkpipeline", name, "team=a")
    lab.patch(name, {"restartNonce": 7})
    lab.until_status(name, lambda _: True, "the new generation is observed")
    lab.stays(lambda: uid(child_of(lab, name)) == before, "setting a nonce restarts nothing", 2)
    lab.patch(name, {"restartNonce": 8})
    lab.until_started(name, 2)
    lab.until_ready(name)
    second = uid(child_of(lab, name))
    assert second != before
    assert lab.driver(name).config_hash == lab.drivers.starts((lab.namespace, name))[0].config_hash
    lab.patch(name, {"restartNonce": None})
    lab.until_status(name, lambda _: True, "the new generation is observed")
    lab.stays(lambda: uid(child_of(lab, name)) == second, "removing a nonce restarts nothing", 2)
    lab.until_ready(name)


def test_suspended_it_has_no_driver_and_resumed_it_goes_on_where_it_was(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(rows=41, next=(42,))}))
    ready(lab, name)
    lab.until_status(name, lambda seen: seen["totals"]["rowsDelivered"] == 41, "the rows are told")
    lab.patch(name, {"suspend": True})
    lab.until_phase(name, "Suspended")
    lab.until(lambda: lab.child(name) is None and lab.pod(name) is None, "child and driver are gone")
    lab.until_condition(name, "Reconciling", "False")
    status = lab.status(name)
    assert lab.condition(name, "Ready") == {}, "it is neither ready nor on its way there"
    assert kstatus(lab.resource(name)) == "Current"
    assert lab.condition(name, "Stalled")["status"] == "False"
    (sink,) = status["sinks"]
    assert (sink["state"], sink["rowsDelivered"], sink["frontier"][0]["next"]) == ("Suspended", 41, [42])
    lab.stays(lambda: lab.starts(name) == 1, "nothing is started", 1)

    lab.patch(name, {"suspend": False})
    driver = lab.until_started(name, 2)
    assert driver.resume is not None
    assert driver.resume["sinks"][0]["frontier"] == sink["frontier"]
    lab.until_ready(name)


def test_a_pipeline_that_begins_suspended_starts_nothing(lab: OperatorLab, name: str) -> None:
    lab.apply(lab.pipeline(name, suspend=True))
    lab.until_phase(name, "Suspended")
    assert lab.child(name) is None
    assert lab.table(name)["PHASE"] == "Suspended"
    lab.patch(name, {"suspend": False})
    lab.until_ready(name)


def test_while_reconciling_is_paused_nothing_changes(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    before = uid(child_of(lab, name))
    lab.annotate(name, f"{PAUSE}=true")
    lab.until_condition(name, "Reconciling", "False", "ReconciliationPaused")
    lab.patch(name, {"trigger": {"interval": "3s"}})
    lab.until_status(name, lambda _: True, "the new generation is observed")
    lab.stays(lambda: uid(child_of(lab, name)) == before, "its driver stays", 2)
    lab.drivers.kill((lab.namespace, name))
    lab.stays(lambda: lab.starts(name) == 1, "a driver that died is not started again", 3)
    lab.annotate(name, f"{PAUSE}-")
    assert lab.until_started(name, 2).config["spec"]["trigger"]["interval"] == "3s"
    lab.until_ready(name)


def test_sinks_are_added_and_removed(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    both = lab.pipeline(name, sinks=("copy", "more"))["spec"]["sinks"]
    lab.patch(name, {"sinks": both})
    lab.until_started(name, 2)
    lab.until_status(name, lambda seen: seen["totals"]["sinksReady"] == "2/2", "both sinks run")
    lab.patch(name, {"sinks": both[1:]})
    lab.until_started(name, 3)
    lab.until_status(name, lambda seen: seen["totals"]["sinksReady"] == "1/1", "one sink runs")
    lab.until_ready(name)
    lab.patch(name, {"sinks": both})
    lab.until_started(name, 4)
    assert lab.until_ready(name)["totals"]["sinksReady"] == "2/2"
    # Those of configurations that nobody runs any more are not kept for ever.
    lab.until(lambda: len(configurations(lab, name)) <= 2, "old configurations are gone")


def configurations(lab: OperatorLab, name: str) -> list[str]:
    found = [each["metadata"]["name"] for each in lab.all("configmaps")]
    return [each for each in found if each.startswith(f"{name}-") and each != f"{name}-resume"]


def test_a_retained_resource_goes_at_once_with_all_that_it_owns(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    lab.patch(name, {"trigger": {"interval": "2s"}})
    lab.until_started(name, 2)
    lab.until_ready(name)
    lab.delete("sinkpipeline", name)
    for kind in ("sparkapplication", "configmap", "secret", "pod"):
        lab.until(lambda kind=kind: not named(lab, kind, name), f"no {kind} of it is left")  # type: ignore[misc]
    for change in lab.history("sinkpipeline", name):
        meta = change.new["metadata"]
        assert meta.get("finalizers", []) == []
        assert [each for each in meta.get("annotations", {}) if "kopf" in each or "sinkpipeline" in each] == []
    lab.stays(lambda: lab.starts(name) == 2, "nothing is started any more", 1)


def named(lab: OperatorLab, kind: str, name: str) -> list[str]:
    found = [each["metadata"]["name"] for each in lab.all(kind)]
    return [each for each in found if each == name or each.startswith(f"{name}-")]


def test_a_deletion_that_takes_topics_along_is_held_without_kafka_until_it_may_leave_them(
    lab: OperatorLab, name: str
) -> None:
    ready(lab, name, deletionPolicy="Delete")
    lab.until(lambda: lab.resource(name)["metadata"].get("finalizers") == [FINALIZER], "it has the finalizer")
    lab.delete("sinkpipeline", name, "--wait=false")
    lab.until(lambda: "no access to Kafka" in lab.condition(name, "Ready").get("message", ""), "it says why it stays")
    assert lab.condition(name, "Ready")["reason"] == "Deleting"
    assert lab.status(name)["phase"] == "Deleting"
    lab.until(lambda: lab.pod(name) is None, "its driver is gone")
    lab.patch(name, {"deletionPolicy": "Retain"})
    lab.until(lambda: lab.find("sinkpipeline", name) is None, "it is gone")


@pytest.mark.thorough("a rare edit; the usual ones are in make test")
def test_a_stored_spec_that_is_refused_today_can_be_deleted_as_the_status_says(
    lab: OperatorLab, name: str, loosened: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    manifest = lab.pipeline(name, deletionPolicy="Delete", suspend=True)
    manifest["spec"]["source"]["kafka"]["topics"] = [manifest["spec"]["sinks"][0]["kafka"]["topic"]["name"]]
    with loosened():
        lab.apply(manifest)
    lab.until_condition(name, "SpecValid", "False", "ManifestInvalid")
    lab.until(lambda: lab.resource(name)["metadata"].get("finalizers") == [FINALIZER], "it has the finalizer")
    with pytest.raises(ControlPlaneError, match="this would never end"):
        lab.patch(name, {"deletionPolicy": "Retain"})
    lab.delete("sinkpipeline", name, "--wait=false")
    lab.until(lambda: "no topic can be removed" in lab.condition(name, "Ready").get("message", ""), "it says why")
    [command] = re.findall(r"`(kubectl .*?)`", lab.condition(name, "Ready")["message"])
    lab.type(command)
    lab.until(lambda: lab.find("sinkpipeline", name) is None, "it is gone")


@pytest.fixture
def loosened(api_server: Cluster) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """The API server without the rules of the definition, as an older one may have been."""

    def waits_for(rules: bool) -> None:
        document = changed(
            smallest(), ((*SINK, "kafka", "topic", "name"), smallest()["spec"]["source"]["kafka"]["topics"][0])
        )

        def takes() -> bool:
            try:
                api_server.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
            except ControlPlaneError:
                return False
            return True

        wait_until(lambda: takes() is not rules, "the definition is served")

    @contextlib.contextmanager
    def without() -> Iterator[None]:
        definition = yaml.safe_load(crd.PATH.read_text())
        [version] = definition["spec"]["versions"]
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"]
        api_server.kubectl("replace", "-f", "-", stdin=json.dumps(definition))
        try:
            waits_for(rules=False)
            yield
        finally:
            api_server.kubectl("replace", "-f", str(crd.PATH))
            waits_for(rules=True)

    return without


def test_deleted_while_it_starts(lab: OperatorLab, name: str) -> None:
    lab.drivers.play((lab.namespace, name), Script(sinks={"copy": SinkScript(state="Starting")}))
    lab.apply(lab.pipeline(name))
    lab.until(lambda: lab.child(name) is not None, "the child is made")
    lab.delete("sinkpipeline", name)
    lab.until(lambda: not named(lab, "sparkapplication", name) and not named(lab, "pod", name), "nothing is left")
    lab.stays(lambda: lab.child(name) is None, "nothing comes back", 2)


@pytest.mark.thorough("a rare edit; the usual ones are in make test")
def test_deleted_and_applied_again_it_is_another_resource(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    first = uid(lab.resource(name))
    lab.delete("sinkpipeline", name)
    lab.apply(lab.pipeline(name))
    lab.until(lambda: lab.child(name) is not None and owners(child_of(lab, name))[0][1] != first, "it has a new child")
    lab.until_ready(name)
    assert lab.status(name)["restarts"].get("total", 0) == 0


def test_what_the_api_server_cannot_refuse_is_told_with_its_path(lab: OperatorLab, name: str) -> None:
    lab.apply(lab.pipeline(name, spark={"template": {"containers": []}}))
    told = lab.until_condition(name, "SpecValid", "False", "ManifestInvalid")
    assert "spec.spark.template.containers" in told["message"]
    assert lab.condition(name, "Ready")["status"] == "False"
    assert lab.condition(name, "Stalled")["status"] == "True"
    assert lab.status(name)["phase"] == "Failed"
    assert lab.child(name) is None
    lab.until(lambda: "ManifestInvalid" in lab.told(name), "an event tells it")
    lab.patch(name, {"spark": {"template": None}})
    lab.until_ready(name)


def test_an_invalid_edit_leaves_the_driver_of_the_last_valid_spec(lab: OperatorLab, name: str) -> None:
    ready(lab, name)
    before = uid(child_of(lab, name))
    lab.patch(name, {"spark": {"template": {"containers": []}}})
    lab.until_condition(name, "SpecValid", "False", "ManifestInvalid")
    assert lab.status(name)["phase"] == "Degraded"
    assert lab.condition(name, "SparkApplicationReady")["status"] == "True"
    lab.stays(lambda: uid(child_of(lab, name)) == before, "its driver stays", 2)
    lab.drivers.kill((lab.namespace, name))
    lab.until_started(name, 2)
    assert lab.condition(name, "SpecValid")["status"] == "False"
    lab.patch(name, {"spark": {"template": None}})
    lab.until_ready(name)


def test_the_operator_stops_at_sigterm_and_leaves_the_driver(new_lab: Callable[..., OperatorLab], name: str) -> None:
    lab = new_lab()
    lab.start()
    ready(lab, name)
    assert lab.stop() == 0
    before = lab.pod(name)
    lab.start()
    lab.until_ready(name)
    assert lab.pod(name) == before
    assert lab.starts(name) == 1


@pytest.fixture
def deep_objects() -> Iterator[None]:
    """A lab reads what its operator does."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.thorough("a rare edit; the usual ones are in make test")
@pytest.mark.usefixtures("deep_objects")
def test_a_template_that_is_nested_deeply_stops_nobody(lab: OperatorLab, name: str) -> None:
    """Python's JSON reads a thousand levels, and the API server ten thousand, of what anybody may write there."""
    levels = 4500
    deep = lab.pipeline(f"{name}-deep", spark={"template": {"spec": {"deep": "HERE"}}})
    text = json.dumps(deep).replace('"HERE"', '{"a":' * levels + "1" + "}" * levels)
    lab.kubectl("apply", "-f", "-", stdin=text)
    ready(lab, name)
    lab.kubectl("delete", "sinkpipeline", f"{name}-deep")
    lab.until(lambda: lab.history("sinkpipeline", f"{name}-deep")[-1].event == "DELETED", "it goes")
