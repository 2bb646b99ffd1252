"""A driver's pod as spark-submit makes it, an executor's as Spark does, and what a kubelet tells of them, without I/O.

What real ones were on a node is recorded, and compared with this: tests/support/cluster/pods_seen.py.

Read in resource-managers/kubernetes/core/src/main/scala/org/apache/spark/deploy/k8s/ of Spark ("Spark": the source of
3.4, its names compared with the classes of spark-kubernetes_2.13-4.1.1.jar); in internal/controller/sparkapplication/
of github.com/kubeflow/spark-operator/v2 v2.5.1 ("submission.go"); in pkg/kubelet of k8s.io/kubernetes v1.34.4
("kubelet").
"""

from __future__ import annotations

import copy
import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from kubeflow.states import DRIVER_CONTAINER, driver_pod_name, timestamp

Object = dict[str, Any]

NODE: Final = "local-process"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
UNKNOWN: Final = "ContainerStatusUnknown"
NOT_LOCATED: Final = "The container could not be located when the pod was terminated"
_NOT_READY: Final = "ContainersNotReady"
APP_NAME_LABEL: Final = "sparkoperator.k8s.io/app-name"
SUBMISSION_LABEL: Final = "sparkoperator.k8s.io/submission-id"
LAUNCHED_LABEL: Final = "sparkoperator.k8s.io/launched-by-spark-operator"
AFTER: Final = {
    "created": {"unschedulable", "scheduled"},
    "unschedulable": {"scheduled"},
    "scheduled": {"pending", "never_ran"},
    "pending": {"running", "ending", "never_ran"},
    "running": {"ending", "ended"},
    "ending": {"ended"},
    "ended": set[str](),
    "never_ran": set[str](),
}
"""Which of the statuses below comes after which, in the life of a pod; `created` is as the API server makes one.

What ends while its pod is deleted is `ended` at once: its kubelet has waited for that. The object may go at any time.
"""
_PORTS: Final = {"driver-rpc-port": 7078, "blockmanager": 7079, "spark-ui": 4040, "spark-connect": 15002}
_KUEUE_PREFIX: Final = "kueue.x-k8s.io/"


class SubmissionError(RuntimeError):
    """What spark-submit would say on standard error."""


@dataclass(frozen=True)
class Ended:
    """How a container ended; `reason` is Completed, Error, OOMKilled, StartError or ContainerStatusUnknown."""

    exit_code: int
    reason: str
    message: str
    started: dt.datetime
    finished: dt.datetime


def driver_pod(app: Object, submission_id: str) -> Object:
    """The manifest: `spec.driver.template` with what Spark and the operator add. Raises SubmissionError."""
    spec, driver, name = app["spec"], app["spec"]["driver"], app["metadata"]["name"]
    template = copy.deepcopy(driver.get("template") or {})
    metadata: Object = template.get("metadata") or {}
    # submission.go, driverConfOption and driverPodTemplateOption; Spark: KubernetesConf.scala, labels.
    inherited = {key: value for key, value in _labels(app).items() if not key.startswith(_KUEUE_PREFIX)}
    labels = {
        **(metadata.get("labels") or {}),
        **inherited,
        **(driver.get("labels") or {}),
        APP_NAME_LABEL: name,
        LAUNCHED_LABEL: "true",
        SUBMISSION_LABEL: submission_id,
        "spark-app-selector": f"spark-{submission_id.replace('-', '')}",
        "spark-role": "driver",
        "spark-app-name": name,
        "spark-version": spec["sparkVersion"],
    }
    owner = {
        "apiVersion": app["apiVersion"],
        "kind": app["kind"],
        "name": name,
        "uid": app["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod_spec: Object = template.get("spec") or {}
    containers: list[Object] = pod_spec.get("containers") or [{}]
    # Spark: KubernetesUtils.scala, selectSparkContainer: by name, else the first one; submit/Client puts it last.
    container = next((one for one in containers if one.get("name") == DRIVER_CONTAINER), containers[0])
    _fill_container(container, spec, labels["spark-app-selector"])
    pod_spec["containers"] = [*(one for one in containers if one is not container), container]
    # Spark: BasicDriverFeatureStep.scala, configurePod.
    pod_spec["restartPolicy"] = "Never"
    if driver.get("serviceAccount"):
        pod_spec["serviceAccountName"] = driver["serviceAccount"]
    # What a scheduler would do; and nobody evicts it from a node that sends no heartbeats.
    pod_spec["nodeName"] = NODE
    pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or []), {"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": driver_pod_name(app),
            "namespace": app["metadata"]["namespace"],
            "labels": labels,
            "annotations": {**(metadata.get("annotations") or {}), **(driver.get("annotations") or {})},
            "ownerReferences": [*(metadata.get("ownerReferences") or []), owner],
        },
        "spec": pod_spec,
    }


def executor_pod(driver: Object, number: int) -> Object:
    """As Spark makes it for the driver whose pod that is.

    submission.go, executorConfOption; Spark: KubernetesConf.scala, KubernetesExecutorConf.labels, Constants.scala, and
    BasicExecutorFeatureStep.scala.
    """
    meta = driver["metadata"]
    inherited = {key: value for key, value in meta["labels"].items() if not key.startswith("spark-")}
    of_application = {key: meta["labels"][key] for key in ("spark-app-selector", "spark-app-name", "spark-version")}
    ours = {"spark-role": "executor", "spark-exec-id": str(number), "spark-exec-resourceprofile-id": "0"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    container = {"name": EXECUTOR_CONTAINER, "image": driver_container(driver)["image"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['labels'][APP_NAME_LABEL]}-exec-{number}",
            "namespace": meta["namespace"],
            "labels": {**inherited, **of_application, **ours},
            "ownerReferences": [owner],
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def driver_container(pod: Object) -> Object:
    """The last one, where `driver_pod` has put it."""
    container: Object = pod["spec"]["containers"][-1]
    return container


def created() -> Object:
    """registry/core/pod/strategy.go, PrepareForCreate."""
    return {"phase": "Pending"}


def unschedulable(message: str) -> Object:
    """As the scheduler leaves a pod that it found no node for (schedule_one.go, handleSchedulingFailure)."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def scheduled() -> Object:
    """As the binding leaves it (registry/core/pod/storage, setPodNodeAndMetadata); no kubelet has seen it yet."""
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


def pending(pod: Object, reason: str, message: str, *, has_network: bool | None = None) -> Object:
    """The status of a pod whose container was not started yet; `reason` is such as ContainerCreating.

    `has_network`: whether its sandbox is made; by default where it waits for anything else.
    """
    waiting = {"reason": reason, "message": message} if message else {"reason": reason}
    container = _container_status(pod, {"waiting": waiting}, ready=False)
    made = reason != "ContainerCreating" if has_network is None else has_network
    return {
        "phase": "Pending",
        "conditions": _conditions(has_network=made, not_ready=_NOT_READY),
        "containerStatuses": [container],
    }


def running(pod: Object, address: str, started: dt.datetime) -> Object:
    container = _container_status(pod, {"running": {"startedAt": timestamp(started)}}, ready=True)
    return {
        "phase": "Running",
        "startTime": timestamp(started),
        "hostIP": address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(has_network=True),
        "containerStatuses": [container],
    }


def ending(pod: Object, how: Ended, *, has_network: bool = True) -> Object:
    """What is reported first: the container has ended, and the pod's phase doesn't know yet.

    On a node (kubelet 1.34.4, containerd 1.6) it took one to two seconds. Its conditions are those of the end already
    (kubelet: status/status_manager.go, mergePodStatus).
    """
    return {**ended(pod, how, has_network=has_network), "phase": "Running"}


def ended(pod: Object, how: Ended, *, has_network: bool = False) -> Object:
    """kubelet: kubelet_pods.go, getPhase, with restartPolicy Never; kuberuntime_container.go, toKubeContainerStatus."""
    succeeded = how.exit_code == 0
    return {
        "phase": "Succeeded" if succeeded else "Failed",
        "conditions": _conditions(
            has_network=has_network,
            not_ready="PodCompleted" if succeeded else "PodFailed",
            initialized="PodCompleted" if succeeded else "",
        ),
        "containerStatuses": [_container_status(pod, {"terminated": _terminated(how)}, ready=False)],
    }


def never_ran(before: Object, now: dt.datetime) -> Object:
    """What a kubelet leaves of a pod that is deleted before its container has started, whose status was `before`.

    kubelet: status/status_manager.go, TerminatePod: the conditions stay as they were.
    """
    unknown = Ended(137, UNKNOWN, NOT_LOCATED, now, now)
    containers = [
        {**each, "state": {"terminated": _terminated(unknown)}} for each in before.get("containerStatuses", ())
    ]
    return {**before, "phase": "Failed", "containerStatuses": containers}


def _fill_container(container: Object, spec: Object, application_id: str) -> None:
    """Spark: BasicDriverFeatureStep.scala and DriverCommandFeatureStep.scala."""
    driver = spec["driver"]
    image = driver.get("image") or spec.get("image")
    if not image:
        raise SubmissionError(
            'Exception in thread "main" org.apache.spark.SparkException: Must specify the driver container image'
        )
    container.setdefault("name", DRIVER_CONTAINER)
    container["image"] = image
    main = ["--class", spec.get("mainClass") or "org.apache.spark.deploy.PythonRunner", spec["mainApplicationFile"]]
    properties = ["--properties-file", "/opt/spark/conf/spark.properties"]
    arguments = ["driver", *properties, *main, *(spec.get("arguments") or [])]
    container["args"] = [*(container.get("args") or []), *arguments]
    address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    container["env"] = [
        *(container.get("env") or []),
        {"name": "SPARK_APPLICATION_ID", "value": application_id},
        {"name": "SPARK_DRIVER_BIND_ADDRESS", "valueFrom": address},
    ]
    ports = [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in _PORTS.items()]
    container["ports"] = [*(container.get("ports") or []), *ports]
    if spec.get("imagePullPolicy"):
        container["imagePullPolicy"] = spec["imagePullPolicy"]


def _container_status(pod: Object, state: Object, *, ready: bool) -> Object:
    container = driver_container(pod)
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _terminated(how: Ended) -> Object:
    return {
        "exitCode": how.exit_code,
        "reason": how.reason,
        "message": how.message,
        "startedAt": timestamp(how.started),
        "finishedAt": timestamp(how.finished),
    }


def _conditions(*, has_network: bool, not_ready: str = "", initialized: str = "") -> list[Object]:
    """kubelet: status/generate.go; kubelet_pods.go, generateAPIPodStatus. `not_ready` and `initialized` are reasons."""
    ready = {"status": "False", "reason": not_ready} if not_ready else {"status": "True"}
    return [
        {"type": "PodReadyToStartContainers", "status": str(has_network)},
        {"type": "Initialized", "status": "True", **({"reason": initialized} if initialized else {})},
        {"type": "Ready", **ready},
        {"type": "ContainersReady", **ready},
        {"type": "PodScheduled", "status": "True"},
    ]


def _labels(app: Object) -> dict[str, str]:
    return app["metadata"].get("labels") or {}
