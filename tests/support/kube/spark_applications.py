"""SparkApplications of one namespace whose drivers are a few lines of Python, and what became of them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

from kubeflow.node import Command, Driver
from kubeflow.spark_operator import APPLICATIONS
from servers.control_plane import Cluster
from servers.kube_api import KubeApi
from support.waiting import wait_until

Object = dict[str, Any]

RUN_UNTIL_TERMINATED: Final = "import signal; signal.pause()"

# A driver that ended at once might never be seen running: the operator reads the pod a moment after the event.
_SPARK_STARTS: Final = "import time; time.sleep(0.5)"


def python_driver(driver: Driver) -> Command:
    """Runs the application's first argument, after a moment."""
    known = {"FILES": str(driver.files), "ADDRESS": driver.address, "TERMINATION_LOG": str(driver.termination_log)}
    ports = {f"PORT_{name.upper()}": str(port) for name, port in driver.ports.items()}
    code = f"{_SPARK_STARTS}\n{driver.application['spec']['arguments'][0]}"
    return Command([sys.executable, "-c", code], known | ports)


class SparkApplications:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._api = KubeApi(cluster.kubeconfig)
        self._history: dict[str, list[str]] = {}
        self._watch = threading.Thread(target=self._follow, daemon=True)
        self._watch.start()

    def close(self) -> None:
        """Deletes all, and their pods."""
        self.kubectl("delete", "sparkapplications", "--all", "--timeout=30s")
        self.cluster.remove_pods(self.namespace)
        self._api.close()
        self._watch.join()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def apply(self, name: str, code: str, *, pod: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """`pod` is merged into the template's spec but for its `container`, which is merged into the driver's."""
        template = dict(pod or {})
        container = {"name": "spark-kubernetes-driver", **template.pop("container", {})}
        manifest = {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": name},
            "spec": {
                "type": "Python",
                "mode": "cluster",
                "sparkVersion": "4.1.1",
                "image": "registry.invalid/app:1",
                "mainApplicationFile": "local:///app/main.py",
                "arguments": [code],
                "restartPolicy": {"type": "Never"},
                "driver": {"cores": 1, "memory": "1g", "template": {"spec": {**template, "containers": [container]}}},
                "executor": {"cores": 1, "memory": "1g", "instances": 1},
                **spec,
            },
        }
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def patch(self, name: str, spec: Object) -> None:
        self.kubectl("patch", "sparkapplication", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def status(self, name: str) -> Object:
        found: Object = self._api.get(f"{APPLICATIONS}/namespaces/{self.namespace}/sparkapplications/{name}")
        status: Object = found.get("status", {})
        return status

    def history(self, name: str) -> list[str]:
        """Each state that was written, in order."""
        return list(self._history.get(name, []))

    def await_states(self, name: str, *states: str) -> None:
        """Until exactly these were written, from the beginning."""
        wait_until(lambda: self.history(name)[: len(states)] == list(states), f"{name} went through {states}")
        assert self.history(name) == list(states)

    def error(self, name: str) -> str:
        message: str = self.status(name)["applicationState"].get("errorMessage", "")
        return message

    def pod(self, name: str) -> Object | None:
        """The driver's."""
        return self._api.find(f"/api/v1/namespaces/{self.namespace}/pods/{name}-driver")

    def pods(self) -> list[Object]:
        items: list[Object] = self._api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return items

    def terminated(self, name: str) -> Object:
        """How the driver's container ended."""
        pod = self.pod(name)
        assert pod is not None
        ended: Object = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        return ended

    def _follow(self) -> None:
        for change in self._api.follow(f"{APPLICATIONS}/namespaces/{self.namespace}/sparkapplications"):
            state = change.new.get("status", {}).get("applicationState", {}).get("state", "")
            seen = self._history.setdefault(change.new["metadata"]["name"], [])
            if state and change.kind != "DELETED" and seen[-1:] != [state]:
                seen.append(state)
