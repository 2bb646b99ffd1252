"""What is pending: spans, redrive records, ledgers, filters, chunks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.deadletter import DeadLetter, ErrorClass, SourceRecord, Stage, Verdict, encode
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.records import Headers, Row, batch_size
from sinkpipeline.core.redrive import (
    HEADER,
    Foreign,
    Ledger,
    Letter,
    LetterId,
    Outcome,
    RedriveRecord,
    Settled,
    Wanted,
    chunks,
    encode_sentinel,
    encode_spans,
    found_in,
    redrive_of,
    spans,
    spans_of,
)
from support.sink.starts import refusal

SINK = SinkId("shop.orders", "out")
AT = LetterId(0, 1_000)
offsets = st.sets(st.integers(0, 200), max_size=60)


def letter(offset: int = 5, *, error_class: ErrorClass = ErrorClass.WRONG_TYPE, **changes: object) -> DeadLetter:
    record = SourceRecord(
        partition=SourcePartition("t", 0), offset=offset, key=b"k", value=b"v", headers=[("h", b"1")], timestamp=7
    )
    return DeadLetter(**{"sink": SINK, "verdict": Verdict(error_class, "x"), "record": record, **changes})  # type: ignore[arg-type]


def read(row: Row, id_: LetterId = AT) -> Letter | Foreign | RedriveRecord:
    value, key, _, _, headers = row
    return found_in(id_, 9, value, key, headers)


def record(document: object, headers: Headers = None) -> Letter | Foreign | RedriveRecord:
    return found_in(AT, 9, json.dumps(document).encode(), None, headers or [(HEADER, b"1")])


def ledger(rows: Iterable[Row], topic_id: str = "id") -> Ledger:
    found = Ledger(topic_id, 0)
    for row in rows:
        each = read(row)
        assert isinstance(each, RedriveRecord)
        found.apply(each)
    return found


@given(offsets)
def test_spans_hold_what_they_were_made_of(chosen: set[int]) -> None:
    found = spans(sorted(chosen))
    assert {n for first, last in found for n in range(first, last + 1)} == chosen
    assert all(second[0] > first[1] + 1 for first, second in itertools.pairwise(found))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from(["a", "b", None]))))
def test_settled_spans_may_overlap_and_the_last_counts(added: list[tuple[int, int, str | None]]) -> None:
    """None: each of them is pending again."""
    found, expected = Settled(), dict[int, str | None]()
    for one, other, outcome in added:
        first, last = sorted((one, other))
        if outcome is not None:
            found.add((first, last), outcome)
        for offset in range(first, last + 1):
            expected[offset] = outcome
            if outcome is None:
                found.reopen(offset)
    assert {n: found.outcome(n) for n in range(-1, 62)} == {n: expected.get(n) for n in range(-1, 62)}


@given(st.dictionaries(st.integers(0, 900), st.sampled_from(Outcome), min_size=1), st.integers(1_000, 5_000))
def test_what_was_settled_is_read_back_in_records_that_fit(outcomes: dict[int, Outcome], most: int) -> None:
    ordered = dict(sorted(outcomes.items()))
    rows = encode_spans(SINK, "id", "run", spans_of(ordered), partition=3, most_bytes=most)
    found = ledger(rows)
    assert {n: found.outcome(SINK, n) for n in range(901)} == {n: outcomes.get(n) for n in range(901)}
    assert {row[2] for row in rows} == {3}
    assert max(batch_size(row[0], row[1], row[4]) for row in rows) <= most
    assert found.runs(SINK) == {"run"}


def test_records_of_the_longest_names_fit() -> None:
    sink = SinkId("i" * 253, "s" * 63)
    wide = {10**17 * n: Outcome.DELIVERED for n in range(1, 90)}
    rows = encode_spans(sink, "i" * 22, "r" * 36, spans_of(wide), partition=0, most_bytes=2_000)
    assert max(batch_size(row[0], row[1], row[4]) for row in rows) <= 2_000
    assert len(rows) > 1


def test_others_settle_nothing() -> None:
    rows = encode_spans(SINK, "id", "run", spans_of({1: Outcome.DELIVERED}), partition=0, most_bytes=5_000)
    assert ledger(rows).outcome(SINK, 1) == "Delivered"
    assert ledger(rows).outcome(SinkId("shop.orders", "other"), 1) is None
    assert ledger(rows).outcome(SinkId("shop", "out"), 1) is None
    assert ledger(rows, "of another topic").outcome(SINK, 1) is None


def test_a_sentinel_settles_nothing() -> None:
    row = encode_sentinel(SINK, "id", "run", "nonce", 0)
    found = read(row)
    assert isinstance(found, RedriveRecord)
    assert (found.nonce, found.settled) == ("nonce", {})
    assert ledger([row]).runs(SINK) == {"run"}


def test_nobody_else_has_the_ids_of_a_redrive() -> None:
    assert redrive_of(SINK).partition_id(SourcePartition("dlq", 0)) == "sinkpipeline/v1/shop.orders/out.redrive/dlq/0"


def test_a_redrive_record_has_no_key() -> None:
    """A compacted topic refuses it so, instead of keeping only the last one."""
    assert encode_sentinel(SINK, "id", "run", "nonce", 0)[1] is None
    assert encode_spans(SINK, "id", "r", spans_of({1: Outcome.DELIVERED}), partition=0, most_bytes=9_999)[0][1] is None


def test_a_letter_is_found() -> None:
    assert read(encode(letter())) == Letter(AT, 9, letter())


def test_a_letter_of_a_redrive_record_is_a_letter() -> None:
    """A pipeline whose source is a dead-letter topic may have to dead-letter one."""
    own = SourceRecord(
        partition=SourcePartition("t", 0), offset=1, key=None, value=b"{}", headers=[(HEADER, b"2")], timestamp=7
    )
    assert read(encode(letter(record=own))) == Letter(AT, 9, letter(record=own))


@pytest.mark.parametrize(
    "value",
    [None, b"", b"no json", b"[]", b"7", b"{}", b"\xff", b'"version"', pytest.param(b"[" * 100_000, id="too deep")],
)
def test_what_has_only_the_header_is_foreign(value: bytes | None) -> None:
    assert isinstance(found_in(AT, 9, value, None, [(HEADER, b"1")]), Foreign)


def test_what_has_nothing_of_ours_is_foreign() -> None:
    found = found_in(AT, 9, b'{"version":1}', None, None)
    assert isinstance(found, Foreign)
    assert "sinkpipeline.dlq.version" in found.why


GOOD = {"version": 1, "identity": "i", "sink": "s", "topic": "id", "run": "r", "settled": {"Delivered": [[1, 2]]}}


def test_an_outcome_of_a_newer_release_is_settled_all_the_same() -> None:
    found = record({**GOOD, "settled": {"Forwarded": [[1, 2]]}})
    assert isinstance(found, RedriveRecord)
    assert found.settled == {"Forwarded": ((1, 2),)}


def test_another_version_is_refused_and_never_guessed() -> None:
    assert "version 2" in refusal(lambda: record({**GOOD, "version": 2}), Reason.PROGRESS_VERSION_UNKNOWN).message


@pytest.mark.parametrize(
    "wrong",
    [
        {"settled": {"Delivered": [[2, 1]]}},
        {"settled": {"Delivered": [[-1, 1]]}},
        {"settled": {"Delivered": [[1, AT.offset]]}},
        {"settled": {"Delivered": [[1]]}},
        {"settled": {"Delivered": ["12"]}},
        {"settled": [1]},
        {"settled": None},
        {"sink": ""},
        {"identity": None},
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    refusal(lambda: record({**GOOD, **wrong}), Reason.PROGRESS_CORRUPT)


@pytest.mark.parametrize("text", ["", ":", "1:", ":1", "-1:1", "1:-1", "1:1:1", "a:1", "1.0:1", "\u0661:1"])
def test_ids_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no id"):
        LetterId.parse(text)


def test_an_id_is_read_back() -> None:
    assert LetterId.parse(str(AT)) == AT


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ({}, True),
        ({"sinks": frozenset({SinkId("shop.orders", "other")})}, False),
        ({"ids": frozenset({AT})}, True),
        ({"ids": frozenset({LetterId(1, AT.offset)})}, False),
        ({"stages": frozenset({Stage.DECODE})}, True),
        ({"stages": frozenset({Stage.WRITE})}, False),
        ({"classes": frozenset({ErrorClass.WRONG_TYPE, ErrorClass.NULL_VALUE})}, True),
        ({"classes": frozenset({ErrorClass.NULL_VALUE})}, False),
        ({"since": 9}, True),
        ({"since": 10}, False),
        ({"until": 10}, True),
        ({"until": 9}, False),
    ],
)
def test_filters(filters: dict[str, object], matches: bool) -> None:
    wanted = Wanted(**{"sinks": frozenset({SINK}), **filters})  # type: ignore[arg-type]
    assert wanted.matches(Letter(AT, 9, letter())) is matches


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 7))
def test_no_source_offset_is_twice_in_a_chunk(sources: list[int], most: int) -> None:
    letters = [Letter(LetterId(0, n), 9, letter(source)) for n, source in enumerate(sources)]
    found = list(chunks(letters, most=most))
    assert [each for chunk in found for each in chunk] == letters
    for chunk in found:
        assert 0 < len(chunk) <= most
        assert len({each.letter.record.offset for each in chunk}) == len(chunk)


def test_chunks_are_bounded_by_bytes() -> None:
    letters = [Letter(LetterId(0, n), 9, letter(n)) for n in range(6)]
    assert [len(chunk) for chunk in chunks(letters, most_bytes=4)] == [2, 2, 2]
