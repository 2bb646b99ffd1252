"""What tests ask of a change topic, beside what the server itself says: by `readers.changes`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from readers.changes import Row, Told, Written, place_of, told_by
from support.kafka.topics import Record, read_committed


@dataclass(frozen=True)
class InTopic(Written):
    """One change as it stands in the topic."""

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
    assert dict(record.headers)["sinkpipeline.source.position"] is not None
    document = record.document
    return InTopic(told_by(document), place_of(document), record.partition, record.offset, record)


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


def check_rows(history: Sequence[Told], found: Sequence[InTopic]) -> int:
    """That each row that was read beside the stream is what the row was just there; how many rows that are.

    Args:
        history: all that the server tells of the tables since they are there.
        found: what the topic has, in the order of the positions; its stream is the end of that history.
    """
    stream = [each for each in found if each.told.op != "r"]
    before = len(history) - len(stream)
    check(history[before:], stream)
    rows: dict[tuple[str, Any], Row] = {}
    for told in history[:before]:
        _apply(rows, told)
    read = 0
    for each in found:
        if each.told.op != "r":
            _apply(rows, each.told)
            continue
        read += 1
        now = rows.get(_key(each.told))
        assert now == each.told.row, f"{each} was read where the row was {now}"
    return read


def _apply(rows: dict[tuple[str, Any], Row], told: Told) -> None:
    if told.op == "t":
        for key in [key for key in rows if key[0] == told.table]:
            del rows[key]
    elif told.op == "d":
        rows.pop(_key(told), None)
    else:
        rows[_key(told)] = told.row


def _key(told: Told) -> tuple[str, Any]:
    return told.table, dict(told.row)["id"]
