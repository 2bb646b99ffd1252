"""Which cluster is taken: that of KUBECONFIG, else a new one of kind where Docker runs, else a node of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from cluster import kubeflow
from cluster.target import DIRECTORY, ROOT, Target
from deployed.chart import app_version
from node import machine
from servers import control_plane
from servers.control_plane import ControlPlaneError
from servers.local_process import cache_directory

NAMESPACES: Final = ("shop", "warehouse")
"""Those that Kubeflow's operator serves."""
IMAGES: Final = ("sinkpipeline-operator", "sinkpipeline-spark")
_KIND: Final = "sinkpipeline"
_BUILD_S: Final = 3600.0
_KIND_S: Final = 600.0


def up(namespaces: Sequence[str] = NAMESPACES) -> Target:
    """The cluster, with our images and with Kubeflow's operator; one that is up already is taken as it is.

    Raises:
        ControlPlaneError, NodeError, ChartError: with what is missing.
    """
    running = Target.load()
    if running is not None and running.cluster.answers():
        return running
    down()
    if os.environ.get("KUBECONFIG"):
        target = _given()
    elif control_plane.kind_runs():
        target = _kind(namespaces)
    else:
        target = _local(namespaces)
    target.save()
    return target


def why_not() -> str | None:
    """Why a run that nobody asked for by name, such as that of `make test-all`, makes no cluster; None where it does.

    Who has set KUBECONFIG has said by `make e2e` alone what a test may do to that cluster.
    """
    if os.environ.get("KUBECONFIG"):
        return "KUBECONFIG is set: run `make e2e` where tests may use that cluster"
    if control_plane.kind_runs() or (sys.platform == "linux" and os.geteuid() == 0):
        return None
    return "it needs kind with Docker, or root on Linux, or a cluster (docs/install.md)"


def is_up() -> bool:
    running = Target.load()
    return running is not None and running.cluster.answers()


def down() -> list[str]:
    """Ends what `up` has made; a cluster of KUBECONFIG stays as it is. What is left on this machine all the same."""
    target = Target.load()
    if target is not None and target.kind == "kind":
        _run("kind", "delete", "cluster", f"--name={_KIND}", f"--kubeconfig={target.kubeconfig}", deadline_s=_KIND_S)
    # Also what an `up` that was killed has left.
    return machine.down(DIRECTORY)


def _given() -> Target:
    """Its owner has installed Kubeflow's operator, and pushed the images."""
    host, registry = os.environ.get("KAFKA_HOST"), os.environ.get("REGISTRY")
    if not host or not registry:
        raise ControlPlaneError(
            "KUBECONFIG is set: say with KAFKA_HOST at which address of this machine pods reach brokers, and with "
            "REGISTRY where the images are (`REGISTRY=... dev/images/build.sh --push`), as in "
            "`make cluster KAFKA_HOST=192.0.2.7 REGISTRY=registry.example.com`"
        )
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    ours = control_plane.given_cluster(DIRECTORY)
    return Target("given", str(ours.kubeconfig), host, registry)


def _kind(namespaces: Sequence[str]) -> Target:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    kubeconfig = DIRECTORY / "kubeconfig"
    create = ("create", "cluster", f"--name={_KIND}", f"--config={ROOT / 'dev/kind/cluster.yaml'}", "--wait=120s")
    _run("kind", *create, f"--kubeconfig={kubeconfig}", deadline_s=_KIND_S)
    # Known from here on, so that `down` ends it.
    gateway = '{{range .IPAM.Config}}{{.Gateway}}{{"\\n"}}{{end}}'
    addresses = _run("docker", "network", "inspect", "kind", f"--format={gateway}").split()
    target = Target("kind", str(kubeconfig), next(each for each in addresses if ":" not in each))
    target.save()
    _run(
        str(ROOT / "dev/images/build.sh"),
        deadline_s=_BUILD_S,
        BUILDER="docker",
        REGISTRY="localhost",
        TAG=app_version(),
    )
    images = [f"localhost/{name}:{app_version()}" for name in IMAGES]
    _run("kind", "load", "docker-image", *images, f"--name={_KIND}", deadline_s=_KIND_S)
    kubeflow.install(target.cluster, None, None, namespaces)
    return target


def _local(namespaces: Sequence[str]) -> Target:
    _run(str(ROOT / "dev/install.sh"), "control-plane", deadline_s=_BUILD_S)
    _run(str(ROOT / "dev/install.sh"), "node", deadline_s=_BUILD_S)
    programs, images = machine.programs_directory(), cache_directory() / "images"
    _run(str(ROOT / "dev/images/local.sh"), str(programs), str(images), deadline_s=_BUILD_S)
    ours = machine.up(DIRECTORY, images / "layout")
    target = Target("local", str(ours.kubeconfig), machine.host_address(DIRECTORY))
    target.save()
    image = f"localhost/spark-operator:{kubeflow.version()}"
    kubeflow.install(ours, programs / "spark-operator-chart", image, namespaces)
    return target


def _run(*argv: str, deadline_s: float = 60.0, **environ: str) -> str:
    """What it prints; what it says of its work goes to the terminal."""
    found = shutil.which(argv[0])
    if found is None:
        raise ControlPlaneError(f"{argv[0]} is not installed")
    try:
        result = subprocess.run(
            [found, *argv[1:]],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=deadline_s,
            env=os.environ | environ,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        raise ControlPlaneError(f"{' '.join(argv)} did not end within {deadline_s:.0f} s") from None
    if result.returncode != 0:
        raise ControlPlaneError(f"{' '.join(argv)} ended with {result.returncode}\n{result.stdout[-2000:]}")
    return result.stdout
