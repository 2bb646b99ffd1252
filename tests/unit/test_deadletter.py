"""The envelope of a dead letter: what goes in comes back, and no text can break it."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sinkpipeline.core.deadletter import (
    MAX_REASON_BYTES,
    DeadLetter,
    ErrorClass,
    NotADeadLetter,
    SourceRecord,
    Stage,
    Verdict,
    encode,
    parse,
    reason_of,
)
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.records import Headers, batch_size

any_text = st.text(st.characters(codec=None, exclude_categories=()))
payloads = st.none() | st.binary(max_size=200)
header_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
own_headers = st.lists(
    st.tuples(header_names | st.sampled_from(["sinkpipeline.dlq.version", "sinkpipeline.dlq.reason"]), payloads),
    max_size=4,
)
records = st.builds(
    SourceRecord,
    partition=st.builds(SourcePartition, st.from_regex(r"\A[a-z._-]{1,9}\Z"), st.integers(0, 9999)),
    offset=st.integers(0, 2**62),
    key=payloads,
    value=payloads,
    headers=own_headers.map(lambda headers: headers or None),
    timestamp=st.integers(-(2**63), 2**63 - 1),
)
letters = st.builds(
    DeadLetter,
    sink=st.builds(SinkId, st.from_regex(r"\A[a-z0-9.-]{1,9}\Z"), st.from_regex(r"\A[a-z0-9-]{1,9}\Z")),
    verdict=st.builds(Verdict, st.sampled_from(ErrorClass), any_text, st.sampled_from(["", "MSG_SIZE_TOO_LARGE"])),
    record=records,
    redrives=st.integers(0, 99),
)

LETTER = DeadLetter(
    sink=SinkId("shop.orders", "enriched"),
    verdict=Verdict(ErrorClass.RECORD_TOO_LARGE, "Broker: Message size too large", "MSG_SIZE_TOO_LARGE"),
    record=SourceRecord(
        partition=SourcePartition("orders-raw", 3),
        offset=118,
        key=b"k\xff",
        value=b"\x00v",
        headers=[("h", b"1"), ("h", None)],
        timestamp=1_700_000_000_000,
    ),
)


def test_the_envelope_is_the_one_of_the_contract() -> None:
    value, key, partition, timestamp, headers = encode(LETTER)
    assert (value, key, partition, timestamp) == (b"\x00v", b"k\xff", -1, 0)
    assert headers == [
        ("h", b"1"),
        ("h", None),
        ("sinkpipeline.dlq.version", b"1"),
        ("sinkpipeline.dlq.identity", b"shop.orders"),
        ("sinkpipeline.dlq.sink", b"enriched"),
        ("sinkpipeline.dlq.stage", b"write"),
        ("sinkpipeline.dlq.error.class", b"RecordTooLarge"),
        ("sinkpipeline.dlq.error.code", b"MSG_SIZE_TOO_LARGE"),
        ("sinkpipeline.dlq.reason", b"Broker: Message size too large"),
        ("sinkpipeline.dlq.source.topic", b"orders-raw"),
        ("sinkpipeline.dlq.source.partition", b"3"),
        ("sinkpipeline.dlq.source.offset", b"118"),
        ("sinkpipeline.dlq.source.timestamp", b"1700000000000"),
    ]


def test_how_often_it_was_redriven_stands_behind_all_else() -> None:
    headers = encode(LETTER)[4]
    again = encode(replace(LETTER, redrives=2))[4]
    assert headers is not None
    assert again == [*headers, ("sinkpipeline.dlq.redrives", b"2")]
    for content in (b"x", b"-1", b"\xff"):
        with pytest.raises(NotADeadLetter):
            parse(b"", b"", [*headers, ("sinkpipeline.dlq.redrives", content)])


@given(letters)
def test_a_dead_letter_comes_back(letter: DeadLetter) -> None:
    value, key, _, _, headers = encode(letter)
    assert parse(value, key, headers) == replace(
        letter, verdict=replace(letter.verdict, text=reason_of(letter.verdict.text))
    )


@given(letters, letters)
def test_a_dead_letter_of_a_dead_letter_tells_the_second_one(first: DeadLetter, second: DeadLetter) -> None:
    value, key, _, _, headers = encode(first)
    nested = replace(second, record=replace(second.record, value=value, key=key, headers=headers))
    found = parse(*encode(nested)[:2], encode(nested)[4])
    assert (found.sink, found.record) == (second.sink, nested.record)


@given(letters, st.lists(st.tuples(header_names, payloads), max_size=3))
def test_more_headers_are_passed_over(letter: DeadLetter, more: list[tuple[str, bytes | None]]) -> None:
    value, key, _, _, headers = encode(letter)
    assert headers is not None
    known = parse(value, key, headers)
    assert parse(value, key, [*headers, *more, ("sinkpipeline.dlq.later", b"2")]) == known
    assert parse(value, key, [*headers, ("sinkpipeline.dlq.reason", b"another one's")]) == known


@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("version", b"2", "of version 2, known is 1"),
        ("version", b"\x1b[2J", r"of version \[2J, known"),
        ("version", b"\xff", "not UTF-8"),
        ("version", None, "no sinkpipeline.dlq.version"),
        ("error.class", b"Surprise", "can't be read"),
        ("stage", b"nowhere", "can't be read"),
        ("stage", b"decode", "RecordTooLarge in decode"),
        ("source.offset", b"many", "can't be read"),
        ("source.offset", b"-1", "can't be read"),
        ("source.offset", b"9223372036854775808", "can't be read"),
        ("source.partition", b"2147483648", "can't be read"),
        ("source.timestamp", b"-9223372036854775809", "can't be read"),
        ("source.partition", None, "no sinkpipeline.dlq.source.partition"),
        ("sink", b"a/b", "can't be read"),
        ("identity", b"", "can't be read"),
    ],
)
def test_what_is_no_envelope_is_refused(name: str, content: bytes | None, wrong: str) -> None:
    value, key, _, _, headers = encode(LETTER)
    assert headers is not None
    broken: Headers = [(each, content if each == f"sinkpipeline.dlq.{name}" else old) for each, old in headers]
    with pytest.raises(NotADeadLetter, match=wrong):
        parse(value, key, broken)


@pytest.mark.parametrize("missing", ["version", "identity", "sink", "stage", "error.class", "error.code", "reason"])
def test_an_incomplete_envelope_is_refused(missing: str) -> None:
    value, key, _, _, headers = encode(LETTER)
    with pytest.raises(NotADeadLetter, match=missing):
        parse(value, key, [each for each in headers or [] if each[0] != f"sinkpipeline.dlq.{missing}"])


def test_a_record_without_headers_is_none() -> None:
    with pytest.raises(NotADeadLetter):
        parse(b"v", b"k", None)


def test_of_a_header_s_name_with_a_nul_only_that_is_altered() -> None:
    letter = replace(LETTER, record=replace(LETTER.record, headers=[("a\0b", b"1")]))
    assert (encode(letter)[4] or [])[0] == ("a\N{REPLACEMENT CHARACTER}b", b"1")


# Reasons


@given(any_text)
@example("")
@example("\ud800")
@example("\0\n\r\u2028\u202e")
@example("é" * 300)
@example("a" * 252 + "\N{SNOWMAN}")
@example("a" * 253 + "\N{SNOWMAN}")
def test_any_text_is_a_reason(text: str) -> None:
    reason = reason_of(text)
    assert 1 <= len(reason.encode()) <= MAX_REASON_BYTES
    assert not {unicodedata.category(each) for each in reason} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert reason_of(reason) == reason


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=MAX_REASON_BYTES))
def test_a_harmless_text_stays_as_it_is(text: str) -> None:
    assert reason_of(text) == text


def test_a_cut_is_shown_and_falls_between_characters() -> None:
    assert reason_of("é" * 200) == "é" * 126 + "…"
    assert reason_of("a" + "é" * 200) == "a" + "é" * 125 + "…"
    assert len(reason_of("a" * 256).encode()) == MAX_REASON_BYTES


# Classes


@pytest.mark.parametrize("kind", ErrorClass)
def test_the_class_of_an_error_is_read_back(kind: ErrorClass) -> None:
    verdict = Verdict.of(kind.error("a detail: with a colon"))
    assert (verdict.error_class, verdict.text, verdict.code) == (kind, "a detail: with a colon", "")


def test_an_error_without_a_class_is_refused() -> None:
    with pytest.raises(ValueError, match="Surprise"):
        Verdict.of("Surprise: no such class")


def test_every_stage_has_its_classes() -> None:
    of_stages = {stage: {kind.value for kind in ErrorClass if kind.stage is stage} for stage in Stage}
    assert of_stages == {
        Stage.DECODE: {
            *("NullValue", "InvalidUtf8", "MalformedJson", "WrongType", "MissingField"),
            *("MalformedCsv", "MalformedAvro", "MalformedProtobuf", "NoRow"),
            *("ShortFrame", "WrongMagicByte", "UnknownSchema", "IncompatibleSchema"),
        },
        Stage.TRANSFORM: {"EvaluationFailed", "TooManyRows", "UnavailableValue", "TopicNotDeclared"},
        Stage.SERIALIZE: {"EncodingFailed", "PartitionOutOfRange", "InvalidHeader", "SubjectInvalid"},
        Stage.WRITE: {"RecordTooLarge", "InvalidTimestamp", "RecordRefused"},
    }


# Sizes


@pytest.mark.parametrize(
    ("value", "key", "headers", "size"),
    [
        (None, None, None, 61 + 1 + 6),
        (b"", b"", [], 61 + 1 + 6),
        (b"x" * 63, b"k", None, 61 + 2 + 70),
        (b"x" * 64, b"k", None, 61 + 2 + 72),
        (b"v", None, [("h", b"1"), ("é", None)], 61 + 1 + 3 + 1 + 2 + 1 + 4 + 4),
    ],
)
def test_the_size_of_a_batch_of_one(value: bytes | None, key: bytes | None, headers: Headers, size: int) -> None:
    assert batch_size(value, key, headers) == size
