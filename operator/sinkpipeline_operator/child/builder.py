"""What every kind of child needs: how a driver is started, and what its pods mount. Pure.

Another Spark operator is another module beside `kubeflow`, with the same two functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sinkpipeline.core.log_lines import FORMAT, PIPELINE
from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline_operator.child.driverpod import Child
from sinkpipeline_operator.child.runconfig import RunConfig, Runtime, config_map_keys, secret_keys
from sinkpipeline_operator.kube.client import Kind

MANAGED_BY = "sinkpipeline-operator"
PIPELINE_LABEL = "sinkpipeline.io/pipeline"
HASH_LABEL = "sinkpipeline.io/config-hash"
NONCE_ANNOTATION = "sinkpipeline.io/restart-nonce"

DRIVER_PORT = 4041
"""Beside Spark's own user interface."""
TERMINATION_GRACE_S = 360
"""Longer than a driver takes to stop: 300 s for its running batches, 15 s for the lag, and Spark's own stop."""

_ETC = "/etc/sinkpipeline"
CONFIG_FILE = f"{_ETC}/config/pipeline.json"
"""Where a driver's pod has its manifest."""
SECRETS_DIRECTORY = f"{_ETC}/secrets"
"""Where it has the Secrets of it, each in a directory of its name."""
CONFIG_MAPS_DIRECTORY = f"{_ETC}/config-maps"
"""Where it has the ConfigMaps of it, likewise."""
_USER = 185
"""The user of Spark's own images, where the template of a pipeline names no other."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A child to be made."""

    pipeline: SinkPipeline
    run: RunConfig
    runtime: Runtime
    cluster: str
    """The uid of kube-system, which names the cluster in `meta.owner`."""


class ChildKind(Protocol):
    """One kind of child object."""

    api: Kind
    driver_container: str
    """The name of the driver's container in its pod."""

    def build(self, order: Order) -> dict[str, Any]:
        """The whole object, with nothing left to anybody's defaults."""

    def read(self, document: Mapping[str, Any]) -> Child:
        """What an object of this kind says."""


def resume_name(pipeline: str) -> str:
    return f"{pipeline}-resume"


def token_name(pipeline: str) -> str:
    return f"{pipeline}-driver-token"


def metadata(order: Order) -> dict[str, Any]:
    """Of the child: its name is the pipeline's, which owns it."""
    meta = order.pipeline.metadata
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": labels(order),
        "annotations": {}
        if order.pipeline.spec.restart_nonce is None
        else {NONCE_ANNOTATION: str(order.pipeline.spec.restart_nonce)},
        "ownerReferences": [owner_reference(order.pipeline)],
    }


def owned(pipeline: SinkPipeline, name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The metadata of what belongs to a pipeline beside its child, and goes with it."""
    return {
        "name": name,
        "namespace": pipeline.metadata.namespace,
        "labels": {
            "app.kubernetes.io/managed-by": MANAGED_BY,
            PIPELINE_LABEL: pipeline.metadata.name,
            **(labels or {}),
        },
        "ownerReferences": [owner_reference(pipeline)],
    }


def owner_reference(pipeline: SinkPipeline) -> dict[str, Any]:
    return {
        "apiVersion": pipeline.api_version,
        "kind": pipeline.kind,
        "name": pipeline.metadata.name,
        "uid": pipeline.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels(order: Order) -> dict[str, str]:
    name = order.pipeline.metadata.name
    return {
        "app.kubernetes.io/name": "sinkpipeline",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        PIPELINE_LABEL: name,
        HASH_LABEL: order.run.hash,
    }


def arguments(order: Order) -> list[str]:
    """What `main.py` is started with."""
    return [
        *("--config", CONFIG_FILE),
        *("--resume", f"{_ETC}/resume/resume.json"),
        *("--secrets-dir", SECRETS_DIRECTORY),
        *config_maps_argument(order),
        *("--listen", f"0.0.0.0:{DRIVER_PORT}"),
        *("--token-file", f"{_ETC}/token/token"),
        *("--termination-log", "/dev/termination-log"),
        *("--owner-cluster", order.cluster),
        *("--config-hash", order.run.hash),
        *(["--open-metrics"] if order.runtime.open_metrics else []),
    ]


def config_maps_argument(order: Order) -> list[str]:
    """Only where there is one: an older image knows neither it nor the fields that need it."""
    return ["--config-maps-dir", CONFIG_MAPS_DIRECTORY] if config_map_keys(order.pipeline) else []


def driver_template(order: Order, container: str) -> dict[str, Any]:
    """The driver's pod template: what the user gives, with ours over it."""
    name = order.pipeline.metadata.name
    volumes = [
        {"name": "config", "configMap": {"name": order.run.name(name)}},
        {"name": "resume", "configMap": {"name": resume_name(name), "optional": True}},
        {"name": "token", "secret": {"secretName": token_name(name)}},
        *_secret_volumes(order),
        *_config_map_volumes(order),
        *_scratch_volumes(),
    ]
    ours = _template(order, container, volumes)
    ours["spec"]["terminationGracePeriodSeconds"] = TERMINATION_GRACE_S
    ours["spec"]["containers"][0] |= {
        **_log_lines(order),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "ports": [{"name": "sinkpipeline", "containerPort": DRIVER_PORT, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": DRIVER_PORT},
            "initialDelaySeconds": 60,
            "periodSeconds": 20,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
    }
    return cast("dict[str, Any]", merged(_users(order), ours))


def executor_template(order: Order, container: str) -> dict[str, Any]:
    """The executors' pod template: they write to Kafka too, so they mount the Secrets of that."""
    ours = _template(order, container, [*_secret_volumes(order, of_tasks=True), *_scratch_volumes()])
    # They talk to the driver and to Kafka, and to nobody else.
    ours["spec"]["automountServiceAccountToken"] = False
    return cast("dict[str, Any]", merged(_users(order), ours))


def job_template(order: Order, container: str, config: str, *, like: str) -> dict[str, Any]:
    """The pod template of a Job beside the driver, with the ConfigMap that its container reads.

    Of the containers that the user gives only the driver's counts, by its environment and mounts: with one beside it a
    Job would never end. `like` is that one's name.
    """
    volumes = [
        {"name": "config", "configMap": {"name": config}},
        *_secret_volumes(order),
        *_config_map_volumes(order),
        *_scratch_volumes(),
    ]
    users = _users(order)
    spec = dict(users.get("spec") or {})
    given: dict[str, Any] = next((each for each in spec.pop("containers", None) or () if each.get("name") == like), {})
    kept = {key: given[key] for key in ("env", "envFrom", "volumeMounts") if key in given}
    users = {**users, "spec": {**spec, "containers": [{"name": container, **kept}]}}
    ours = _template(order, container, volumes)
    ours["spec"]["containers"][0] |= _log_lines(order)
    return cast("dict[str, Any]", merged(users, ours))


def _users(order: Order) -> dict[str, Any]:
    template = order.pipeline.spec.spark.template
    return {} if template is None else template.to_dict()


def _ids(order: Order) -> dict[str, int]:
    """The image runs as any user but root, and a cluster may demand one of its range (OpenShift)."""
    given: Any = _users(order)
    for step in ("spec", "securityContext"):
        given = given.get(step) if isinstance(given, Mapping) else None
    theirs = given if isinstance(given, Mapping) else {}
    return {name: _user(theirs.get(name)) for name in ("runAsUser", "runAsGroup", "fsGroup")}


def _user(given: object) -> int:
    return given if isinstance(given, int) and given > 0 else _USER


def _template(order: Order, container: str, volumes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels(order)},
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                **_ids(order),
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": container,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                    "volumeMounts": [_mount(volume) for volume in volumes],
                }
            ],
            "volumes": volumes,
        },
    }


def _log_lines(order: Order) -> dict[str, Any]:
    """The driver gives them to its executors. An older image takes no notice of them, and would refuse an argument."""
    if not order.runtime.log_json:
        return {}
    meta = order.pipeline.metadata
    return {"env": [{"name": FORMAT, "value": "json"}, {"name": PIPELINE, "value": f"{meta.namespace}/{meta.name}"}]}


def _secret_volumes(order: Order, *, of_tasks: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "name": f"secret-{number}",
            "secret": {"secretName": name, "items": [{"key": key, "path": key} for key in sorted(keys)]},
        }
        for number, (name, keys) in enumerate(secret_keys(order.pipeline, of_tasks=of_tasks).items())
    ]


def _config_map_volumes(order: Order) -> list[dict[str, Any]]:
    """Of the driver, which hands on what is in them. Where one is missing it says so, and the kubelet would not."""
    return [
        {
            "name": f"config-map-{number}",
            "configMap": {
                "name": name,
                "items": [{"key": key, "path": key} for key in sorted(keys)],
                "optional": True,
            },
        }
        for number, (name, keys) in enumerate(config_map_keys(order.pipeline).items())
    ]


def _scratch_volumes() -> list[dict[str, Any]]:
    return [{"name": "tmp", "emptyDir": {}}, {"name": "work", "emptyDir": {}}]


def _mount(volume: Mapping[str, Any]) -> dict[str, Any]:
    name = str(volume["name"])
    if name == "tmp":
        return {"name": name, "mountPath": "/tmp"}  # noqa: S108 - of the container
    if name == "work":
        return {"name": name, "mountPath": "/opt/spark/work-dir"}
    path = f"{_ETC}/{name}"
    if name.startswith("secret-"):
        path = f"{SECRETS_DIRECTORY}/{volume['secret']['secretName']}"
    if name.startswith("config-map-"):
        path = f"{CONFIG_MAPS_DIRECTORY}/{volume['configMap']['name']}"
    return {"name": name, "mountPath": path, "readOnly": True}


def merged(theirs: Any, ours: Any) -> Any:
    """Their template with ours over it: mappings key by key, lists of named things by name, anything else ours."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        return {
            **theirs,
            **{key: merged(theirs[key], value) if key in theirs else value for key, value in ours.items()},
        }
    if isinstance(theirs, list) and isinstance(ours, list) and _are_named(theirs) and _are_named(ours):
        named = {each["name"]: each for each in theirs}
        return list(
            (named | {each["name"]: merged(named.get(each["name"], {}), each) for each in ours}).values(),
        )
    return ours


def _are_named(items: list[Any]) -> bool:
    return all(isinstance(each, Mapping) and "name" in each for each in items)
