"""What the commands of `kubectl sinkpipeline` ask of the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from sinkpipeline_operator.child.builder import CONFIG_FILE, PIPELINE_LABEL, SECRETS_DIRECTORY
from sinkpipeline_operator.child.kubeflow import DRIVER_CONTAINER, EXECUTOR_CONTAINER
from sinkpipeline_operator.kube.client import EVENT, NAMESPACE, PIPELINE, POD, Ref
from sinkpipeline_operator.kube.person import Session
from sinkpipeline_operator.plugin.asking import Person, ask
from sinkpipeline_operator.plugin.failure import Failure
from sinkpipeline_operator.plugin.page import Scene

_POLL_S = 0.5
_MOUNTED = ("-f", CONFIG_FILE, "--secrets-dir", SECRETS_DIRECTORY)


class Work:
    """With one cluster, in one namespace.

    Raises (all methods):
        Failure, and what a Cluster raises.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> None:
        self._reached_by = (kubeconfig, context, namespace)

    @cached_property
    def session(self) -> Session:
        return Session(*self._reached_by)

    @property
    def namespace(self) -> str:
        return self.session.namespace

    # --- what there is ---

    def namespaces(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.session.list(NAMESPACE, None, {})]

    def pipelines(self, *, everywhere: bool = False) -> list[dict[str, Any]]:
        return self.session.list(PIPELINE, None if everywhere else self.namespace, {})

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.pipelines()]

    def sinks(self, name: str) -> list[str]:
        return [each["name"] for each in self.pipeline(name)["spec"]["sinks"]]

    def pipeline(self, name: str) -> dict[str, Any]:
        found = self.session.get(PIPELINE, Ref(self.namespace, name))
        if found is None:
            raise Failure(
                "PipelineNotFound",
                f"there is no SinkPipeline {name} in namespace {self.namespace}",
                f"`kubectl sinkpipeline status -n {self.namespace}` lists those that are there",
            )
        return found

    def scene(self, name: str) -> Scene:
        of_it = {"involvedObject.kind": PIPELINE.kind, "involvedObject.name": name}
        return Scene(
            pipeline=self.pipeline(name),
            pods=self._pods(name),
            events=self.session.list(EVENT, self.namespace, {}, of_it),
            now_ms=int(time.time() * 1000),
        )

    def _pods(self, name: str) -> list[dict[str, Any]]:
        """The driver's first."""
        found = self.session.list(POD, self.namespace, {PIPELINE_LABEL: name})
        return sorted(
            found, key=lambda each: (each["metadata"]["labels"].get("spark-role") != "driver", each["metadata"]["name"])
        )

    def logs(self, name: str, pod: str | None, **how: Any) -> Iterator[bytes]:
        """Of the driver, or of another pod of the pipeline."""
        self.pipeline(name)
        there = {each["metadata"]["name"]: each["metadata"]["labels"].get("spark-role") for each in self._pods(name)}
        chosen = pod or next((each for each, role in there.items() if role == "driver"), None)
        if chosen is None or chosen not in there:
            what = "no driver" if chosen is None else f"no pod {chosen}"
            have = f"it has {', '.join(there)}" if there else f"`kubectl sinkpipeline status {name}` says why"
            raise Failure("PodNotFound", f"{what} of {name} is there", have)
        container = DRIVER_CONTAINER if there[chosen] == "driver" else EXECUTOR_CONTAINER
        return self.session.log(Ref(self.namespace, chosen), container, **how)

    # --- what is asked for ---

    def suspend(self, name: str, *, suspend: bool) -> bool:
        """Whether that is a change."""
        if bool(self.pipeline(name)["spec"].get("suspend")) is suspend:
            return False
        self.session.patch(PIPELINE, Ref(self.namespace, name), {"spec": {"suspend": suspend}})
        return True

    def wait(self, name: str, done: Callable[[Mapping[str, Any]], bool], timeout_s: float, what: str) -> None:
        """Until the status is so, for the spec as it is."""
        ends = time.monotonic() + timeout_s
        while True:
            found = self.pipeline(name)
            status = found.get("status") or {}
            if status.get("observedGeneration") == found["metadata"]["generation"] and done(status):
                return
            if time.monotonic() >= ends:
                raise Failure(
                    "TimedOut", f"{name} {what} within {timeout_s:.0f} s", f"see `kubectl sinkpipeline status {name}`"
                )
            time.sleep(_POLL_S)

    def ask(self, name: str, spec: Mapping[str, Any], person: Person) -> bool:
        found = self.pipeline(name)
        sinks = [each["name"] for each in found["spec"]["sinks"]]
        if spec["sink"] not in sinks:
            raise Failure("UsageInvalid", f"{name} has no sink {spec['sink']}", f"name one of {', '.join(sinks)}")
        return ask(self.session, self.namespace, {"pipeline": name, **spec}, person)

    def in_driver(self, name: str, *argv: str) -> tuple[int, str, str]:
        """What `sinkpipeline` answers in the driver's pod, which has the manifest and the Secrets."""
        from sinkpipeline_operator.kube import podexec  # noqa: PLC0415 - brings a client of its own, for two commands

        self.pipeline(name)
        drivers = [
            each["metadata"]["name"]
            for each in self._pods(name)
            if each["metadata"]["labels"].get("spark-role") == "driver" and each["status"].get("phase") == "Running"
        ]
        if not drivers:
            raise Failure(
                "NoDriver",
                f"dead letters are read in the driver's pod, and no driver of {name} runs",
                f"`kubectl sinkpipeline status {name}` says why; a preview of `kubectl sinkpipeline dlq redrive {name} "
                "--dry-run` counts them without a driver",
            )
        command = ["sinkpipeline", *argv[:2], *_MOUNTED, *argv[2:]]
        return podexec.run(self.session.api, Ref(self.namespace, drivers[0]), DRIVER_CONTAINER, command)
