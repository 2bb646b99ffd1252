"""What is broken on a cluster: each fault takes hold on entering its context, and is mended on leaving it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from cluster.target import DIRECTORY
from node import machine
from node.cgroups import squeeze
from servers.control_plane import Cluster, ControlPlaneError
from servers.local_kafka import LocalKafka
from soak.feeder import Feeder
from support.cluster.installed import Installation
from support.kafka import topics
from support.waiting import wait_until

GONE_S: Final = 150.0
BACK_S: Final = 120.0
# More than what the kernel can take back, and less than the JVM has: the largest process is the one that is killed.
_HOG: Final = "x = [b'x' * (1 << 20) for _ in range(256)]"
_HEADROOM: Final = 8 << 20


class Subject(Protocol):
    """What is broken: a pipeline, or what it is compared with."""

    name: str
    data: str
    """The topic of its rows."""
    restarts_alone: bool
    """Whether an edited one ends while Kubeflow's operator is away."""

    def apply(self) -> None: ...

    def edit(self) -> None:
        """A change that restarts it, and changes nothing of its rows."""

    def delete(self, *options: str) -> None: ...

    @property
    def driver(self) -> dict[str, Any] | None:
        """Its pod."""

    def executors(self) -> list[dict[str, Any]]:
        """The pods that run."""

    def told(self, kind: str) -> str:
        """`<status> <reason>` of a condition."""

    def until(self, condition: Callable[[], object], what: str, deadline_s: float) -> object: ...

    def describe(self) -> str:
        """What a person needs to see when something did not come."""


@dataclass
class World:
    installed: Installation
    pipeline: Subject
    kafka: LocalKafka
    feeder: Feeder
    quiet: Callable[[], bool]
    """Whether all that was fed is delivered."""
    begin: Callable[[], None]
    """Said by a fault whose preparation is no part of it."""

    @property
    def cluster(self) -> Cluster:
        return self.installed.cluster


Fault = Callable[[World, float], AbstractContextManager[None]]
"""Of a world, and a number from 0 to 1 that chooses."""


@contextlib.contextmanager
def _pod_goes(world: World, pod: Mapping[str, Any] | None, how: str) -> Iterator[None]:
    if pod is None:
        raise LookupError("there is no such pod")
    meta = pod["metadata"]
    namespace, name = meta["namespace"], meta["name"]
    if how == "killed":
        world.installed.kubectl("delete", "pod", name, "--force", "--grace-period=0", namespace=namespace)
    else:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        world.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    _until_gone(world, pod)
    yield


def _until_gone(world: World, pod: Mapping[str, Any]) -> None:
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    def gone() -> bool:
        found = world.installed.api.find(path)
        return found is None or found["metadata"]["uid"] != meta["uid"]

    wait_until(gone, f"the pod {meta['name']} is gone", GONE_S, poll_s=0.2)


def _driver(how: str) -> Fault:
    return lambda world, _: _pod_goes(world, world.pipeline.driver, how)


def _executor(how: str) -> Fault:
    return lambda world, choice: _pod_goes(world, _one(world.pipeline.executors(), choice), how)


def _operator(how: str) -> Fault:
    def fault(world: World, choice: float) -> AbstractContextManager[None]:
        return _pod_goes(world, _one(world.installed.operators(), choice), how)

    return fault


def _one(pods: list[dict[str, Any]], choice: float) -> dict[str, Any] | None:
    return pods[int(choice * len(pods))] if pods else None


@contextlib.contextmanager
def _broker_killed(world: World, choice: float) -> Iterator[None]:
    broker = _broker(world, choice)
    world.kafka.kill_broker(broker)
    try:
        yield
    finally:
        world.kafka.start_broker(broker)


@contextlib.contextmanager
def _leaders_moved(world: World, choice: float) -> Iterator[None]:
    """Away from a broker that ends in order, and back to it."""
    broker = _broker(world, choice)
    world.kafka.stop_broker(broker)
    try:
        yield
    finally:
        world.kafka.start_broker(broker)
        client = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers, "log_level": 0})
        with suppress(KafkaException):
            client.elect_leaders(ElectionType.PREFERRED).result(30)


def _broker(world: World, choice: float) -> int:
    brokers = sorted(world.kafka.pids)
    return brokers[int(choice * len(brokers))]


@contextlib.contextmanager
def _network_cut(world: World, _: float) -> Iterator[None]:
    """Between the pipeline's pods and everything but each other."""
    driver = world.pipeline.driver
    pods = [*([] if driver is None else [driver]), *world.pipeline.executors()]
    with machine.cut(DIRECTORY, [each["status"]["podIP"] for each in pods]):
        yield


@contextlib.contextmanager
def _api_server_restarted(world: World, _: float) -> Iterator[None]:
    with machine.stopped(DIRECTORY, "kube-apiserver"):
        wait_until(lambda: not world.cluster.answers(), "the API server is away", GONE_S)
        yield
    wait_until(world.cluster.answers, "the API server is back", BACK_S)


@contextlib.contextmanager
def _kubelet_down(_world: World, _: float) -> Iterator[None]:
    with machine.stopped(DIRECTORY, "kubelet"):
        yield


@contextlib.contextmanager
def _kubeflow_down(world: World, _: float) -> Iterator[None]:
    with world.installed.kubeflow_away():
        driver = world.pipeline.driver
        world.pipeline.edit()
        if world.pipeline.restarts_alone:
            if driver is not None:
                _until_gone(world, driver)
            yield
            return
    if driver is not None:
        _until_gone(world, driver)
    yield


@contextlib.contextmanager
def _progress_topic_deleted(world: World, _: float) -> Iterator[None]:
    """While nothing is on its way: else the outcome of a transaction would be in doubt, and refused."""
    servers, topic = world.kafka.bootstrap_servers, f"{world.pipeline.name}-progress"
    world.feeder.pause()
    try:
        wait_until(world.quiet, "all is delivered", BACK_S)
        before = topics.topic_id(servers, topic)
        world.begin()
        topics.delete_topic(servers, topic)
        wait_until(lambda: topics.topic_id(servers, topic) not in (None, before), f"{topic} is back", BACK_S)
    finally:
        world.feeder.resume()
    yield


@contextlib.contextmanager
def _node_drained(world: World, _: float) -> Iterator[None]:
    driver = world.pipeline.driver
    node = "" if driver is None else driver["spec"]["nodeName"]
    options = "--ignore-daemonsets --delete-emptydir-data --force --timeout=150s"
    try:
        world.installed.type(f"kubectl drain {node} {options}")
        yield
    finally:
        world.installed.type(f"kubectl uncordon {node}")


@contextlib.contextmanager
def _memory_exhausted(world: World, _: float) -> Iterator[None]:
    """The driver's container gets little more than it has, and something in it wants more: its JVM is killed."""
    driver = world.pipeline.driver
    if driver is None:
        raise LookupError("there is no driver")
    [status] = driver["status"]["containerStatuses"]
    squeeze(status["containerID"].rpartition("/")[2], _HEADROOM)
    # It ends with the container that it runs in.
    with suppress(ControlPlaneError):
        meta = driver["metadata"]
        world.cluster.kubectl("exec", f"--namespace={meta['namespace']}", meta["name"], "--", "python", "-c", _HOG)
    _until_gone(world, driver)
    yield


FAULTS: Final[Mapping[str, Fault]] = {
    "driver killed": _driver("killed"),
    "driver evicted": _driver("evicted"),
    "executor killed": _executor("killed"),
    "executor evicted": _executor("evicted"),
    "operator killed": _operator("killed"),
    "operator evicted": _operator("evicted"),
    "broker killed": _broker_killed,
    "leaders moved": _leaders_moved,
    "network cut": _network_cut,
    "API server restarted": _api_server_restarted,
    "kubelet down": _kubelet_down,
    "Kubeflow down during an edit": _kubeflow_down,
    "progress topic deleted": _progress_topic_deleted,
    "node drained": _node_drained,
    "memory exhausted": _memory_exhausted,
}
"""By their names in `plan.LASTS_S`; those of the node itself need the local one."""
