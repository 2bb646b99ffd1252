"""Kubeflow's operator on a cluster, by its own chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from deployed.chart import helm
from servers.control_plane import Cluster, pinned

NAMESPACE: Final = "spark-operator"
_REPOSITORY: Final = "https://kubeflow.github.io/spark-operator"
_DEADLINE_S: Final = 180


def version() -> str:
    return pinned("spark-operator", "github.com/kubeflow/spark-operator/v2")


def install(cluster: Cluster, chart: Path | None, image: str | None, namespaces: Sequence[str]) -> None:
    """It serves those namespaces, which are made where they are not there.

    Without a chart of this machine and an image (a name with a tag) both are Kubeflow's, from the network.
    """
    for namespace in namespaces:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    values: dict[str, Any] = {"spark": {"jobNamespaces": list(namespaces)}}
    if image is not None:
        repository, _, tag = image.rpartition(":")
        registry, _, repository = repository.partition("/")
        values["image"] = {"registry": registry, "repository": repository, "tag": tag}
    source = (
        [str(chart)] if chart is not None else ["spark-operator", f"--repo={_REPOSITORY}", f"--version={version()}"]
    )
    helm(
        *("upgrade", "--install", "spark-operator", *source, f"--namespace={NAMESPACE}", "--create-namespace"),
        *(f"--kubeconfig={cluster.kubeconfig}", "--wait", f"--timeout={_DEADLINE_S}s", "--values=-"),
        stdin=values,
        deadline_s=_DEADLINE_S + 10,
    )
