"""How many records could not be delivered, by error class: counted in progress records, told in the status.

    {"class": "MalformedJson", "stage": "decode", "count": 2, "dropped": 0}      # an entry of `sinks[].deadLetters`

A class is a word here, and no `ErrorClass`: a newer release may have counted some that this one doesn't know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sinkpipeline.core.deadletter import ErrorClass

Tally = tuple[tuple[str, int], ...]
"""Class and count, in the order of the words; no count is 0."""

MAX_CLASSES = 64
"""How many are told: far more than there are, as what is told must be bounded."""
MAX_WORD = 64
WORD = rf"[A-Za-z][A-Za-z0-9]{{0,{MAX_WORD - 1}}}"
"""What any release calls a class."""

UNKNOWN_STAGE = "unknown"


def tally(counts: Mapping[str, int]) -> Tally:
    return tuple(sorted((word, count) for word, count in counts.items() if count))


def plus(before: Tally, more: Mapping[str, int]) -> Tally:
    """Costs nothing where nothing comes to it, as nearly always."""
    return before if not more else total((before, tuple(more.items())))


def total(tallies: Iterable[Tally]) -> Tally:
    sums: dict[str, int] = {}
    for each in tallies:
        for word, count in each:
            sums[word] = sums.get(word, 0) + count
    return tally(sums)


def checked(counts: object) -> Tally:
    """A mapping as a record has it; TypeError or ValueError if it is none of classes and counts."""
    if not isinstance(counts, Mapping):
        raise TypeError(f"{counts!r} does not map classes to counts")
    return tally({_word(word): _count(count) for word, count in counts.items()})


def stage_of(word: str) -> str:
    try:
        return ErrorClass(word).stage.value
    except ValueError:
        return UNKNOWN_STAGE


def entries(dead: Tally, dropped: Tally) -> list[dict[str, Any]]:
    """`sinks[].deadLetters` of the status."""
    letters, drops = dict(dead), dict(dropped)
    return [
        {"class": word, "stage": stage_of(word), "count": letters.get(word, 0), "dropped": drops.get(word, 0)}
        for word in sorted({*letters, *drops})[:MAX_CLASSES]
    ]


def parse(told: Iterable[Mapping[str, Any]]) -> tuple[Tally, Tally]:
    """What `entries` was made of: dead letters and dropped ones; KeyError, TypeError or ValueError if it wasn't."""
    counts = {_word(each["class"]): (_count(each["count"]), _count(each["dropped"])) for each in told}
    return (
        tally({word: count for word, (count, _) in counts.items()}),
        tally({word: dropped for word, (_, dropped) in counts.items()}),
    )


def _word(value: object) -> str:
    if not isinstance(value, str) or re.fullmatch(WORD, value) is None:
        raise ValueError(f"{value!r} is not an error class")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
