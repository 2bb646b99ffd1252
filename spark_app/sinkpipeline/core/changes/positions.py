"""Where a change stands in the order in which its source hands out changes.

Each kind of source has a class of its own: positions of one kind are ordered, and those of two kinds never compared.
One rule: a change `c` is in the topic if and only if `c.at < progress.pos`.

What counts of a position is two numbers: `commit`, by which the transactions of its source are ordered, and `index`, by
which the changes of one are. How they are spelled, and what else is noted with them, is for the kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_RECORD = re.compile(_LSN.pattern + r"\+[1-9][0-9]{0,9}")
_IN_LOG = re.compile(r"([^\x00-\x1f]{1,200})\.([0-9]{6,10})(?:\+([1-9][0-9]{0,9}))?:([0-9]{1,10})")
_BITS = 32
_MOST = (1 << _BITS) - 1
_PARTS = 4
"""Of a position in a record: the place, the index, what is noted, and how many changes of its transaction are there."""


def lsn_text(lsn: int) -> str:
    """As PostgreSQL prints it. In JSON an LSN is a text: it may be beyond 2^53, from where on many readers round."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Raises ValueError."""
    found = _LSN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no LSN")
    return int(found[1], 16) << 32 | int(found[2], 16)


def lsn_bytes(lsn: int) -> bytes:
    """As PostgreSQL sends it."""
    return lsn.to_bytes(8, "big")


def record_text(lsn: bytes, nth: int) -> str:
    """As `LogPosition.note` has it."""
    return f"{lsn_text(int.from_bytes(lsn, 'big'))}+{nth}"


@dataclass(frozen=True, order=True, slots=True)
class LogPosition:
    """Of PostgreSQL: the LSN of a transaction's commit record, and the index of a change in its transaction.

    An LSN alone names no change: all rows of a COPY may have the same one. And transactions come in the order of their
    commits, so that the LSNs of changes go back. Behind a transaction the position is the end of its commit record,
    with index 0: no commit record that comes later begins before it.
    """

    lsn: int
    index: int = 0
    note: str = field(default="", compare=False)
    """Inside a transaction, which WAL record the last change before this came of: `LSN+n`, its nth change; or empty.

    An index counts what a server has sent, and another session of its may send other changes of the same transaction
    where a publication was altered beside it. Records are the same to all of them, and come in their order.
    """

    def __post_init__(self) -> None:
        if self.lsn < 0 or self.index < 0:
            raise ValueError(f"({self.lsn}, {self.index}) is no position")

    @override
    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)} ({self.index})"

    @property
    def commit(self) -> int:
        return self.lsn

    @property
    def place(self) -> str:
        """Of the transaction, as the server spells it."""
        return lsn_text(self.lsn)

    @property
    def inside(self) -> int:
        """Nobody asks: records are the same on each server."""
        return 0

    @property
    def record(self) -> tuple[bytes, int] | None:
        """What `note` says: the LSN, in eight bytes that are ordered as numbers are, and which change of the record."""
        lsn, plus, nth = self.note.partition("+")
        return (lsn_bytes(parse_lsn(lsn)), int(nth)) if plus else None

    def moved(self, commit: int, index: int = 0, note: str = "", inside: int = 0) -> LogPosition:  # noqa: ARG002
        """Another one of the same source; `inside` is of other kinds."""
        return LogPosition(commit, index, note if index else "")

    def to_record(self) -> list[str | int]:
        """As progress records have it."""
        return [self.place, self.index, *([self.note] if self.note else [])]


@dataclass(frozen=True, order=True, slots=True)
class BinlogPosition:
    """Of MariaDB and MySQL: where in its log the GTID event of a transaction stands, and the index of a change in it.

    A file is never changed once it is written, so a place in it names one event as long as the file is there. Who goes
    on inside a transaction begins at its GTID event: behind that, rows come whose tables were told before.

    Behind a transaction the position is where its last event ends, with index 0: no transaction that comes later begins
    before it.

    Where another server has taken over, its files are counted behind those of the former one: `mysql-bin.000002+5:4711`
    is in its file 2, and counts as if that were its file 7.
    """

    commit: int
    """The number of the file, as it counts, and the place in the file, which both have 32 bits."""
    index: int = 0
    log: str = field(default="", compare=False)
    """The name of the files without their numbers: that of one server never changes."""
    note: str = field(default="", compare=False)
    """By what to tell whether the log is still that one, as `noted` makes it; empty: nothing is known."""
    shift: int = field(default=0, compare=False)
    """By how much the number of a file counts more than what is in its name."""
    inside: int = field(default=0, compare=False)
    """Where the index is one inside a transaction: how many changes of it are before that; 0: unknown."""

    def __post_init__(self) -> None:
        if self.commit < 0 or self.index < 0:
            raise ValueError(f"({self.commit}, {self.index}) is no position")

    @property
    def number(self) -> int:
        """In the file's name."""
        return (self.commit >> _BITS) - self.shift

    @property
    def file(self) -> str:
        return binlog_file(self.log, self.number)

    @property
    def offset(self) -> int:
        """In the file."""
        return self.commit & _MOST

    @property
    def place(self) -> str:
        """Of the transaction."""
        return f"{self.file}{f'+{self.shift}' if self.shift else ''}:{self.offset}"

    @property
    def gtids(self) -> str:
        """Of the transaction that is there or ends there, or of all before a first start; of MySQL, its mark."""
        return self.note.partition("@")[0]

    @property
    def noted_in(self) -> int | None:
        """The number of the file that was read as it was noted; None: unknown."""
        number = self._part(1).partition(":")[0]
        return int(number) if number else None

    @property
    def executed(self) -> str:
        """The GTIDs of all that was committed before the transaction that is noted; empty: unknown."""
        return self._part(2)

    @property
    def ahead(self) -> str:
        """Those of them that this server has behind this position: they are passed over."""
        return self._part(3)

    def with_executed(self, executed: str, ahead: str = "") -> BinlogPosition:
        """With what is known of other servers' logs."""
        note = "@".join((self.gtids, self._part(1), executed, ahead)).rstrip("@")
        return replace(self, note=note)

    def _part(self, number: int) -> str:
        parts = self.note.split("@")
        return parts[number] if number < len(parts) else ""

    def is_born(self, number: int, second: int) -> bool:
        """Whether a file of this number can be the one that was read, as it was begun in this Unix second."""
        known, _, born = self._part(1).partition(":")
        return known != str(number) or born == str(second)

    def moved(self, commit: int, index: int = 0, note: str = "", inside: int = 0) -> BinlogPosition:
        """Another one of the same log."""
        return BinlogPosition(commit, index, self.log, note, self.shift, inside if index else 0)

    def commit_at(self, number: int, offset: int) -> int:
        """`commit` of a place in a file of the same log, by the number in its name."""
        return binlog_commit(number + self.shift, offset)

    def shifted(self, shift: int) -> BinlogPosition:
        """A position of which nothing else is known than what the server calls it."""
        commit = binlog_commit(self.number + shift, self.offset)
        return BinlogPosition(commit, self.index, self.log, self.note, shift, self.inside)

    @override
    def __str__(self) -> str:
        return f"{self.place} ({self.index})"

    def to_record(self) -> list[str | int]:
        """As progress records have it."""
        inside = [self.inside] if self.inside else []
        return [self.place, self.index, *([self.note] if self.note or inside else []), *inside]


Position = LogPosition | BinlogPosition
"""Of any kind."""


ZERO = LogPosition(0)
"""Before everything, of PostgreSQL."""


def noted(gtids: str, number: int, born: int | None, executed: str = "", ahead: str = "") -> str:
    """What tells one log from another of the same name: GTIDs, and when a file of it was begun; and what it has.

    GTIDs alone do not: a server that is set up anew by the same steps has the same ones at the same places.

    Args:
        gtids: at the place.
        number: of the file that was read then.
        born: when that was begun, in Unix seconds; None: unknown.
        executed: as `BinlogPosition.executed`.
        ahead: as `BinlogPosition.ahead`.
    """
    return "@".join((gtids, "" if born is None else f"{number}:{born}", executed, ahead)).rstrip("@")


def is_mark(gtids: str) -> bool:
    """Whether what is noted names an event of one file, as of MySQL, and no GTIDs, which mean something in any."""
    return " " in gtids


def binlog_file(log: str, number: int) -> str:
    """As the server names it."""
    return f"{log}.{number:06d}"


def binlog_commit(number: int, offset: int) -> int:
    """`commit` of a place in a file; ValueError where it is beyond what a server has."""
    if not 0 <= offset <= _MOST or not 0 <= number <= _MOST:
        raise ValueError(f"{offset} in file {number} is no place in a binary log")
    return number << _BITS | offset


def parse_binlog(text: str) -> BinlogPosition:
    """Of `FILE:OFFSET`, such as mariadb-bin.000003:4711; ValueError if it isn't."""
    found = _IN_LOG.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no place in a binary log")
    shift = int(found[3] or 0)
    return BinlogPosition(binlog_commit(int(found[2]) + shift, int(found[4])), 0, found[1], shift=shift)


def parse_place(text: str) -> Position:
    """What `place` of any kind has made; ValueError if it wasn't."""
    return parse_binlog(text) if ":" in text else LogPosition(parse_lsn(text))


def is_earlier(one: Position, other: Position) -> bool:
    """Whether it comes before; ValueError if they are of two kinds."""
    if type(one) is not type(other):
        raise ValueError(f"{one} and {other} are of two kinds of sources")
    return (one.commit, one.index) < (other.commit, other.index)


def from_record(value: object) -> Position:
    """What `to_record` has made; ValueError if it wasn't."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) not in range(2, _PARTS + 1):
        raise ValueError(f"{value!r} is no position")
    place, index, *more = value
    inside = more.pop() if len(value) == _PARTS else 0
    note = more[0] if more else ""
    if not (isinstance(place, str) and isinstance(note, str) and all(type(each) is int for each in (index, inside))):
        raise ValueError(f"{value!r} is no position")
    found = parse_place(place)
    if isinstance(found, LogPosition) and (inside or (note and not _RECORD.fullmatch(note))):
        raise ValueError(f"{value!r} is no position")
    return found.moved(found.commit, index, note, inside)
