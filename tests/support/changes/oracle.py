"""What the server itself says of its changes: by test_decoding, through a slot that nobody else reads."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from support.kafka.topics import Record, read_committed

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
    xid: int
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
            assert line.startswith(("BEGIN", "COMMIT")), line
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
            row.append((plain, int(inner) if kind in _NUMBERS else _short(inner)))
    return tuple(sorted(row)), tuple(unchanged)


def _short(value: Any) -> Any:
    """One that a person can look at."""
    if not isinstance(value, str) or len(value) <= _LONG:
        return value
    return f"{len(value)} characters: {hashlib.sha256(value.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class InTopic:
    """One change as it stands in the topic."""

    told: Told
    place: tuple[int, int, int]
    """LSN, index and half."""
    record: Record = field(repr=False)


def in_topic(servers: str, topic: str) -> list[InTopic]:
    """What consumers see, in the order of the positions; and in each partition in that order."""
    records = read_committed(servers, topic)
    found = [_parsed(record) for record in records]
    for partition in {record.partition for record in records}:
        ours = [
            each.place
            for each in sorted(found, key=lambda each: each.record.offset)
            if each.record.partition == partition
        ]
        assert all(one < two for one, two in pairwise(ours)), "a partition is in the order of commits, each change once"
    return sorted(found, key=lambda each: each.place)


def _parsed(record: Record) -> InTopic:
    document = record.document
    lsn, index, *half = document["pos"]
    high, low = lsn.split("/")
    place = (int(high, 16) << 32 | int(low, 16), index, half[0] if half else 0)
    row = document["after"] if document["op"] in "rcu" else document["before"]
    told = Told(
        document["op"],
        document["table"],
        document["xid"],
        tuple(sorted((name, _short(value)) for name, value in (row or {}).items())),
        tuple(document["unchanged"]),
    )
    assert dict(record.headers)["sinkpipeline.source.position"] is not None
    return InTopic(told, place, record)


def folded(found: Sequence[InTopic]) -> dict[str, list[str]]:
    """By table, the rows that whoever applies each change has at the end, as sorted JSON."""
    tables: dict[str, dict[str, str]] = {}
    bags: dict[str, Counter[str]] = {}
    for each in found:
        document = each.record.document
        name, before, after = document["table"], document["before"], document["after"]
        key = json.dumps(json.loads(each.record.key or b"")["key"], sort_keys=True)
        rows, bag = tables.setdefault(name, {}), bags.setdefault(name, Counter())
        if document["op"] == "t":
            rows.clear()
            bag.clear()
        elif key == "null":
            # Nothing tells its rows apart: each is one of those that are alike.
            if before is not None:
                bag[json.dumps(before, sort_keys=True)] -= 1
            if after is not None:
                bag[json.dumps(after, sort_keys=True)] += 1
        elif after is None:
            rows.pop(key, None)
        else:
            kept = json.loads(rows.get(key, "{}"))
            kept = {column: kept[column] for column in document["unchanged"]}
            rows[key] = json.dumps({**after, **kept}, sort_keys=True)
    for bag in bags.values():
        assert all(count >= 0 for count in bag.values()), "no row is deleted that was not there"
    return {name: sorted([*rows.values(), *bags[name].elements()]) for name, rows in tables.items()}


def check(expected: Sequence[Told], found: Sequence[InTopic]) -> None:
    """That the topic has what the server tells, and nothing twice."""
    places = [each.place for each in found]
    assert len(set(places)) == len(places), "no position is there twice"
    got = [each.told for each in found]
    if got != list(expected):
        at = next((at for at, (one, two) in enumerate(zip(expected, got, strict=False)) if one != two), None)
        where = min(len(got), len(expected)) if at is None else at
        raise AssertionError(
            f"{len(expected)} changes expected, {len(got)} found; at {where}: "
            f"{list(expected)[max(0, where - 1) : where + 2]} and {got[max(0, where - 1) : where + 2]}"
        )
