"""The operator's chart as Helm renders it, and the same objects on a cluster, for the tests and the demo."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from servers.control_plane import Cluster, pinned
from servers.local_process import cache_directory

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "sinkpipeline-operator"
RELEASE: Final = "sinkpipeline-operator"
NAMESPACE: Final = "sinkpipeline-system"
HELM_DEADLINE: Final = 60.0
BUILD_DEADLINE: Final = 1800.0

Object = dict[str, Any]


class ChartError(RuntimeError):
    """Helm refused, or there is none."""


def render(
    values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE, *, release: str = RELEASE
) -> list[Object]:
    """The objects that `helm install` would make with these values over the defaults: neither the CRD nor tests.

    Raises ChartError with what Helm says, as for a value that the chart doesn't know.
    """
    return _template(values, namespace, release, "--skip-tests")


def render_tests(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> list[Object]:
    """What `helm test` would start."""
    objects = _template(values, namespace, RELEASE)
    return [each for each in objects if "helm.sh/hook" in each["metadata"].get("annotations", {})]


def _template(values: Mapping[str, Any] | None, namespace: str, release: str, *options: str) -> list[Object]:
    rendered = helm("template", release, str(CHART), f"--namespace={namespace}", "--values=-", *options, stdin=values)
    return [document for document in yaml.safe_load_all(rendered) if document is not None]


def install(
    cluster: Cluster, values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE, *, deployment: bool = True
) -> list[Object]:
    """Applies what `render` gives, the CRD first, and returns it; `namespace` is made, the others must be there.

    Without `deployment` there are only the accounts, their rights and the service: for an operator that runs elsewhere,
    with `operator_arguments`, and with `Cluster.service_account_kubeconfig` of `operator_account`.
    """
    objects = [each for each in render(values, namespace) if deployment or each["kind"] != "Deployment"]
    cluster.install_crds(*crds())
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": [made, *objects]})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    return objects


def app_version() -> str:
    """Of the operator and the application: the default tag of both images."""
    described: Object = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return str(described["appVersion"])


def crds() -> list[Path]:
    return sorted((CHART / "crds").glob("*.yaml"))


def operator_arguments(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> list[str]:
    """What the operator's container is started with."""
    arguments: list[str] = operator_container(render(values, namespace))["args"]
    return arguments


def operator_container(objects: list[Object]) -> Object:
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def operator_account(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> str:
    """The operator's ServiceAccount, in that namespace."""
    return account_of(render(values, namespace))


def account_of(objects: list[Object]) -> str:
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    return str(deployment["spec"]["template"]["spec"]["serviceAccountName"])


def helm(
    *arguments: str,
    stdin: Mapping[str, Any] | None = None,
    kubeconfig: Path | None = None,
    deadline_s: float = HELM_DEADLINE,
) -> str:
    """Standard output. Raises ChartError with what Helm says, where it does not end with 0.

    With a `kubeconfig` of that cluster; without one of none.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        # Neither plugins nor repositories of the user's, and nothing left behind.
        places = {f"HELM_{name}": home for name in ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME")}
        places["KUBECONFIG"] = os.devnull if kubeconfig is None else str(kubeconfig)
        result = subprocess.run(
            [helm_executable(), *arguments],
            input=json.dumps(stdin or {}),
            capture_output=True,
            text=True,
            env=os.environ | places,
            timeout=deadline_s,
            check=False,
        )
    if result.returncode != 0:
        raise ChartError(f"helm {' '.join(arguments)}: {result.stdout}{result.stderr}".strip())
    return result.stdout


def helm_executable() -> str:
    """That of the PATH, or the one that `dev/install.sh helm` builds, which is done here where it was not."""
    found = shutil.which("helm")
    if found is not None:
        return found
    built = cache_directory() / f"helm-{pinned('helm', 'helm.sh/helm/v4')}" / "helm"
    with _alone():
        if not built.is_file():
            install_helm = [str(ROOT / "dev" / "install.sh"), "helm"]
            result = subprocess.run(install_helm, capture_output=True, text=True, timeout=BUILD_DEADLINE, check=False)
            if result.returncode != 0:
                raise ChartError(result.stderr.strip())
    return str(built)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One build at a time: the tests run in several processes."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / ".helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
