"""Names and rows of NATS, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.cells.records import PartitionCell, decode_cell, encode_cell
from sinkpipeline.cells.torn import Left, as_left
from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.redrive import redrive_of
from sinkpipeline.nats.client import Message
from sinkpipeline.nats.rows import RowPlace
from sinkpipeline.nats.stream import StreamInfo
from sinkpipeline.nats.subjects import cell_of, cells_of, key_of, matches, why_no_subject

PARTS = st.text("ab.-*>% /é", min_size=1, max_size=8).map(lambda text: text.replace("/", "_"))


@given(identity=PARTS, sink=st.from_regex(r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z"), topic=PARTS, number=st.integers(0, 99))
def test_each_cell_has_a_subject_of_its_own_below_that_of_its_sink(
    identity: str, sink: str, topic: str, number: int
) -> None:
    own, partition = SinkId(identity, sink), SourcePartition(topic, number)
    redrive = redrive_of(own)
    keys = [
        *(own.meta_key, own.partition_key(partition), own.letter_key(partition, number, "w")),
        *(redrive.meta_key, redrive.partition_key(partition)),
    ]
    subjects = {key: cell_of("_p.q", key) for key in keys}
    assert len(set(subjects.values())) == len(keys)
    for key, subject in subjects.items():
        assert key_of("_p.q", subject) == key
        assert why_no_subject(subject) is None
        assert matches(f"{cells_of('_p.q', own.prefix)}.>", subject)
    assert matches(f"{cells_of('_p.q', redrive.prefix)}.>", subjects[redrive.partition_key(partition)])
    assert not matches(f"{cells_of('_p.q', redrive.prefix)}.>", subjects[own.partition_key(partition)])
    assert matches(f"{cells_of('_p.q', own.letters_prefix)}.>", subjects[own.letter_key(partition, number, "w")])


PLACE = RowPlace(
    StreamInfo("S", "id", {"subjects": ["a.>", "b"], "max_msg_size": 1_000}, {}), "a.default", "a._p", 10_000
)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            (b"v", None, [("h", b"x"), ("i", None), ("j", "y")]),
            Message("a.default", b"v", {"h": "x", "i": "", "j": "y"}),
        ),
        ((None, b"a.x", None), Message("a.x", b"", {})),
        ((b"v", b"", None), ErrorClass.SUBJECT_INVALID),
        ((b"v", b"\xff", None), ErrorClass.SUBJECT_INVALID),
        ((b"v", b"c", None), ErrorClass.SUBJECT_INVALID),
        *(((b"v", each, None), ErrorClass.SUBJECT_INVALID) for each in (b"a.*", b"a.>", b"a x", b"a..b", b"a.\n")),
        ((b"v", b"a._p.v1", None), ErrorClass.SUBJECT_INVALID),
        *(((b"v", None, [(each, b"")]), ErrorClass.INVALID_HEADER) for each in ("", "a b", "a:b", "é", "nats-ttl")),
        ((b"v", None, [("Sinkpipeline-Behind", b"9")]), ErrorClass.INVALID_HEADER),
        ((b"v", None, [("Nats-Rollup", b"all")]), ErrorClass.INVALID_HEADER),
        ((b"v", None, [("a", b"1"), ("a", b"2")]), ErrorClass.INVALID_HEADER),
        *(((b"v", None, [("a", each)]), ErrorClass.INVALID_HEADER) for each in (b"x\r\ny", b"\n", b"\xff")),
        ((b"v" * 1_000, None, None), ErrorClass.RECORD_TOO_LARGE),
        ((b"v", None, [("a", b"x" * 1_000)]), ErrorClass.RECORD_TOO_LARGE),
    ],
)
def test_a_row_is_a_message_or_why_not(row: tuple[Any, ...], expected: Any) -> None:
    value, key, headers = row
    found = PLACE.message((value, key, -1, 0, headers))
    assert (found.error_class if isinstance(found, Verdict) else found) == expected
    if isinstance(found, Verdict):
        assert "xxx" not in found.text, "never contents of the record"


def test_headers_are_no_more_than_a_message_may_have() -> None:
    """A server refuses them only with the whole batch, which would be tried again for ever."""
    place = RowPlace(StreamInfo("S", "id", {"subjects": ["a"]}, {}), "a", "a._p", 1_000_000)
    assert isinstance(place.message((b"v" * 100_000, None, -1, 0, [("a", b"x" * 60_000)])), Message)
    found = place.message((b"v", None, -1, 0, [("a", b"x" * 40_000), ("b", b"x" * 40_000)]))
    assert isinstance(found, Verdict)
    assert found.error_class is ErrorClass.RECORD_TOO_LARGE


@pytest.mark.parametrize(("left", "expected"), [(Left(0, None), (10, 5)), (Left(3, 14), (15, 8))])
def test_a_torn_cell_says_what_is_left(left: Left, expected: tuple[int, int]) -> None:
    def cell(claim: str, next_: int, rows: int) -> bytes:
        progress = PartitionProgress(epoch=2, next=next_, rows=rows, dead=1, at=7)
        return encode_cell(PartitionCell(run="r", claim=claim, progress=progress))

    found = decode_cell(as_left(cell("new", 20, 9), cell("old", 10, 5), left, "w"), "w")
    assert found.progress is not None
    assert (found.progress.next, found.progress.rows) == expected
    assert (found.run, found.claim, found.progress.epoch, found.progress.dead) == ("r", "new", 2, 1)
