"""deploy/install.yaml on a real API server, by the commands that docs/install.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deployed import manifest
from deployed.manifest import NAMESPACE
from servers.control_plane import Cluster, kubectl_executable
from support.kube.rights import allowed, remove, until_rights_count
from support.waiting import wait_until

pytestmark = pytest.mark.kube

ROOT = Path(__file__).parents[2]
REGISTRY = "registry.invalid/team"


@dataclass(frozen=True)
class Installed:
    system: str
    """The operator's namespace: one of this test's, as the cluster may be in use."""
    served: str
    """Another one, for pipelines."""

    def renamed(self, text: str) -> str:
        return re.sub(r"\bshop\b", self.served, text.replace(NAMESPACE, self.system))


def documented() -> list[str]:
    section = (ROOT / "docs" / "install.md").read_text().partition("### Without Helm\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def installed(api_server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    names = Installed(*(f"test-{uuid.uuid4().hex[:12]}" for _ in range(2)))
    tree = tmp_path_factory.mktemp("tree")
    file = tree / manifest.PATH.relative_to(ROOT)
    file.parent.mkdir()
    file.write_text(names.renamed(manifest.PATH.read_text()))
    environ = {
        "PATH": f"{Path(kubectl_executable()).parent}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(api_server.kubeconfig),
        "KUBECACHEDIR": str(tree / "cache"),
        "REGISTRY": REGISTRY,
    }
    # It is there since Kubeflow's operator serves it.
    api_server.kubectl("create", "namespace", names.served)
    commands = documented()
    assert len(commands) == 2
    for each in commands:
        strict = ["bash", "-euo", "pipefail", "-c", names.renamed(each)]
        done = subprocess.run(strict, check=False, cwd=tree, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    yield names
    remove(api_server, names.system)
    api_server.kubectl("delete", "namespace", names.system, names.served, "--wait=false")


@pytest.mark.thorough("the chart's, in test_chart; tests/contract holds the two together")
def test_accounts_have_their_rights(api_server: Cluster, installed: Installed) -> None:
    until_rights_count(api_server, installed.system, manifest.operator_account())
    account = f"{installed.system}:{manifest.operator_account()}"
    wait_until(lambda: allowed(api_server, account, "get", "secrets", installed.served), "it may where pipelines are")
    assert not allowed(api_server, account, "get", "secrets", "default")


def test_drivers_have_theirs_where_pipelines_are(api_server: Cluster, installed: Installed) -> None:
    account = f"{installed.served}:sinkpipeline-driver"
    wait_until(lambda: allowed(api_server, account, "create", "pods", installed.served), "the rights count")
    assert not allowed(api_server, account, "create", "pods", installed.system)


def test_images_come_from_the_registry(api_server: Cluster, installed: Installed) -> None:
    deployment = api_server.get("deployment", "sinkpipeline-operator", f"--namespace={installed.system}")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{REGISTRY}/sinkpipeline-operator:")
    assert container["args"][0].startswith(f"--image={REGISTRY}/sinkpipeline-spark:")
