"""What demo and soak count of a change topic: each thing that can be wrong with it is told by its own number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from readers.changes import Comparison, Told, Written, compared, place_of, split, told_by

NOTHING = Comparison(duplicates=0, missing=0, foreign=0, disorder=0)
LINES = [
    ("0/10", "BEGIN 700"),
    ("0/10", "table public.orders: INSERT: id[bigint]:1 note[text]:'it''s one'"),
    ("0/18", "COMMIT 700"),
    ("0/20", "BEGIN 702"),
    ("0/20", "table public.orders: INSERT: id[bigint]:2 note[text]:null"),
    ("0/28", "table public.orders: UPDATE: id[bigint]:1 note[text]:'one'"),
    ("0/30", "table public.orders: UPDATE: old-key: id[bigint]:2 new-tuple: id[bigint]:3 note[text]:null"),
    ("0/38", "table public.orders: DELETE: id[bigint]:1"),
    ("0/40", "COMMIT 702"),
]


def change(op: str, pos: list[object], before: object, after: object) -> dict[str, object]:
    told = {"op": op, "table": "public.orders", "pos": pos, "xid": 700 if pos[0] == "0/10" else 702}
    return {**told, "before": before, "after": after, "unchanged": []}


TOPIC = [
    change("c", ["0/10", 0], None, {"id": 1, "note": "it's one"}),
    change("c", ["0/38", 0], None, {"id": 2, "note": None}),
    change("u", ["0/38", 1], None, {"id": 1, "note": "one"}),
    change("d", ["0/38", 2, 0], {"id": 2}, None),
    change("c", ["0/38", 2, 1], None, {"id": 3, "note": None}),
    change("d", ["0/38", 3], {"id": 1}, None),
]


def expected() -> list[Told]:
    return split(LINES, 0)[1]


def written() -> list[Written]:
    """Those of one key in one partition."""
    found = []
    for offset, each in enumerate(TOPIC):
        told = told_by(each)
        found.append(Written(told, place_of(each), partition=int(dict(told.row)["id"] == 1), offset=offset))
    return found


def test_what_both_tell_is_the_same() -> None:
    assert [each.told for each in written()] == expected()
    assert compared(expected(), written()) == NOTHING
    assert [len(each) for each in split(LINES, 0x18)] == [1, 5]


def again(found: list[Written]) -> list[Written]:
    return [*found, replace(found[2], offset=7)]


def again_elsewhere(found: list[Written]) -> list[Written]:
    return [*found, replace(found[0], offset=8, place=(0x40, 0, 0))]


def lost(found: list[Written]) -> list[Written]:
    return [*found[:3], *found[4:]]


def strange(found: list[Written]) -> list[Written]:
    return [*found, replace(found[0], told=replace(found[0].told, xid=9), place=(0x50, 0, 0), offset=9)]


def swapped_in_a_partition(found: list[Written]) -> list[Written]:
    return [replace(found[0], offset=2), found[1], replace(found[2], offset=0), *found[3:]]


def swapped_places(found: list[Written]) -> list[Written]:
    """In different partitions, so that no partition shows it."""
    return [found[0], replace(found[1], place=(0x38, 1, 0)), replace(found[2], place=(0x38, 0, 0)), *found[3:]]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        # Behind a later one of its key, too.
        (again, NOTHING._replace(duplicates=1, disorder=1)),
        (again_elsewhere, NOTHING._replace(duplicates=1)),
        (lost, NOTHING._replace(missing=1)),
        (strange, NOTHING._replace(foreign=1)),
        (swapped_in_a_partition, NOTHING._replace(disorder=1)),
        (swapped_places, NOTHING._replace(disorder=2)),
    ],
)
def test_each_difference_is_counted(broken: Callable[[list[Written]], list[Written]], told: Comparison) -> None:
    assert compared(expected(), broken(written())) == told


def test_a_line_that_is_not_understood_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="message"):
        split([("0/10", "BEGIN 1"), ("0/10", "message: transactional"), ("0/18", "COMMIT 1")], 0)
