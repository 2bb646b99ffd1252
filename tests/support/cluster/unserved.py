"""A pipeline in a namespace that Kubeflow's operator does not serve."""

from __future__ import annotations

import datetime as dt

from typing_extensions import Self

from support.cluster.installed import Installation, Pipeline
from support.kafka import topics

_CASE = "Kubeflow does not serve the namespace"


class Unserved:
    """From the making of the namespace to its end; use it in a `with`."""

    def __init__(self, installed: Installation, servers: str) -> None:
        self._installed = installed
        # A run that was broken off may have left another one.
        self._namespace = topics.unique("elsewhere")
        self.pipeline = Pipeline(installed, servers, namespace=self._namespace)

    def __enter__(self) -> Self:
        """With what docs/install.md says for one that comes later: the drivers' account, and the right on Secrets."""
        operator = "sinkpipeline-system:sinkpipeline-operator"
        self._installed.type(
            f"kubectl create namespace {self._namespace}\n"
            f"kubectl create rolebinding sinkpipeline-operator --namespace {self._namespace}"
            f" --clusterrole={operator}:secrets --serviceaccount={operator}\n"
            "kubectl get serviceaccount,role,rolebinding sinkpipeline-driver --namespace shop -o yaml |"
            f" sed 's/namespace: shop/namespace: {self._namespace}/' | kubectl apply -f -"
        )
        self.pipeline.stream.create()
        self.pipeline.apply()
        return self

    def __exit__(self, *_: object) -> None:
        self.pipeline.delete("--timeout=60s")
        self._installed.kubectl("delete", "namespace", self._namespace, "--wait=false")

    def until_told(self) -> str:
        pipeline = self.pipeline
        pipeline.until(lambda: pipeline.told("Stalled") == "True NotSubmitted", "a person is told", 360)
        told, made = pipeline.condition("Stalled"), self._installed.api.get(pipeline.path)["metadata"]
        at, since = (
            dt.datetime.fromisoformat(each) for each in (told["lastTransitionTime"], made["creationTimestamp"])
        )
        words = f"Stalled {pipeline.told('Stalled')}: {told['message']}"
        self._installed.report.tell(_CASE, (at - since).total_seconds(), words, pipeline.line, pipeline.last_event)
        return str(told["message"])
