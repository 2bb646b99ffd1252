"""When a task stops trying, and its sink is told."""

from __future__ import annotations

import pytest

from sinkpipeline.core.troubles import NONE, Troubles


def met(times: list[float]) -> Troubles:
    troubles = NONE
    for now in times:
        troubles = troubles.met(now)
    return troubles


@pytest.mark.parametrize(
    ("times", "outage", "enough"),
    [
        ([100], False, False),
        ([100], True, False),
        ([100, 101, 102, 103, 104], True, False),
        ([100, 101, 102, 103, 104, 105], False, True),
        ([100, 101, 102, 103, 104, 105], True, True),
        ([100, 145], False, False),
        ([100, 145], True, True),
    ],
    ids=["one", "one outage", "five in a moment", "six", "six outages", "two, slowly", "an outage that goes on"],
)
def test_how_often_it_is_tried(times: list[float], outage: bool, enough: bool) -> None:
    assert met(times).are_enough(times[-1], outage=outage) is enough
