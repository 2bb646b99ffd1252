"""Spark's own sink with a checkpoint as a `SparkApplication` on the same node, broken in the same ways."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from servers.control_plane import ControlPlaneError
from sinkpipeline_operator.child.kubeflow import DRIVER_CONTAINER
from sinkpipeline_operator.settings import parse
from support.cluster.installed import APPLICATIONS, NAMESPACE, SMALL, SYSTEM, Installation
from support.kafka import topics
from support.waiting import wait_until

_APP: Final = Path(__file__).with_name("own_sink_app.py")
_THERE: Final = "/chaos"
_LABEL: Final = "chaos.sinkpipeline.io/name"


class OwnSink:
    """As `support.cluster.installed.Pipeline` where `chaos` needs one.

    Its checkpoint is a directory of the node, which outlives every pod: the most durable that a node alone can give.
    """

    restarts_alone = False

    def __init__(
        self, installed: Installation, servers: str, directory: Path, *, partitions: int, replicas: int
    ) -> None:
        self.name = topics.unique("own")
        self.namespace = NAMESPACE
        self.data = f"{self.name}-out"
        self._installed, self._servers = installed, servers
        self._interval = "1 seconds"
        self._path = f"{APPLICATIONS.format(self.namespace)}/{self.name}"
        # The image's user is nobody on this machine.
        self._directory = directory / self.name
        self._directory.mkdir()
        directory.chmod(0o755)
        self._directory.chmod(0o777)
        shutil.copyfile(_APP, self._directory / _APP.name)
        topics.create_topic(servers, self.data, partitions=partitions, replicas=replicas)

    def apply(self) -> None:
        self._installed.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(self._document()))

    def edit(self) -> None:
        self._interval = "2 seconds" if self._interval == "1 seconds" else "1 seconds"
        self.apply()

    def delete(self, *options: str) -> None:
        self._installed.kubectl("delete", "sparkapplication", self.name, "--ignore-not-found", *options)

    @property
    def driver(self) -> dict[str, Any] | None:
        return self._installed.api.find(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-driver")

    def executors(self) -> list[dict[str, Any]]:
        found = self._installed.pods(f"{_LABEL}={self.name},spark-role=executor", self.namespace)
        return [each for each in found if each["status"]["phase"] == "Running"]

    def told(self, kind: str) -> str:
        """Kubeflow says a state, and nothing of rows."""
        del kind
        found = self._installed.api.find(self._path) or {}
        state = found.get("status", {}).get("applicationState", {}).get("state") or "NEW"
        return f"{state == 'RUNNING'} {state}"

    def until(self, condition: Callable[[], object], what: str, deadline_s: float) -> None:
        try:
            wait_until(condition, f"{self.name}: {what}", deadline_s, poll_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def describe(self) -> str:
        parts = []
        for command in (("get", "pods", "-o", "wide"), ("logs", f"{self.name}-driver", "--tail=40")):
            try:
                parts.append(self._installed.kubectl(*command, namespace=self.namespace))
            except ControlPlaneError as error:
                parts.append(str(error))
        return "\n".join(parts)

    def _document(self) -> dict[str, Any]:
        # Image, account and Spark's version are those of pipelines here.
        deployment = self._installed.cluster.get("deployment", "sinkpipeline-operator", f"--namespace={SYSTEM}")
        runtime = parse(deployment["spec"]["template"]["spec"]["containers"][0]["args"]).runtime
        labels = {_LABEL: self.name}
        volume = {"name": "chaos", "hostPath": {"path": str(self._directory)}}
        mount = {"name": "chaos", "mountPath": _THERE}
        template = {"spec": {"volumes": [volume], "containers": [{"name": DRIVER_CONTAINER, "volumeMounts": [mount]}]}}
        return {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "type": "Python",
                "pythonVersion": "3",
                "mode": "cluster",
                "sparkVersion": runtime.spark_version,
                "image": runtime.image,
                "imagePullPolicy": runtime.image_pull_policy,
                "mainApplicationFile": f"local://{_THERE}/{_APP.name}",
                "arguments": [self._servers, self.name, self.data, f"file://{_THERE}/checkpoint", self._interval],
                "sparkConf": SMALL,
                # As soon as Kubeflow allows: a pipeline's failure policy waits a second here too.
                "restartPolicy": {
                    "type": "Always",
                    "onFailureRetryInterval": 1,
                    "onSubmissionFailureRetryInterval": 1,
                },
                "driver": {
                    "memory": "1g",
                    "serviceAccount": runtime.service_account,
                    "labels": labels,
                    "template": template,
                },
                "executor": {"instances": 1, "memory": "1g", "deleteOnTermination": True, "labels": labels},
            },
        }
