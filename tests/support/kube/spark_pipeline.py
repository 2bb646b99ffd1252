"""A pipeline on a real API server, a real broker and real Spark, as a person with kubectl and a consumer sees it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from deployed.cluster import Kubernetes
from servers.kube_api import KubeApi
from sinkpipeline.core.manifest import parse_manifest
from support.app.command import manifest
from support.kafka import topics
from support.kafka.streams import EXACTLY_ONCE, Stream
from support.kube.operator_lab import RESOURCES
from support.waiting import wait_until

START_S = 120.0
POLL_S = 0.3
REACTION_S = 60.0


class Pipeline:
    """One resource, its topics, and what kubectl shows of it.

    Without `like` it has a source of its own; else the other's source, and its whole spec.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        api: KubeApi,
        servers: str,
        directory: Path,
        *,
        like: Pipeline | None = None,
    ) -> None:
        self.kubernetes = kubernetes
        self.servers = servers
        self.name = topics.unique("p")
        if like is None:
            self.stream = Stream(servers, self.name).create()
            self.document = manifest(servers, self.name, [self.name])
            self.data, self.progress = f"{self.name}-out", f"{self.name}-progress"
        else:
            self.stream, self.document = like.stream, copy.deepcopy(like.document)
            self.data, self.progress = like.data, like.progress
        self.document["metadata"] = {"name": self.name, "namespace": kubernetes.namespace}
        self._api = api
        self._path = f"{RESOURCES.format(kubernetes.namespace)}/{self.name}"
        self._file = directory / f"{self.name}.yaml"

    @property
    def identity(self) -> str:
        return str(self.document["spec"].get("identity") or f"{self.kubernetes.namespace}.{self.name}")

    @property
    def owner(self) -> str:
        """As `meta` and the annotation that adopts it have it."""
        cluster = self.kubernetes.cluster.get("namespace", "kube-system")["metadata"]["uid"]
        return f"{cluster}/{self.kubernetes.namespace}/{self.name}"

    def apply(self, **spec: Any) -> None:
        self.document["spec"] |= spec
        # As a person would: what the model refuses, no test applies by mistake.
        parse_manifest(copy.deepcopy(self.document))
        self._file.write_text(yaml.safe_dump(self.document))
        self.kubernetes.kubectl("apply", "-f", str(self._file))

    def annotate(self, annotation: str) -> None:
        self.kubernetes.kubectl("annotate", "sinkpipeline", self.name, annotation)

    def delete(self) -> None:
        self.kubernetes.kubectl(
            "delete", "sinkpipeline", self.name, "--ignore-not-found", f"--timeout={REACTION_S:.0f}s"
        )

    @property
    def status(self) -> dict[str, Any]:
        # Not by kubectl: it takes a tenth of a second of a core each time, and real drivers need both.
        status: dict[str, Any] = (self._api.find(self._path) or {}).get("status") or {}
        return status

    @property
    def sink(self) -> dict[str, Any]:
        sinks: list[dict[str, Any]] = self.status.get("sinks") or [{}]
        return sinks[0]

    def condition(self, kind: str) -> str:
        found: dict[str, Any] = next((each for each in self.status.get("conditions", ()) if each["type"] == kind), {})
        return f"{found.get('status')} {found.get('reason')}"

    def until(self, condition: Callable[[], object], what: str, deadline_s: float = REACTION_S) -> None:
        try:
            wait_until(condition, what, deadline_s, poll_s=POLL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status}\n{self.kubernetes.tails(self.name)}") from None

    def until_condition(self, kind: str, wanted: str, deadline_s: float = REACTION_S) -> None:
        """`wanted` as <status> <reason>."""
        self.until(lambda: self.condition(kind) == wanted, f"{self.name}: {kind} is {wanted}", deadline_s)

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

    def events(self, reason: str = "") -> str:
        """As kubectl prints them; of one reason, or all."""
        of = f"involvedObject.name={self.name}" + (f",reason={reason}" if reason else "")
        return self.kubernetes.kubectl("get", "events", f"--field-selector={of}")
