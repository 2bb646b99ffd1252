"""Sets of GTIDs: by what transactions are known on each server that has them.

What a stage has of one server it has of its replicas too, by these names. So they tell where to go on in the log of a
server that has taken over, although each log has its own places.

Source: MySQL's documentation, "GTID Format and Storage", MariaDB's, "Global Transaction ID", and what servers of each
have answered.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Protocol

from typing_extensions import Self, override

MOST_TEXT = 16_384
"""Characters of a set that is noted with each position."""

ANYBODY = 0
"""In place of a server of MariaDB."""
NONE = "0"
"""A set that is known to be empty, as text."""

_SPAN = re.compile(r"([1-9][0-9]*)(?:-([1-9][0-9]*))?")
_SOURCE = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_OF_DOMAIN = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)")


class Gtids(Protocol):
    """Of one kind of server. It can be changed, and belongs to who has made it."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """As a server of the kind spells it; ValueError if it doesn't."""

    @override
    def __str__(self) -> str: ...

    def copy(self) -> Self: ...

    def has(self, gtid: str) -> bool:
        """Whether it is there."""

    def add(self, gtid: str) -> None:
        """It is committed, behind all that are here."""

    def join(self, other: Self) -> None:
        """Adds all of another one."""

    def lacks(self, other: Self) -> Self:
        """What another one has, and this one has not."""

    @property
    def is_empty(self) -> bool: ...

    def meet(self, gtid: str) -> bool:
        """Of what is to be passed over: whether this one is, which then is not expected again."""


class MysqlGtids(Gtids):
    """Intervals of numbers, by who has committed them and by tag."""

    def __init__(self, spans: Mapping[str, list[tuple[int, int]]] | None = None) -> None:
        """`spans`: by `uuid` or `uuid:tag`, the first and the last number of each interval, ascending, with gaps."""
        self._spans: dict[str, list[tuple[int, int]]] = {key: list(each) for key, each in (spans or {}).items()}
        self._texts: dict[str, str] = {}
        """Of those that were spelled since they were changed: each transaction changes one."""

    @classmethod
    @override
    def parse(cls, text: str) -> Self:
        found = cls()
        for source in _parts(text):
            uuid, *parts = source.split(":")
            if _SOURCE.fullmatch(uuid) is None or not parts:
                raise ValueError(f"{source!r} are no GTIDs of MySQL")
            key = uuid.lower()
            for part in parts:
                span = _SPAN.fullmatch(part.strip())
                if span is not None:
                    found.put(key, int(span[1]), int(span[2] or span[1]))
                elif _TAG.fullmatch(part.strip()) is not None:
                    key = f"{uuid.lower()}:{part.strip()}"
                else:
                    raise ValueError(f"{source!r} are no GTIDs of MySQL")
        return found

    @override
    def __str__(self) -> str:
        for key in self._spans.keys() - self._texts.keys():
            each = self._spans[key]
            self._texts[key] = ":".join([key, *(f"{a}-{b}" if a < b else str(a) for a, b in each)])
        return ",".join(self._texts[key] for key in sorted(self._texts)) or NONE

    @override
    def copy(self) -> Self:
        return type(self)(self._spans)

    def put(self, key: str, first: int, last: int) -> None:
        """All numbers from the first to the last."""
        if first > last:
            raise ValueError(f"{first}-{last} is no interval")
        spans = self._spans.setdefault(key, [])
        begin = bisect_right(spans, (first - 1, -1))
        # The one before may reach to it, or end right before it.
        if begin and spans[begin - 1][1] >= first - 1:
            begin -= 1
        end = begin
        while end < len(spans) and spans[end][0] <= last + 1:
            first, last = min(first, spans[end][0]), max(last, spans[end][1])
            end += 1
        spans[begin:end] = [(first, last)]
        self._texts.pop(key, None)

    @override
    def add(self, gtid: str) -> None:
        key, number = _named(gtid)
        self.put(key, number, number)

    @override
    def join(self, other: Self) -> None:
        for key, spans in other.items():
            for first, last in spans:
                self.put(key, first, last)

    @override
    def has(self, gtid: str) -> bool:
        key, number = _named(gtid)
        spans = self._spans.get(key, [])
        at = bisect_right(spans, (number, 1 << 64)) - 1
        return at >= 0 and spans[at][1] >= number

    @override
    def lacks(self, other: Self) -> Self:
        found = type(self)()
        for key, spans in other.items():
            for first, last in spans:
                begin = first
                for here, there in self._spans.get(key, []):
                    if there < begin or here > last:
                        continue
                    if here > begin:
                        found.put(key, begin, here - 1)
                    begin = there + 1
                if begin <= last:
                    found.put(key, begin, last)
        return found

    def items(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """By source and tag."""
        yield from self._spans.items()

    @property
    @override
    def is_empty(self) -> bool:
        return not self._spans

    @override
    def meet(self, gtid: str) -> bool:
        if not self.has(gtid):
            return False
        key, number = _named(gtid)
        one = type(self)({key: [(number, number)]})
        self._spans = dict(one.lacks(self).items())
        self._texts.clear()
        return True


class MariadbGtids(Gtids):
    """The newest one of each domain and of each server that has written there, as `gtid_binlog_state` has it.

    What one server writes in a domain has ascending numbers. Those of two servers need not, with gtid_strict_mode off.
    A server that was made of a backup knows only which one was the newest of a domain: that is written as of server 0,
    which no server has, and stands for all up to its number, whoever has written them.
    """

    def __init__(self, newest: Mapping[tuple[int, int], int] | None = None) -> None:
        """`newest`: by domain and server, the number."""
        self._newest = dict(newest or {})

    @classmethod
    @override
    def parse(cls, text: str) -> Self:
        found = cls()
        for each in _parts(text.strip("[] ")):
            found.add(each)
        return found

    @override
    def __str__(self) -> str:
        told = (f"{domain}-{server}-{number}" for (domain, server), number in sorted(self._newest.items()))
        return ",".join(told) or NONE

    @override
    def copy(self) -> Self:
        return type(self)(self._newest)

    @override
    def add(self, gtid: str) -> None:
        domain, server, number = _of_domain(gtid)
        self._newest[domain, server] = max(number, self._newest.get((domain, server), 0))

    @override
    def join(self, other: Self) -> None:
        for at, number in other.items():
            self._newest[at] = max(number, self._newest.get(at, 0))

    @override
    def lacks(self, other: Self) -> Self:
        return type(self)({at: number for at, number in other.items() if self._upto(*at) < number})

    @override
    def has(self, gtid: str) -> bool:
        domain, server, number = _of_domain(gtid)
        return number <= self._upto(domain, server)

    def _upto(self, domain: int, server: int) -> int:
        return max(self._newest.get(at, -1) for at in ((domain, server), (domain, ANYBODY)))

    def items(self) -> Iterator[tuple[tuple[int, int], int]]:
        """By domain and server."""
        yield from self._newest.items()

    def newest_of(self, domain: int) -> int | None:
        """The highest number in a domain; None where there is none."""
        return max((number for (each, _), number in self._newest.items() if each == domain), default=None)

    @property
    def domains(self) -> frozenset[int]:
        return frozenset(domain for domain, _ in self._newest)

    @property
    @override
    def is_empty(self) -> bool:
        return not self._newest

    @override
    def meet(self, gtid: str) -> bool:
        domain, server, number = _of_domain(gtid)
        is_expected = number <= self._upto(domain, server)
        for at in ((domain, server), (domain, ANYBODY)):
            # Nothing of it comes any more that is to be passed over.
            if number >= self._newest.get(at, number + 1):
                del self._newest[at]
        return is_expected


def domain_of(gtid: str) -> tuple[int, int]:
    """Of one of MariaDB: the domain, and the number."""
    domain, _, number = _of_domain(gtid)
    return domain, number


def _parts(text: str) -> Iterator[str]:
    return (each for each in map(str.strip, text.split(",")) if each not in ("", NONE))


def _named(gtid: str) -> tuple[str, int]:
    key, _, number = gtid.rpartition(":")
    return key.lower(), int(number)


def _of_domain(gtid: str) -> tuple[int, int, int]:
    found = _OF_DOMAIN.fullmatch(gtid)
    if found is None:
        raise ValueError(f"{gtid!r} is no GTID of MariaDB")
    return int(found[1]), int(found[2]), int(found[3])
