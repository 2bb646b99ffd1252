"""One `SinkPipelineAction` and what is around it, as they were observed, and what is made of them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkpipeline.core.asked import Preview
from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.manifest import ManifestError
from sinkpipeline.core.manifest.action import ActionSpec, ActionType, parse_action
from sinkpipeline_operator.kube.client import Ref
from sinkpipeline_operator.kube.times import milliseconds

_METADATA = ("name", "namespace", "uid", "generation")


class Phase(str, enum.Enum):
    PREVIEWING = "Previewing"
    AWAITING = "AwaitingConfirmation"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_over(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class Task(enum.Enum):
    """What somebody has to work at, who answers later."""

    NONE = "none"
    PREVIEW = "preview"
    CHECK = "check"
    """Whether what was confirmed is still so, before a driver is stopped for it."""
    CARRY_OUT = "carry out"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why something was not done."""

    reason: str
    message: str
    remedy: str
    retry: bool = False

    @classmethod
    def of(cls, error: SinkPipelineError) -> Trouble:
        return cls(reason=error.reason.value, message=error.message, remedy=error.remedy, retry=error.reason.retry)

    @property
    def text(self) -> str:
        return f"{self.reason}: {self.message} ({self.remedy})" if self.remedy else f"{self.reason}: {self.message}"


Outcome = Preview | str | Trouble
"""Of a task: what is shown, what was done, or why neither."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One action, as it was read."""

    resource: Mapping[str, Any]
    spec: ActionSpec | None
    problems: str = ""

    @classmethod
    def read(cls, resource: Mapping[str, Any]) -> Asked:
        meta = {key: value for key, value in resource["metadata"].items() if key in _METADATA}
        try:
            return cls(resource=resource, spec=parse_action({**resource, "metadata": meta, "status": None}).spec)
        except ManifestError as error:
            return cls(resource=resource, spec=None, problems="; ".join(map(str, error.problems)))

    @property
    def ref(self) -> Ref:
        meta = self.resource["metadata"]
        return Ref(meta["namespace"], meta["name"])

    @property
    def uid(self) -> str:
        return str(self.resource["metadata"]["uid"])

    @property
    def created_ms(self) -> int:
        return milliseconds(self.resource["metadata"].get("creationTimestamp")) or 0

    @property
    def status(self) -> Mapping[str, Any]:
        return self.resource.get("status") or {}

    @property
    def phase(self) -> Phase | None:
        """None before the operator has seen it; what nobody of us has written counts as that."""
        try:
            return Phase(self.status.get("phase"))
        except ValueError:
            return None

    @property
    def attempt(self) -> str:
        return str((self.status.get("attempt") or {}).get("id", ""))

    @property
    def digest(self) -> str | None:
        return self.status.get("digest")

    @property
    def resolved(self) -> dict[str, Any]:
        """Raises ValueError: somebody has written into the status."""
        found = parse_json(self.status.get("resolved") or "")
        if not isinstance(found, dict):
            raise ValueError("no mapping")  # noqa: TRY004 - as where it is no JSON
        return found

    @property
    def is_confirmed(self) -> bool:
        return self.spec is not None and self.digest is not None and self.spec.confirm == self.digest

    @property
    def holds(self) -> bool:
        """Whether its pipeline must have no driver: one that runs would be reset under its feet."""
        return self.spec is not None and self.spec.action is ActionType.RESET and self.phase is Phase.RUNNING

    @property
    def order(self) -> tuple[bool, int, str]:
        """Who runs goes first, then who was created first."""
        return self.phase is not Phase.RUNNING, self.created_ms, self.uid


@dataclass(frozen=True, kw_only=True)
class Around:
    """What is so with the pipeline of an action."""

    now_ms: int
    uid: str | None
    """The pipeline's; None where it is gone, or going."""
    trouble: Trouble | None = None
    """Why nothing can be done with it: its manifest is refused, or a Secret is missing."""
    sinks: Mapping[str, bool] = field(default_factory=dict)
    """By name, whether it has dead letters."""
    driver_is_gone: bool = False
    paused: bool = False
    rivals: Collection[str] = ()
    """Other actions of the sink that run."""
    others: str = ""
    """How the other actions of the sink stand: what was checked before one of them changed it says nothing."""
    in_process: bool = True
    """Whether the operator does it itself, and no Job."""
    new_id: str = ""
    """For an attempt that begins."""


@dataclass(frozen=True, kw_only=True)
class Next:
    """What is so from now on."""

    status: Mapping[str, Any]
    wait_s: float | None = None
    """In how many seconds to look again; None: when something happens."""
    delete: bool = False
    abandon: bool = False
    """The Job of the attempt, if there is one, is not wanted any more."""
