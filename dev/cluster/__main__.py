"""`python -m cluster up`, `down`, and `run COMMAND...`, which is both around a command: `make e2e`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from cluster import choice
from cluster.target import Target
from deployed.chart import ChartError
from node.state import NodeError
from servers.control_plane import ControlPlaneError


def main() -> None:
    # An end by SIGTERM ends what was brought up, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    match sys.argv[1:]:
        case ["up"]:
            _tell(_up())
        case ["down"]:
            choice.down()
        case ["run", *command] if command:
            sys.exit(_run(command))
        case _:
            sys.exit("cluster: say up, down, or run and a command")


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
    """The command's exit code. What was up before stays up."""
    was_up = choice.is_up()
    try:
        _up()
        return subprocess.run(command, check=False).returncode
    finally:
        if not was_up:
            choice.down()


if __name__ == "__main__":
    main()
