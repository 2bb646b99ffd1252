"""`python -m cluster up`, `down`, and `run COMMAND...`, which is both around a command: `make e2e`.

`why-not` prints why `make test-all` leaves that out, and nothing where it doesn't.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from typing import Final

from cluster import choice
from cluster.target import Target
from deployed.chart import ChartError
from node.state import NodeError
from node.traces import adopt_orphans, children
from servers.control_plane import ControlPlaneError
from servers.waiting import InVainError, wait_for

_ENDED_S: Final = 10.0


def main() -> None:
    # An end by SIGTERM ends what was brought up, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    match sys.argv[1:]:
        case ["up"]:
            _tell(_up())
        case ["down"]:
            sys.exit(_say(choice.down()))
        case ["run", *command] if command:
            sys.exit(_run(command))
        case ["why-not"]:
            print(choice.why_not() or "")
        case _:
            sys.exit("cluster: say up, down, why-not, or run and a command")


def _up() -> Target:
    begun = time.monotonic()
    try:
        target = choice.up()
    except (ChartError, ControlPlaneError, NodeError) as error:
        sys.exit(f"cluster: {error}")
    print(f"cluster: up after {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return target


def _tell(target: Target) -> None:
    print(f"export KUBECONFIG={target.kubeconfig}")


def _run(command: list[str]) -> int:
    """The command's exit code. What was up before stays up; of the rest nothing may be left."""
    was_up = choice.is_up()
    adopt_orphans()
    left: list[str] = []
    try:
        _up()
        # All that it starts is one run: the first process installs, and the others add to its report.
        environ = os.environ | {"SINKPIPELINE_E2E": uuid.uuid4().hex}
        code = subprocess.run(command, check=False, env=environ).returncode
    finally:
        if not was_up:
            left = [*choice.down(), *_children()]
    return code or _say(left)


def _children() -> list[str]:
    """What the command has left running; who was told to end may take a moment."""
    with contextlib.suppress(InVainError):
        wait_for(lambda: not children(), "nothing runs", _ENDED_S)
    return children()


def _say(left: list[str]) -> int:
    """The exit code."""
    for each in left:
        print(f"cluster: left behind: {each}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    main()
