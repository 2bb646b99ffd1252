from __future__ import annotations

import pytest

from sinkpipeline.core.failure import FailurePolicy, Failures, Health, fetch_patience_s

POLICY = FailurePolicy(max_consecutive_failures=3, initial_backoff_s=5, max_backoff_s=300, reset_after_s=600)


def after(*healthy_s: float) -> Failures:
    failures = Failures()
    for seconds in healthy_s:
        failures = failures.after_failure(POLICY, Health.of(seconds))
    return failures


@pytest.mark.parametrize(
    ("failures", "backoff"), [(1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (100, 300), (100_000, 300)]
)
def test_backoff_doubles_up_to_the_maximum(failures: int, backoff: float) -> None:
    assert POLICY.backoff_s(failures) == backoff


@pytest.mark.parametrize(
    ("healthy_s", "consecutive"),
    [
        ((), 0),
        ((0,), 1),
        ((1_000_000,), 1),
        ((0, 0, 0), 3),
        ((0, 599, 599), 3),
        ((0, 600), 1),
        ((0, 0, 600, 0), 2),
    ],
)
def test_only_health_clears_failures(healthy_s: tuple[float, ...], consecutive: int) -> None:
    assert after(*healthy_s).consecutive == consecutive


def test_a_start_is_healthy_until_it_last_showed() -> None:
    assert not Health().was_seen
    once = Health().seen_at(7)
    assert (once.was_seen, once.seconds) == (True, 0)
    assert once.seen_at(9).seen_at(20).seconds == 13


def test_an_outage_delays_and_opens_no_circuit() -> None:
    failures, waits = after(0, 0), []
    for _ in range(9):
        failures = failures.after_failure(POLICY, Health(), counted=False)
        waits.append(failures.backoff_s(POLICY))
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert not failures.circuit_is_open(POLICY)
    assert failures.after_failure(POLICY, Health()).circuit_is_open(POLICY), "what was counted before still counts"


def test_the_next_outage_begins_with_the_first_backoff() -> None:
    failures = Failures()
    for healthy_s in (0, 0, 1):
        failures = failures.after_failure(POLICY, Health.of(healthy_s), counted=False)
    assert failures.backoff_s(POLICY) == 5
    assert after(0).backoff_s(POLICY) == 5


def test_circuit_opens_at_the_maximum() -> None:
    opened = [after(*range(count)).circuit_is_open(POLICY) for count in range(5)]
    assert opened == [False, False, False, True, True]


def test_defaults_are_those_of_the_design() -> None:
    assert FailurePolicy() == FailurePolicy(
        max_consecutive_failures=5, initial_backoff_s=5, max_backoff_s=300, reset_after_s=600
    )


def test_a_query_waits_longer_than_brokers_do_by_order_and_twice_as_long_as_in_vain() -> None:
    waits: list[float] = [fetch_patience_s(0.5)]
    for _ in range(6):
        waits.append(fetch_patience_s(0.5, waits[-1]))
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    assert (fetch_patience_s(30), fetch_patience_s(30, 35), fetch_patience_s(600, 605)) == (35, 70, 605)
