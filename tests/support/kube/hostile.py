"""An API server in memory, which checks a status as the real one does and refuses what it is told to, and a reconciler.

For a fuzz that has no time for the real ones. Who plays Kubeflow's operator, the kubelet and the driver is the test.
"""

from __future__ import annotations

import base64
import copy
import functools
import itertools
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import crd
from sinkpipeline_operator.act.turns import Turns
from sinkpipeline_operator.child.builder import PIPELINE_LABEL
from sinkpipeline_operator.child.kubeflow import DRIVER_CONTAINER, KubeflowChild
from sinkpipeline_operator.kube.client import (
    EVENT,
    PIPELINE,
    POD,
    ApiFailed,
    ApiRefused,
    Cluster,
    Conflict,
    Kind,
    NotFound,
    Ref,
)
from sinkpipeline_operator.observe.driver_client import Answer, checked
from sinkpipeline_operator.observe.observer import Observer
from sinkpipeline_operator.observe.switchboard import Line
from sinkpipeline_operator.reconcile import Reconciler
from sinkpipeline_operator.report.events import Recorder
from sinkpipeline_operator.report.metrics import Metrics
from sinkpipeline_operator.settings import parse
from support.resource.custom_resource import admit

Object = dict[str, Any]
CHILD = KubeflowChild.api
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_REASON_LIMIT = 128


@functools.cache
def _status_schema() -> Object:
    schema: Object = crd.resource_schema()["properties"]["status"]
    return schema


@functools.cache
def _root() -> Object:
    return {"type": "object", "x-kubernetes-validations": crd.resource_schema()["x-kubernetes-validations"]}


def _unruly(document: Object) -> list[str]:
    """By the rules about the whole object, which are checked at each write: its name, and its status."""
    return admit(_root(), {key: document.get(key) or {} for key in ("metadata", "status")})[1]


class Api:
    """Objects by kind, namespace and name; what is in `refused` (a verb and a plural) it refuses."""

    id = "cluster"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Ref], Object] = {}
        self.refused: dict[tuple[str, str], Exception] = {}
        self.refuses_status: Callable[[Object], bool] = lambda _: False
        self._versions = itertools.count(1)

    def find(self, kind: Kind, ref: Ref) -> Object | None:
        return self.objects.get((kind.plural, ref))

    def put(self, kind: Kind, document: Mapping[str, Any]) -> Object:
        meta = document["metadata"]
        ref = Ref(meta["namespace"], meta["name"])
        before = self.objects.get((kind.plural, ref))
        version = str(next(self._versions))
        uid = f"uid-{version}" if before is None else before["metadata"]["uid"]
        whole = {**(before or {}), **copy.deepcopy(dict(document))}
        whole["metadata"] = {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
            **((before or {}).get("metadata") or {}),
            **whole["metadata"],
            "uid": uid,
            "resourceVersion": version,
        }
        if text := whole.pop("stringData", None):
            whole["data"] = {key: base64.b64encode(each.encode()).decode() for key, each in text.items()}
        self.objects[kind.plural, ref] = whole
        return copy.deepcopy(whole)

    def get(self, kind: Kind, ref: Ref) -> Object | None:
        self._check("get", kind)
        return copy.deepcopy(self.objects.get((kind.plural, ref)))

    def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        self._check("list", kind)
        if not all(_LABEL.fullmatch(each) for each in labels.values()):
            raise ApiRefused(400, "unable to parse requirement: values[0]: must be a valid label value")
        return [
            copy.deepcopy(each)
            for (plural, ref), each in self.objects.items()
            if plural == kind.plural
            and ref.namespace == namespace
            and labels.items() <= (each["metadata"].get("labels") or {}).items()
        ]

    def apply(self, kind: Kind, document: Mapping[str, Any], _manager: str = "") -> Object:
        self._check("apply", kind)
        return self.put(kind, document)

    def create(self, kind: Kind, document: Mapping[str, Any]) -> Object:
        self._check("create", kind)
        meta = document["metadata"]
        if (kind.plural, Ref(meta["namespace"], meta["name"])) in self.objects:
            raise Conflict
        if kind is EVENT and len(document["reason"]) > _REASON_LIMIT:
            raise AssertionError(f"an event's reason of {len(document['reason'])} characters")
        return self.put(kind, document)

    def delete(self, kind: Kind, ref: Ref, _uid: str) -> None:
        self._check("delete", kind)
        self.objects.pop((kind.plural, ref), None)
        if kind is CHILD:
            self.objects.pop((POD.plural, Ref(ref.namespace, f"{ref.name}-driver")), None)

    def replace_status(self, kind: Kind, document: Mapping[str, Any]) -> Object:
        self._check("status", kind)
        meta = document["metadata"]
        ref = Ref(meta["namespace"], meta["name"])
        there = self.objects.get((kind.plural, ref))
        if there is None:
            raise NotFound(404, "not found")
        if there["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict
        if kind is PIPELINE:
            _, errors = admit(_status_schema(), document["status"])
            errors += _unruly({**there, "status": document["status"]})
            errors += ["by a policy"] if self.refuses_status(document["status"]) else []
            if errors:
                raise ApiRefused(422, f"SinkPipeline is invalid: {'; '.join(errors)}")
        return self.put(kind, {**there, "status": document["status"]})

    def patch(self, kind: Kind, ref: Ref, patch: Mapping[str, Any]) -> Object:
        self._check("patch", kind)
        there = self.objects.get((kind.plural, ref))
        if there is None:
            raise NotFound(404, "not found")
        changed = _merged(there, patch)
        if kind is PIPELINE and (errors := _unruly(changed)):
            raise ApiRefused(422, f"SinkPipeline is invalid: {'; '.join(errors)}")
        return self.put(kind, changed)

    def _check(self, verb: str, kind: Kind) -> None:
        error = self.refused.get((verb, kind.plural))
        if error is not None:
            raise error


def _merged(document: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping) or not isinstance(document, Mapping):
        return patch
    merged = {**document, **{key: _merged(document.get(key), each) for key, each in patch.items()}}
    return {key: each for key, each in merged.items() if each is not None}


class Hostile:
    """One pipeline, its reconciler, and a driver that says what the test wants it to say."""

    def __init__(self, name: str = "orders", kafka: Any = None) -> None:
        self.ref = Ref("shop", name)
        self.api = Api()
        self.body: Callable[[Object], bytes] | None = None
        self.metrics = Metrics()
        settings = parse(["--image", "i", "--no-kafka-access"])
        cluster = cast(Cluster, self.api)
        drivers = cast(Any, SimpleNamespace(ask=self._answer, forget=lambda _: None))
        self.reconciler = Reconciler(
            cluster=cluster,
            observer=Observer(cluster=cluster, child_kind=KubeflowChild(), runtime=settings.runtime, drivers=drivers),
            settings=settings,
            recorder=Recorder(cluster),
            metrics=self.metrics,
            kafka=kafka,
            bench=cast(Any, SimpleNamespace(is_busy=lambda _: False)),
            turns=Turns(1, patience_s=300, tell=lambda _: None),
        )
        self.says: Callable[[Line], bytes | None] = lambda _: None

    def _answer(self, _: Ref, line: Line) -> Answer:
        body = self.says(line)
        return Answer(trouble="timed out") if body is None else checked(body, line.identity, line.config_hash)

    def look(self) -> str:
        """One look, and one question; how it ended."""
        try:
            self.reconciler.reconcile(self.ref)
            self.reconciler.poll(self.ref)
        except (ApiRefused, ApiFailed, Conflict) as error:
            return type(error).__name__
        return ""

    @property
    def resource(self) -> Object:
        found = self.api.find(PIPELINE, self.ref)
        assert found is not None
        return found

    @property
    def status(self) -> Object:
        status: Object = self.resource.get("status") or {}
        return status

    @property
    def child(self) -> Object | None:
        return self.api.find(CHILD, self.ref)

    @property
    def told(self) -> list[str]:
        return [each["reason"] for (plural, _), each in self.api.objects.items() if plural == EVENT.plural]

    def run_child(self, state: Object, container: Object) -> None:
        """What Kubeflow's operator and a kubelet say of the driver, where there is one."""
        child = self.child
        if child is None:
            return
        self.api.put(CHILD, {**child, "status": state})
        meta = child["metadata"]
        name = f"{self.ref.name}-driver"
        pod = {
            "metadata": {
                "name": name,
                "namespace": self.ref.namespace,
                "labels": {PIPELINE_LABEL: self.ref.name, "spark-role": "driver"},
                "ownerReferences": [{"uid": meta["uid"], "controller": True}],
            },
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "containerStatuses": [{"name": DRIVER_CONTAINER, "state": container}],
            },
        }
        self.api.put(POD, pod)
