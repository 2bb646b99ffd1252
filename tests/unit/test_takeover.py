"""What a start is told that doesn't come through: whose fault it was."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import Fenced, InDoubt
from sinkpipeline.sinks import takeover
from sinkpipeline.sinks.takeover import SinkTakeover
from support.sink.starts import refusal

OUTAGE = SinkPipelineError(Reason.BROKER_UNREACHABLE, "too few replicas", "bring them back")
OTHER = SinkPipelineError(Reason.KAFKA_ERROR, "a disk", "look at it")


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each attempt takes."""
    now, each = [0.0], [0.0]

    def monotonic() -> float:
        now[0] += each[0]
        return now[0]

    monkeypatch.setattr(takeover, "time", SimpleNamespace(monotonic=monotonic, sleep=lambda _: None))
    monkeypatch.setattr(SinkTakeover, "_still_ours", lambda _: None)
    return each


def attempts(trouble: Exception) -> tuple[Callable[[], None], list[int]]:
    made: list[int] = []

    def attempt() -> None:
        made.append(1)
        raise trouble

    return attempt, made


@pytest.mark.parametrize(
    ("trouble", "takes_s", "reason", "count"),
    [
        (Fenced("id"), 0, Reason.FENCED_REPEATEDLY, 5),
        (InDoubt("no answer"), 60, Reason.FENCED_REPEATEDLY, 5),
        (InDoubt("no answer", told=OTHER), 60, Reason.FENCED_REPEATEDLY, 5),
        (InDoubt("no answer", told=OUTAGE), 0, Reason.BROKER_UNREACHABLE, 5),
        (InDoubt("no answer", told=OUTAGE), 45, Reason.BROKER_UNREACHABLE, 2),
    ],
    ids=["fenced", "in doubt", "of another kind", "a short outage", "a long outage"],
)
def test_an_outage_is_told_as_one(
    seconds: list[float], trouble: Exception, takes_s: float, reason: Reason, count: int
) -> None:
    seconds[0] = takes_s
    ports: Any = SimpleNamespace(settings=SimpleNamespace(id="sink"))
    attempt, made = attempts(trouble)
    start = SinkTakeover(ports=ports)
    refusal(lambda: start._repeat(attempt), reason)
    assert len(made) == count
