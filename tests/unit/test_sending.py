"""The sender of rows beside cells, by a publisher that takes them down."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sinkpipeline.cells import sending
from sinkpipeline.cells.sending import CellSender, RowIds
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.core.records import Columns, Row
from support.cells import Store

IDS = RowIds(SinkId("i", "out"), SourcePartition("orders", 3), 2)
WRONG = Verdict(ErrorClass.RECORD_REFUSED, "it can be no message")


class Publisher:
    """`refuses`: the value that the server refuses; `b"wrong"` can be no message."""

    def __init__(self, refuses: bytes = b"") -> None:
        self.refuses = refuses
        self.sent: list[list[str]] = []

    def made(self, row: Row, row_id: str) -> tuple[str, bytes] | Verdict:
        value = row[0] or b""
        return WRONG if value == b"wrong" else (row_id.rpartition("/3/")[2], value)

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        self.sent.append([row_id for row_id, _ in messages])
        for index, (_, value) in enumerate(messages):
            if value == self.refuses:
                raise RecordRefused(WRONG, index=index)


def rows(*values: bytes, offsets: Sequence[int]) -> Columns:
    nothing = [None] * len(values)
    return Columns(values, nothing, [-1] * len(values), [0] * len(values), nothing, lambda: offsets)


def sender(publisher: Publisher) -> CellSender[tuple[str, bytes]]:
    return CellSender(lambda: publisher, IDS, Store(), None)


def test_an_id_is_that_of_the_record_the_epoch_and_the_row() -> None:
    assert list(IDS.of([4, 5, 5, 5, 7])) == [f"i/out/2/orders/3/{each}" for each in ("4", "5", "5/1", "5/2", "7")]


def test_rows_go_when_there_are_enough_of_them_and_the_rest_with_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MOST_AT_ONCE", 3)
    there = Publisher()
    found = sender(there)
    found.send(rows(b"a", b"b", offsets=[0, 1]))
    assert there.sent == []
    found.send(rows(b"c", b"d", offsets=[2, 3]))
    found.send(rows(b"e", offsets=[4]))
    assert there.sent == [["0", "1", "2", "3"]]
    found.flush()
    assert there.sent[1:] == [["4"]]


def test_a_row_that_the_server_refuses_is_counted_from_the_last_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MOST_AT_ONCE", 2)
    found = sender(Publisher(refuses=b"bad"))
    found.send(rows(b"a", b"b", offsets=[0, 1]))
    found.flush()
    found.send(rows(b"c", b"d", offsets=[2, 3]))
    found.send(rows(b"bad", offsets=[4]))
    with pytest.raises(RecordRefused) as refusal:
        found.flush()
    assert (refusal.value.index, refusal.value.open_index) == (None, 2)


def test_of_a_record_with_a_row_that_can_be_no_message_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MOST_AT_ONCE", 1)
    there = Publisher()
    found = sender(there)
    with pytest.raises(RecordRefused) as refusal:
        found.send(rows(b"a", b"wrong", offsets=[0, 0]))
    assert (refusal.value.index, there.sent) == (1, [])
    found.close()
    found.flush()
    assert there.sent == []


def test_a_store_that_is_away_as_the_first_row_comes_is_waited_for() -> None:
    def away() -> Publisher:
        raise SinkPipelineError(Reason.SINK_UNREACHABLE, "away", "wait")

    with pytest.raises(InDoubt) as doubt:
        CellSender(away, IDS, Store(), None).send(rows(b"a", offsets=[0]))
    assert doubt.value.outage is not None
