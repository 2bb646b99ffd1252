"""Plays the kubelet of a node on which driver pods run as processes of this machine.

Read in k8s.io/kubernetes v1.34.4, pkg/kubelet: a pod that is being deleted gets SIGTERM and its grace period, then
SIGKILL, then a last status, and only then its object goes (kubelet.go, SyncTerminatingPod;
status/status_manager.go, syncPod and canBeDeleted); the termination log is cut to its last 4096 bytes
(kuberuntime/kuberuntime_container.go, getTerminationMessage).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubeflow import pods, volumes
from kubeflow.pods import NODE, Ended
from servers.kube_api import ApiError, Change, ConflictError, KubeApi, NotFoundError
from servers.local_process import HOST, LocalProcess

Object = dict[str, Any]

POLL_S: Final = 0.05
MOUNT_RETRY_S: Final = 0.2
GONE_AFTER_S: Final = 0.5
"""From the last status of a deleted pod to the end of its object: a kubelet tears down its volumes and cgroup there
(status/status_manager.go, canBeDeleted), and a watcher sees the status first."""
PHASE_AFTER_S: Final = 0.2
"""From a container's end to the pod's phase: see `pods.ending`. On a node it is longer, which `phase_after_s` plays."""
MESSAGE_BYTES: Final = 4096
"""kubelet: container/runtime.go, MaxContainerTerminationMessageLength."""

# What a process needs of this one's environment; the rest, such as KUBECONFIG, is not the driver's.
INHERITED: Final = ("PATH", "HOME", "TMPDIR", "LANG", "JAVA_HOME", "SINKPIPELINE_LOOK_AGAIN_S")


@dataclass(frozen=True)
class Driver:
    """What a command is made from. A driver listens on `address`, on the ports that its container names."""

    application: Object
    pod: Object
    files: Path
    """The root of what the pod mounts: `/etc/x` stands in `files / "etc/x"`."""
    environment: Mapping[str, str]
    """The variables of its container."""
    address: str
    ports: Mapping[str, int]
    termination_log: Path


@dataclass(frozen=True)
class Command:
    """`env` is added to the container's variables and to those of `INHERITED`."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


DriverCommand = Callable[[Driver], Command]


class DriverNode:
    """Runs each pod that is bound to it. What it writes into pods stays when it stops; its processes end."""

    def __init__(
        self,
        api: KubeApi,
        command: DriverCommand,
        directory: Path,
        obstacle: Callable[[Object], Object | None] = lambda _: None,
    ) -> None:
        """`obstacle`: the status of a pod that is kept from starting, for as long as it is; None where nothing does."""
        self._api = api
        self._command = command
        self._directory = directory
        self._obstacle = obstacle
        self._addresses = _Addresses()
        self.phase_after_s = PHASE_AFTER_S
        self._pods: dict[str, _DriverPod] = {}
        self._lock = threading.Lock()
        self._watch = threading.Thread(target=self._follow, name="node", daemon=True)

    def start(self) -> None:
        # The pod garbage collector of a whole cluster deletes pods of nodes that are not there.
        taint = {"key": "sinkpipeline.io/local-process", "effect": "NoSchedule"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE},
            "spec": {"unschedulable": True, "taints": [taint]},
        }
        with contextlib.suppress(ConflictError):
            self._api.create("/api/v1/nodes", node)
        self._watch.start()

    def stop(self) -> None:
        """After `api.close()`, which ends the watch."""
        self._watch.join()
        for pod in self._all():
            pod.abandon()

    def delete_node(self) -> None:
        self._api.delete(f"/api/v1/nodes/{NODE}")

    def kill(self, namespace: str, pod: str, reason: str = "OOMKilled") -> None:
        """SIGKILL, as the kernel's out-of-memory killer does: the container ends with 137 and that reason."""
        self._running(namespace, pod).kill(reason)

    def lose(self, namespace: str, pod: str) -> None:
        """As if the pod were on a node of its own, which has lost its power: nothing is said of it any more."""
        self._running(namespace, pod).abandon()

    def log(self, namespace: str, pod: str) -> str:
        """What `kubectl logs` would print: of the last pod of that name."""
        return self._running(namespace, pod).log.read_text(errors="replace")

    def pid(self, namespace: str, pod: str) -> int | None:
        """None before the start."""
        process = self._running(namespace, pod).process
        return None if process is None else process.pid

    def obstacle(self, pod: Object) -> Object | None:
        return self._obstacle(pod)

    def _running(self, namespace: str, name: str) -> _DriverPod:
        found = [pod for pod in self._all() if pod.name == (namespace, name)]
        if not found:
            raise LookupError(f"no pod {namespace}/{name} was seen")
        return found[-1]

    def _all(self) -> list[_DriverPod]:
        with self._lock:
            return list(self._pods.values())

    def _follow(self) -> None:
        for change in self._api.follow("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}"):
            self._see(change)

    def _see(self, change: Change) -> None:
        uid = change.new["metadata"]["uid"]
        with self._lock:
            pod = self._pods.get(uid)
        over = (change.new.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        if pod is None and change.kind != "DELETED" and not over:
            pod = _DriverPod(self, self._api, self._command, self._addresses, self._directory / uid, change.new)
            with self._lock:
                self._pods[uid] = pod
            pod.start()
        if pod is not None and (change.kind == "DELETED" or change.new["metadata"].get("deletionTimestamp")):
            pod.end(change.new["metadata"].get("deletionGracePeriodSeconds") or 0)


class _DriverPod:
    """One pod's life, in a thread of its own."""

    def __init__(
        self,
        node: DriverNode,
        api: KubeApi,
        command: DriverCommand,
        addresses: _Addresses,
        directory: Path,
        pod: Object,
    ) -> None:
        metadata = pod["metadata"]
        self._node = node
        self.name = (metadata["namespace"], metadata["name"])
        self.log = directory.with_suffix(".log")
        self.process: LocalProcess | None = None
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._api = api
        self._command = command
        self._addresses = addresses
        self._directory = directory
        self._pod = pod
        self._status: Object = pod.get("status") or pods.created()
        self._address = ""
        self._killed_for = "Error"
        self._grace_s: float | None = None
        self._ending = threading.Event()
        self._abandoned = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"pod-{metadata['name']}", daemon=True)

    def start(self) -> None:
        self._directory.mkdir(mode=0o700)
        self.log.touch()
        self._thread.start()

    def end(self, grace_s: float) -> None:
        """A grace period only ever shrinks; a forced deletion still has a second.

        kubelet: pod_workers.go, calculateEffectiveGracePeriod.
        """
        self._grace_s = min(max(1.0, grace_s), self._grace_s if self._grace_s is not None else float("inf"))
        self._ending.set()

    def kill(self, reason: str) -> None:
        if self.process is None:
            raise LookupError(f"the driver of {'/'.join(self.name)} was not started yet")
        self._killed_for = reason
        self.process.kill()

    def abandon(self) -> None:
        """As if the node had lost its power: nothing is reported."""
        self._abandoned.set()
        self._ending.set()
        if self.process is not None:
            self.process.kill()
        self._thread.join()

    def _live(self) -> None:
        try:
            how = self._run()
            if how is None:
                self._report(pods.never_ran(self._status, _now()))
            else:
                if not self._ending.is_set():
                    self._report(pods.ending(self._pod, how))
                    self._abandoned.wait(self._node.phase_after_s)
                self._report(pods.ended(self._pod, how))
            if self._ending.is_set() and not self._abandoned.wait(GONE_AFTER_S):
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._pod["metadata"]["uid"]}}
                self._until_done(lambda: self._api.delete(self._path, options))
        finally:
            self._addresses.release(self._address)
            shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self) -> Ended | None:
        """None where it was deleted before it ran."""
        now = _now()
        if (self._pod.get("status") or {}).get("phase") == "Running":
            # kubelet: kubelet_pods.go, convertToAPIContainerStatuses: a container that nobody can find any more.
            return Ended(137, pods.UNKNOWN, pods.NOT_LOCATED, now, now)
        driver = self._prepare()
        if driver is None:
            return None
        started = _now()
        try:
            command = self._command(driver)
            inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
            env = {**inherited, **driver.environment, **command.env}
            process = LocalProcess(command.argv, self.log, env=env, cwd=self._directory)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a command, its pod says so
            return Ended(128, "StartError", f"{type(error).__name__}: {error}", started, _now())
        self.process = process
        self._report(pods.running(self._pod, driver.address, started))
        self._await(process)
        code = process.exit_code or 0
        process.kill()
        reason = "Completed" if code == 0 else self._killed_for
        return Ended(code, reason, _last_words(driver.termination_log), started, _now())

    def _prepare(self) -> Driver | None:
        files, told = self._directory / "files", ""
        kept: Object | None = None
        found_a_node = False
        while not self._ending.is_set():
            if (obstacle := self._node.obstacle(self._pod)) is not None:
                if obstacle != kept:
                    kept = obstacle
                    self._report(obstacle)
                self._ending.wait(MOUNT_RETRY_S)
                continue
            if not found_a_node:
                found_a_node = True
                self._report(pods.scheduled())
                self._report(pods.pending(self._pod, "ContainerCreating", ""))
            try:
                self._address = self._address or self._addresses.take()
                volumes.mount(self._api, self._pod, files, self._directory / "volumes")
                environment = volumes.environment(self._api, self._pod, self._address)
                return self._driver(files, environment)
            except volumes.NotMountableError as error:
                if str(error) != told:
                    told = str(error)
                    self._report(pods.pending(self._pod, error.reason, told))
            except ApiError as error:
                told = str(error)
            self._ending.wait(MOUNT_RETRY_S)
        return None

    def _driver(self, files: Path, environment: Mapping[str, str]) -> Driver:
        container = pods.driver_container(self._pod)
        log = files / (container.get("terminationMessagePath") or "/dev/termination-log").lstrip("/")
        log.parent.mkdir(parents=True, exist_ok=True)
        owner = self._pod["metadata"]["ownerReferences"][-1]
        applications = f"/apis/{owner['apiVersion']}/namespaces/{self.name[0]}/sparkapplications"
        application = self._api.get(f"{applications}/{owner['name']}")
        ports = {port["name"]: port["containerPort"] for port in container.get("ports") or [] if "name" in port}
        return Driver(application, self._pod, files, environment, self._address, ports, log)

    def _await(self, process: LocalProcess) -> None:
        while not process.wait(POLL_S):
            if self._ending.is_set() and not self._abandoned.is_set():
                self._terminate(process)

    def _terminate(self, process: LocalProcess) -> None:
        began = time.monotonic()
        process.terminate()
        # The period may shrink meanwhile: `kubectl delete --grace-period=1` after a patient one.
        while not process.wait(POLL_S):
            if time.monotonic() - began >= (self._grace_s or 0.0):
                process.kill()

    def _report(self, status: Object) -> None:
        self._status = status
        if not self._abandoned.is_set():
            path, uid = f"{self._path}/status", self._pod["metadata"]["uid"]
            self._until_done(lambda: self._api.merge(path, {"metadata": {"uid": uid}, "status": status}))

    def _until_done(self, write: Callable[[], object]) -> None:
        while not self._abandoned.is_set():
            try:
                write()
            except (NotFoundError, ConflictError):
                return  # it is gone, or another one has its name
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and error.code < 500:  # noqa: PLR2004 - it would be refused again
                    raise
                time.sleep(POLL_S)
            else:
                return


class _Addresses:
    """One address of 127.0.0.0/8 for each driver; 127.0.0.1 for all where the system has no others."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    def take(self) -> str:
        if not own_addresses():
            return HOST
        with self._lock:
            while True:
                address = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
                if address not in self._taken:
                    self._taken.add(address)
                    return address

    def release(self, address: str) -> None:
        with self._lock:
            self._taken.discard(address)


@functools.cache
def own_addresses() -> bool:
    """Whether every address of 127.0.0.0/8 is this machine's: on Linux it is, elsewhere 127.0.0.1 alone."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.64.0.1", 0))
        return True
    return False


def _last_words(log: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return log.read_bytes()[-MESSAGE_BYTES:].decode(errors="replace")
    return ""


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
