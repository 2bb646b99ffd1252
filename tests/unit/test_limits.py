"""What a topic takes, and how far our clock is believed about it."""

from __future__ import annotations

import pytest

from sinkpipeline.core.limits import Clock, TopicLimits

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"max.message.bytes": "12345"}, {"message_bytes": 12345}),
        ({"max.message.bytes": "1"}, {"message_bytes": 1_000}),
        ({"max.message.bytes": "2147483647"}, {"message_bytes": 1_000_000_000}),
        ({"message.timestamp.before.max.ms": "5"}, {"max_age_ms": 5}),
        ({"message.timestamp.after.max.ms": "5"}, {"max_ahead_ms": 5}),
        ({"message.timestamp.after.max.ms": str(2**63 - 1)}, {}),
        ({"message.timestamp.after.max.ms": "5", "message.timestamp.type": "LogAppendTime"}, {}),
        ({"cleanup.policy": "compact,delete"}, {"needs_key": True}),
    ],
    ids=str,
)
def test_limits_of_a_configuration(config: dict[str, str], expected: dict[str, int]) -> None:
    assert TopicLimits.of(3, config) == TopicLimits(partitions=3, **expected)  # type: ignore[arg-type]


def test_what_was_refused_proves_what_is_further_on_the_same_side() -> None:
    clock = Clock()
    assert not clock.is_proved(HOUR)
    clock = clock.refused(2 * HOUR)
    assert [clock.is_proved(each) for each in (HOUR, 2 * HOUR, 3 * HOUR, -3 * HOUR)] == [False, True, True, False]
    assert clock.is_proved(2 * HOUR - 1_000), "as it comes nearer in a second"
    clock = clock.refused(HOUR).refused(5 * HOUR).refused(-HOUR)
    assert [clock.is_proved(each) for each in (HOUR, -HOUR, -HOUR // 2)] == [True, True, False]
    assert not clock.is_wrong
    assert clock.taken().is_wrong
