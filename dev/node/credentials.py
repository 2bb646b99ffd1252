"""Certificates and kubeconfigs of everybody who speaks to the node's API server."""

from __future__ import annotations

from typing import Final

import trustme

from node.state import NAME, SERVICES_FIRST, State
from servers.control_plane import write_kubeconfig

_USERS: Final = {
    "admin": ("admin", "system:masters"),
    "node": (f"system:node:{NAME}", "system:nodes"),
    "manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "proxy": ("system:kube-proxy", None),
}
"""A user's name is the CN of its certificate, its group the O."""


def write_credentials(state: State) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(state.file("ca.crt"))
    # Any key will do that is not a certificate's.
    authority.issue_cert("service-accounts.invalid").private_key_pem.write_to_path(state.file("accounts.key"))
    names = ("kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost")
    server = authority.issue_cert(state.address, SERVICES_FIRST, "127.0.0.1", *names, common_name="kube-apiserver")
    _write(state, "server", server)
    place = {"server": state.server, "certificate-authority": state.file("ca.crt")}
    for user, (name, group) in _USERS.items():
        # The node's certificate is that of the kubelet's server too.
        hosts = (NAME, state.address, "127.0.0.1") if user == "node" else (f"{user}.invalid",)
        leaf = authority.issue_cert(*hosts, common_name=name, organization_name=group)
        _write(state, user, leaf)
        pair = {"client-certificate": state.file(f"{user}.crt"), "client-key": state.file(f"{user}.key")}
        write_kubeconfig(state.kubeconfig if user == "admin" else state.directory / f"{user}.kubeconfig", place, pair)


def _write(state: State, name: str, leaf: trustme.LeafCert) -> None:
    leaf.cert_chain_pems[0].write_to_path(state.file(f"{name}.crt"))
    leaf.private_key_pem.write_to_path(state.file(f"{name}.key"))
