"""Letters of a sink of cells: which of them count, by the cells of their records; the store is in memory."""

from __future__ import annotations

from dataclasses import replace

from sinkpipeline.cells.lettered import LetteredRecords
from sinkpipeline.cells.letters import Count, counting, key_of
from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Verdict, encode
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.redrive import Ledger, Letter, LetterId, RedriveRecord
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


def settled(*offsets: int) -> dict[str, list[tuple[int, int]]]:
    return {"Delivered": [(at, at) for at in offsets]}


def test_what_a_redrive_has_committed_is_told_unless_its_letters_count() -> None:
    """A letter counts until the commit that has its row: of such a one a server has lost the end."""
    store, ledger, records = Store(), Ledger("id", 0), LetteredRecords(SINK)
    found = [letter(at) for at in range(3)]
    for at, each in enumerate(found):
        records.note(Letter(LetterId(0, at), 9, each), ledger)
    store.put(counting(store, [encode(found[1])], epoch=3))
    assert records.not_told(store, 0, ledger, settled(0, 1, 2, 7)) == {"Delivered": ((0, 0), (2, 2), (7, 7))}
    run = RedriveRecord(sink=SINK, topic_id="id", run="r", settled={"Delivered": ((0, 2),)})
    ledger.apply(run)
    assert records.not_told(store, 0, ledger, settled(0, 1, 2)) == {}
    assert records.reopen(store) == [LetterId(0, 1)]
    assert records.not_told(store, 0, ledger, settled(0, 1, 2)) == {}, "what was reopened stays pending"
