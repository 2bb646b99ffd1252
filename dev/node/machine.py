"""A Kubernetes node on this machine, without Docker: brought up, filled with images, and removed without a trace.

It is a process with namespaces of its own (`inside.py`), joined to this machine by one cable. Needs root on Linux.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from node.cgroups import remove_cgroup
from node.credentials import write_credentials
from node.images import import_images
from node.state import INTERFACE, NAME, PODS, PORT, NodeError, State
from node.traces import Machine, changes, namespace_of, processes_in
from servers.control_plane import Cluster, ControlPlaneError, control_plane_binaries
from servers.local_process import cache_directory
from servers.waiting import InVainError, wait_for

_UP_S: Final = 120.0
_DOWN_S: Final = 20.0
_GONE_S: Final = 10.0
_POLL_S: Final = 0.1
_CUT: Final = "sinkpipeline_cut"
_NUMBERS: Final = range(1, 100)
_ASK: Final = """
import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    print(opener.open(sys.argv[1], timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print(0)
"""


def up(directory: Path, images: Path) -> Cluster:
    """A node that is Ready, with the images of that OCI layout; its kubeconfig is `directory/kubeconfig`.

    Raises:
        NodeError: something did not start, or another node runs with the same images.
    """
    if os.geteuid() != 0 or sys.platform != "linux":
        raise NodeError("a local node needs root on Linux: set KUBECONFIG to a cluster, or install kind and Docker")
    down(directory)
    directory.mkdir(parents=True)
    state = State(directory, 0, str(programs_directory()), str(control_plane_binaries()))
    for name in ("logs", "stopped"):
        state.made(name)
    state.images.mkdir(parents=True, exist_ok=True)
    Machine.look().save(state.before)
    try:
        state = _start(state)
        cluster = Cluster(state.kubeconfig, directory)
        _wait(state, "containerd listens", lambda: _containerd_answers(state))
        import_images(state, images)
        state.filled.touch()
        _wait(state, "the node is Ready", lambda: _is_ready(cluster))
        _wait(state, "namespaces get their account", lambda: _succeeds(cluster, "get", "serviceaccount", "default"))
    except BaseException:
        down(directory)
        raise
    return cluster


def down(directory: Path) -> list[str]:
    """Ends it, wherever it stands; what of it is left all the same, which should be nothing but containerd's images."""
    if not (directory / "settings.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        return []
    state = State.load(directory)
    pid = _running(state)
    namespace = None if pid is None else namespace_of(pid)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _DOWN_S
        while _running(state) is not None:
            if time.monotonic() > deadline:
                # All in its namespaces dies with it.
                os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
    remove_cgroup(state.cgroup)
    with contextlib.suppress(FileNotFoundError):
        # The kernel removes both ends with the node's namespace, a moment after its last process.
        subprocess.run(["ip", "link", "delete", state.link], capture_output=True, check=False)
    left = _left(state, namespace)
    shutil.rmtree(directory, ignore_errors=True)
    return left


def _left(state: State, namespace: int | None) -> list[str]:
    """The kernel takes a moment for what was in its namespaces."""
    before = Machine.load(state.before) if state.before.exists() else None

    def look() -> list[str]:
        processes = [] if namespace is None else processes_in(namespace)
        return processes + ([] if before is None else changes(before, Machine.look()))

    with contextlib.suppress(InVainError):
        wait_for(lambda: not look(), "nothing is left", _GONE_S)
    return look()


def programs_directory() -> Path:
    """Of kubelet, kube-scheduler, kube-proxy, coredns and the rest that `dev/install.sh node` builds.

    Raises:
        NodeError: they are not there.
    """
    version = control_plane_binaries().name.removeprefix("control-plane-")
    directory = cache_directory() / f"node-{version}"
    if not directory.is_dir():
        raise NodeError(f"there is no node in {directory}: run `dev/install.sh node`")
    return directory


def host_address(directory: Path) -> str:
    """Of this machine, as pods of that node reach it."""
    return State.load(directory).host_address


@contextlib.contextmanager
def stopped(directory: Path, program: str) -> Iterator[None]:
    """Keeps one of the node's programs from running meanwhile, such as `kubelet` or `kube-apiserver`."""
    mark = State.load(directory).stopped / program
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


@contextlib.contextmanager
def cut(directory: Path, addresses: Sequence[str]) -> Iterator[None]:
    """Lets no packet pass meanwhile between those pods and what is no pod: brokers, and the API server.

    The kubelet still reaches them, as it does where a node's network is cut.
    """
    state = State.load(directory)
    pods = f"{{ {', '.join(addresses)} }}"
    hook = "type filter hook {} priority -300;"
    chains = (
        f"chain beyond {{ {hook.format('forward')}"
        f" ip saddr {pods} ip daddr != {PODS} drop; ip daddr {pods} ip saddr != {PODS} drop; }}\n"
        f"chain server {{ {hook.format('input')} ip saddr {pods} tcp dport {PORT} drop; }}"
    )
    _in_network(state, "nft", f"table inet {_CUT} {{\n{chains}\n}}")
    try:
        yield
    finally:
        _in_network(state, "nft", "delete", "table", "inet", _CUT)


def http_status(directory: Path, url: str) -> int:
    """What answers there, as the kubelet asks a pod: this machine knows no way to one. 0 where nobody does."""
    state = State.load(directory)
    return int(_in_network(state, sys.executable, "-c", _ASK, url))


def _in_network(state: State, *argv: str) -> str:
    command = ["nsenter", f"--net=/proc/{state.pid.read_text()}/ns/net", "--", *argv]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NodeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def _start(state: State) -> State:
    argv = ["unshare", "--net", "--mount", "--propagation=private", "--pid", "--fork", "--mount-proc", "--kill-child"]
    for number in _NUMBERS:
        taken = subprocess.run(["ip", "link", "show", f"sinkpipeline{number}"], capture_output=True, check=False)
        if taken.returncode != 0:
            break
    state = State(state.directory, number, state.programs, state.control_plane)
    state.save()
    write_credentials(state)
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with (state.logs / "node.log").open("ab") as log, _lock(state.images) as lock:
        process = subprocess.Popen(
            [*argv, "--", sys.executable, "-m", "node.inside", str(state.directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            cwd="/",
            start_new_session=True,
            # It holds the images as long as it lives.
            pass_fds=[lock],
        )
    state.pid.write_text(str(process.pid))
    inner = _first_process(process)
    state.pid.write_text(str(inner))
    link = ["ip", "link", "add", state.link, "type", "veth", "peer", "name", INTERFACE, "netns", str(inner)]
    for command in (
        link,
        ["ip", "address", "add", f"{state.host_address}/24", "dev", state.link],
        ["ip", "link", "set", state.link, "up"],
    ):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise NodeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return state


@contextlib.contextmanager
def _lock(images: Path) -> Iterator[int]:
    descriptor = os.open(images.parent / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise NodeError(f"another local node runs with the images in {images}: end it by `make cluster-down`") from None
    finally:
        os.close(descriptor)


def _first_process(process: subprocess.Popen[bytes]) -> int:
    """As this machine numbers it: the only child of `unshare`."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while True:
        if process.poll() is not None:
            raise NodeError("namespaces of its own were refused to the node: see its log")
        found = children.read_text().split()
        # It must have left its parent's network, or the cable would end on this machine.
        if found and Path(f"/proc/{found[0]}/ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino:
            return int(found[0])
        time.sleep(_POLL_S)


def _running(state: State) -> int | None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(state.pid.read_text())
        # A number may be somebody else's by now.
        if str(state.directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def _wait(state: State, what: str, condition: Callable[[], bool]) -> None:
    def check() -> None:
        if _running(state) is None:
            raise NodeError(f"the node ended before {what}:\n{_log_tails(state)}")

    try:
        wait_for(condition, what, _UP_S, check=check)
    except InVainError as error:
        raise NodeError(f"{error}:\n{_log_tails(state)}") from None


def _log_tails(state: State) -> str:
    return "\n".join(
        f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        for log in sorted(state.logs.glob("*.log"))
    )


def _containerd_answers(state: State) -> bool:
    command = ["ctr", "--address", str(state.containerd_socket), "version"]
    return (
        state.containerd_socket.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def _is_ready(cluster: Cluster) -> bool:
    with contextlib.suppress(ControlPlaneError):
        conditions = cluster.get("node", NAME)["status"].get("conditions") or []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return False


def _succeeds(cluster: Cluster, *arguments: str) -> bool:
    with contextlib.suppress(ControlPlaneError):
        cluster.kubectl(*arguments)
        return True
    return False
