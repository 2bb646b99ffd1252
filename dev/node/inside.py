"""The first process of a node: it has namespaces of its own for processes, mounts and the network.

`python -m node.inside STATE` mounts what programs would otherwise leave on this machine, starts them, starts again what
ended, and reaps what is left to it. When it ends, however that happens, the kernel ends all that runs in the node, and
its mounts, addresses and packet filters are gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from node.cgroups import make_cgroup
from node.programs import Program, programs
from node.state import INTERFACE, NAME, SERVICES, State

POLL_S: Final = 0.1
RESTART_S: Final = 1.0
STOP_S: Final = 8.0

# What the kubelet sets for the whole machine and nobody puts back: here it writes into files of its own.
_SYSCTLS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main() -> None:
    state = State.load(Path(sys.argv[1]))
    prepare_mounts(state)
    make_cgroup(state.cgroup)
    prepare_network(state)
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    supervisor = Supervisor(state)
    while not ends:
        supervisor.look()
        time.sleep(POLL_S)
    supervisor.stop()


class Supervisor:
    """Keeps programs running but those that have a file in `state.stopped`: so a test stops and starts one."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._programs = {each.name: each for each in programs(state)}
        self._pids: dict[int, str] = {}
        self._not_before: dict[str, float] = {}

    def look(self) -> None:
        self._reap()
        running = set(self._pids.values())
        for name, program in self._programs.items():
            wanted = not (self._state.stopped / name).exists()
            if name in running and not wanted:
                self._signal(name, signal.SIGTERM)
            elif name not in running and wanted and self._may_start(program):
                self._start(program)

    def _may_start(self, program: Program) -> bool:
        if time.monotonic() < self._not_before.get(program.name, 0.0):
            return False
        return program.after is None or program.after()

    def stop(self) -> None:
        """containerd's images outlive the node: it closes their database."""
        self._signal("containerd", signal.SIGTERM)
        ends = time.monotonic() + STOP_S
        while "containerd" in self._pids.values() and time.monotonic() < ends:
            self._reap()
            time.sleep(POLL_S)

    def _start(self, program: Program) -> None:
        log = self._state.logs / f"{program.name}.log"
        with log.open("ab") as output:
            actions = [
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            ]
            pid = os.posix_spawn(program.argv[0], [*program.argv], os.environ, file_actions=actions)
        self._pids[pid] = program.name
        self._not_before[program.name] = time.monotonic() + RESTART_S

    def _signal(self, name: str, number: int) -> None:
        for pid, running in self._pids.items():
            if running == name:
                os.kill(pid, number)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._pids.pop(pid, None)


def prepare_mounts(state: State) -> None:
    # Nothing goes back to the machine's own mounts: `unshare` saw to it. Kubelets need shared ones.
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    _run("mount", "--bind", state.made("log"), "/var/log")
    upper, work = (state.made(name) for name in ("var-lib", "var-lib-work"))
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/var/lib,upperdir={upper},workdir={work}", "/var/lib")
    hosts = state.directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{state.address} {NAME}\n")
    # Nobody is asked about the world outside.
    resolver = state.directory / "resolv.conf"
    resolver.write_text(f"nameserver {state.address}\n")
    for path, target in ((hosts, "/etc/hosts"), (resolver, str(Path("/etc/resolv.conf").resolve()))):
        if Path(target).exists():
            _run("mount", "--bind", str(path), target)
    for name, value in _SYSCTLS.items():
        setting, ours = Path("/proc/sys", name), Path(state.made("sysctl"), name.replace("/", "."))
        if setting.exists():
            ours.write_text(f"{value}\n")
            _run("mount", "--bind", str(ours), str(setting))


def prepare_network(state: State) -> None:
    _run("ip", "link", "set", "lo", "up")
    while subprocess.run(["ip", "link", "show", INTERFACE], capture_output=True, check=False).returncode != 0:
        time.sleep(POLL_S)
    _run("ip", "address", "add", f"{state.address}/24", "dev", INTERFACE)
    _run("ip", "link", "set", INTERFACE, "up")
    # The API server asks webhooks by the addresses of Services, which become those of pods only on a way that exists.
    _run("ip", "route", "add", SERVICES, "dev", INTERFACE, "src", state.address)
    for name in ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"):
        path = Path("/proc/sys", name)
        if path.exists():
            path.write_text("1\n")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    main()
