"""A SinkPipeline on an API server, as a person with kubectl sees it: the common part of all that run one."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any, Final

import yaml

from servers.control_plane import Cluster
from servers.kube_api import KubeApi
from sinkpipeline.core.manifest import parse_manifest
from support.waiting import wait_until

Object = dict[str, Any]

RESOURCES: Final = "/apis/sinkpipeline.io/v1alpha1/namespaces/{}/sinkpipelines"
REACTION_S: Final = 60.0


class SeenPipeline:
    """One resource; `document` is its manifest, with name and namespace."""

    poll_s = 0.3

    def __init__(self, cluster: Cluster, api: KubeApi, document: Object) -> None:
        self.cluster = cluster
        self.api = api
        self.document = document
        self.name: str = document["metadata"]["name"]
        self.namespace: str = document["metadata"]["namespace"]
        self.path = f"{RESOURCES.format(self.namespace)}/{self.name}"

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments)

    def apply(self, **spec: Any) -> None:
        self.document["spec"] |= spec
        # As a person would: what the model refuses, no test applies by mistake.
        parse_manifest(copy.deepcopy(self.document))
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(self.document))

    def delete(self, *options: str) -> None:
        in_time = options or (f"--timeout={REACTION_S:.0f}s",)
        self.kubectl("delete", "sinkpipeline", self.name, "--ignore-not-found", *in_time)

    @property
    def status(self) -> Object:
        # Not by kubectl: it takes a tenth of a second of a core each time, and real drivers need both.
        status: Object = (self.api.find(self.path) or {}).get("status") or {}
        return status

    def condition(self, kind: str) -> Object:
        return next((each for each in self.status.get("conditions", ()) if each["type"] == kind), {})

    def told(self, kind: str) -> str:
        """`<status> <reason>` of a condition."""
        found = self.condition(kind)
        return f"{found.get('status')} {found.get('reason')}"

    def events(self, reason: str = "") -> list[str]:
        """`<reason>: <message>` of one reason, or all."""
        found = self.cluster.get("events", f"--namespace={self.namespace}")["items"]
        return [
            f"{each['reason']}: {each['message']}"
            for each in found
            if each["involvedObject"]["name"] == self.name and each["reason"].startswith(reason)
        ]

    def until(self, condition: Callable[[], object], what: str, deadline_s: float = REACTION_S) -> float:
        """Seconds that it took."""
        begun = time.monotonic()
        try:
            wait_until(condition, f"{self.name}: {what}", deadline_s, poll_s=self.poll_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None
        return time.monotonic() - begun

    def describe(self) -> str:
        """What a person needs to see when something did not come."""
        return str(self.status)
