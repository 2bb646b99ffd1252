"""What Helm does with a release, on a real API server: from the previous chart on, back again, and away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import crd
from deployed import chart
from deployed.chart import CHART, RELEASE, ChartError, helm
from servers.control_plane import Cluster, kubectl_executable
from servers.local_process import HOST
from support.kube.drivers import Drivers
from support.kube.operator_lab import OperatorLab
from support.kube.rights import Outside, until_rights_count
from support.waiting import wait_until

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(chart.BUILD_DEADLINE + 120),
    pytest.mark.skipif("KUBECONFIG" in os.environ, reason="replaces the CRD, which whoever shares the cluster needs"),
]

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
PREVIOUS = ROOT / "tests" / "data" / "sinkpipeline-operator-0.1.0.tgz"
"""As `helm package` made it of the last chart that had an operator without an eye on its CRD."""
DEFINITION = crd.PATH.stem


@pytest.fixture(autouse=True, scope="module")
def crd_again(api_server: Cluster) -> Iterator[None]:
    yield
    api_server.kubectl("replace", "-f", str(crd.PATH))


@pytest.fixture
def old_crd(api_server: Cluster, tmp_path: Path) -> Iterator[None]:
    """The CRD of the previous chart, as its installation left it."""
    with tarfile.open(PREVIOUS) as archive:
        inside = archive.extractfile(f"sinkpipeline-operator/crds/{crd.PATH.name}")
        assert inside is not None
        (tmp_path / "old.yaml").write_bytes(inside.read())
    api_server.kubectl("replace", "-f", str(tmp_path / "old.yaml"))
    assert revision(api_server) == 0
    yield
    api_server.kubectl("replace", "-f", str(crd.PATH))


class Release:
    """One of Helm's in a namespace, whose pipelines it serves."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def helm(self, command: str, *arguments: str, stdin: Mapping[str, Any] | None = None) -> str:
        place = f"--namespace={self.namespace}"
        return helm(command, RELEASE, *arguments, place, stdin=stdin, kubeconfig=self._cluster.kubeconfig)

    @property
    def values(self) -> Object:
        return {"watchNamespaces": [self.namespace], "resync": 5}

    def upgrade(self) -> None:
        # The previous chart refuses a value that it doesn't know.
        self.helm("upgrade", str(CHART), "--reset-then-reuse-values", "--set", "resyncAtRest=5")

    def installed(self) -> Outside:
        """How an operator outside the cluster is started."""
        objects = [each for each in yaml.safe_load_all(self._manifest()) if each is not None]
        account = chart.account_of(objects)
        until_rights_count(self._cluster, self.namespace, account)
        kubeconfig = self._cluster.service_account_kubeconfig(self.namespace, account)
        return Outside(kubeconfig, chart.operator_container(objects)["args"])

    def _manifest(self) -> str:
        place = f"--namespace={self.namespace}"
        return helm("get", "manifest", RELEASE, place, kubeconfig=self._cluster.kubeconfig)

    def kinds(self) -> set[str]:
        """Of what is there with the release's label."""
        which = "deployments,services,serviceaccounts,roles,rolebindings"
        found = self._cluster.get(
            which, f"--namespace={self.namespace}", f"--selector=app.kubernetes.io/instance={RELEASE}"
        )
        return {f"{each['kind']}/{each['metadata']['name']}" for each in found["items"]}


def revision(cluster: Cluster) -> int:
    annotations = cluster.get("crd", DEFINITION)["metadata"].get("annotations", {})
    return int(annotations.get(crd.REVISION, 0))


def schema(cluster: Cluster) -> Any:
    [version] = cluster.get("crd", DEFINITION)["spec"]["versions"]
    return version["schema"]


class Kubelet:
    """Runs the pod of one `helm test`, which asks the operator of a lab."""

    def __init__(self, lab: OperatorLab) -> None:
        self._lab = lab
        self.said = ""

    def run(self) -> None:
        pods = wait_until(self._pods, "Helm has made its pod")
        name, [container] = pods[0]["metadata"]["name"], pods[0]["spec"]["containers"]
        _, *program, url = container["command"]
        url = re.sub(r"//[^/]+/", f"//{HOST}:{self._lab.port}/", url)
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        argv = [sys.executable, *program, url, "0"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, env=environ)
        self.said = done.stdout
        phase = "Failed" if done.returncode else "Succeeded"
        patch = json.dumps({"status": {"phase": phase}})
        self._lab.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)

    def _pods(self) -> list[Object]:
        found = self._lab.cluster.get(
            "pods", f"--namespace={self._lab.namespace}", "--selector=app.kubernetes.io/component=test"
        )
        items: list[Object] = [each for each in found["items"] if each.get("status", {}).get("phase") == "Pending"]
        return items


def helm_test(release: Release, lab: OperatorLab) -> str:
    """What the pod says. Raises ChartError where the test fails."""
    kubelet = Kubelet(lab)
    thread = threading.Thread(target=kubelet.run)
    thread.start()
    try:
        release.helm("test", "--timeout=30s")
    finally:
        thread.join()
    return kubelet.said


def write_newer(cluster: Cluster) -> None:
    """As the operator of a later release does."""
    newer = yaml.safe_load(crd.PATH.read_text())
    newer["metadata"]["annotations"][crd.REVISION] = "999"
    how = ("--server-side", "--force-conflicts", "--field-manager=helm")
    cluster.kubectl("apply", *how, "-f", "-", stdin=json.dumps(newer))


@pytest.mark.usefixtures("old_crd")
@pytest.mark.thorough("an upgrade; test_chart installs, tests/unit has which CRD an operator takes")
def test_a_release_goes_on_from_the_previous_chart_and_leaves_what_is_the_users(
    api_server: Cluster, drivers: Drivers, namespace: str, name: str
) -> None:
    release = Release(api_server, namespace)
    release.helm("install", str(PREVIOUS), "--values=-", stdin=release.values)
    before = schema(api_server)
    release.upgrade()
    assert schema(api_server) == before, "Helm leaves it alone"

    with OperatorLab(api_server, namespace, drivers, installer=lambda *_: release.installed()) as lab:
        lab.start()
        assert revision(api_server) == crd.committed_revision()
        [version] = yaml.safe_load(crd.PATH.read_text())["spec"]["versions"]
        assert schema(api_server) == version["schema"] != before
        lab.apply(lab.pipeline(name))
        lab.until_ready(name)
        assert helm_test(release, lab).endswith("/readyz: ok\n")
        assert lab.stop() == 0
        release.helm("uninstall")
        assert release.kinds() == {f"{kind}/sinkpipeline-driver" for kind in ("ServiceAccount", "Role", "RoleBinding")}
        assert lab.find("sinkpipeline", name) is not None
        assert lab.find("sparkapplication", name) is not None
        assert lab.find("pod", f"{name}-driver") is not None


@pytest.mark.long("more of the same steps of Helm; a release goes on from the previous chart above")
def test_a_release_goes_back_and_comes_again(api_server: Cluster, drivers: Drivers, namespace: str, name: str) -> None:
    release = Release(api_server, namespace)
    release.helm("install", str(PREVIOUS), "--skip-crds", "--values=-", stdin=release.values)
    release.upgrade()
    with OperatorLab(api_server, namespace, drivers, installer=lambda *_: release.installed()) as lab:
        lab.start()
        lab.apply(lab.pipeline(name))
        lab.until_ready(name)

        # The older chart's operator meets what a newer one has left.
        release.helm("rollback", "1")
        write_newer(api_server)
        lab.restart()
        lab.until_ready(name)
        assert revision(api_server) == 999

        release.upgrade()
        starts, uid = lab.starts(name), lab.resource(name)["metadata"]["uid"]
        release.helm("uninstall")
        assert lab.stop() == 0
        release.helm("install", str(CHART), "--values=-", stdin={**release.values, "resyncAtRest": 5})
        lab.install_anew()
        lab.start()
        lab.until_ready(name)
        assert lab.starts(name) == starts, "its driver went on"
        assert lab.resource(name)["metadata"]["uid"] == uid
        release.helm("uninstall")


@pytest.mark.usefixtures("old_crd")
@pytest.mark.thorough("the release above replaces it; the words are those of a pure function")
def test_an_operator_that_may_not_replace_its_crd_waits_for_somebody_who_does(
    api_server: Cluster, drivers: Drivers, namespace: str, name: str, remedy: Callable[[str], None]
) -> None:
    values = {"crds": {"upgrade": False}}
    with OperatorLab(api_server, namespace, drivers, values=values) as lab:
        lab.apply(lab.pipeline(name))
        lab.begin()
        lab.until(lambda: lab.answer("/readyz")[0], "it answers")
        lab.until(lambda: "revision 0, older than" in lab.answer("/readyz")[1], "it says what it waits for")
        assert lab.answer("/readyz")[0] == 503
        assert lab.answer("/healthz")[0] == 200
        assert lab.stop() == 0, "SIGTERM finds it while it waits"
        lab.begin()
        lab.until(lambda: lab.answer("/readyz")[0] == 503 and DEFINITION in lab.answer("/readyz")[1], "it waits")
        assert lab.child(name) is None
        remedy(lab.answer("/readyz")[1])
        lab.until(lambda: lab.answer("/readyz")[0] == 200, "it serves")
        lab.until_ready(name)
        assert "sinkpipelines.sinkpipeline.io" in lab.log


@pytest.fixture
def remedy(api_server: Cluster) -> Callable[[str], None]:
    """Does what a message says after its colon, as printed, in the repository."""

    def do(message: str) -> None:
        command = message[message.index("kubectl ") :].strip()
        path = f"{Path(kubectl_executable()).parent}{os.pathsep}{os.environ['PATH']}"
        environ = {
            "PATH": path,
            "KUBECONFIG": str(api_server.kubeconfig),
            "KUBECACHEDIR": str(api_server.directory / "c"),
        }
        subprocess.run(["bash", "-euc", command], check=True, cwd=ROOT, env=environ, capture_output=True)

    return do


@pytest.mark.thorough("the release above was tested by an operator that answers")
def test_helm_test_fails_where_no_operator_answers(api_server: Cluster, drivers: Drivers, namespace: str) -> None:
    release = Release(api_server, namespace)
    release.helm("install", str(CHART), "--values=-", stdin=release.values)
    with OperatorLab(api_server, namespace, drivers, installer=lambda *_: release.installed()) as lab:
        with pytest.raises(ChartError, match="sinkpipeline-operator-ready"):
            helm_test(release, lab)
        release.helm("uninstall")


@pytest.mark.thorough("a refusal by the schema, and Helm's")
def test_values_of_the_previous_chart_alone_are_refused(api_server: Cluster, namespace: str) -> None:
    release = Release(api_server, namespace)
    release.helm("install", str(PREVIOUS), "--skip-crds", "--values=-", stdin=release.values)
    with pytest.raises(ChartError, match=r"missing properties? 'crds'"):
        release.helm("upgrade", str(CHART), "--reuse-values")
    release.helm("uninstall")
