"""What the cluster tells of a driver: its child object, its pod, and what it said last."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sinkpipeline.core.errors import ExitCode
from sinkpipeline_operator.kube.times import milliseconds

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


@dataclass(frozen=True, kw_only=True)
class LastWords:
    """What a driver wrote into its termination log."""

    reason: str
    message: str
    remedy: str
    sinks: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> LastWords | None:
        """None where it is no such document: a driver that was killed says nothing, or what Java said."""
        try:
            document = json.loads(text)
            return cls(
                reason=str(document["reason"]),
                message=str(document["message"]),
                remedy=str(document["remedy"]),
                sinks=tuple(MappingProxyType(dict(each)) for each in document.get("sinks", [])),
            )
        except (ValueError, KeyError, TypeError):
            return None


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
        )

    @property
    def is_gone(self) -> bool:
        """Whether no process of it can still run."""
        return self.phase in ("Succeeded", "Failed")


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
        return Death(
            child=child.uid,
            exit_code=None,
            reason="SubmissionFailed",
            message=child.message or "the Spark application could not be submitted",
            remedy="look at the Spark operator's log and at the events of the SparkApplication",
        )
    mine = pod if pod is not None and pod.owned_by == child.uid else None
    if mine is not None and mine.exit_code is not None and mine.is_gone:
        return _told(child, mine)
    if child.state is not ChildState.ENDED:
        return None
    if mine is not None and not mine.is_gone:
        # Its operator has given it up, and it may still write: nobody else may start.
        return None
    return Death(
        child=child.uid,
        exit_code=None,
        reason="DriverPodLost",
        message=child.message or "the driver's pod is gone, and nobody knows how it ended",
        remedy="look at the events of the pod and of its node",
    )


def _told(child: Child, pod: DriverPod) -> Death:
    words = pod.last_words
    if words is not None:
        return Death(
            child=child.uid,
            exit_code=pod.exit_code,
            reason=words.reason,
            message=words.message,
            remedy=words.remedy,
            sinks=words.sinks,
        )
    if pod.termination_reason == _OUT_OF_MEMORY:
        return Death(
            child=child.uid,
            exit_code=pod.exit_code,
            reason="DriverOutOfMemory",
            message=f"the driver's container was killed for using more memory than it may (exit code {pod.exit_code})",
            remedy="raise spec.spark.driver.memory",
        )
    return Death(
        child=child.uid,
        exit_code=pod.exit_code,
        reason="Done" if pod.exit_code == 0 else "DriverDied",
        message=f"the driver ended with exit code {pod.exit_code} and said nothing",
        remedy="" if pod.exit_code == 0 else f"look at the log of pod {pod.name}",
    )
