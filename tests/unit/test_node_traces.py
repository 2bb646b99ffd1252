"""What a node leaves on this machine is found; neither a node nor root is needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from node import traces
from node.traces import Machine, changes
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nodes run on Linux only")

BEFORE = Machine(
    links=("eth0", "lo"),
    mounts=("/", "/proc"),
    filters=("table inet theirs",),
    groups=(),
    settings={"vm/panic_on_oom": "0", "net/ipv4/conf/gone/forwarding": "1"},
)
LEFT = {
    "the network device sinkpipeline1": replace(BEFORE, links=("eth0", "lo", "sinkpipeline1")),
    "the mount /run/netns/cni": replace(BEFORE, mounts=("/", "/proc", "/run/netns/cni")),
    "the table of packet filters table ip kube-proxy": replace(BEFORE, filters=("table ip kube-proxy",)),
    "the control group sinkpipeline-1": replace(BEFORE, groups=("sinkpipeline-1",)),
    "the setting vm/panic_on_oom: 0 before, 1 now": replace(BEFORE, settings={"vm/panic_on_oom": "1"}),
}


@pytest.mark.parametrize("words", LEFT)
def test_what_is_left_is_named(words: str) -> None:
    assert changes(BEFORE, LEFT[words]) == [words]


def test_nothing_is_left_of_a_machine_that_is_as_it_was(tmp_path: Path) -> None:
    BEFORE.save(tmp_path / "before.json")
    assert changes(Machine.load(tmp_path / "before.json"), BEFORE) == []
    # What others have taken away meanwhile is not ours.
    assert changes(BEFORE, replace(BEFORE, links=("lo",), settings={})) == []
    here = Machine.look()
    assert "lo" in here.links
    assert here.settings["vm/panic_on_oom"]


def test_a_process_that_a_command_leaves_running_is_found() -> None:
    """And one that it has ended is not; in a process of its own, which is the orphans' parent from then on."""
    program = (
        "import subprocess, time; from node.traces import adopt_orphans, children\n"
        "adopt_orphans()\n"
        "subprocess.run(['sh', '-c', 'sleep 0 & sleep 60 >/dev/null & echo $!'])\n"
        "while len(children()) > 1: time.sleep(0.05)\n"
        "print(children(), flush=True); input()"
    )
    dev = Path(__file__).parents[2] / "dev"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(dev)},
    ) as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        try:
            assert process.stdout.readline() == f"['the process {left}: sleep 60']\n"
        finally:
            subprocess.run(["kill", str(left)], check=True)
            process.communicate("\n")
    wait_until(lambda: not Path(f"/proc/{left}").exists(), "it is gone", 30)


def test_elsewhere_than_on_linux_there_is_no_adoption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of kind runs on macOS, too, whose C library has no prctl."""
    monkeypatch.setattr(traces.sys, "platform", "darwin")
    monkeypatch.setattr(traces.ctypes, "CDLL", None)
    traces.adopt_orphans()
