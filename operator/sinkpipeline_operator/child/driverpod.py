"""What the cluster tells of a driver: its child object, its pod, and what it said last."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sinkpipeline.core import documents
from sinkpipeline.core.errors import ExitCode
from sinkpipeline_operator.child import refusals
from sinkpipeline_operator.child.podwait import PodWait, is_word, wait_of
from sinkpipeline_operator.kube.times import milliseconds

POD_LOST = "DriverPodLost"
POD_TERMINATING = "DriverPodTerminating"
_OUT_OF_MEMORY = "OOMKilled"


class ChildState(enum.Enum):
    """What a child object says of its driver, whichever operator runs it."""

    SUBMITTING = "submitting"
    RUNNING = "running"
    ENDED = "ended"
    SUBMISSION_FAILED = "submission failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Child:
    """The object that another operator turns into a driver."""

    uid: str
    state: ChildState
    shown_state: str
    """In that operator's own words."""
    config_hash: str
    nonce: int | None
    """The `restartNonce` that it was created for, or that was set since."""
    pod_name: str | None
    message: str = ""
    deleting: bool = False
    edited: bool = False
    """Somebody has changed what it is to run since it was made."""
    foreign: bool = False
    """It has the pipeline's name, and is another one's: of a resource before this one, or of a person."""
    created_ms: int = 0
    """Unix milliseconds, by the API server's clock."""
    is_noticed: bool = True
    """Whether its operator has said anything of it."""
    exit_code: int | None = None
    """Of its driver, where that operator has seen it: the pod may be gone."""
    exit_reason: str = ""
    """Of the driver's container, likewise."""


@dataclass(frozen=True, kw_only=True)
class LastWords:
    """What a driver wrote into its termination log: all of it, or nothing."""

    reason: str
    message: str
    remedy: str
    sinks: tuple[Mapping[str, Any], ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    """Of the stage that reads a database; empty where there is none."""

    @classmethod
    def parse(cls, text: str) -> LastWords | None:
        """None where it is no such document: a driver that was killed says nothing, or what Java said."""
        try:
            words = documents.parse_words(text)
        except ValueError:
            return None
        return cls(
            reason=words["reason"],
            message=words["message"],
            remedy=words["remedy"],
            sinks=tuple(MappingProxyType(each) for each in words.get("sinks", [])),
            source=MappingProxyType(words.get("source", {})),
        )


@dataclass(frozen=True, kw_only=True)
class DriverPod:
    uid: str
    name: str
    owned_by: str | None
    """The uid of the child that it belongs to."""
    phase: str
    ip: str | None = None
    exit_code: int | None = None
    termination_reason: str = ""
    last_words: LastWords | None = None
    deleting: bool = False
    started_ms: int | None = None
    """When its container began to run, Unix milliseconds."""
    wait: PodWait | None = None
    """Why its containers don't run yet."""
    ends_ms: int | None = None
    """By when it is to have ended, Unix milliseconds; None where nobody has asked for it."""
    node: str = ""
    told: tuple[str, str] | None = None
    """Why a kubelet has ended it, or not begun with it, in its own words: such as Evicted, OutOfcpu."""

    @classmethod
    def read(cls, document: Mapping[str, Any], container: str) -> DriverPod:
        """Reads a Pod; `container` is the name of the driver's container in it."""
        meta, status = document["metadata"], document.get("status") or {}
        found: Mapping[str, Any] = next(
            (each for each in status.get("containerStatuses") or () if each["name"] == container), {}
        )
        state = found.get("state") or {}
        ended = state.get("terminated") or {}
        owner = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
        return cls(
            uid=meta["uid"],
            name=meta["name"],
            owned_by=None if owner is None else owner["uid"],
            phase=status.get("phase", "Pending"),
            ip=status.get("podIP") or None,
            exit_code=ended.get("exitCode"),
            termination_reason=ended.get("reason", ""),
            last_words=LastWords.parse(ended.get("message", "")),
            deleting="deletionTimestamp" in meta,
            started_ms=milliseconds((state.get("running") or {}).get("startedAt")),
            wait=wait_of(status),
            ends_ms=milliseconds(meta.get("deletionTimestamp")),
            node=(document.get("spec") or {}).get("nodeName") or "",
            told=_told_by_kubelet(status),
        )

    @property
    def has_ended(self) -> bool:
        """Whether its driver has: a second or two before the pod's phase says so, or long before, beside a sidecar."""
        return self.exit_code is not None or self.is_gone

    @property
    def is_gone(self) -> bool:
        """Whether no process of it can still run."""
        return self.phase in ("Succeeded", "Failed")


def _told_by_kubelet(status: Mapping[str, Any]) -> tuple[str, str] | None:
    """Of a pod: its container's own end says nothing of it, and is 0 where the driver came to its end meanwhile."""
    reason = status.get("reason") or ""
    if status.get("phase") != "Failed" or not is_word(reason):
        return None
    return reason, " ".join((status.get("message") or "").split())


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a driver ended."""

    child: str
    """The uid of its child: the same death is never counted twice."""
    exit_code: int | None
    """None where nobody knows: the pod is gone, or was never there."""
    reason: str
    message: str
    remedy: str = ""
    sinks: tuple[Mapping[str, Any], ...] = field(default=())
    source: Mapping[str, Any] = field(default_factory=dict)
    is_of_submission: bool = False
    """Whether there was no driver yet."""

    @property
    def meaning(self) -> ExitCode:
        """By the driver's own table; what a signal or the kernel did is a failure like any other."""
        try:
            return ExitCode(self.exit_code) if self.exit_code is not None else ExitCode.FAILED
        except ValueError:
            return ExitCode.FAILED


def death_of(child: Child, pod: DriverPod | None) -> Death | None:
    """How the driver of a child ended; None while it may still run."""
    if child.state is ChildState.SUBMISSION_FAILED:
        return _of_submission(child)
    mine = pod if pod is not None and pod.owned_by == child.uid else None
    if mine is not None and (mine.exit_code is not None or mine.told is not None):
        return _told(child, mine)
    if child.state is not ChildState.ENDED:
        return None
    if mine is not None and not mine.is_gone:
        # Its operator has given it up, and it may still write: nobody else may start.
        return None
    if child.exit_code is not None:
        return _of_code(child, child.exit_code, child.exit_reason, child.pod_name or "")
    return Death(
        child=child.uid,
        exit_code=None,
        reason=POD_LOST,
        message=child.message or "the driver's pod is gone, and nobody knows how it ended",
        remedy="look at the events of the pod and of its node",
    )


def _of_submission(child: Child) -> Death:
    """The driver never was: what the API server or Spark said of it is the whole cause."""
    why = refusals.cause(child.message)
    reason = refusals.reason_of(why) or refusals.SUBMISSION_FAILED
    known = reason != refusals.SUBMISSION_FAILED
    return Death(
        child=child.uid,
        exit_code=None,
        reason=reason,
        message=why or "the Spark application could not be submitted",
        remedy=refusals.remedy_of(reason) if known else "look at the log of Kubeflow's Spark operator",
        is_of_submission=True,
    )


def _told(child: Child, pod: DriverPod) -> Death:
    words = pod.last_words
    if words is None and pod.told is not None:
        return _of_kubelet(child, pod, pod.told)
    if words is not None:
        return Death(
            child=child.uid,
            exit_code=pod.exit_code,
            reason=words.reason,
            message=words.message,
            remedy=words.remedy,
            sinks=words.sinks,
            source=words.source,
        )
    return _of_code(child, pod.exit_code, pod.termination_reason, pod.name)


def _of_kubelet(child: Child, pod: DriverPod, told: tuple[str, str]) -> Death:
    reason, message = told
    return Death(
        child=child.uid,
        exit_code=pod.exit_code,
        reason=reason,
        message=f"pod {pod.name}: {message or reason}",
        remedy=f"see what node {pod.node} lacks" if pod.node else "look at the events of the pod",
    )


def _of_code(child: Child, exit_code: int | None, termination_reason: str, pod: str) -> Death:
    if termination_reason == _OUT_OF_MEMORY:
        return Death(
            child=child.uid,
            exit_code=exit_code,
            reason="DriverOutOfMemory",
            message=f"the driver's container was killed for using more memory than it may (exit code {exit_code})",
            remedy="raise spec.spark.driver.memory",
        )
    return Death(
        child=child.uid,
        exit_code=exit_code,
        reason="Done" if exit_code == 0 else "DriverDied",
        message=f"the driver ended with exit code {exit_code} and said nothing",
        remedy="" if exit_code == 0 else f"look at the log of pod {pod}",
    )
