"""When a verdict on topics is believed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.sinks import looks

LOST, RECREATED, UNREACHABLE = Reason.DATA_TOPIC_LOST, Reason.SOURCE_RECREATED, Reason.BROKER_UNREACHABLE


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    # Not `time.sleep` itself: what other tests have left running would wait by it, too.
    monkeypatch.setattr(looks, "time", SimpleNamespace(sleep=waited.append))
    return waited


def answers(*told: Reason | None) -> Callable[[], str]:
    left = list(told)

    def look() -> str:
        reason = left.pop(0)
        if reason is not None:
            raise SinkPipelineError(reason, f"look {len(told) - len(left)}", "a remedy")
        return f"look {len(told) - len(left)}"

    return look


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        ([None], "look 1"),
        ([LOST, None], "look 2"),
        ([LOST, LOST, None], "look 3"),
        ([LOST, LOST, LOST], LOST),
        ([LOST, RECREATED], Reason.TOPICS_CHANGED),
        ([LOST, UNREACHABLE], UNREACHABLE),
        ([UNREACHABLE], UNREACHABLE),
        ([Reason.PROGRESS_CORRUPT], Reason.PROGRESS_CORRUPT),
    ],
)
def test_a_verdict_needs_several_looks_that_agree(
    waits: list[float], told: list[Reason | None], outcome: Reason | str
) -> None:
    renewed: list[None] = []
    try:
        found: Reason | str = looks.agreed(answers(*told), lambda: renewed.append(None))
    except SinkPipelineError as error:
        found = error.reason
    assert found == outcome
    assert len(renewed) == len(waits) == len(told) - 1


def test_what_is_looked_at_again_is_the_callers_choice() -> None:
    with pytest.raises(SinkPipelineError):
        looks.agreed(answers(LOST, None), lambda: None, looks.VERDICTS - {LOST})
