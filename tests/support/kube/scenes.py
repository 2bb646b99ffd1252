"""Four pipelines as `kubectl sinkpipeline status` meets them: their status is what the operator's own code reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeflow import pods
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.progress import PartitionProgress, Progress
from sinkpipeline.core.status import SinkReport, SinkState, render, timestamp
from sinkpipeline.core.tally import Count
from sinkpipeline.core.work import Executors
from sinkpipeline_operator.child import remedies
from sinkpipeline_operator.child.waits import Wait
from sinkpipeline_operator.decide.decision import Decision, Standing, Step
from sinkpipeline_operator.decide.restarts import Restarts
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.plugin.page import Scene
from sinkpipeline_operator.report.known import Known
from sinkpipeline_operator.report.status import report

NOW = 1_750_000_000_000
_REF = Ref("shop", "orders")
_NODES = "0/3 nodes are available: 3 Insufficient memory."


@dataclass(frozen=True)
class _Made:
    """How one of them came about."""

    known: dict[str, Any]
    pods: tuple[dict[str, Any], ...] = ()
    events: tuple[tuple[int, str, str], ...] = ()
    """How many seconds ago, reason, message."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    seconds: int = 3 * 3600
    """How long ago it became so."""


def healthy() -> Scene:
    letters = (("MalformedJson", Count(dead=2)),)
    partitions = {
        SourcePartition("orders-raw", number): PartitionProgress(
            epoch=0,
            next=offset,
            rows=offset - (2 if number == 1 else 0),
            dead=2 if number == 1 else 0,
            at=NOW - 4_000,
            by_class=letters if number == 1 else (),
        )
        for number, offset in enumerate((50_012, 49_377, 50_609))
    }
    sink = SinkReport(
        name="enriched",
        exactly_once=True,
        durability=Durability.COMMITTED,
        state=SinkState.RUNNING,
        progress=Progress(partitions=partitions),
        lag=1_240,
        proved=True,
    )
    told = _told(sink, Executors(registered=2, wanted=2))
    return _scene(
        _Made(
            {"decision": _decision(Standing.RUNNING, "RUNNING"), "told": told},
            (_running("orders-driver", "driver"), _running("orders-exec-1"), _running("orders-exec-2")),
            ((3 * 3600, "DriverSubmitted", "SparkApplication orders of configuration 6f2c1a is made"),),
        )
    )


def waiting() -> Scene:
    wait = Wait(reason="Unschedulable", message=f"pod orders-driver: {_NODES}", alarm=True)
    return _scene(
        _Made(
            {"decision": _decision(Standing.STARTING, "SUBMITTED"), "wait": wait},
            (_pod("orders-driver", "driver", pods.unschedulable(_NODES), 100),),
            ((95, "Unschedulable", f"pod orders-driver: {_NODES}"),),
            seconds=100,
        )
    )


def failed() -> Scene:
    lost = data_topic_lost("orders-enriched", "it is not there, and 149,998 rows were delivered into it")
    error = SinkPipelineError(lost.reason, lost.message, remedies.in_cluster(lost.remedy, _REF, "enriched"))
    sink = SinkReport(name="enriched", exactly_once=True, state=SinkState.FAILED, error=error)
    told = _told(sink, Executors(registered=2, wanted=2))
    return _scene(
        _Made(
            {"decision": _decision(Standing.RUNNING, "RUNNING", total=1), "told": told},
            (_running("orders-driver", "driver"),),
            ((260, "DataTopicLost", f"enriched: {error.message}"),),
            seconds=260,
        )
    )


def suspended() -> Scene:
    before = healthy().pipeline["status"]
    return _scene(
        _Made(
            {"decision": _decision(Standing.STOPPED, "Suspended"), "suspended": True, "child": {}, "previous": before},
            spec={"suspend": True},
        )
    )


SCENES = {"healthy": healthy, "waiting": waiting, "failed": failed, "suspended": suspended}


def _decision(standing: Standing, why: str, **restarts: Any) -> Decision:
    return Decision(step=Step.NOTHING, standing=standing, why=why, restarts=Restarts(**restarts))


def _told(sink: SinkReport, executors: Executors) -> dict[str, Any]:
    return render([sink], identity="shop.orders", generation=3, previous=None, now_ms=NOW, executors=executors)


def _scene(made: _Made) -> Scene:
    fields = {
        "generation": 3,
        "previous": {},
        "now_ms": NOW - made.seconds * 1000,
        "identity": "shop.orders",
        "sinks": {"enriched": "ExactlyOnce"},
        "child": {"name": "orders", "state": "RUNNING", "configHash": "6f2c1a"},
    }
    status = report(Known(**{**fields, **made.known}))
    meta = {
        "name": "orders",
        "namespace": "shop",
        "generation": 3,
        "creationTimestamp": timestamp(NOW - made.seconds * 1000),
    }
    spec = {"sinks": [{"name": "enriched"}], **made.spec}
    events = [
        {"metadata": {}, "type": "Normal", "reason": reason, "message": message}
        | {"lastTimestamp": timestamp(NOW - ago * 1000)}
        for ago, reason, message in made.events
    ]
    return Scene(pipeline={"metadata": meta, "spec": spec, "status": status}, pods=made.pods, events=events, now_ms=NOW)


def _running(name: str, role: str = "executor") -> dict[str, Any]:
    return _pod(name, role, {"phase": "Running"})


def _pod(name: str, role: str, status: Mapping[str, Any], seconds: int = 3 * 3600) -> dict[str, Any]:
    meta = {"name": name, "labels": {"spark-role": role}, "creationTimestamp": timestamp(NOW - seconds * 1000)}
    return {"metadata": meta, "status": status}
