"""What a change topic has, beside what the server itself says of its changes through a slot that nobody else reads.

By test_decoding's lines and by the documents of the topic; no code of the product. All of it is pure.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

CREATE: Final = "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')"
"""From here on a slot has everything. The stage's must not be there yet, or nobody may write meanwhile."""
PEEK: Final = (
    "SELECT lsn::text, data FROM pg_logical_slot_peek_changes(%s, NULL, NULL, 'include-xids', 'on',"
    " 'skip-empty-xacts', 'on')"
)
"""The lines of a slot, which stay there."""

_LINE = re.compile(
    r'table ("?[\w]+"?\."?[\w]+"?(?:, "?[\w]+"?\."?[\w]+"?)*): (INSERT|UPDATE|DELETE|TRUNCATE):(.*)', re.DOTALL
)
_VALUE = re.compile(r" (\"?\w+\"?)\[([^\]]+(?:\[\])?)\]:('(?:[^']|'')*'|[^ ']+)")
_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_LONG = 40
_NUMBERS = ("integer", "bigint", "smallint")
Row = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Told:
    """One change, as both can tell it."""

    op: str
    table: str
    xid: int | str | None
    """Of its transaction: a number, or a GTID where it has one."""
    row: Row
    """What it is after it, or for a deletion before it; nothing of a truncation."""
    unchanged: tuple[str, ...] = ()


def decoded(lines: Sequence[str]) -> list[Told]:
    """The changes that test_decoding tells (include-xids), in its order."""
    found: list[Told] = []
    xid = 0
    for line in lines:
        if line.startswith("BEGIN"):
            xid = int(line.split()[1])
        matched = _LINE.fullmatch(line)
        if matched is None:
            if not line.startswith(("BEGIN", "COMMIT")):
                raise ValueError(f"a line of test_decoding that is not understood: {line}")
            continue
        table, op, rest = matched.groups()
        if op == "TRUNCATE":
            found += [Told("t", each.replace('"', ""), xid, ()) for each in table.split(", ")]
            continue
        old, _, new = rest.rpartition(" new-tuple:")
        row, unchanged = _row(new if op == "UPDATE" else rest)
        before, _ = _row(old.replace(" old-key:", ""))
        key = dict(before)
        # What an update has not touched is told where the old row is told whole.
        row = tuple(sorted({**{name: key[name] for name in unchanged if name in key}, **dict(row)}.items()))
        unchanged = tuple(name for name in unchanged if name not in key)
        if op == "UPDATE" and before and any(dict(row).get(name) not in (value, None) for name, value in key.items()):
            found += [Told("d", table, xid, before), Told("c", table, xid, row, unchanged)]
        else:
            found.append(Told(_OPS[op], table, xid, row, unchanged))
    return found


def _row(text: str) -> tuple[Row, tuple[str, ...]]:
    row: list[tuple[str, Any]] = []
    unchanged = []
    for name, kind, value in _VALUE.findall(text):
        plain = name.replace('"', "")
        if value == "unchanged-toast-datum":
            unchanged.append(plain)
        elif value == "null":
            row.append((plain, None))
        else:
            inner = value[1:-1].replace("''", "'") if value.startswith("'") else value
            row.append((plain, int(inner) if kind in _NUMBERS else short(inner)))
    return tuple(sorted(row)), tuple(unchanged)


def short(value: Any) -> Any:
    """One that a person can look at."""
    if not isinstance(value, str) or len(value) <= _LONG:
        return value
    return f"{len(value)} characters: {hashlib.sha256(value.encode()).hexdigest()[:12]}"


Place = tuple[int, int, int]
"""Of the transaction, index in it, and half."""


@dataclass(frozen=True)
class Written:
    """One change as it stands in the topic."""

    told: Told
    place: Place
    partition: int
    offset: int


class Comparison(NamedTuple):
    """Of what the topic has with what the server tells."""

    duplicates: int
    missing: int
    foreign: int
    """Those that the server does not tell."""
    disorder: int
    """Those that stand behind a later one in their partition; and, where nothing else is wrong, those at a position
    that is another change's."""


def lsn_of(text: str) -> int:
    """Of an LSN; or of a place in a binary log, which are ordered by file and place in it."""
    if ":" in text:
        file, offset = text.rsplit(":", 1)
        # Of a server that has taken over: how much more its file counts.
        number = sum(map(int, file.rsplit(".", 1)[1].split("+")))
        return number << 32 | int(offset)
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def split(lines: Iterable[tuple[str, str]], at: int) -> tuple[list[Told], list[Told]]:
    """What `PEEK` answers, by transactions: those that were committed up to an LSN, and those behind it."""
    before: list[str] = []
    behind: list[str] = []
    transaction: list[str] = []
    for lsn, line in lines:
        transaction.append(line)
        if line.startswith("COMMIT"):
            # Its LSN is the end of the commit record.
            (behind if lsn_of(lsn) > at else before).extend(transaction)
            transaction = []
    return decoded(before), decoded(behind)


def told_by(document: Mapping[str, Any]) -> Told:
    """A document of the topic, as test_decoding could tell it."""
    row = document["after"] if document["op"] in "rcu" else document["before"]
    return Told(
        document["op"],
        document["table"],
        document["xid"],
        tuple(sorted((name, short(value)) for name, value in (row or {}).items())),
        tuple(document["unchanged"]),
    )


def place_of(document: Mapping[str, Any]) -> Place:
    lsn, index, *half = document["pos"]
    return lsn_of(lsn), index, half[0] if half else 0


def compared(expected: Sequence[Told], found: Sequence[Written]) -> Comparison:
    wanted, got = Counter(expected), Counter(each.told for each in found)
    surplus = got - wanted
    foreign = sum(count for told, count in surplus.items() if told not in wanted)
    at_one_place = len(found) - len({each.place for each in found})
    partitions: dict[int, list[Written]] = {}
    for each in sorted(found, key=lambda each: each.offset):
        partitions.setdefault(each.partition, []).append(each)
    disorder = sum(one.place > two.place for those in partitions.values() for one, two in pairwise(those))
    if wanted == got:
        in_order = sorted(found, key=lambda each: each.place)
        disorder += sum(each.told != told for each, told in zip(in_order, expected, strict=True))
    return Comparison(
        duplicates=max(surplus.total() - foreign, at_one_place),
        missing=(wanted - got).total(),
        foreign=foreign,
        disorder=disorder,
    )
