"""What is asked of starts and drivers again and again: that they refuse, and that something happens in the middle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.sinks import failpoints
from sinkpipeline.sinks.contract import Restart
from support.waiting import wait_until


def refusal(step: Callable[[], object], reason: Reason) -> SinkPipelineError:
    """The error of a step that must be refused for this reason."""
    with pytest.raises(SinkPipelineError) as caught:
        step()
    assert caught.value.reason is reason, caught.value
    return caught.value


def refusal_soon(step: Callable[[], object], reason: Reason) -> SinkPipelineError:
    """The same of a step that follows a topic: it takes what has arrived and does not wait for what was just written.

    What it meets before that must be for this reason, too.
    """

    def refused() -> SinkPipelineError | None:
        try:
            step()
        except SinkPipelineError as error:
            return error
        return None

    error = wait_until(refused, f"the driver has followed its progress to what was written: {reason.value}")
    assert error is not None
    assert error.reason is reason, error
    return error


def restart_soon(step: Callable[[], object]) -> Restart:
    """The restart that such a step asks for."""

    def restarts() -> Restart | None:
        try:
            step()
        except Restart as restart:
            return restart
        return None

    restart = wait_until(restarts, "the driver has followed its progress to what was written")
    assert restart is not None
    return restart


def once(name: str, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Does something the first time that a start or a reset reaches a failpoint."""
    pending = {name: action}
    monkeypatch.setattr(failpoints, "failpoint", lambda here: pending.pop(here, lambda: None)())
