from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from servers import control_plane
from servers.control_plane import Cluster, ControlPlaneError, LocalControlPlane
from servers.local_process import LocalProcess
from support.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.thorough("about the local API server, which every test here uses")]

DEV = Path(control_plane.__file__).parents[1]


@pytest.fixture
def empty_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go during this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def config_map(name: str, owner: dict[str, object] | None = None) -> str:
    owned = f"\n  ownerReferences: [{owner}]" if owner else ""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}{owned}\n"


def apply(cluster: Cluster, namespace: str, manifest: str) -> None:
    cluster.kubectl("apply", f"--namespace={namespace}", "-f", "-", stdin=manifest)


def names(cluster: Cluster, namespace: str, plural: str) -> set[str]:
    listed = cluster.kubectl("get", plural, f"--namespace={namespace}", "-o", "name")
    return {line.partition("/")[2] for line in listed.split()}


def test_what_is_applied_can_be_read(api_server: Cluster, namespace: str) -> None:
    apply(api_server, namespace, config_map("written"))
    assert api_server.get("configmap", "written", f"--namespace={namespace}")["metadata"]["name"] == "written"


def test_refusal_says_what_kubectl_said(api_server: Cluster, namespace: str) -> None:
    with pytest.raises(ControlPlaneError, match='configmaps "absent" not found'):
        api_server.get("configmap", "absent", f"--namespace={namespace}")


def test_an_object_goes_with_its_owner(api_server: Cluster, namespace: str) -> None:
    apply(api_server, namespace, config_map("owner"))
    uid = api_server.get("configmap", "owner", f"--namespace={namespace}")["metadata"]["uid"]
    owner: dict[str, object] = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    apply(api_server, namespace, config_map("owned", owner))
    api_server.kubectl("delete", "configmap", "owner", f"--namespace={namespace}")
    wait_until(lambda: "owned" not in names(api_server, namespace, "configmaps"), "the owned object is collected")


def test_a_namespace_goes_with_all_that_is_in_it(api_server: Cluster, namespace: str) -> None:
    apply(api_server, namespace, config_map("inside"))
    api_server.kubectl("delete", "namespace", namespace, "--timeout=30s")
    with pytest.raises(ControlPlaneError, match="not found"):
        api_server.kubectl("get", "namespace", namespace)
    api_server.kubectl("create", "namespace", namespace)  # the fixture deletes it


def test_kubeflows_crd_is_served(api_server: Cluster, namespace: str) -> None:
    manifest = "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: bare}\nspec: {}\n"
    with pytest.raises(ControlPlaneError, match=r"spec.mainApplicationFile: Required"):
        apply(api_server, namespace, manifest)


def test_an_account_has_its_own_rights_and_no_others(api_server: Cluster, namespace: str) -> None:
    api_server.kubectl("create", "serviceaccount", "reader", f"--namespace={namespace}")
    own = api_server.service_account_kubeconfig(namespace, "reader")
    assert own.stat().st_mode & 0o077 == 0
    who = api_server.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", kubeconfig=own)
    assert who == f"system:serviceaccount:{namespace}:reader"
    with pytest.raises(ControlPlaneError, match="cannot list resource"):
        api_server.kubectl("get", "configmaps", kubeconfig=own)

    api_server.kubectl("create", "role", "read", "--verb=list", "--resource=configmaps", f"--namespace={namespace}")
    account = f"--serviceaccount={namespace}:reader"
    api_server.kubectl("create", "rolebinding", "read", "--role=read", account, f"--namespace={namespace}")
    # Its context names the namespace.
    wait_until(lambda: listed_with(api_server, own), "the role counts")
    with pytest.raises(ControlPlaneError, match="cannot list resource"):
        api_server.kubectl("get", "configmaps", "--namespace=default", kubeconfig=own)


def listed_with(cluster: Cluster, kubeconfig: Path) -> bool:
    try:
        return "kube-root-ca.crt" in cluster.kubectl("get", "configmaps", "-o", "name", kubeconfig=kubeconfig)
    except ControlPlaneError:
        return False


def test_kubeconfig_wins_where_it_is_set(
    api_server: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch, empty_temp: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{api_server.kubeconfig}{os.pathsep}{empty_temp / 'absent'}")
    with control_plane.cluster(crds=control_plane.spark_application_crds()) as given:
        assert "kube-root-ca.crt" in wait_until(lambda: names(given, namespace, "configmaps"), "the CA is published")
    assert list(empty_temp.iterdir()) == []


def test_a_kubeconfig_that_names_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(ControlPlaneError, match=r"KUBECONFIG=.*absent"), control_plane.cluster():
        pass


def test_stop_leaves_neither_processes_nor_files(empty_temp: Path) -> None:
    with LocalControlPlane() as plane:
        assert {"etcd", "kube-apiserver", "kube-controller-manager"} == set(plane.pids)
        processes = [psutil.Process(pid) for pid in plane.pids.values()]
        wanted = control_plane.control_plane_binaries().name.removeprefix("control-plane-")
        assert f'"gitVersion": "v{wanted}"' in plane.kubectl("get", "--raw", "/version")
    assert not [process for process in processes if process.is_running()]
    assert list(empty_temp.iterdir()) == []


def test_a_program_that_ends_at_once_is_told_with_its_log(empty_temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalControlPlane, "_etcd_flags", lambda _: {"no-such-flag": "1"})
    with pytest.raises(ControlPlaneError, match=r"etcd ended with \d+\n(.|\n)*no-such-flag"), LocalControlPlane():
        pass
    assert list(empty_temp.iterdir()) == []


def test_what_is_not_built_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch, empty_temp: Path) -> None:
    monkeypatch.setenv("SINKPIPELINE_CACHE", str(empty_temp))
    with pytest.raises(ControlPlaneError, match=r"run `dev/install.sh control-plane`.*KUBECONFIG"), LocalControlPlane():
        pass
    with pytest.raises(ControlPlaneError, match=r"CRD.*run `dev/install.sh control-plane`"):
        control_plane.spark_application_crds()
    # Ports are claimed there; nothing else was begun.
    assert [each.name for each in empty_temp.iterdir() if each.name != "ports"] == []


@pytest.fixture
def own_program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m servers.control_plane`, without a cluster that is given."""
    environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    environ |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(DEV)}
    argv = [sys.executable, "-m", "servers.control_plane"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ) as program:
        yield program
        program.kill()


def test_killed_it_takes_its_processes_along(own_program: subprocess.Popen[str]) -> None:
    assert own_program.stdout is not None
    assert own_program.stdout.readline().startswith("export KUBECONFIG=")
    children = psutil.Process(own_program.pid).children()
    assert {"etcd", "kube-apiserver", "kube-controller"} <= {child.name()[:15] for child in children}
    own_program.kill()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_terminated_it_leaves_nothing(own_program: subprocess.Popen[str], tmp_path: Path) -> None:
    assert own_program.stdout is not None
    assert own_program.stdout.readline().startswith("export KUBECONFIG=")
    children = psutil.Process(own_program.pid).children()
    own_program.terminate()
    assert own_program.wait(20) == 0
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def test_a_process_takes_its_own_children_along(tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > child; wait"
    process = LocalProcess(["/bin/sh", "-c", script], tmp_path / "log", cwd=tmp_path)
    try:
        written = wait_until(
            lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text(), "it has a child"
        )
        child = psutil.Process(int(written))
        process.end(grace_s=5)
        assert process.exit_code == 128 + signal.SIGTERM
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "its child is dead")
    finally:
        process.kill()


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    process = LocalProcess(["/bin/sh", "-c", script], tmp_path / "log")
    try:
        wait_until(lambda: "ready" in process.log_tail(), "it ignores the signal")
        process.end(grace_s=0.3)
        assert process.exit_code == 128 + signal.SIGKILL
    finally:
        process.kill()
