"""What tools that apply manifests conclude: kstatus (Flux), and a three-way diff (Argo CD, Helm, kubectl)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def kstatus(resource: Mapping[str, Any]) -> str:
    """As sigs.k8s.io/cli-utils/pkg/kstatus computes it of a custom resource."""
    meta, status = resource["metadata"], resource.get("status", {})
    if meta.get("deletionTimestamp"):
        return "Terminating"
    if "observedGeneration" in status and status["observedGeneration"] != meta["generation"]:
        return "InProgress"
    for condition in status.get("conditions", ()):
        if (condition["type"], condition["status"]) == ("Reconciling", "True"):
            return "InProgress"
        if (condition["type"], condition["status"]) == ("Stalled", "True"):
            return "Failed"
    ready = next((each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"), None)
    return "Current" if ready in (None, "True") else "InProgress"


def three_way(original: Any, modified: Any, live: Any) -> Any:
    """`live` after a three-way JSON merge patch, as of resources whose types nobody has: a list is one value."""
    if not (isinstance(modified, dict) and isinstance(live, dict)):
        return copy.deepcopy(modified)
    gone = set(original if isinstance(original, dict) else ()) - set(modified)
    merged = {name: value for name, value in live.items() if name not in gone}
    for name, value in modified.items():
        earlier = original.get(name) if isinstance(original, dict) else None
        merged[name] = three_way(earlier, value, live[name]) if name in live else copy.deepcopy(value)
    return merged
