"""The Job that carries out what a `SinkPipelineAction` asks for, where the operator itself can't. Pure.

Its pod is like a driver's: the same image, account, Secrets and security, and what the pipeline's template says. It
talks to Kafka alone, so it gets no token of the API server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sinkpipeline.core.manifest import SinkPipeline
from sinkpipeline_operator.child import builder
from sinkpipeline_operator.child.builder import MANAGED_BY, PIPELINE_LABEL, Order
from sinkpipeline_operator.child.configs import FILE
from sinkpipeline_operator.kube.client import ACTION, CONFIG_MAP, JOB, Ref

CONTAINER = "action"
ACTION_LABEL = "sinkpipeline.io/action"
ORDER_FILE = "order.json"
_DIRECTORY = "/etc/sinkpipeline/config"
_TRIES = 3
_JVM_BESIDE_MIB = 512
"""What Python, and the JVM beside its heap, take."""
_SMALL = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}


def config_map(name: str, action: Ref, uid: str, order: Order, what: Mapping[str, Any]) -> dict[str, Any]:
    """What the Job's pod reads: the pipeline's manifest, and what is asked for."""
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": _metadata(name, action, uid, order.pipeline),
        "immutable": True,
        "data": {FILE: order.run.to_json(), ORDER_FILE: json.dumps(dict(what), indent=2, sort_keys=True)},
    }


def job(name: str, action: Ref, uid: str, order: Order, *, with_spark: bool, like: str) -> dict[str, Any]:
    """The Job.

    Args:
        name: its own, and that of its ConfigMap.
        action: what it is for.
        uid: of the action.
        order: the pipeline, as a driver of it would be made.
        with_spark: whether it starts a Spark of its own.
        like: the name of the driver's container.
    """
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": _metadata(name, action, uid, order.pipeline),
        "spec": {
            "backoffLimit": _TRIES,
            "podFailurePolicy": {
                # What a person or the world refuses is refused again.
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [2, 3, 4]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": _pod(name, action, order, with_spark=with_spark, like=like),
        },
    }


def _pod(name: str, action: Ref, order: Order, *, with_spark: bool, like: str) -> dict[str, Any]:
    template = builder.job_template(order, CONTAINER, name, like=like)
    [container] = template["spec"]["containers"]
    container |= {
        "image": order.runtime.image,
        "imagePullPolicy": order.runtime.image_pull_policy,
        "args": [
            *("python", "-m", "sinkpipeline.cli.pod.asked"),
            *("--config", f"{_DIRECTORY}/{FILE}"),
            *("--order", f"{_DIRECTORY}/{ORDER_FILE}"),
            *("--secrets-dir", "/etc/sinkpipeline/secrets"),
            *builder.config_maps_argument(order),
            *("--termination-log", "/dev/termination-log"),
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": _resources(order.pipeline) if with_spark else _SMALL,
    }
    template["spec"] |= {
        "restartPolicy": "Never",
        "serviceAccountName": order.runtime.service_account,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
    }
    template["metadata"]["labels"] = {**template["metadata"]["labels"], **_labels(action, order.pipeline)}
    return template


def _metadata(name: str, action: Ref, uid: str, pipeline: SinkPipeline) -> dict[str, Any]:
    owner = {
        "apiVersion": ACTION.api_version,
        "kind": ACTION.kind,
        "name": action.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": action.namespace,
        "labels": _labels(action, pipeline),
        "ownerReferences": [owner],
    }


def _labels(action: Ref, pipeline: SinkPipeline) -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": MANAGED_BY,
        PIPELINE_LABEL: pipeline.metadata.name,
        ACTION_LABEL: action.name,
    }


def _resources(pipeline: SinkPipeline) -> dict[str, Any]:
    driver = pipeline.spec.spark.driver
    number, unit = int(driver.memory[:-1]), driver.memory[-1]
    memory = f"{number * (1024 if unit == 'g' else 1) * 14 // 10 + _JVM_BESIDE_MIB}Mi"
    return {"requests": {"cpu": str(driver.cores), "memory": memory}, "limits": {"memory": memory}}
