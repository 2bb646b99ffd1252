"""Counts by error class: how they add up, what a record and a status may hold, and that nothing else is read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkpipeline.core.deadletter import ErrorClass, Stage
from sinkpipeline.core.tally import (
    MAX_CLASSES,
    UNKNOWN_STAGE,
    WORD,
    Count,
    Counting,
    Tally,
    checked,
    dead_of,
    dropped_of,
    entries,
    parse,
    plus,
    stage_of,
    total,
)

words = st.sampled_from([*(each.value for each in ErrorClass), "FromTheFuture", "x"])
by_word = st.dictionaries(words, st.integers(0, 2**60), max_size=5)
tallies = st.builds(checked, by_word, by_word)


def test_none_costs_nothing_and_is_no_entry() -> None:
    before = checked({"WrongType": 2})
    assert plus(before, {}) is before
    assert entries(()) == []
    assert checked({"WrongType": 0}, {"NullValue": 0}) == ()


@given(tallies, tallies)
def test_tallies_add_up(one: Tally, other: Tally) -> None:
    sums = total((one, other))
    assert sums == total((other, one)) == plus(one, dict(other))
    for column in (dead_of, dropped_of):
        before, more = column(one), column(other)
        assert column(sums) == {word: before.get(word, 0) + more.get(word, 0) for word in {*before, *more}}
    assert list(sums) == sorted(sums)
    assert all(any(count) for _, count in sums)


def test_what_is_counted_one_by_one() -> None:
    counts = Counting()
    for word, dropped in (("WrongType", False), ("NullValue", True), ("WrongType", True), ("WrongType", False)):
        counts.add(word, dead=not dropped, dropped=dropped)
    assert counts == {"WrongType": Count(2, 1), "NullValue": Count(0, 1)}
    assert (counts.sums, plus((), counts)) == (Count(2, 2), checked({"WrongType": 2}, {"NullValue": 1, "WrongType": 1}))


@given(tallies)
def test_what_is_told_is_read_back(counts: Tally) -> None:
    told = entries(counts)
    assert [each["class"] for each in told] == sorted(word for word, _ in counts)
    assert parse(told) == counts == checked(dead_of(counts), dropped_of(counts))


def test_the_stage_follows_from_the_class_also_from_one_that_is_not_known() -> None:
    stages = {each["class"]: each["stage"] for each in entries(checked({each.value: 1 for each in ErrorClass}))}
    assert stages == {each.value: each.stage.value for each in ErrorClass}
    assert {*stages.values()} == {each.value for each in Stage}
    assert stage_of("FromTheFuture") == UNKNOWN_STAGE


def test_what_is_told_is_bounded() -> None:
    assert len(entries(checked({f"Class{number}": 1 for number in range(1000)}))) == MAX_CLASSES


def test_every_class_is_a_word() -> None:
    assert all(re.fullmatch(WORD, each.value) for each in ErrorClass)


NO_WORDS = ["", "two words", "Ünknown", "1st", "x" * 65, "a\n"]
NO_COUNTS = [None, -1, 1.5, True, "1"]


@pytest.mark.parametrize(
    "counts", [None, [], "WrongType", *({word: 1} for word in NO_WORDS), *({"WrongType": each} for each in NO_COUNTS)]
)
def test_a_record_holds_classes_and_counts_and_nothing_else(counts: object) -> None:
    for both in ((counts, {}), ({}, counts)):
        with pytest.raises((TypeError, ValueError)):
            checked(*both)


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
