"""What runs on the node, with its flags and files."""

from __future__ import annotations

import json
import shutil
import socket
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.state import CLUSTER, NAME, PODS, PORT, SERVICES, State

_ETCD: Final = ("127.0.0.1", 2379)
_CNI_PLUGINS: Final = ("/usr/lib/cni", "/opt/cni/bin")


@dataclass(frozen=True)
class Program:
    name: str
    argv: Sequence[str]
    after: Callable[[], bool] | None = None
    """Whether it may start already."""


def programs(state: State) -> list[Program]:
    etcd = f"http://{_ETCD[0]}:{_ETCD[1]}"
    peers = "http://127.0.0.1:2380"
    server_is_there = _listens(state.address, PORT)
    leader = ("--leader-elect=false",)
    return [
        Program(
            "etcd",
            _control_plane(
                state,
                "etcd",
                f"--data-dir={state.file('etcd')}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peers}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ),
        ),
        Program(
            "kube-apiserver",
            _control_plane(
                state,
                "kube-apiserver",
                f"--etcd-servers={etcd}",
                f"--bind-address={state.address}",
                f"--advertise-address={state.address}",
                f"--secure-port={PORT}",
                f"--tls-cert-file={state.file('server.crt')}",
                f"--tls-private-key-file={state.file('server.key')}",
                f"--client-ca-file={state.file('ca.crt')}",
                f"--kubelet-client-certificate={state.file('admin.crt')}",
                f"--kubelet-client-key={state.file('admin.key')}",
                f"--service-account-key-file={state.file('accounts.key')}",
                f"--service-account-signing-key-file={state.file('accounts.key')}",
                "--service-account-issuer=https://kubernetes.default.svc",
                # So that the short tokens of tests are not made long.
                "--service-account-extend-token-expiration=false",
                f"--service-cluster-ip-range={SERVICES}",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",
                f"--cert-dir={state.directory}",
                "--profiling=false",
            ),
            after=_listens(*_ETCD),
        ),
        Program(
            "kube-controller-manager",
            _control_plane(
                state,
                "kube-controller-manager",
                f"--kubeconfig={state.file('manager.kubeconfig')}",
                f"--service-account-private-key-file={state.file('accounts.key')}",
                f"--root-ca-file={state.file('ca.crt')}",
                "--use-service-account-credentials",
                "--allocate-node-cidrs",
                f"--cluster-cidr={CLUSTER}",
                # A node that is silent is noticed within tests' patience.
                "--node-monitor-grace-period=40s",
                f"--cert-dir={state.directory}",
                *leader,
            ),
            after=server_is_there,
        ),
        Program(
            "kube-scheduler",
            _node(
                state,
                "kube-scheduler",
                f"--kubeconfig={state.file('scheduler.kubeconfig')}",
                f"--cert-dir={state.directory}",
                *leader,
            ),
            after=server_is_there,
        ),
        Program("containerd", [_found("containerd"), "--config", _containerd_config(state)]),
        Program(
            "kubelet",
            _node(
                state,
                "kubelet",
                f"--config={_kubelet_config(state)}",
                f"--kubeconfig={state.file('node.kubeconfig')}",
                f"--hostname-override={NAME}",
                f"--node-ip={state.address}",
                f"--root-dir={state.made('kubelet')}",
            ),
            after=lambda: server_is_there() and state.containerd_socket.exists() and state.filled.exists(),
        ),
        Program("kube-proxy", _node(state, "kube-proxy", f"--config={_proxy_config(state)}"), after=server_is_there),
        Program("coredns", [f"{state.programs}/coredns", "-conf", _corefile(state)], after=server_is_there),
    ]


def _control_plane(state: State, program: str, *flags: str) -> list[str]:
    return [f"{state.control_plane}/{program}", *flags]


def _node(state: State, program: str, *flags: str) -> list[str]:
    return [f"{state.programs}/{program}", *flags]


def _found(program: str) -> str:
    path = shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        raise FileNotFoundError(f"{program} is not installed")
    return path


def _listens(host: str, port: int) -> Callable[[], bool]:
    def look() -> bool:
        try:
            with socket.create_connection((host, port), timeout=1):
                return True
        except OSError:
            return False

    return look


def _containerd_config(state: State) -> str:
    plugins = next((each for each in _CNI_PLUGINS if Path(each, "bridge").exists()), _CNI_PLUGINS[0])
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods0",
                "isGateway": True,
                # Beyond the node they have its address: this machine knows no other.
                "ipMasq": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": state.file("addresses"),
                    "ranges": [[{"subnet": PODS}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    Path(state.made("cni"), "10-pods.conflist").write_text(json.dumps(network))
    # Without CAP_SYS_RESOURCE runc can't give a container a better score than its own, and fails with a riddle.
    return _write(
        state,
        "containerd.toml",
        f"""\
        version = 2
        root = "{state.images}"
        state = "/run/containerd-state"
        [grpc]
          address = "{state.containerd_socket}"
        [plugins."io.containerd.grpc.v1.cri"]
          sandbox_image = "localhost/pause:1"
          restrict_oom_score_adj = true
          [plugins."io.containerd.grpc.v1.cri".cni]
            bin_dir = "{plugins}"
            conf_dir = "{state.file("cni")}"
        """,
    )


def _kubelet_config(state: State) -> str:
    return _write(
        state,
        "kubelet.yaml",
        f"""\
        apiVersion: kubelet.config.k8s.io/v1beta1
        kind: KubeletConfiguration
        failCgroupV1: false
        cgroupDriver: cgroupfs
        cgroupRoot: /{state.cgroup}
        containerRuntimeEndpoint: unix://{state.containerd_socket}
        failSwapOn: false
        authentication:
          anonymous: {{enabled: false}}
          webhook: {{enabled: true}}
          x509: {{clientCAFile: {state.file("ca.crt")}}}
        authorization: {{mode: Webhook}}
        tlsCertFile: {state.file("node.crt")}
        tlsPrivateKeyFile: {state.file("node.key")}
        clusterDNS: [{state.address}]
        clusterDomain: cluster.local
        evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
        enforceNodeAllocatable: []
        imageGCHighThresholdPercent: 100
        resolvConf: {state.file("resolv.conf")}
        """,
    )


def _proxy_config(state: State) -> str:
    return _write(
        state,
        "kube-proxy.yaml",
        f"""\
        apiVersion: kubeproxy.config.k8s.io/v1alpha1
        kind: KubeProxyConfiguration
        clientConnection: {{kubeconfig: {state.file("proxy.kubeconfig")}}}
        mode: nftables
        clusterCIDR: {CLUSTER}
        hostnameOverride: {NAME}
        conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
        """,
    )


def _corefile(state: State) -> str:
    return _write(
        state,
        "Corefile",
        f"""\
        .:53 {{
          bind {state.address}
          errors
          kubernetes cluster.local in-addr.arpa ip6.arpa {{
            kubeconfig {state.kubeconfig}
          }}
          cache 5
        }}
        """,
    )


def _write(state: State, name: str, text: str) -> str:
    path = state.directory / name
    path.write_text(textwrap.dedent(text))
    return str(path)
