"""Keeps the CustomResourceDefinitions of this operator at its own revision, or says why they are not.

The right to `patch` them is of these names only; one that is missing is not made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import yaml

from sinkpipeline_operator.decide.definitions import Verdict, judge, revision, trouble
from sinkpipeline_operator.kube.client import DEFINITION, ApiRefused, ApiUnavailable, Cluster, Conflict

_MANAGER = "helm"
"""Helm 4 applies what stands in crds/ at each installation, and gives up where another manager owns a field."""

_LOG = logging.getLogger("sinkpipeline.operator")


def own() -> list[dict[str, Any]]:
    """Those that this operator was built with."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = resources.files("sinkpipeline_operator") / "crds"
    # Ours, and nobody else's input.
    return [yaml.load(each.read_bytes(), loader) for each in files.iterdir() if each.name.endswith(".yaml")]  # noqa: S506


class Definitions:
    """Asked by one thread at a time.

    Args:
        may_upgrade: whether older ones are replaced; else they are told of.
    """

    def __init__(self, cluster: Cluster, definitions: Iterable[Mapping[str, Any]], *, may_upgrade: bool) -> None:
        self._cluster = cluster
        self._definitions = list(definitions)
        self._may_upgrade = may_upgrade
        self._told = ""
        self._unseen: set[str] = set()

    def check(self) -> str:
        """Why this operator can't work with what the cluster has; empty where it can. Replaces older ones."""
        found = "; ".join(filter(None, map(self._checked, self._definitions)))
        if found and found != self._told:
            _LOG.error("%s", found)
        self._told = found
        return found

    def _checked(self, ours: Mapping[str, Any]) -> str:
        name = ours["metadata"]["name"]
        try:
            live = self._cluster.get_metadata(DEFINITION, name)
        except ApiRefused as error:
            # Whoever grants rights by hand may not know of this one: as before, it is trusted to be right.
            if name not in self._unseen:
                _LOG.warning("can't see whether the CustomResourceDefinition %s is up to date: %s", name, error)
            self._unseen.add(name)
            return ""
        except ApiUnavailable as error:
            return f"the API server can't be worked with: {error}"
        if judge(ours, live) is not Verdict.OLDER or not self._may_upgrade:
            return trouble(ours, live)
        assert live is not None
        try:
            self._cluster.apply(DEFINITION, ours, _MANAGER)
        except (ApiUnavailable, ApiRefused, Conflict) as error:
            return trouble(ours, live, str(error))
        _LOG.warning(
            "the CustomResourceDefinition %s had revision %d and has %d now", name, revision(live), revision(ours)
        )
        return ""
