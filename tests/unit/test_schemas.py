from __future__ import annotations

import random
import uuid
from dataclasses import replace

import pytest

from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.schemas import (
    MAX_MISSING,
    MAX_UNUSABLE,
    MAX_WRITERS,
    PENDING,
    Known,
    Writer,
    guid_of,
    in_turns,
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
    refused = full.no_room(writers(1, MAX_WRITERS))
    assert refused is not None
    assert refused.reason is Reason.TOO_MANY_SCHEMAS
    assert "65 schemas" in refused.message
    assert full.no_room([]) is None


def test_writers_are_learnt_in_the_order_in_which_they_are_needed() -> None:
    needed = writers(MAX_WRITERS + 1)[::-1]
    assert Known().no_room(needed) is None
    assert Known().learnt(needed).writers == tuple(needed[:MAX_WRITERS])


def test_writers_make_room_where_each_row_is_decoded_once() -> None:
    known, later = Known().learnt(writers(MAX_WRITERS)), writers(2, MAX_WRITERS)
    assert known.learnt(later, forgets=True).writers == (*known.writers[2:], *later)
    many = writers(MAX_WRITERS + 1, MAX_WRITERS)
    assert known.learnt(many, forgets=True).writers == tuple(many[:MAX_WRITERS])
    assert Known().learnt(later, forgets=True).writers == tuple(later)


def test_schemas_that_nothing_can_be_decoded_with_hold_nobody_up() -> None:
    unusable = [replace(each, schema="", misfit="it is PROTOBUF") for each in writers(MAX_UNUSABLE + 2)[::-1]]
    known = Known().learnt([], unusable)
    assert known.unusable == tuple(unusable[:MAX_UNUSABLE])
    assert known.no_room(writers(1)) is None
    assert known.learnt([], unusable[MAX_UNUSABLE:]).unusable == tuple(unusable[2:])


def test_ids_that_nobody_has_are_bounded_apart_and_hold_nobody_up() -> None:
    numbers = [number.to_bytes(5, "big") for number in range(MAX_MISSING)]
    full = Known().learnt(missing=numbers)
    assert full.learnt(writers(MAX_WRITERS, MAX_MISSING)).missing == tuple(numbers)
    later = full.learnt(writers(1, MAX_MISSING), missing=[b"\1later"])
    assert later.missing == (*numbers[1:], b"\1later")
    assert [each.frame for each in later.writers] == [writers(1, MAX_MISSING)[0].frame]


def test_so_many_are_asked_for_at_once() -> None:
    numbers = [number.to_bytes(5, "big") for number in range(MAX_MISSING + 2)]
    known = Known().learnt(missing=numbers[:1])
    assert known.to_ask(numbers) == tuple(numbers[1:-1])
    assert known.to_ask(numbers[::-1]) == tuple(numbers[:1:-1])
    assert known.to_ask(numbers[:1]) == ()


def test_what_each_task_needs_first_is_asked_for_first() -> None:
    assert in_turns([[b"z", b"a", b"b"], [], [b"y", b"z"]]) == (b"z", b"y", b"a", b"b")


@pytest.mark.parametrize(("tasks", "records"), [(1, 10_000), (30, 500)])
def test_a_task_goes_on_whatever_its_records_name(tasks: int, records: int) -> None:
    """Values that were never framed, each of which names another schema that nobody has."""
    chance = random.Random(1)
    source = [[b"\0" + chance.randbytes(4) for _ in range(records)] for _ in range(tasks)]
    known, at = Known(), [0] * tasks
    while min(at) < records:
        told = []
        for task, frames in enumerate(source):
            missing, before = known.frames, at[task]
            while at[task] < records and frames[at[task]] in missing:
                at[task] += 1
            assert not missing or at[task] == records or at[task] > before, "it stands where it stood"
            told.append(frames[at[task] : at[task] + 256])
        known = known.learnt(missing=known.to_ask(in_turns(told)))
