"""How positions of a source are ordered, and how far they are apart: what a source says of its positions.

A position is the next record of a source partition that has not been handled. It is an offset today. A later kind of
source has another one, such as a log sequence number with an index, of which neither `<` nor `-` may mean anything. So
nobody else compares positions or reckons with them (tests/contract/test_positions.py). That two are equal, and what
stands in a progress record, everybody may ask.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import lt
from typing import TypeAlias

Position: TypeAlias = int


def is_before(one: Position, other: Position) -> bool:
    """Whether records between them are handled by the other, and not by the one."""
    return one < other


def reaches(position: Position, end: Position) -> bool:
    """Whether everything before the end is handled."""
    return position >= end


def is_within(position: Position, begin: Position, end: Position) -> bool:
    """Whether a reader that may read from `begin` up to `end` can go on there."""
    return begin <= position <= end


def latest(one: Position, other: Position) -> Position:
    """The one that is not before the other."""
    return max(one, other)


def between(begin: Position, end: Position) -> int:
    """How many records there may be from one up to the other; none where that is not behind it."""
    return max(0, end - begin)


def after(position: Position) -> Position:
    """Where one goes on that has handled the record at a position."""
    return position + 1


def ascend(positions: Sequence[Position]) -> bool:
    """Whether each is before the next one."""
    return all(map(lt, positions, positions[1:]))


def index_of(positions: Sequence[Position], position: Position) -> int:
    """Of ascending positions the first one that is not before this one; their number where all of them are."""
    return bisect_left(positions, position)
