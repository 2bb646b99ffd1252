from __future__ import annotations

import uuid

import pytest

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.schemas import (
    MAX_MISSING,
    MAX_WRITERS,
    PENDING,
    Known,
    Writer,
    guid_of,
    name_of,
    number_of,
    pending,
)


def writers(count: int, first: int = 0) -> list[Writer]:
    return [Writer(b"\0" + number.to_bytes(4, "big"), "{}") for number in range(first, first + count)]


def test_a_frame_names_a_schema() -> None:
    guid = uuid.uuid4()
    assert number_of(b"\0\0\0\1\2") == 258
    assert number_of(b"\0" + bytes(7) + b"\7") == 7
    assert number_of(b"\1" + guid.bytes) is None
    assert guid_of(b"\1" + guid.bytes) == str(guid)
    assert (name_of(b"\0\0\0\0\7"), name_of(b"\1" + guid.bytes)) == ("id 7", f"GUID {guid}")


def test_what_is_not_decoded_yet_is_no_error() -> None:
    assert pending(f"{PENDING}000000000A") == b"\0\0\0\0\n"
    assert pending(None) is None
    assert pending(ErrorClass.UNKNOWN_SCHEMA.error("x")) is None
    with pytest.raises(ValueError, match="Pending"):
        ErrorClass(PENDING.partition(":")[0])


def test_what_is_learnt_is_known() -> None:
    known = Known().learnt(writers(2), [Writer(b"\0bad!", "", "it is PROTOBUF")], [b"\0none"])
    assert known.frames == {b"\0\0\0\0\0", b"\0\0\0\0\1", b"\0bad!", b"\0none"}
    assert known.learnt(writers(1, 5)).frames == known.frames | {b"\0\0\0\0\5"}


def test_a_plan_takes_so_many_schemas() -> None:
    full = Known().learnt(writers(MAX_WRITERS))
    for more in (writers(1, MAX_WRITERS), []):
        unusable = [] if more else [Writer(b"\0bad!", "", "it is JSON")]
        with pytest.raises(SinkPipelineError, match="65 schemas") as caught:
            full.learnt(more, unusable)
        assert caught.value.reason is Reason.TOO_MANY_SCHEMAS


def test_ids_that_nobody_has_are_bounded_apart_and_hold_nobody_up() -> None:
    numbers = [number.to_bytes(5, "big") for number in range(MAX_MISSING)]
    full = Known().learnt(missing=numbers)
    assert full.learnt(writers(MAX_WRITERS, MAX_MISSING)).missing == set(numbers)
    assert full.learnt(missing=numbers[:3]).missing == set(numbers)
    later = full.learnt(writers(1, MAX_MISSING), missing=[b"\1later"])
    assert later.missing == {b"\1later"}
    assert [each.frame for each in later.writers] == [writers(1, MAX_MISSING)[0].frame]


def test_so_many_are_asked_for_at_once() -> None:
    numbers = [number.to_bytes(5, "big") for number in range(MAX_MISSING + 2)]
    known = Known().learnt(missing=numbers[:1])
    assert known.to_ask(numbers) == set(numbers[1:-1])
    assert known.to_ask(numbers[:1]) == set()
