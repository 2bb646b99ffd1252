"""The commands that change `spec.suspend`: `suspend`, `resume`, `restart`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from sinkpipeline_operator.plugin.failure import Failure
from sinkpipeline_operator.plugin.options import NAME, TIMEOUT, WAIT, reaching
from sinkpipeline_operator.plugin.say import say

if TYPE_CHECKING:
    from sinkpipeline_operator.plugin.work import Work


@click.command()
@NAME
@WAIT
@TIMEOUT
@reaching
def suspend(work: Work, name: str, timeout: float, *, wait: bool) -> None:
    """Stop the driver after its running batch; progress stays."""
    changed = work.suspend(name, suspend=True)
    say(f"sinkpipeline/{name} {'suspended' if changed else 'was suspended already'}")
    if wait:
        work.wait(name, _is_suspended, timeout, "has not stopped")
        say("its driver has ended")


@click.command()
@NAME
@WAIT
@TIMEOUT
@reaching
def resume(work: Work, name: str, timeout: float, *, wait: bool) -> None:
    """Start the driver of a suspended pipeline."""
    changed = work.suspend(name, suspend=False)
    say(f"sinkpipeline/{name} {'resumed' if changed else 'was not suspended'}")
    if wait:
        work.wait(name, _is_ready, timeout, "is not ready")
        say("it is ready")


@click.command()
@NAME
@WAIT
@TIMEOUT
@reaching
def restart(work: Work, name: str, timeout: float, *, wait: bool) -> None:
    """Stop the driver, and start it again.

    Earlier failures are forgotten: open circuits close, and failures are counted from 0.
    """
    if not work.suspend(name, suspend=True):
        raise Failure("Suspended", f"{name} is suspended, so nothing runs", f"`kubectl sinkpipeline resume {name}`")
    say("stopping the driver after its running batch", err=True)
    try:
        work.wait(name, _is_suspended, timeout, "has not stopped")
    finally:
        # Whatever happens to this command, nobody wanted it suspended.
        work.suspend(name, suspend=False)
    say(f"sinkpipeline/{name} restarted")
    if wait:
        work.wait(name, _is_ready, timeout, "is not ready")
        say("it is ready")


def _is_suspended(status: Mapping[str, Any]) -> bool:
    return status.get("phase") == "Suspended"


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
