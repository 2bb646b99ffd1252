"""The child object, and what is read from one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sinkpipeline.core.manifest import SinkPipeline, parse_manifest
from sinkpipeline_operator.child import askedjob
from sinkpipeline_operator.child.builder import Order, merged
from sinkpipeline_operator.child.driverpod import Child, ChildState
from sinkpipeline_operator.child.kubeflow import DRIVER_CONTAINER, KubeflowChild
from sinkpipeline_operator.child.runconfig import Runtime, run_config, secret_digest, secret_keys
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.settings import parse
from support.kube.pod_security import violations
from support.resource.manifests import KAFKA, SINK, changed, encoded, lookup, smallest, table, tokens
from support.resource.streams import stream

RUNTIME = Runtime(image="example.com/sinkpipeline:1", spark_version="4.0.4", service_account="driver")
SECRETS = {"kafka-user": "digest"}
SINKS: list[dict[str, Any]] = [{"name": "out", "kafka": {"topic": {"name": "o"}}}]


def pipeline(name: str = "orders", **spec: Any) -> SinkPipeline:
    password = {"mechanism": "PLAIN", "username": "u", "passwordSecretRef": {"name": "kafka-user", "key": "password"}}
    kafka = {"bootstrapServers": "k:9092,l:9092", "topics": ["raw"], "auth": {"sasl": password}}
    document = {
        "apiVersion": "sinkpipeline.io/v1alpha1",
        "kind": "SinkPipeline",
        "metadata": {"name": name, "namespace": "shop", "uid": "u-1", "labels": {"team": "a"}},
        "spec": {"source": {"kafka": kafka}, "sinks": [{"name": "out", "kafka": {"topic": {"name": "o"}}}], **spec},
    }
    return parse_manifest(document)


def config_hash(of: SinkPipeline, secrets: dict[str, str] | None = None, runtime: Runtime = RUNTIME) -> str:
    return run_config(of, runtime, SECRETS if secrets is None else secrets).hash


def child(of: SinkPipeline) -> dict[str, Any]:
    order = Order(pipeline=of, run=run_config(of, RUNTIME, SECRETS), runtime=RUNTIME, cluster="c-1")
    return KubeflowChild().build(order)


@pytest.mark.parametrize("spec", [{"suspend": True}, {"deletionPolicy": "Delete"}, {"restartNonce": 3}])
def test_what_is_the_operators_alone_needs_no_new_driver(spec: dict[str, Any]) -> None:
    assert config_hash(pipeline(**spec)) == config_hash(pipeline())


@pytest.mark.parametrize(
    "spec",
    [
        {"trigger": {"interval": "2s"}},
        {"spark": {"driver": {"memory": "2g"}}},
        {"failurePolicy": {"resetAfter": "1m"}},
        {"sinks": [{"name": "out", "kafka": {"topic": {"name": "o"}}, "transform": {"where": "true"}}]},
    ],
)
def test_what_the_driver_reads_needs_a_new_one(spec: dict[str, Any]) -> None:
    assert config_hash(pipeline(**spec)) != config_hash(pipeline())


def test_an_upgrade_of_the_definition_restarts_nothing() -> None:
    """One had defaults in lists, and stored them. By this hash its operator has made a driver."""
    kafka = {"topic": {"name": "o"}, "partitioner": "murmur2", "progressTopic": {"name": "_sinkpipeline-progress"}}
    stored = [{"name": "out", "kafka": kafka, "deliveryGuarantee": "ExactlyOnce", "onExistingData": "Append"}]
    assert config_hash(pipeline(sinks=stored)) == config_hash(pipeline()) == "de9f8d21c1"


def test_a_default_that_is_spelled_out_changes_nothing() -> None:
    assert config_hash(pipeline(trigger={"interval": "1s"}, identity="shop.orders")) == config_hash(pipeline())


def test_a_changed_secret_or_image_needs_a_new_driver() -> None:
    hashes = {
        config_hash(pipeline()),
        config_hash(pipeline(), {"kafka-user": "other"}),
        config_hash(pipeline(), runtime=replace(RUNTIME, image="example.com/sinkpipeline:2")),
    }
    assert len(hashes) == 3


def test_the_format_of_logs_waits_for_the_next_start() -> None:
    assert parse(["--image", "x", "--log-format", "json"]).runtime.log_json
    told = replace(RUNTIME, log_json=True)
    order = Order(pipeline=pipeline(), run=run_config(pipeline(), told, {}), runtime=told, cluster="c")
    assert order.run.hash == run_config(pipeline(), RUNTIME, {}).hash
    containers = [
        KubeflowChild().build(order)["spec"][role]["template"]["spec"]["containers"][0]
        for role in ("driver", "executor")
    ]
    meta = pipeline().metadata
    assert containers[0]["env"] == [
        {"name": "SINKPIPELINE_LOG_FORMAT", "value": "json"},
        {"name": "SINKPIPELINE_LOG_PIPELINE", "value": f"{meta.namespace}/{meta.name}"},
    ]
    assert "env" not in containers[1], "the driver tells them"
    assert "env" not in child(pipeline())["spec"]["driver"]["template"]["spec"]["containers"][0]


def test_open_metrics_wait_for_the_next_start() -> None:
    opened = replace(RUNTIME, open_metrics=True)
    assert config_hash(pipeline(), runtime=opened) == config_hash(pipeline())
    order = Order(pipeline=pipeline(), run=run_config(pipeline(), opened, SECRETS), runtime=opened, cluster="c-1")
    assert "--open-metrics" in KubeflowChild().build(order)["spec"]["arguments"]
    assert "--open-metrics" not in child(pipeline())["spec"]["arguments"]


def test_a_secret_is_known_by_a_digest_of_the_keys_that_are_used() -> None:
    assert secret_keys(pipeline()) == {"kafka-user": frozenset({"password"})}
    auth = {
        "tls": {"caSecretRef": {"name": "ca", "key": "ca.crt"}},
        "basic": {"username": "u", "passwordSecretRef": {"name": "kafka-user", "key": "registry"}},
    }
    avro = {"format": "avro", "schemaRegistry": {"url": "https://registry:8081", "auth": auth}}
    with_registry = {"ca": frozenset({"ca.crt"}), "kafka-user": frozenset({"password", "registry"})}
    assert secret_keys(pipeline(decode=avro)) == with_registry
    written = changed(smallest(), (SINK, encoded(url="https://r:1", auth={**auth, "tls": {}})))
    assert secret_keys(parse_manifest(written)) == {"kafka-user": frozenset({"registry"})}
    by_token = changed(smallest(), ((*KAFKA, "auth"), {"tls": {}, "sasl": tokens()}))
    assert secret_keys(parse_manifest(by_token)) == {"oauth": frozenset({"secret", "ca.crt"})}
    auth = {"username": "u", "passwordSecretRef": {"name": "pg", "key": "password"}, "tls": auth["tls"]}
    of_table = changed(smallest(), (SINK, table(auth=auth)))
    assert secret_keys(parse_manifest(of_table)) == {"ca": frozenset({"ca.crt"}), "pg": frozenset({"password"})}
    for name in ("password", "token", "nkey", "creds"):
        logs_in = {f"{name}SecretRef": {"name": "nats", "key": name}} | (
            {"username": "u"} if name == "password" else {}
        )
        of_stream = changed(smallest(), (SINK, stream(auth={**logs_in, "tls": auth["tls"]})))
        assert secret_keys(parse_manifest(of_stream)) == {"ca": frozenset({"ca.crt"}), "nats": frozenset({name})}
    digest = secret_digest({"password": "c2VjcmV0"})
    assert digest == secret_digest({"password": "c2VjcmV0"})
    assert len({digest, secret_digest({"password": ""}), secret_digest({})}) == 3
    assert "c2VjcmV0" not in digest


def test_config_maps_are_mounted_where_their_content_is_read() -> None:
    """Into the driver and the Job alone, which hand on what is in them. The kubelet reads them."""
    ref = {"name": "tables", "key": "a.csv"}
    own = {"lookups": [lookup(source={"configMapRef": {**ref, "key": "b.csv"}})]}
    of = pipeline(
        decode={"format": "avro", "schemaConfigMapRef": {"name": "schemas", "key": "o.avsc"}},
        transform={"lookups": [lookup(source={"configMapRef": ref})]},
        sinks=[{**SINKS[0], "transform": own}],
    )
    order = Order(pipeline=of, run=run_config(of, RUNTIME, SECRETS), runtime=RUNTIME, cluster="c-1")
    built = KubeflowChild().build(order)["spec"]
    job = askedjob.job("a", Ref("shop", "a"), "u", order, with_spark=True, like=DRIVER_CONTAINER)
    for pod in (built["driver"]["template"]["spec"], job["spec"]["template"]["spec"]):
        volumes = {each["name"]: each["configMap"] for each in pod["volumes"] if each["name"].startswith("config-map-")}
        items = [{"key": key, "path": key} for key in ("a.csv", "b.csv")]
        assert volumes == {
            "config-map-0": {"name": "schemas", "items": [{"key": "o.avsc", "path": "o.avsc"}], "optional": True},
            "config-map-1": {"name": "tables", "items": items, "optional": True},
        }
        mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
        assert mounts["config-map-1"] == {
            "name": "config-map-1",
            "mountPath": "/etc/sinkpipeline/config-maps/tables",
            "readOnly": True,
        }
    told = ["--config-maps-dir", "/etc/sinkpipeline/config-maps"]
    for arguments in (built["arguments"], job["spec"]["template"]["spec"]["containers"][0]["args"]):
        at = arguments.index("--config-maps-dir")
        assert arguments[at : at + 2] == told
    executor = built["executor"]["template"]["spec"]["volumes"]
    assert not [each for each in executor if "configMap" in each]
    assert "--config-maps-dir" not in child(pipeline())["spec"]["arguments"], "an older image would refuse it"


def test_names_fit_where_kubernetes_puts_them() -> None:
    longest = pipeline(name="a" * 52)
    assert len(run_config(longest, RUNTIME, SECRETS).name("a" * 52)) == 63


def test_the_child_is_explicit() -> None:
    """Kubeflow's defaults come only from its webhook."""
    document = child(pipeline(restartNonce=3))
    spec = document["spec"]
    assert document["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert document["metadata"]["annotations"] == {"sinkpipeline.io/restart-nonce": "3"}
    assert (spec["type"], spec["mode"], spec["restartPolicy"]) == ("Python", "cluster", {"type": "Never"})
    assert spec["driver"]["cores"], spec["driver"]["memory"]
    assert {"instances", "cores", "memory"} <= spec["executor"].keys()
    for role in ("driver", "executor"):
        pod = spec[role]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        security = pod["containers"][0]["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        mounts = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
        assert "/etc/sinkpipeline/secrets/kafka-user" in mounts
        assert {each["name"] for each in pod["containers"][0]["volumeMounts"]} == {
            each["name"] for each in pod["volumes"]
        }
    assert spec["driver"]["labels"]["sinkpipeline.io/config-hash"] == config_hash(pipeline())


def test_a_template_is_kept_and_ours_stands_over_it() -> None:
    mine = {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": DRIVER_CONTAINER, "env": [{"name": "TZ", "value": "UTC"}]}, {"name": "sidecar"}],
            "volumes": [{"name": "config", "emptyDir": {}}],
        },
    }
    template = child(pipeline(spark={"template": mine}))["spec"]["driver"]["template"]
    assert template["metadata"]["annotations"] == {"a": "b"}
    assert template["spec"]["nodeSelector"] == {"disk": "ssd"}
    containers = {each["name"]: each for each in template["spec"]["containers"]}
    assert containers[DRIVER_CONTAINER]["env"] == [{"name": "TZ", "value": "UTC"}]
    assert containers[DRIVER_CONTAINER]["securityContext"]["readOnlyRootFilesystem"]
    assert "sidecar" in containers
    config = next(each for each in template["spec"]["volumes"] if each["name"] == "config")
    assert "configMap" in config


@pytest.mark.parametrize(
    ("given", "user", "group"),
    [
        ({"runAsUser": 1000650000, "fsGroup": 1000650000}, 1000650000, 1000650000),
        ({"runAsUser": 0, "fsGroup": 0}, 185, 185),
        ({"runAsUser": "root", "fsGroup": -1}, 185, 185),
        (None, 185, 185),
    ],
)
def test_pods_run_as_the_user_of_the_template_but_never_as_root(given: Any, user: int, group: int) -> None:
    mine = {"spec": {"securityContext": given}}
    for role in ("driver", "executor"):
        context = child(pipeline(spark={"template": mine}))["spec"][role]["template"]["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (user, 185, group)
        assert context["runAsNonRoot"]


def test_merging_leaves_what_it_is_given_alone() -> None:
    theirs = {"a": {"b": 1}, "list": [1]}
    assert merged(theirs, {"a": {"c": 2}, "list": [2]}) == {"a": {"b": 1, "c": 2}, "list": [2]}
    assert theirs == {"a": {"b": 1}, "list": [1]}


def test_the_child_is_json_and_below_what_an_object_may_weigh() -> None:
    assert len(json.dumps(child(pipeline()))) < 20_000


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, ChildState.SUBMITTING),
        ("SUBMITTED", ChildState.SUBMITTING),
        ("RUNNING", ChildState.RUNNING),
        ("FAILING", ChildState.RUNNING),
        ("COMPLETED", ChildState.ENDED),
        ("FAILED", ChildState.ENDED),
        ("SUBMISSION_FAILED", ChildState.SUBMISSION_FAILED),
        ("SOMETHING_NEW", ChildState.UNKNOWN),
    ],
)
def test_what_a_child_says(state: str | None, expected: ChildState) -> None:
    document = child(pipeline(restartNonce=3))
    document["metadata"]["uid"] = "c-1"
    if state is not None:
        document["status"] = {
            "applicationState": {"state": state, "errorMessage": "why"},
            "driverInfo": {"podName": "orders-driver"},
            "executionAttempts": 1,
        }
    found = KubeflowChild().read(document)
    assert (found.uid, found.state, found.nonce, found.config_hash) == ("c-1", expected, 3, config_hash(pipeline()))


def says(state: str, message: str = "", attempts: int | None = 1) -> Child:
    document = child(pipeline())
    document["metadata"]["uid"] = "c-1"
    document["metadata"]["creationTimestamp"] = "2025-06-15T15:06:40Z"
    attempted = {} if attempts is None else {"executionAttempts": attempts}
    document["status"] = {"applicationState": {"state": state, "errorMessage": message}, **attempted}
    return KubeflowChild().read(document)


@pytest.mark.parametrize("state", ["SUBMISSION_FAILED", "FAILED"])
def test_a_submission_that_failed_is_one_under_either_state(state: str) -> None:
    assert says(state, "why", attempts=None).state is ChildState.SUBMISSION_FAILED


@pytest.mark.parametrize(
    ("state", "message", "code", "reason"),
    [
        ("COMPLETED", "", 0, ""),
        ("FAILED", "driver container failed with ExitCode: 137, Reason: OOMKilled", 137, "OOMKilled"),
        ("FAILED", "driver container failed with ExitCode: 3, Reason: Error", 3, "Error"),
        ("FAILED", "driver pod not found", None, ""),
        ("RUNNING", "", None, ""),
    ],
)
def test_what_kubeflow_saw_of_a_driver_outlives_its_pod(
    state: str, message: str, code: int | None, reason: str
) -> None:
    found = says(state, message)
    assert (found.exit_code, found.exit_reason) == (code, reason)


def test_when_a_child_was_made_and_whether_anybody_has_noticed_it() -> None:
    assert says("SUBMITTED").created_ms == 1_750_000_000_000
    assert says("SUBMITTED").is_noticed
    assert not says("", attempts=None).is_noticed


# --- the Job of an action ---


def job(of: SinkPipeline, *, with_spark: bool = False) -> dict[str, Any]:
    order = Order(pipeline=of, run=run_config(of, RUNTIME, SECRETS), runtime=RUNTIME, cluster="c-1")
    return askedjob.job("act-1", Ref("shop", "act"), "u-2", order, with_spark=with_spark, like=DRIVER_CONTAINER)


def test_a_job_has_what_the_driver_has() -> None:
    pod, driver = (
        job(pipeline())["spec"]["template"]["spec"],
        child(pipeline())["spec"]["driver"]["template"]["spec"],
    )
    secrets = [[each for each in one["volumes"] if "secret" in each] for one in (pod, driver)]
    assert secrets[0]
    assert secrets[0] == [each for each in secrets[1] if each["name"] != "token"]
    assert pod["securityContext"] == driver["securityContext"]
    assert violations(pod) == []
    [container] = pod["containers"]
    assert (container["image"], pod["serviceAccountName"]) == (RUNTIME.image, RUNTIME.service_account)
    assert pod["automountServiceAccountToken"] is False


def test_a_job_takes_of_the_users_template_what_lets_it_end() -> None:
    mine = {
        "metadata": {"labels": {"team": "b"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [
                {"name": DRIVER_CONTAINER, "env": [{"name": "A", "value": "b"}], "command": ["other"]},
                {"name": "sidecar", "image": "example.com/sidecar:1"},
            ],
        },
    }
    template = job(pipeline(spark={"template": mine}))["spec"]["template"]
    assert (template["metadata"]["labels"]["team"], template["spec"]["nodeSelector"]) == ("b", {"disk": "ssd"})
    [container] = template["spec"]["containers"]
    assert (container["env"], "command" in container) == ([{"name": "A", "value": "b"}], False)


def test_a_redrive_gets_memory_for_its_spark() -> None:
    of = pipeline(spark={"driver": {"memory": "2g", "cores": 2}})
    [small], [large] = (job(of, with_spark=each)["spec"]["template"]["spec"]["containers"] for each in (False, True))
    assert small["resources"]["limits"] == {"memory": "512Mi"}
    assert large["resources"] == {"requests": {"cpu": "2", "memory": "3379Mi"}, "limits": {"memory": "3379Mi"}}
