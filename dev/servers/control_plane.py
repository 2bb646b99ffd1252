"""A Kubernetes API server for the tests and the demo, without Docker and without root.

`PYTHONPATH=dev python -m servers.control_plane` runs one until Ctrl-C and says where its kubeconfig is.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import trustme

from servers.local_process import HOST, LocalProcess, cache_directory, end_all, free_ports
from servers.waiting import InVainError, wait_for

if TYPE_CHECKING:
    from types import TracebackType

START_DEADLINE: Final = 90.0
STOP_DEADLINE: Final = 3.0
KUBECTL_DEADLINE: Final = 120.0
CRD_DEADLINE: Final = 30.0
POLL_INTERVAL: Final = 0.05
KIND_DEADLINE: Final = 300.0
TOKEN_LIFETIME: Final = "24h"  # noqa: S105 - a duration

_GO: Final = Path(__file__).parents[1] / "go"
_INSTALL: Final = "run `dev/install.sh control-plane`"

# Those whose work a client sees without a node: what an owner leaves behind, namespaces that end, accounts, tokens,
# quotas, aggregated roles. The pod garbage collector is none of them: it would delete pods whose node is not there.
CONTROLLERS: Final = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "resourcequota-controller",
    "job-controller",
)


class ControlPlaneError(RuntimeError):
    """No API server, or kubectl refused."""


class Cluster:
    """An API server as a client sees it: a kubeconfig of one file with all rights, and kubectl.

    `directory` takes the files that clients need; whoever made it removes it.
    """

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self.kubeconfig = kubeconfig
        self.directory = directory

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Standard output. Raises ControlPlaneError with what kubectl says, where it does not end with 0."""
        # The cache of discovery would stay in the home directory.
        environ = os.environ | {"KUBECACHEDIR": str(self.directory / "kubectl-cache")}
        result = subprocess.run(
            [kubectl_executable(), f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments],
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            env=environ,
            timeout=KUBECTL_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def answers(self) -> bool:
        """Whether the API server is there, and ready."""
        try:
            self.kubectl("get", "--raw", "/readyz")
        except (ControlPlaneError, subprocess.TimeoutExpired):
            return False
        return True

    def get(self, *arguments: str) -> Any:
        """What `kubectl get ... -o json` prints, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *manifests: Path) -> None:
        """Server-side: the annotation of a client-side apply has no room for Kubeflow's CRD of 800 kB."""
        for manifest in manifests:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(manifest))

    def remove_pods(self, namespace: str) -> None:
        """All at once: no node may be there any more that would see to it.

        One that a Job counts goes when that Job has been looked at, which takes minutes after a quota has refused it.
        """
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", "--namespace", namespace)

    def install_crds(self, *manifests: Path) -> None:
        self.apply(*manifests)
        for manifest in manifests:
            # Not `kubectl wait`: it fails where the conditions are not there yet.
            established = partial(self._is_established, manifest)
            try:
                wait_for(established, f"{manifest.name} is served", CRD_DEADLINE, poll_s=POLL_INTERVAL)
            except InVainError as error:
                raise ControlPlaneError(str(error)) from None

    def _is_established(self, manifest: Path) -> bool:
        conditions = self.get("-f", str(manifest)).get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """For a program that runs with exactly the rights of that account, by a token of its own (TokenRequest)."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, f"--duration={TOKEN_LIFETIME}").strip()
        view = json.loads(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        path = self.directory / f"{namespace}.{name}.kubeconfig"
        write_kubeconfig(path, view["clusters"][0]["cluster"], {"token": token}, namespace)
        return path


class LocalControlPlane(Cluster):
    """etcd, kube-apiserver with RBAC, and the controllers of `CONTROLLERS`; all on loopback.

    `crds` are installed before the controllers start: the garbage collector learns of kinds only twice a minute, and
    until then leaves alone what an object of a new kind owns.
    When this process dies, in whatever way, all of it is killed. `stop` leaves nothing. `flags` are added to those of
    kube-apiserver.
    """

    def __init__(self, *, crds: Sequence[Path] = (), flags: Mapping[str, str] | None = None) -> None:
        scratch = Path(tempfile.mkdtemp(prefix="control-plane-"))
        super().__init__(scratch / "admin.kubeconfig", scratch)
        self._crds = crds
        self._flags = dict(flags or {})
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._processes: dict[str, LocalProcess] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def start(self) -> None:
        try:
            binaries = control_plane_binaries()
            self._write_credentials()
            deadline = time.monotonic() + START_DEADLINE
            self._launch("etcd", binaries, self._etcd_flags())
            self._launch("kube-apiserver", binaries, self._api_server_flags())
            self._await("kube-apiserver", "answers /readyz", self._is_ready, deadline)
            self.install_crds(*self._crds)
            self._launch("kube-controller-manager", binaries, self._controller_manager_flags())
            self._await("kube-controller-manager", "makes the accounts of new namespaces", self._has_account, deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        processes, self._processes = self._processes, {}
        # The data is about to be removed: nobody needs the seconds that a server takes to drain its watches.
        end_all(list(reversed(processes.values())), STOP_DEADLINE)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(self, name: str, binaries: Path, flags: dict[str, str]) -> None:
        argv = [str(binaries / name), *(f"--{flag}={value}" for flag, value in flags.items())]
        self._processes[name] = LocalProcess(argv, self.directory / f"{name}.log", cwd=self.directory)

    def _await(self, name: str, what: str, condition: Callable[[], bool], deadline: float) -> None:
        def check() -> None:
            for program, process in self._processes.items():
                if process.exit_code is not None:
                    raise ControlPlaneError(f"{program} ended with {process.exit_code}\n{process.log_tail()}")

        try:
            left = max(0.0, deadline - time.monotonic())
            wait_for(condition, f"{name} {what}", left, poll_s=POLL_INTERVAL, check=check)
        except InVainError as error:
            raise ControlPlaneError(f"{error}\n{self._processes[name].log_tail()}") from None

    def _is_ready(self) -> bool:
        # Not urllib: it would ask the proxy of the environment.
        connection = http.client.HTTPSConnection(HOST, self._port, timeout=2, context=self._client_context)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _has_account(self) -> bool:
        with contextlib.suppress(ControlPlaneError):
            self.kubectl("get", "serviceaccount/default", "configmap/kube-root-ca.crt", "--namespace=default")
            return True
        return False

    def _write_credentials(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._file("ca.crt"))
        # A user's name is the CN of its certificate, its groups are the Os.
        server = authority.issue_cert(HOST, "localhost", "kubernetes.default.svc", common_name="kube-apiserver")
        # Any key will do that is not a certificate's.
        accounts = authority.issue_cert("service-accounts.invalid")
        accounts.private_key_pem.write_to_path(self._file("accounts.key"))
        admin = authority.issue_cert("admin.invalid", common_name="admin", organization_name="system:masters")
        manager = authority.issue_cert("manager.invalid", common_name="system:kube-controller-manager")
        for name, leaf in (("server", server), ("admin", admin), ("manager", manager)):
            leaf.cert_chain_pems[0].write_to_path(self._file(f"{name}.crt"))
            leaf.private_key_pem.write_to_path(self._file(f"{name}.key"))
        place = {"server": f"https://{HOST}:{self._port}", "certificate-authority": self._file("ca.crt")}
        for name, path in (("admin", self.kubeconfig), ("manager", self.directory / "manager.kubeconfig")):
            pair = {"client-certificate": self._file(f"{name}.crt"), "client-key": self._file(f"{name}.key")}
            write_kubeconfig(path, place, pair)
        self._client_context = ssl.create_default_context(cafile=self._file("ca.crt"))
        self._client_context.load_cert_chain(self._file("admin.crt"), self._file("admin.key"))

    def _file(self, name: str) -> str:
        return str(self.directory / name)

    def _etcd_flags(self) -> dict[str, str]:
        clients, peers = f"http://{HOST}:{self._etcd_port}", f"http://{HOST}:{self._peer_port}"
        return {
            "data-dir": self._file("etcd"),
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }

    def _api_server_flags(self) -> dict[str, str]:
        return {
            "etcd-servers": f"http://{HOST}:{self._etcd_port}",
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": str(self._port),
            # The Service `kubernetes` can't have an endpoint on loopback, and nobody here would use it.
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "RBAC",
            "client-ca-file": self._file("ca.crt"),
            "tls-cert-file": self._file("server.crt"),
            "tls-private-key-file": self._file("server.key"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._file("accounts.key"),
            "service-account-signing-key-file": self._file("accounts.key"),
            "cert-dir": self.directory.as_posix(),
            "profiling": "false",
            **self._flags,
        }

    def _controller_manager_flags(self) -> dict[str, str]:
        return {
            "kubeconfig": self._file("manager.kubeconfig"),
            "controllers": ",".join(CONTROLLERS),
            "service-account-private-key-file": self._file("accounts.key"),
            "root-ca-file": self._file("ca.crt"),
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            # It serves nobody.
            "secure-port": "0",
            "cert-dir": self.directory.as_posix(),
        }


@contextlib.contextmanager
def cluster(*, crds: Sequence[Path] = ()) -> Iterator[Cluster]:
    """That of KUBECONFIG where it is set; else a new one of `kind` where Docker runs; else a local control plane."""
    if os.environ.get("KUBECONFIG"):
        with tempfile.TemporaryDirectory(prefix="cluster-") as scratch:
            yield given_cluster(Path(scratch), crds)
    elif kind_runs():
        with _kind_cluster() as ours:
            ours.install_crds(*crds)
            yield ours
    else:
        with LocalControlPlane(crds=crds) as ours:
            yield ours


def control_plane_binaries() -> Path:
    """The directory of etcd, kube-apiserver, kube-controller-manager and kubectl."""
    directory = cache_directory() / f"control-plane-{pinned('kubernetes', 'k8s.io/kubernetes')}"
    if not directory.is_dir():
        raise ControlPlaneError(
            f"there is no control plane in {directory}: {_INSTALL} (needs Go), or set KUBECONFIG, "
            "or have kind and a Docker that runs"
        )
    return directory


def spark_application_crds() -> list[Path]:
    """Kubeflow's own CustomResourceDefinition; none where only the cluster of KUBECONFIG can have it."""
    return _crds("spark-operator", pinned("spark-operator", "github.com/kubeflow/spark-operator/v2"))


def monitoring_crds() -> list[Path]:
    """Those of Prometheus' operator that the chart has objects of; likewise."""
    version = re.search(r"^PROMETHEUS_OPERATOR_VERSION=(\S+)", (_GO.parent / "install.sh").read_text(), re.MULTILINE)
    if version is None:
        raise ControlPlaneError("dev/install.sh names no PROMETHEUS_OPERATOR_VERSION")
    return _crds("prometheus-operator", version[1])


def _crds(name: str, version: str) -> list[Path]:
    directory = cache_directory() / f"{name}-{version}"
    manifests = sorted(directory.glob("*.yaml"))
    if not manifests and not os.environ.get("KUBECONFIG"):
        raise ControlPlaneError(f"the CRDs of {name} are not in {directory}: {_INSTALL}")
    return manifests


def kubectl_executable() -> str:
    return shutil.which("kubectl") or str(control_plane_binaries() / "kubectl")


def pinned(directory: str, module: str) -> str:
    """The version of a Go module that one of `dev/go` requires."""
    pins = (_GO / directory / "go.mod").read_text()
    version = re.search(rf"^require {re.escape(module)} v(\S+)", pins, re.MULTILINE)
    if version is None:
        raise ControlPlaneError(f"{_GO / directory / 'go.mod'} does not require {module}")
    return version[1]


def given_cluster(scratch: Path, crds: Sequence[Path] = ()) -> Cluster:
    """That of KUBECONFIG, by a file of its own below `scratch`."""
    # KUBECONFIG may name several files, with many contexts and paths relative to each: ours is one, with one.
    arguments = [kubectl_executable(), "config", "view", "--raw", "--minify", "--flatten"]
    view = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=KUBECTL_DEADLINE)
    if view.returncode != 0:
        raise ControlPlaneError(f"KUBECONFIG={os.environ['KUBECONFIG']} is set, but: {view.stderr.strip()}")
    ours = Cluster(scratch / "admin.kubeconfig", scratch)
    _write_private(ours.kubeconfig, view.stdout)
    ours.install_crds(*crds)
    return ours


def kind_runs() -> bool:
    """A docker without its daemon is only a client."""
    if not (shutil.which("kind") and shutil.which("docker")):
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=30).returncode == 0


@contextlib.contextmanager
def _kind_cluster() -> Iterator[Cluster]:
    name = f"sinkpipeline-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="cluster-") as scratch:
        ours = Cluster(Path(scratch, "admin.kubeconfig"), Path(scratch))
        make = ["kind", "create", "cluster", f"--name={name}", f"--kubeconfig={ours.kubeconfig}", "--wait=120s"]
        try:
            made = subprocess.run(make, capture_output=True, text=True, check=False, timeout=KIND_DEADLINE)
            if made.returncode != 0:
                raise ControlPlaneError(f"kind could not create a cluster: {made.stderr.strip()}")
            yield ours
        finally:
            remove = ["kind", "delete", "cluster", f"--name={name}", f"--kubeconfig={ours.kubeconfig}"]
            subprocess.run(remove, capture_output=True, check=False, timeout=KIND_DEADLINE)


def write_kubeconfig(path: Path, place: dict[str, str], user: dict[str, str], namespace: str = "default") -> None:
    context = {"cluster": "cluster", "user": "user", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": place}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": context}],
        "current-context": "context",
    }
    _write_private(path, json.dumps(config, indent=1))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), cluster(crds=spark_application_crds()) as ours:
        print(f"export KUBECONFIG={ours.kubeconfig}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
