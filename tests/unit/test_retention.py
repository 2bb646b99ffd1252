"""How long a data topic keeps rows, and for which records that is told."""

from __future__ import annotations

import pytest

from sinkpipeline.core.naming import SourcePartition
from sinkpipeline.core.retention import keeps_ms, redriven_too_old, too_old
from sinkpipeline.core.topics import Topic

P0, P1 = SourcePartition("orders", 0), SourcePartition("orders", 1)


def topic(**config: str) -> Topic:
    told = {key.replace("_", "."): value for key, value in config.items()}
    return Topic(name="out", id="", partitions=1, replication_factor=1, config=told)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({}, 604_800_000),
        ({"retention_ms": "1000"}, 1000),
        ({"retention_ms": "-1"}, None),
        ({"cleanup_policy": "compact"}, None),
        ({"cleanup_policy": "compact,delete"}, 604_800_000),
        ({"message_timestamp_type": "LogAppendTime"}, None),
    ],
    ids=str,
)
def test_how_long_a_topic_keeps_rows_by_their_timestamps(config: dict[str, str], kept: int | None) -> None:
    assert keeps_ms(topic(**config)) == kept


def test_only_records_that_will_be_read_are_told() -> None:
    assert list(too_old(topic(), {P0: 5, P1: 0}, {P0: 5, P1: 0})) == []
    assert list(too_old(topic(), {P0: 5}, {P0: 3, P1: 9})) == []
    [told] = too_old(topic(), {P0: 5, P1: 0}, {P0: 6, P1: 9})
    assert "Records before offset 6 of topic orders, partition 0, and of 1 more partitions, are older" in told
    assert list(too_old(topic(retention_ms="-1"), {P0: 5}, {P0: 6})) == []


def test_letters_are_told_whose_rows_would_be_deleted_soon() -> None:
    """By the timestamps of their records; one that has none is not told."""
    now = 1_700_000_000_000
    ages = [0, 604_800_000, 604_800_001, 700_000_000]
    [told] = redriven_too_old(topic(), [*(now - each for each in ages), -1], now)
    assert told.startswith("2 of them are of records that are older than topic out keeps rows, which is 168 h ")
    assert list(redriven_too_old(topic(), [now, -1], now)) == []
    assert list(redriven_too_old(topic(retention_ms="-1"), [0], now)) == []
