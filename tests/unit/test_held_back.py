"""When an open transaction of the source is told of, and what is told."""

from __future__ import annotations

from sinkpipeline.core.held_back import Held, HeldBack, held_back, look
from sinkpipeline.core.naming import SourcePartition

A, B = SourcePartition("a", 0), SourcePartition("a", 1)
SERVERS = "one:9092,two:9092"


def test_nothing_is_held_back_where_readers_get_to_the_high_watermark() -> None:
    assert look({}, {A: 5, B: 0}, {A: 5, B: 0}, 1.0) == {}
    # It was looked at first, and has moved since; or the partition is new.
    assert look({}, {A: 7, B: 3}, {A: 5}, 1.0) == {}
    assert held_back({}, 1.0, SERVERS) == HeldBack(0)


def test_a_transaction_is_as_old_as_the_last_stable_offset_stands_still_below_the_high_watermark() -> None:
    idle = look({}, {A: 5}, {A: 5}, 0.0)
    opened = look(idle, {A: 5}, {A: 6}, 1000.0)
    assert opened == {A: Held(stable=5, offsets=1, since=1000.0)}, "an idle partition is not an old transaction"
    grown = look(opened, {A: 5}, {A: 9}, 1010.0)
    assert grown == {A: Held(stable=5, offsets=4, since=1000.0)}
    assert look(grown, {A: 8}, {A: 9}, 1020.0) == {A: Held(stable=8, offsets=1, since=1020.0)}, "another one"
    assert look(grown, {A: 10}, {A: 10}, 1020.0) == {}


def test_a_short_transaction_is_a_number_and_a_long_one_is_named() -> None:
    held = {A: Held(stable=5, offsets=4, since=0.0), B: Held(stable=7, offsets=2, since=900.0)}
    assert held_back(held, 959.0, SERVERS) == HeldBack(6)
    told = held_back(held, 960.0, SERVERS)
    assert told.offsets == 6
    assert told.open_transaction is not None
    assert told.open_transaction.message == (
        "in partition 0 of a a transaction that began at offset 5 has been open for at least 16 minutes, and holds "
        "back 4 offsets"
    )
    tool = "kafka-transactions.sh --bootstrap-server one:9092,two:9092"
    for command in (
        f"`{tool} describe-producers --topic a --partition 0`",
        f"`{tool} list`",
        f"`{tool} find-hanging --topic a --partition 0`",
        f"`{tool} abort --topic a --partition 0 --start-offset 5`",
    ):
        assert command in told.open_transaction.remedy


def test_of_many_partitions_some_are_named() -> None:
    held = {SourcePartition("a", number): Held(stable=5, offsets=1, since=0.0) for number in range(9)}
    told = held_back(held, 3600.0, SERVERS).open_transaction
    assert told is not None
    assert told.message.count("began at offset") == 3
    assert told.message.endswith("; the same in 6 more partitions")
