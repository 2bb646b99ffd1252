"""How many records could not be delivered, by error class: counted in progress records, told in the status.

    {"class": "MalformedJson", "stage": "decode", "count": 2, "dropped": 0}      # an entry of `sinks[].deadLetters`

A class is a word here, and no `ErrorClass`: a newer release may have counted some that this one doesn't know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sinkpipeline.core.deadletter import ErrorClass


class Count(NamedTuple):
    """How many records of a class could not be delivered, by what became of them."""

    dead: int = 0
    """Dead letters."""
    dropped: int = 0


Tally = tuple[tuple[str, Count], ...]
"""Class and count, in the order of the words; nothing is counted that is 0."""

MAX_CLASSES = 64
"""How many are told: far more than there are, as what is told must be bounded."""
MAX_WORD = 64
WORD = rf"[A-Za-z][A-Za-z0-9]{{0,{MAX_WORD - 1}}}"
"""What any release calls a class."""

UNKNOWN_STAGE = "unknown"


class Counting(dict[str, Count]):
    """Counts that grow."""

    def add(self, word: str, *, dead: int = 0, dropped: int = 0) -> None:
        before = self.get(word, Count())
        self[word] = Count(before.dead + dead, before.dropped + dropped)

    @property
    def sums(self) -> Count:
        """Of all classes."""
        return Count(sum(each.dead for each in self.values()), sum(each.dropped for each in self.values()))


def tally(counts: Mapping[str, Count]) -> Tally:
    return tuple(sorted((word, count) for word, count in counts.items() if any(count)))


def plus(before: Tally, more: Mapping[str, Count]) -> Tally:
    """Costs nothing where nothing comes to it, as nearly always."""
    return before if not more else total((before, tuple(more.items())))


def total(tallies: Iterable[Tally]) -> Tally:
    sums = Counting()
    for each in tallies:
        for word, count in each:
            sums.add(word, **count._asdict())
    return tally(sums)


def checked(dead: object, dropped: object = MappingProxyType({})) -> Tally:
    """Two mappings as a record has them; TypeError or ValueError if they are none of classes and counts."""
    sums = Counting()
    for counts, name in ((dead, "dead"), (dropped, "dropped")):
        if not isinstance(counts, Mapping):
            raise TypeError(f"{counts!r} does not map classes to counts")
        for word, count in counts.items():
            sums.add(_word(word), **{name: _count(count)})
    return tally(sums)


def dead_of(counts: Tally) -> dict[str, int]:
    """By class, as a record has them."""
    return {word: count.dead for word, count in counts if count.dead}


def dropped_of(counts: Tally) -> dict[str, int]:
    """Likewise."""
    return {word: count.dropped for word, count in counts if count.dropped}


def stage_of(word: str) -> str:
    try:
        return ErrorClass(word).stage.value
    except ValueError:
        return UNKNOWN_STAGE


def entries(counts: Tally) -> list[dict[str, Any]]:
    """`sinks[].deadLetters` of the status."""
    return [
        {"class": word, "stage": stage_of(word), "count": count.dead, "dropped": count.dropped}
        for word, count in counts[:MAX_CLASSES]
    ]


def parse(told: Iterable[Mapping[str, Any]]) -> Tally:
    """What `entries` was made of; KeyError, TypeError or ValueError if it wasn't."""
    return tally({_word(each["class"]): Count(_count(each["count"]), _count(each["dropped"])) for each in told})


def _word(value: object) -> str:
    if not isinstance(value, str) or re.fullmatch(WORD, value) is None:
        raise ValueError(f"{value!r} is not an error class")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
