"""What operators ask of an API server, as that one writes it down."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from deployed import chart


class Audit:
    """The audit log of the operators' accounts of some namespaces; a watch stands there once it has ended."""

    def __init__(self, directory: Path, *namespaces: str) -> None:
        self._log = directory / "audit.log"
        self._policy = directory / "audit.yaml"
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{"level": "Metadata", "users": [_user(each) for each in namespaces]}, {"level": "None"}],
        }
        self._policy.write_text(json.dumps(policy))

    @property
    def flags(self) -> dict[str, str]:
        """Of kube-apiserver."""
        return {"audit-policy-file": str(self._policy), "audit-log-path": str(self._log)}

    def position(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def since(self, position: int) -> Counter[tuple[str, str]]:
        """Verbs and resources."""
        found: Counter[tuple[str, str]] = Counter()
        for event in self._events(position):
            of = event.get("objectRef") or {}
            resource = "/".join(filter(None, (of.get("resource", ""), of.get("subresource", ""))))
            found[event["verb"], resource] += 1
        return found

    def selectors(self, namespace: str, resource: str) -> list[tuple[str, str]]:
        """Of each list and watch by the operator of that namespace: the verb, and its label selector, or ""."""
        return [
            (event["verb"], parse_qs(urlsplit(event["requestURI"]).query).get("labelSelector", [""])[0])
            for event in self._events(0)
            if event["user"]["username"] == _user(namespace)
            if event["verb"] in ("list", "watch")
            if (event.get("objectRef") or {}).get("resource") == resource
        ]

    def _events(self, position: int) -> Iterator[dict[str, Any]]:
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(position)
            for line in file:
                # The last one may not be whole yet.
                with contextlib.suppress(ValueError):
                    yield json.loads(line)


def _user(namespace: str) -> str:
    return f"system:serviceaccount:{namespace}:{chart.RELEASE}"
