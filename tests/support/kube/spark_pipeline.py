"""A pipeline on a real API server, a real broker and real Spark, as a person with kubectl and a consumer sees it."""

from __future__ import annotations

import copy
from typing import Any

from typing_extensions import override

from deployed.cluster import Kubernetes
from servers.kube_api import KubeApi
from support.app.command import manifest
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.resource.seen import REACTION_S, SeenPipeline

START_S = 120.0


class Pipeline(SeenPipeline):
    """One resource, its topics, and what kubectl shows of it.

    Without `like` it has a source of its own; else the other's source, and its whole spec.
    """

    def __init__(self, kubernetes: Kubernetes, api: KubeApi, servers: str, *, like: Pipeline | None = None) -> None:
        name = topics.unique("p")
        if like is None:
            self.stream = Stream(servers, name).create()
            document = manifest(servers, name, [name])
            self.data, self.progress = f"{name}-out", f"{name}-progress"
        else:
            self.stream, document = like.stream, copy.deepcopy(like.document)
            self.data, self.progress = like.data, like.progress
        document["metadata"] = {"name": name, "namespace": kubernetes.namespace}
        super().__init__(kubernetes.cluster, api, document)
        self.kubernetes = kubernetes
        self.servers = servers

    @property
    def identity(self) -> str:
        return str(self.document["spec"].get("identity") or f"{self.kubernetes.namespace}.{self.name}")

    @property
    def owner(self) -> str:
        """As `meta` and the annotation that adopts it have it."""
        cluster = self.kubernetes.cluster.get("namespace", "kube-system")["metadata"]["uid"]
        return f"{cluster}/{self.kubernetes.namespace}/{self.name}"

    def annotate(self, annotation: str) -> None:
        self.kubectl("annotate", "sinkpipeline", self.name, annotation)

    @property
    def sink(self) -> dict[str, Any]:
        sinks: list[dict[str, Any]] = self.status.get("sinks") or [{}]
        return sinks[0]

    def until_condition(self, kind: str, wanted: str, deadline_s: float = REACTION_S) -> None:
        """`wanted` as <status> <reason>."""
        self.until(lambda: self.told(kind) == wanted, f"{self.name}: {kind} is {wanted}", deadline_s)

    def until_ready(self) -> None:
        self.until_condition("Ready", "True Running", START_S)

    def until_delivered(self) -> None:
        """All that was fed, and each row once."""
        self.until(lambda: self.stream.judge(self.data).missing == 0, "all rows are delivered", START_S)
        assert self.stream.judge(self.data) == EXACTLY_ONCE

    def remembered(self) -> dict[str, Any]:
        """The documents of the pipeline that the progress topic still has, by key."""
        truth = topics.progress_truth(self.servers, self.progress)
        return {key: value for key, value in truth.items() if value is not None and f"/{self.identity}/" in key}

    def counted(self) -> int:
        """The rows that its progress counts; the status may be a minute behind."""
        return sum(value["rows"] for key, value in self.remembered().items() if "/p/" in key)

    @override
    def describe(self) -> str:
        return f"{self.status}\n{self.kubernetes.tails(self.name)}"
