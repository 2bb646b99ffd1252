"""Kubeflow's `SparkApplication` (sparkoperator.k8s.io/v1beta2, 2.5), fully explicit. Pure.

Kubeflow's defaults come only from its mutating webhook, and most pod fields only from its pod webhook: so everything is
written out, and what belongs to pods stands in pod templates, which reach Kubernetes through spark-submit. Image and
service account are fields, as the webhook denies the options. A change of its spec would make Kubeflow kill and run it
again, without our budget: a child is never edited, but deleted and made anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sinkpipeline_operator.child import builder
from sinkpipeline_operator.child.builder import HASH_LABEL, NONCE_ANNOTATION, Order
from sinkpipeline_operator.child.driverpod import Child, ChildState
from sinkpipeline_operator.kube.client import Kind
from sinkpipeline_operator.kube.times import milliseconds

DRIVER_CONTAINER = "spark-kubernetes-driver"
EXECUTOR_CONTAINER = "spark-kubernetes-executor"
MAIN = "local:///opt/sinkpipeline/main.py"

_STATES = {
    "": ChildState.SUBMITTING,
    "SUBMITTED": ChildState.SUBMITTING,
    "PENDING_RERUN": ChildState.SUBMITTING,
    "INVALIDATING": ChildState.SUBMITTING,
    "RESUMING": ChildState.SUBMITTING,
    # By somebody else: ours asks for no suspension, and waits no longer than for any start.
    "SUSPENDING": ChildState.SUBMITTING,
    "SUSPENDED": ChildState.SUBMITTING,
    "RUNNING": ChildState.RUNNING,
    # On their way: what the driver's pod says is told by the pod.
    "SUCCEEDING": ChildState.RUNNING,
    "FAILING": ChildState.RUNNING,
    "COMPLETED": ChildState.ENDED,
    "FAILED": ChildState.ENDED,
    "SUBMISSION_FAILED": ChildState.SUBMISSION_FAILED,
}
_COMPLETED = "COMPLETED"
_NUMBER = re.compile("-?[0-9]{1,19}")
_WORD = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")
_ENDED_WITH = re.compile(r"driver container failed with ExitCode: (\d{1,3}), Reason: (\w*)")
"""Its words for what it saw of a driver; the pod may be gone by the time that somebody asks for it."""


class KubeflowChild:
    api = Kind("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications")
    driver_container = DRIVER_CONTAINER

    def build(self, order: Order) -> dict[str, Any]:
        spark, runtime = order.pipeline.spec.spark, order.runtime
        return {
            "apiVersion": self.api.api_version,
            "kind": self.api.kind,
            "metadata": builder.metadata(order),
            "spec": {
                "type": "Python",
                "pythonVersion": "3",
                "mode": "cluster",
                "sparkVersion": runtime.spark_version,
                "image": runtime.image,
                "imagePullPolicy": runtime.image_pull_policy,
                "mainApplicationFile": MAIN,
                "arguments": builder.arguments(order),
                "sparkConf": dict(spark.conf),
                # Restarts and their budget are the pipeline operator's.
                "restartPolicy": {"type": "Never"},
                "suspend": False,
                "driver": {
                    "cores": spark.driver.cores,
                    "memory": spark.driver.memory,
                    "serviceAccount": runtime.service_account,
                    "labels": builder.labels(order),
                    "template": builder.driver_template(order, DRIVER_CONTAINER),
                },
                "executor": {
                    "instances": spark.executor.instances,
                    "cores": spark.executor.cores,
                    "memory": spark.executor.memory,
                    "deleteOnTermination": True,
                    "labels": builder.labels(order),
                    "template": builder.executor_template(order, EXECUTOR_CONTAINER),
                },
            },
        }

    def read(self, document: Mapping[str, Any]) -> Child:
        meta, status = document["metadata"], document.get("status") or {}
        application = status.get("applicationState") or {}
        shown, message = application.get("state", ""), application.get("errorMessage", "")
        state = _STATES.get(shown, ChildState.UNKNOWN)
        if state is ChildState.ENDED and not status.get("executionAttempts"):
            # SUBMISSION_FAILED becomes FAILED at once, and no driver was ever there.
            state = ChildState.SUBMISSION_FAILED
        ended = _ENDED_WITH.fullmatch(message) if state is ChildState.ENDED else None
        nonce = (meta.get("annotations") or {}).get(NONCE_ANNOTATION)
        return Child(
            uid=meta["uid"],
            state=state,
            shown_state=_word(shown) if shown else "NEW",
            config_hash=(meta.get("labels") or {}).get(HASH_LABEL, ""),
            nonce=int(nonce) if nonce is not None and _NUMBER.fullmatch(nonce) else None,
            pod_name=(status.get("driverInfo") or {}).get("podName") or None,
            message=message,
            deleting="deletionTimestamp" in meta,
            # Only a change of the spec counts up; ours never changes.
            edited=meta.get("generation", 1) > 1,
            created_ms=milliseconds(meta.get("creationTimestamp")) or 0,
            is_noticed=shown != "",
            exit_code=0 if shown == _COMPLETED else None if ended is None else int(ended[1]),
            exit_reason="" if ended is None else ended[2],
        )


def _word(state: str) -> str:
    """It becomes a condition's reason, which is one word; not every release of Kubeflow need have the same."""
    return state if _WORD.fullmatch(state) else "UNKNOWN"
