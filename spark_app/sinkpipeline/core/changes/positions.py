"""Where a change stands in the order in which its source hands out changes.

Each kind of source has a class of its own: positions of one kind are ordered, and those of two kinds never compared.
One rule: a change `c` is in the topic if and only if `c.at < progress.pos`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """As PostgreSQL prints it. In JSON an LSN is a text: it may be beyond 2^53, from where on many readers round."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Raises ValueError."""
    found = _LSN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no LSN")
    return int(found[1], 16) << 32 | int(found[2], 16)


@dataclass(frozen=True, order=True, slots=True)
class LogPosition:
    """Of PostgreSQL: the LSN of a transaction's commit record, and the index of a change in its transaction.

    An LSN alone names no change: all rows of a COPY may have the same one. And transactions come in the order of their
    commits, so that the LSNs of changes go back. Behind a transaction the position is the end of its commit record,
    with index 0: no commit record that comes later begins before it.
    """

    lsn: int
    index: int = 0

    def __post_init__(self) -> None:
        if self.lsn < 0 or self.index < 0:
            raise ValueError(f"({self.lsn}, {self.index}) is no position")

    @override
    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)} ({self.index})"

    def to_record(self) -> list[str | int]:
        """As progress records have it."""
        return [lsn_text(self.lsn), self.index]


Position = LogPosition
"""Of any kind: PostgreSQL's is the only one yet."""

ZERO = LogPosition(0)
"""Before everything."""


def from_record(value: object) -> Position:
    """What `to_record` has made; ValueError if it wasn't."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:  # noqa: PLR2004 - LSN and index
        raise ValueError(f"{value!r} is no position")
    lsn, index = value
    if not isinstance(lsn, str) or not isinstance(index, int) or isinstance(index, bool):
        raise ValueError(f"{value!r} is no position")  # noqa: TRY004 - as any other that is none
    return LogPosition(parse_lsn(lsn), index)
