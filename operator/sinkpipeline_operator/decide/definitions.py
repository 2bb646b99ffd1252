"""Whether the CustomResourceDefinition in the cluster is one that this operator can work with. Pure.

Helm installs those of `crds/` with the first release and never upgrades them. With an older one the API server would
drop the fields that it doesn't know, from manifests and from the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

REVISION = "sinkpipeline.io/revision"
"""An annotation: a number, that grows with each change. What is newer has all that is older."""


OPTIONAL = frozenset({"sinkpipelineactions.sinkpipeline.io"})
"""Pipelines are served without them: Helm brings no kind that is new to an installation."""


class Verdict(Enum):
    SERVES = "serves"
    OLDER = "older"
    MISSING = "missing"
    ENDING = "ending"


def judge(ours: Mapping[str, Any], live: Mapping[str, Any] | None) -> Verdict:
    """`live`: the one of that name in the cluster; of either only the metadata is read."""
    if live is None:
        return Verdict.MISSING
    if live["metadata"].get("deletionTimestamp"):
        return Verdict.ENDING
    return Verdict.OLDER if revision(live) < revision(ours) else Verdict.SERVES


def revision(definition: Mapping[str, Any]) -> int:
    """0 for one from before there were numbers, or whose number somebody has spoilt."""
    text = str((definition["metadata"].get("annotations") or {}).get(REVISION, ""))
    return int(text) if text.isdecimal() else 0


def trouble(ours: Mapping[str, Any], live: Mapping[str, Any] | None, refusal: str = "") -> str:
    """What a person has to know, and to do; empty where it serves.

    `refusal`: why an older one could not be replaced.
    """
    verdict = judge(ours, live)
    name = ours["metadata"]["name"]
    if verdict is Verdict.SERVES or (verdict is Verdict.MISSING and name in OPTIONAL):
        return ""
    if verdict is Verdict.ENDING:
        return f"the CustomResourceDefinition {name} is being deleted"
    found = "is missing" if live is None else f"has revision {revision(live)}, older than this operator's"
    refused = f", and could not be replaced ({refusal})" if refusal else ""
    return (
        f"the CustomResourceDefinition {name} {found} ({revision(ours)}){refused}: "
        "kubectl apply --server-side --force-conflicts -f crds/"
    )
