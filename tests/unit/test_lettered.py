"""Letters of a sink of cells: which of them count, by the cells of their records; the store is in memory."""

from __future__ import annotations

from dataclasses import replace

from sinkpipeline.cells.letters import Count, counting, key_of
from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict, encode
from sinkpipeline.core.naming import SinkId, SourcePartition
from support.cells import Store

SINK = SinkId("i", "s")


def letter(offset: int, **changes: int) -> DeadLetter:
    record = SourceRecord(
        partition=SourcePartition("orders", 0), offset=offset, key=b"k", value=b"v", headers=None, timestamp=5
    )
    verdict = Verdict(ErrorClass.WRONG_TYPE, "no number")
    return DeadLetter(sink=SINK, verdict=verdict, record=replace(record, **changes))


def test_a_letter_counts_whatever_timestamp_its_record_has() -> None:
    """It is acknowledged before it is counted: an error here would stop the sink at it for ever."""
    found = [letter(at, timestamp=time) for at, time in enumerate((5, -1, -2, -(2**63), 2**63 - 1))]
    puts = counting(Store(), map(encode, found), epoch=3)
    assert puts == {key_of(each): (Count(0, 3).encode(), None) for each in found}
