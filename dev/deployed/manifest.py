"""deploy/install.yaml: the operator for `kubectl apply --server-side`: its chart with the default values, and the CRD.

`PYTHONPATH=dev python -m deployed.manifest` writes it anew. That takes Helm; to read and to apply it does not.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Final

import yaml

import crd
from deployed import chart
from deployed.chart import NAMESPACE, ROOT, Object
from servers.control_plane import Cluster

PATH: Final = ROOT / "deploy" / "install.yaml"
_HEAD: Final = "# Written by `make manifests`: the chart with its default values, and the CRD. See docs/install.md.\n"
# They would say that Helm manages what it has never seen.
_OF_HELM: Final = re.compile(r"^ *(?:helm\.sh/|app\.kubernetes\.io/managed-by:|# Source:).*\n", re.MULTILINE)
_LEFT_EMPTY: Final = re.compile(r"^( *)annotations:\n(?!\1 )", re.MULTILINE)


def objects() -> list[Object]:
    return [document for document in yaml.safe_load_all(PATH.read_text()) if document is not None]


def apply(cluster: Cluster, served: str) -> None:
    """All of it but the Deployment, for an operator that runs elsewhere; and what a namespace with pipelines needs.

    That namespace must be there.
    """
    manifest = [each for each in objects() if each["kind"] != "Deployment"]
    of_drivers = [_moved(each, served) for each in manifest if _is_drivers(each)]
    # The operator's right to read Secrets there.
    bindings = [each for each in manifest if each["kind"] == "RoleBinding" and not _is_drivers(each)]
    items = [
        *manifest,
        *of_drivers,
        *({**each, "metadata": {**each["metadata"], "namespace": served}} for each in bindings),
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=listed)


def operator_arguments() -> list[str]:
    """What the operator's container is started with."""
    return list(chart.operator_container(objects())["args"])


def operator_account() -> str:
    """The operator's ServiceAccount, in `NAMESPACE`."""
    return chart.account_of(objects())


def render() -> str:
    """The file's text, by Helm."""
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
    rendered = chart.helm("template", chart.RELEASE, str(chart.CHART), f"--namespace={NAMESPACE}", "--skip-tests")
    text = _LEFT_EMPTY.sub("", _OF_HELM.sub("", rendered))
    documents = [namespace, *(path.read_text() for path in crd.PATHS), *re.split(r"^---\n", text, flags=re.MULTILINE)]
    return _HEAD + "---\n".join(f"{each.strip()}\n" for each in documents if each.strip())


def _is_drivers(each: Object) -> bool:
    labels = each["metadata"].get("labels", {})
    return bool(labels.get("app.kubernetes.io/component") == "driver")


def _moved(each: Object, namespace: str) -> Object:
    moved = copy.deepcopy(each)
    for place in (moved["metadata"], *moved.get("subjects", ())):
        place["namespace"] = namespace
    return moved


def main() -> None:
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(render())


if __name__ == "__main__":
    main()
