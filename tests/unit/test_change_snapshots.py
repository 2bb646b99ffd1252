"""What a snapshot says of itself in the progress, how its rows are told, and what is left of one that was given up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.changes.beginning import (
    Identity,
    Seen,
    SlotState,
    check_anew,
    check_copied,
    slot_in_the_way,
)
from sinkpipeline.core.changes.copytext import parse_row
from sinkpipeline.core.changes.pgoutput import Begin, Column, NotUnderstood, Relation
from sinkpipeline.core.changes.positions import LogPosition
from sinkpipeline.core.changes.snapshots import SnapshotMark, before_stream, mark_from_record, stream_start
from sinkpipeline.core.changes.suitable import check_readable
from sinkpipeline.core.changes.values import Writer, is_read, taken_back
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.core.progress_records import decode_partition, encode_partition

KNOWN = Identity(system="7", timeline=1, database="16384", slot="s", publication="16390")
SLOT = SlotState(plugin="pgoutput", database="16384", confirmed=1_000, restart=800, wal_status="reserved")
SEEN = Seen(identity=KNOWN, slot=SLOT, flushed=2_000, forks={})
START = 1_000
AT = LogPosition(START - 1, 17)
WHERE = "PostgreSQL at pg:5432, database shop"
TABLE = Relation(7, "public", 'o"rders', "d", (Column("id", True, 20), Column("note", False, 25)))


def reason_of(check: Any, *arguments: Any, **how: Any) -> Reason | None:
    try:
        check(*arguments, WHERE, **how)
    except SinkPipelineError as error:
        return error.reason
    return None


def slot(**changes: object) -> SlotState:
    return replace(SLOT, **changes)  # type: ignore[arg-type]


@given(st.integers(8, 1 << 60), st.integers(0, 1 << 40))
def test_rows_stand_before_everything_that_the_slot_hands_out(start: int, index: int) -> None:
    first = before_stream(LogPosition(start))
    assert first < LogPosition(start - 1, index + 1) < LogPosition(start, 0)
    assert stream_start(LogPosition(first.lsn, index)) == start


def test_a_mark_stays_what_it_is_in_the_progress() -> None:
    mark = SnapshotMark(table="public.orders", done=2, rows=4711, since=(3, 0, 9))
    state = PartitionProgress(epoch=2, next=8, pos=AT, snapshot=mark)
    assert decode_partition(encode_partition(state), "x") == state
    assert b"snapshot" not in encode_partition(replace(state, snapshot=None))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"table": 1, "done": 0, "rows": 0, "since": []},
        {"table": "a", "done": -1, "rows": 0, "since": []},
        {"table": "a", "done": 0, "rows": True, "since": []},
        {"table": "a", "done": 0, "rows": 0, "since": 4},
        {"table": "a", "done": 0, "rows": 0, "since": [-1]},
    ],
)
def test_what_is_no_mark(wrong: object) -> None:
    with pytest.raises(ValueError, match="no mark"):
        mark_from_record(wrong)
    record = {**json.loads(encode_partition(PartitionProgress(epoch=0, next=0, pos=AT))), "snapshot": wrong}
    with pytest.raises(SinkPipelineError) as caught:
        decode_partition(json.dumps(record).encode(), "x")
    assert caught.value.reason is Reason.PROGRESS_CORRUPT


def read(*rows: list[str | None]) -> list[Any]:
    writer = Writer(lambda _: ())
    writer.relation(TABLE)
    writer.begin(Begin(START - 1, 1_700_000_000_000, 0))
    return [writer.read(7, [*row]) for row in rows]


def test_a_row_that_was_read() -> None:
    first, second = read(["7", 'say "x",\n"before":null,"after":{}'], ["8", None])
    assert json.loads(first.value) == {
        "op": "r",
        "table": 'public.o"rders',
        "pos": ["0/3E7", 0],
        "xid": None,
        "committedAt": 1_700_000_000_000,
        "before": None,
        "after": {"id": 7, "note": 'say "x",\n"before":null,"after":{}'},
        "unchanged": [],
    }
    assert (second.at, second.op) == (LogPosition(START - 1, 1), "r")
    assert is_read(first.value)


def test_a_row_that_is_taken_back() -> None:
    for change in read(["7", '"unchanged":[]}, "before":null,"after":null'], ["8", None]):
        back = taken_back(change.key, change.value, LogPosition(START - 1, 40))
        told, before = json.loads(back.value), json.loads(change.value)
        assert told == {**before, "op": "d", "pos": ["0/3E7", 40], "before": before["after"], "after": None}
        assert (back.key, back.op, back.at, back.table) == (change.key, "d", LogPosition(START - 1, 40), change.table)
        assert not is_read(back.value)


@pytest.mark.parametrize(
    "value", [b'{"op":"c","before":null,"after":{},"unchanged":[]}', b'{"op":"r","after":{}}', b""]
)
def test_what_no_snapshot_has_written(value: bytes) -> None:
    with pytest.raises(NotUnderstood):
        taken_back(b"", value, LogPosition(7))


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


def copied(text: str) -> str:
    """As the server escapes it."""
    for plain, escaped in {
        "\\": "\\\\",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
    }.items():
        text = text.replace(plain, escaped)
    return text


@given(st.lists(st.none() | TEXTS, min_size=1))
def test_a_line_of_a_copy(row: list[str | None]) -> None:
    line = "\t".join("\\N" if each is None else copied(each) for each in row) + "\n"
    assert parse_row(line.encode()) == row


def test_a_line_that_was_cut() -> None:
    with pytest.raises(NotUnderstood):
        parse_row(b"1\ta")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (SLOT, None),
        (None, Reason.SLOT_LOST),
        (slot(wal_status="lost"), Reason.SLOT_LOST),
        (slot(confirmed=1_008), Reason.SOURCE_DATA_LOST),
        (slot(confirmed=992), Reason.SOURCE_DATA_LOST),
        (slot(confirmed=None), Reason.SOURCE_DATA_LOST),
        (slot(plugin="test_decoding"), Reason.SOURCE_RECREATED),
        (slot(database="1"), Reason.SOURCE_RECREATED),
    ],
)
def test_the_slot_of_a_snapshot_that_goes_on(found: SlotState | None, reason: Reason | None) -> None:
    assert reason_of(check_copied, found, KNOWN, START) is reason


@pytest.mark.parametrize(
    ("found", "announced", "reason"),
    [
        (SLOT, True, None),
        (None, True, None),
        (None, False, None),
        (SLOT, False, Reason.SOURCE_UNSUITABLE),
        (slot(wal_status="lost"), True, None),
        (slot(confirmed=None), True, None),
        (slot(plugin="test_decoding"), True, Reason.SOURCE_RECREATED),
        (slot(database="1"), True, Reason.SOURCE_RECREATED),
    ],
)
def test_only_a_slot_of_ours_is_in_the_way(found: SlotState | None, announced: bool, reason: Reason | None) -> None:
    seen = replace(SEEN, slot=found)
    assert reason_of(slot_in_the_way, seen, announced=announced) is reason
    if reason is None:
        assert slot_in_the_way(seen, WHERE, announced=announced) == found


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (SEEN, None),
        (replace(SEEN, slot=None), None),
        (replace(SEEN, flushed=START - 8), Reason.SOURCE_ROLLED_BACK),
        (replace(SEEN, identity=replace(KNOWN, system="8")), Reason.SOURCE_RECREATED),
        (replace(SEEN, identity=replace(KNOWN, publication="")), Reason.PUBLICATION_MISSING),
        (replace(SEEN, identity=replace(KNOWN, timeline=2), forks={1: 900}), Reason.SOURCE_ROLLED_BACK),
        (replace(SEEN, identity=replace(KNOWN, timeline=2), forks={1: 1_500}), None),
    ],
)
def test_a_snapshot_begins_anew_at_the_source_that_it_was_of(seen: Seen, reason: Reason | None) -> None:
    assert reason_of(check_anew, KNOWN, AT, seen) is reason


def test_what_a_role_may_not_read() -> None:
    check_readable({"a": ()}, "cdc", WHERE)
    with pytest.raises(SinkPipelineError) as caught:
        check_readable({"a": (), "public.b": ("x", "y")}, "cdc", WHERE)
    assert caught.value.remedy == 'run GRANT USAGE ON SCHEMA public TO "cdc"; GRANT SELECT ON public.b TO "cdc"'
    with pytest.raises(SinkPipelineError) as caught:
        check_readable({'"a.b"".c".d': ("x",)}, "cdc", WHERE)
    assert 'ON SCHEMA "a.b"".c" TO' in caught.value.remedy
