from __future__ import annotations

import pytest

from sinkpipeline.core.failure import FailurePolicy, Failures

POLICY = FailurePolicy(max_consecutive_failures=3, initial_backoff_s=5, max_backoff_s=300, reset_after_s=600)


def after(*times: float) -> Failures:
    failures = Failures()
    for time in times:
        failures = failures.after_failure(POLICY, time)
    return failures


@pytest.mark.parametrize(
    ("failures", "backoff"), [(1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (100, 300), (100_000, 300)]
)
def test_backoff_doubles_up_to_the_maximum(failures: int, backoff: float) -> None:
    assert POLICY.backoff_s(failures) == backoff


@pytest.mark.parametrize(
    ("times", "consecutive"),
    [
        ((), 0),
        ((0,), 1),
        ((1_000_000,), 1),
        ((0, 1, 2), 3),
        ((0, 599, 1198), 3),
        ((0, 600), 1),
        ((0, 1, 601), 1),
        ((0, 1, 601, 602), 2),
    ],
)
def test_only_health_clears_failures(times: tuple[float, ...], consecutive: int) -> None:
    failures = after(*times)
    assert failures.consecutive == consecutive
    assert failures.last == (times[-1] if times else None)


def test_circuit_opens_at_the_maximum() -> None:
    opened = [after(*range(count)).circuit_is_open(POLICY) for count in range(5)]
    assert opened == [False, False, False, True, True]


def test_defaults_are_those_of_the_design() -> None:
    assert FailurePolicy() == FailurePolicy(
        max_consecutive_failures=5, initial_backoff_s=5, max_backoff_s=300, reset_after_s=600
    )
