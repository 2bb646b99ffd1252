"""What is asked of starts again and again: that they refuse, and that something happens in the middle of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.sinks import failpoints


def refusal(step: Callable[[], object], reason: Reason) -> SinkPipelineError:
    """The error of a step that must be refused for this reason."""
    with pytest.raises(SinkPipelineError) as caught:
        step()
    assert caught.value.reason is reason, caught.value
    return caught.value


def once(name: str, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Does something the first time that a start or a reset reaches a failpoint."""
    pending = {name: action}
    monkeypatch.setattr(failpoints, "failpoint", lambda here: pending.pop(here, lambda: None)())
