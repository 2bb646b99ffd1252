"""Why a pod's containers don't run yet, by its conditions and their waiting reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_USUAL = frozenset({"ContainerCreating", "PodInitializing"})
"""Steps of every start; a volume that can't be mounted waits here too, and only events tell of it."""
_FOR_GOOD = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_PULL = "ImagePullBackOff"
_PULLS = frozenset({_PULL, "ErrImagePull"})
"""A kubelet goes to and fro between the two, try by try: one trouble, one name."""
_PULL_CAUSE = "ErrImagePull: "


@dataclass(frozen=True, kw_only=True)
class PodWait:
    reason: str
    """Kubernetes' own."""
    message: str
    complains: bool
    """Whether it is more than a step of every start."""
    for_good: bool = False
    """Whether it can't pass before somebody changes something."""


def wait_of(status: Mapping[str, Any]) -> PodWait | None:
    """Of a pod's `status`; None where nothing is waited for, or nothing is said of it."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = _word(condition.get("reason") or "Unschedulable")
            return PodWait(reason=reason, message=condition.get("message") or "", complains=True)
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found = [_of_container(each) for each in containers if (each.get("state") or {}).get("waiting")]
    # One that complains keeps the others waiting.
    return next((each for each in found if each.complains), found[0] if found else None)


def _of_container(container: Mapping[str, Any]) -> PodWait:
    waiting = container["state"]["waiting"]
    reason, message = waiting.get("reason") or "ContainerCreating", waiting.get("message") or ""
    if reason in _PULLS:
        # The kubelet's back-off says what it backs off from, since 1.32.
        reason, message = _PULL, message.partition(_PULL_CAUSE)[2] or message
    said = f"{container['name']}: {message}" if message else ""
    return PodWait(reason=_word(reason), message=said, complains=reason not in _USUAL, for_good=reason in _FOR_GOOD)


def _word(reason: str) -> str:
    """A condition's reason is one word, and not every kubelet's is."""
    return reason if is_word(reason) else "PodWaiting"


def is_word(reason: str) -> bool:
    """Whether it can be a condition's reason."""
    return reason.isascii() and reason.isalnum() and reason[0].isalpha()
