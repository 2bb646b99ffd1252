"""Counts by error class: how they add up, what a record and a status may hold, and that nothing else is read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.deadletter import ErrorClass, Stage
from sinkpipeline.core.tally import MAX_CLASSES, UNKNOWN_STAGE, WORD, checked, entries, parse, plus, stage_of, total

words = st.sampled_from([*(each.value for each in ErrorClass), "FromTheFuture", "x"])
tallies = st.dictionaries(words, st.integers(0, 2**60), max_size=5).map(checked)


def test_none_costs_nothing_and_is_no_entry() -> None:
    before = checked({"WrongType": 2})
    assert plus(before, {}) is before
    assert entries((), ()) == []
    assert checked({"WrongType": 0}) == ()


@given(tallies, tallies)
def test_tallies_add_up(one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]) -> None:
    sums = total((one, other))
    assert sums == total((other, one)) == plus(one, dict(other))
    assert dict(sums) == {
        word: dict(one).get(word, 0) + dict(other).get(word, 0) for word in {*dict(one), *dict(other)}
    }
    assert list(sums) == sorted(sums)
    assert 0 not in dict(sums).values()


@given(tallies, tallies)
def test_what_is_told_is_read_back(dead: tuple[tuple[str, int], ...], dropped: tuple[tuple[str, int], ...]) -> None:
    told = entries(dead, dropped)
    assert [each["class"] for each in told] == sorted({*dict(dead), *dict(dropped)})
    assert parse(told) == (dead, dropped)


def test_the_stage_follows_from_the_class_also_from_one_that_is_not_known() -> None:
    stages = {each["class"]: each["stage"] for each in entries(checked({each.value: 1 for each in ErrorClass}), ())}
    assert stages == {each.value: each.stage.value for each in ErrorClass}
    assert {*stages.values()} == {each.value for each in Stage}
    assert stage_of("FromTheFuture") == UNKNOWN_STAGE


def test_what_is_told_is_bounded() -> None:
    assert len(entries(checked({f"Class{number}": 1 for number in range(1000)}), ())) == MAX_CLASSES


def test_every_class_is_a_word() -> None:
    assert all(re.fullmatch(WORD, each.value) for each in ErrorClass)


NO_WORDS = ["", "two words", "Ünknown", "1st", "x" * 65, "a\n"]
NO_COUNTS = [None, -1, 1.5, True, "1"]


@pytest.mark.parametrize(
    "counts", [None, [], "WrongType", *({word: 1} for word in NO_WORDS), *({"WrongType": each} for each in NO_COUNTS)]
)
def test_a_record_holds_classes_and_counts_and_nothing_else(counts: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        checked(counts)


ENTRY = {"class": "WrongType", "stage": "decode", "count": 1, "dropped": 0}


@pytest.mark.parametrize(
    "told",
    [
        None,
        1,
        [None],
        [{key: value for key, value in ENTRY.items() if key != "class"}],
        [{key: value for key, value in ENTRY.items() if key != "dropped"}],
        *([{**ENTRY, "class": word}] for word in NO_WORDS),
        *([{**ENTRY, "count": each}] for each in NO_COUNTS),
    ],
    ids=repr,
)
def test_a_status_holds_entries_and_nothing_else(told: Any) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        parse(told)
