"""The Pod Security Standard "restricted" for one pod, rule by rule, and what breaks each of them.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

_HOST = ("hostNetwork", "hostPID", "hostIPC")
_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
    "name",
}
_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
}
_SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_SECCOMP = ("RuntimeDefault", "Localhost")


def violations(pod: Object) -> list[str]:
    """What admission would refuse in the `spec` of a pod; empty where it is restricted."""
    return [
        *(name for name in _HOST if pod.get(name)),
        *(f"volume {each['name']}" for each in pod.get("volumes") or [] if not each.keys() <= _VOLUMES),
        *(f"sysctl {each['name']}" for each in _context(pod).get("sysctls") or [] if each["name"] not in _SYSCTLS),
        *_of_any("the pod", _context(pod)),
        *(
            f"{container['name']}: {problem}"
            for kind in ("initContainers", "containers", "ephemeralContainers")
            for container in pod.get(kind) or []
            for problem in _of_container(_context(container), _context(pod), container)
        ),
    ]


def _context(of: Object) -> Object:
    return of.get("securityContext") or {}


def _of_any(who: str, context: Object) -> list[str]:
    """What may stand in neither context, the pod's or a container's."""
    selinux = context.get("seLinuxOptions") or {}
    return [
        *([f"{who}: HostProcess"] if (context.get("windowsOptions") or {}).get("hostProcess") else []),
        *([f"{who}: AppArmor"] if (context.get("appArmorProfile") or {}).get("type") == "Unconfined" else []),
        *([f"{who}: SELinux"] if selinux.get("type", "") not in _SELINUX_TYPES else []),
        *([f"{who}: SELinux user or role"] if selinux.get("user") or selinux.get("role") else []),
        *([f"{who}: runs as root"] if context.get("runAsUser") == 0 else []),
    ]


def _of_container(own: Object, pods: Object, container: Object) -> list[str]:
    capabilities = own.get("capabilities") or {}
    seccomp = (own.get("seccompProfile") or pods.get("seccompProfile") or {}).get("type")
    return [
        *_of_any("the container", own),
        *(["privileged"] if own.get("privileged") else []),
        *(["privilege escalation"] if own.get("allowPrivilegeEscalation") is not False else []),
        *(["capabilities are kept"] if "ALL" not in (capabilities.get("drop") or []) else []),
        *(["capabilities are added"] if set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"} else []),
        *(["/proc is unmasked"] if own.get("procMount", "Default") != "Default" else []),
        *(["may be root"] if own.get("runAsNonRoot", pods.get("runAsNonRoot")) is not True else []),
        *(["seccomp"] if seccomp not in _SECCOMP else []),
        *(["a port of the host"] if any(port.get("hostPort") for port in container.get("ports") or []) else []),
        *(["a probe of another host"] if any(_probes_elsewhere(container)) else []),
    ]


def _probes_elsewhere(container: Object) -> list[bool]:
    hooks = (container.get("lifecycle") or {}).values()
    probes = (container.get(f"{name}Probe") or {} for name in ("liveness", "readiness", "startup"))
    asked = (each.get(how) or {} for each in (*hooks, *probes) for how in ("httpGet", "tcpSocket"))
    return [bool(each.get("host")) for each in asked]


def _pod(name: str, value: Any) -> Callable[[Object], None]:
    return lambda pod: pod.update({name: value})


def _pods(name: str, value: Any) -> Callable[[Object], None]:
    return lambda pod: pod["securityContext"].update({name: value})


def _own(name: str, value: Any) -> Callable[[Object], None]:
    return lambda pod: pod["containers"][0]["securityContext"].update({name: value})


def _part(name: str, value: Any) -> Callable[[Object], None]:
    return lambda pod: pod["containers"][0].update({name: value})


_KEPT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

VIOLATIONS: dict[str, Callable[[Object], None]] = {
    "hostNetwork": _pod("hostNetwork", True),
    "hostPID": _pod("hostPID", True),
    "hostIPC": _pod("hostIPC", True),
    "hostPath": lambda pod: pod["volumes"].append({"name": "etc", "hostPath": {"path": "/etc"}}),
    "nfs": lambda pod: pod["volumes"].append({"name": "share", "nfs": {"server": "s", "path": "/"}}),
    "sysctls": _pods("sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    "HostProcess": _pods("windowsOptions", {"hostProcess": True}),
    "AppArmor": _own("appArmorProfile", {"type": "Unconfined"}),
    "SELinux type": _pods("seLinuxOptions", {"type": "spc_t"}),
    "SELinux user": _own("seLinuxOptions", {"user": "system_u"}),
    "root": _own("runAsUser", 0),
    "root, for all": _pods("runAsUser", 0),
    "root is not refused": _pods("runAsNonRoot", False),
    "root is allowed": _own("runAsNonRoot", False),
    "privileged": _own("privileged", True),
    "privilege escalation": _own("allowPrivilegeEscalation", True),
    "privilege escalation by default": lambda pod: pod["containers"][0]["securityContext"].pop(
        "allowPrivilegeEscalation"
    ),
    "capabilities": _own("capabilities", {"drop": ["ALL"], "add": ["NET_ADMIN"]}),
    "capabilities are kept": _own("capabilities", {"drop": ["NET_RAW"]}),
    "procMount": _own("procMount", "Unmasked"),
    "no seccomp": lambda pod: pod["securityContext"].pop("seccompProfile"),
    "seccomp": _own("seccompProfile", {"type": "Unconfined"}),
    "hostPort": _part("ports", [{"containerPort": 1, "hostPort": 1}]),
    "probe": _part("livenessProbe", {"httpGet": {"host": "example.com", "port": 1}}),
    "init container": lambda pod: pod.update(
        initContainers=[{"name": "first", "securityContext": {"privileged": True} | _KEPT}]
    ),
}
